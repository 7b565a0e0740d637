"""What a path tells about a file: host, rank, snapshot, time. Names only; no file is opened."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """What a name told; None is "not said"."""

    host: str | None = None
    rank: int | None = None
    snapshot: int | None = None
    taken_at: float | None = None


# Folder names that say what lies in them, not where it came from.
_GENERIC = frozenset(
    """
    a after all analysis archive archives artifacts attachments b backup bad baseline before bench benchmark
    benchmarks broken bundle bundles capture captures case cases cgroup cgroups cgtop client clock cluster cmd cmds
    collect collected collector command commands compute config configs container containers cpu current data debug
    diag diagnose diagnostics dmesg dmidecode docs downloads driver dump dumps end env error errors etc ethtool
    evidence fabric fabric-manager facts file files first fr gids good gpu gpus hang hardware hca healthy home host
    hosts ib ibstat incident infiniband info input inputs inspect interconnect issue job jobs journal journald k8s
    kernel kube kubernetes latest left lldp local log logs lspci machine machines master mellanox messages metrics
    misc mlx5 mnt module monitoring mpi nccl net netdev network networks new nfs nic nics node nodes numa nvidia
    nvidia-smi nvlink old opt other out output outputs overlay pci pcie perf pod pods post pre proc processes ptp
    pytorch pytorchjob qos rack racks ranks raw ray rdma report reports results roce root run runs samples scratch
    second server servers shm sick site slurm snapshot snapshots sosreport srv stacks start stderr stdout storage
    support switch switches sys sysfs system test tests text ticket time tmp tools topo topology torch trace traces
    train trainer training txt user users usr var varlog work worker workers workspace x
    """.split()  # noqa: SIM905 - a list of one word a line would be 190 lines
)
_RUN_LIKE = re.compile(
    r"(?:run|job|attempt|try|trial|exp|experiment|step|iter|epoch|version|rank|local_rank|snapshot|snap|sample|test|case"
    r"|ticket|incident|issue|slurm|task|part|round|pass|dump|bundle|diagnose|day|week|seed|ckpt|checkpoint|release)"
    r"[-_.]?\d[\w.-]*"
    r"|v\d+(?:\.\d+)*|t\d{1,3}"
    r"|\d[\d_.:T-]*Z?"  # numbers, dates, times
    r"|(?=[0-9a-f]*\d)[0-9a-f]{8,64}"  # hex ids
    r"|[a-z]+[-_.]?\d{4}-?\d\d-?\d\d[\w.:-]*"  # word and date
)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9-]{1,62}){0,6}")
_SOSREPORT = re.compile(r"sosreport-([A-Za-z][\w-]*?)-(?:\d{5,}-)?\d{4}-\d\d-\d\d")
_ARCHIVE_END = re.compile(r"\.(?:tar|tgz|tbz2?|txz|zip|gz|bz2|xz)$", re.I)
_INTERFACE = re.compile(
    r"(?:eth|ib|bond|mlx[45]_|mlx[45]_bond_|hsn|bnxt_re|irdma|efa_?|rdmap?|roce|docker|br|cni|flannel\.?|vxlan\.?|tunl|wlan|hfi1_|team"
    r"|genev|tun|tap|wg|virbr|dummy|gpu_nic|pf|vf|lan|ptp|rail|prio|priority|port|roce_?p|uverbs|umad|nvme)\d+"
    r"(?:np\d+|[a-z]\d+|[._@]\d+)*"
    r"|en(?:[osx]|p\d+s)\w*\d\w*|ibp\d+s\w+|ibs\d\w*|rocep\d+s\w+|rdmap\d+s\w+|veth\w+|cali\w+|lxc\w+|lo\d*"
)
_MODEL = re.compile(
    r"(?:dgx[-_]?|hgx[-_]?)?(?:a(?:10|10g|30|40|100|800)|h(?:20|100|200|800)|b(?:100|200|300)|l(?:4|40|40s)|v100|t4|g[bh](?:200|300)"
    r"|mi\d{3}x?|rtx\d+|cx[-_]?\d|bf[-_]?\d)(?:[-_]?(?:x\d|\d+gb|sxm\d?|pcie|nvl\d*))*",
    re.I,
)
_WORKER = re.compile(
    r"(?:rank|local_?rank|worker|pid|task|proc|process|part|run|job|step|iter|attempt|try|test|exp|epoch|seed|t|v|r|p|cuda"
    r"|version|snapshot|snap|node_?rank|nranks?|np|ranks)[-_]?\d+"
)

_RANK = re.compile(r"(?:(?:^|[^A-Za-z])(?<!local[_-])(?:global_?)?rank[._-]?|^_?dump_)(\d{1,6})(?!\d)", re.I)
_T_SNAPSHOT = re.compile(r"(?:^|[._-])[tT](\d{1,3})(?=[._-]|$)")
_WORD_SNAPSHOT = re.compile(r"(?:^|[._-])(before|after|pre|post|start|end|first|second)(?=[._-]|$)", re.I)
_WORDS = {"before": 0, "pre": 0, "start": 0, "first": 0, "after": 1, "post": 1, "end": 1, "second": 1}
_NUMBERED = re.compile(r"(.*[^\d.])\.(\d{1,2})((?:\.(?:txt|csv|json|out|xml|prom))+)$", re.I)
_NUMBERED_DEVICE = re.compile(r"(?:flannel|vxlan|geneve|vlan)$", re.I)

_STAMP = re.compile(
    r"(?<!\d)(20[1-4]\d)-?([01]\d)-?([0-3]\d)[T_.-]?([0-2]\d)[:_.-]?([0-5]\d)(?:[:_.-]?([0-6]\d))?(?:[.,]\d+)?Z?(?!\d)"
)
_EPOCH = re.compile(r"(?<![\d.])(1[6-9]\d{8}|2[01]\d{8})(?![\d])")

_TOOL = (
    r"dmesg(?:-T)?|kmsg|journal(?:ctl)?(?:-k)?|syslog|messages|nccl(?:[-_.]?(?:debug|log|out))?|ethtool(?:-[A-Za-z])?"
    r"|nvidia-smi(?:-[\w]+)*|lspci(?:-v+)?|ibstat|ibv_devinfo|cgtop|systemd-cgtop|chronyc?(?:-(?:tracking|sources))?|ntpq|mlnx_qos"
    r"|rdma(?:-link)?|numactl(?:-H)?|ip-(?:link|addr|route)|sysctl|train(?:ing)?|torch|torchrun|pytorch|worker|slurm|stdout|stderr"
    r"|py-?spy|stacks?|ras|ncclras|ptp4l|phc2sys|top|ps|env|lscpu|lldp(?:ctl)?|perfquery|hw_counters|counters"
    r"|fabricmanager"
)
_WITH_DIGIT = r"(?P<host>[A-Za-z][A-Za-z0-9-]*\d[A-Za-z0-9-]*?)"
_TOOL_HOST = re.compile(rf"(?:{_TOOL})[._-]{_WITH_DIGIT}(?:[._-]\d{{2,9}})?", re.I)
_HOST_TOOL = re.compile(rf"{_WITH_DIGIT}[._-](?:{_TOOL})(?:[._-]\d{{1,9}})?", re.I)
_NCCL_DEBUG = re.compile(r"nccl(?:[-_.]?(?:debug|log|info))?[._-](?P<host>[A-Za-z][A-Za-z0-9-]*)[._-]\d{2,9}", re.I)
_ENDINGS = re.compile(r"(?:\.(?:txt|log|out|err|csv|json|xml|gz|xz|bz2|zip|tgz|tar|jsonl|prom))+$", re.I)


def names_host(part: str) -> str | None:
    """The host that a folder or archive name stands for, or None for names such as logs, run-3 or 2026-11-24."""
    part = strip_archive_endings(part)
    m = _SOSREPORT.match(part)
    if m:
        return m.group(1)
    word = part.lower()
    if word in _GENERIC or _RUN_LIKE.fullmatch(word) or not _HOST.fullmatch(part):
        return None
    if all(piece in _GENERIC or piece.isdigit() for piece in re.split(r"[-_.]", word)):
        return None
    if _interface_like(word) or _MODEL.fullmatch(word) or _T_SNAPSHOT.fullmatch(word) or _STAMP.search(word):
        return None
    return part


def shelves(folders: Iterable[Sequence[str]]) -> set[tuple[str, ...]]:
    """Folders that hold the folders of several hosts (or of one and the job) and so are no host themselves."""
    children: dict[tuple[str, ...], set[str]] = {}
    for parts in folders:
        for depth in range(1, len(parts)):
            children.setdefault(tuple(parts[:depth]), set()).add(parts[depth])
    found: set[tuple[str, ...]] = set()
    for folder, names in children.items():
        hosts = [name for name in names if names_host(name)]
        shapes = [re.sub(r"\d+", "0", strip_archive_endings(name)) for name in hosts]
        if len(shapes) > len(set(shapes)) or (hosts and "job" in names):
            found.add(folder)
    return found


def strip_archive_endings(name: str) -> str:
    """`gpu07.tar.gz` as `gpu07`."""
    while True:
        shorter = _ARCHIVE_END.sub("", name)
        if shorter == name or not shorter:
            return name
        name = shorter


def _interface_like(word: str) -> bool:
    return _INTERFACE.fullmatch(word) is not None


def origin_of(folders: Sequence[str], name: str, known_hosts: Iterable[str] = ()) -> Origin:
    """What the folders (outermost first) and the file name tell."""
    stem = _ENDINGS.sub("", name)
    host = next((found for found in map(names_host, folders) if found), None)
    if host is None:
        host = _host_in_name(stem, known_hosts)
    rank = _last_int(_RANK, stem)
    if rank is None:
        ranks = [r for r in (_last_int(_RANK, folder) for folder in folders) if r is not None]
        rank = ranks[-1] if ranks else None
    snapshot = _snapshot(stem)
    if snapshot is None:
        told = [s for s in (_folder_snapshot(folder) for folder in folders) if s is not None]
        snapshot = told[-1] if told else None
    at = time_in(stem)
    if at is None:
        at = next((t for t in map(time_in, reversed(folders)) if t is not None), None)
    return Origin(host, rank, snapshot, at)


def _last_int(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None


def _snapshot(stem: str) -> int | None:
    number = _last_int(_T_SNAPSHOT, stem)
    if number is not None:
        return number
    words = _WORD_SNAPSHOT.findall(stem)
    return _WORDS[words[-1].lower()] if words else None


def _folder_snapshot(folder: str) -> int | None:
    m = re.fullmatch(r"(?:t|snap(?:shot)?[-_.]?)(\d{1,3})", folder, re.I)
    if m:
        return int(m.group(1))
    return _WORDS.get(folder.lower())


def _host_in_name(stem: str, known_hosts: Iterable[str]) -> str | None:
    tokens = set(re.split(r"[._]", stem)) | {stem}
    named = [host for host in known_hosts if host in tokens or _bounded(host, stem)]
    if named:
        return max(named, key=len)
    m = _NCCL_DEBUG.fullmatch(stem)
    if m and _could_be_host(m.group("host"), digits=False):
        return m.group("host")
    for pattern in (_TOOL_HOST, _HOST_TOOL):
        m = pattern.fullmatch(stem)
        if m and _could_be_host(m.group("host")):
            return m.group("host")
    return None


def _bounded(host: str, stem: str) -> bool:
    at = stem.find(host)
    if at < 0 or len(host) < 3:
        return False
    before, after = stem[at - 1 : at], stem[at + len(host) : at + len(host) + 1]
    return not (before.isalnum() or after.isalnum())


def _could_be_host(word: str, digits: bool = True) -> bool:
    low = word.lower()
    if digits and not any(c.isdigit() for c in word):
        return False
    if low in _GENERIC or _interface_like(low) or _MODEL.fullmatch(low) or _WORKER.fullmatch(low):
        return False
    return not (_RUN_LIKE.fullmatch(low) or any(_WORKER.fullmatch(piece) for piece in low.split("-")[-1:]))


def time_in(text: str) -> float | None:
    """A time stamp in a name as epoch seconds (read as UTC), or None. Dates without a time do not count."""
    m = _STAMP.search(text)
    if m:
        year, month, day, hour, minute = (int(g) for g in m.groups()[:5])
        if 1 <= month <= 12 and 1 <= day <= 31 and hour < 24:
            return float(calendar.timegm((year, month, day, hour, minute, int(m.group(6) or 0))))
    m = _EPOCH.search(text)
    return float(m.group(1)) if m else None


def numbered(path: str) -> tuple[str, int] | None:
    """`host/ib-counters.2.txt` as (`host/ib-counters.txt`, 2): a snapshot when its siblings are numbered too."""
    m = _NUMBERED.fullmatch(path)
    if m is None or _NUMBERED_DEVICE.search(m.group(1)):
        return None
    return m.group(1) + m.group(3), int(m.group(2))
