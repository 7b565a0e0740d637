"""Which names belong to a site and which to the world: domains, families and lists of hosts, accounts, repositories."""

import re
from typing import Dict, Iterable, List, Optional, Set, Tuple

MAX_EXPANDED = 20_000

NAME = r"([A-Za-z][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,62}){0,6})"
PUBLIC_DOMAINS = frozenset(
    """
    pytorch.org nvidia.com nvidia.cn nvcr.io ngc.nvidia.com mellanox.com github.com github.io githubusercontent.com
    gitlab.com bitbucket.org pypi.org pythonhosted.org python.org huggingface.co hf.co hf.space wandb.ai wandb.com
    docker.io docker.com quay.io ghcr.io gcr.io k8s.io kubernetes.io kernel.org ubuntu.com debian.org redhat.com
    fedoraproject.org centos.org rockylinux.org almalinux.org suse.com opensuse.org anaconda.com anaconda.org
    conda-forge.org apache.org schedmd.com open-mpi.org openucx.org openfabrics.org intel.com amd.com broadcom.com
    cisco.com arista.com amazonaws.com amazon.com google.com googleapis.com golang.org microsoft.com azure.com
    windows.net readthedocs.io readthedocs.org stackoverflow.com openai.com gnu.org ietf.org w3.org json-schema.org
    linuxfoundation.org freedesktop.org tensorflow.org ray.io lightning.ai mlflow.org slurm.net ntp.org
    compute.internal ec2.internal
    """.split()
)
"""Domains (as `base_domain` has them) that tell nothing of a site."""
_SECOND = frozenset("ac co com edu gov go mil ne net nom or org".split())
_ENDINGS = frozenset(
    """
    com org net edu gov mil int info biz cloud dev app tech tools systems network science software institute academy
    university group company team online site xyz internal intranet intra lan local corp home private example test
    invalid cluster
    """.split()
)
_FILE_ENDINGS = frozenset("py so sh md gz rs cc ml".split())
# Prefixes that devices and counts have too; hosts of such names need two digits or more, and their exact case.
_DEVICES = frozenset("gpu node nic hca cpu dev socket switch port link tpu npu".split())
_COUNTED = frozenset(
    """
    rank step epoch cuda eth ib mlx nvme core lane bond en eno ens enp hsn ibp mem numa pid task thread iter ckpt shard
    stage layer block batch sm cx rev utf sha md python libnccl v
    """.split()
)
CANDIDATE = re.compile(r"(?<![\w.-])[A-Za-z][A-Za-z-]{0,40}\d[A-Za-z0-9-]{0,40}(?![\w-])")
"""Words that may be host names of a known family."""
UPPER_DEVICE = re.compile(r"(?:GPU|NIC|CPU|HCA|NODE)-?\d+\Z")

MAIL = re.compile(r"(?<![\w.%+@/-])([A-Za-z][\w.+-]{0,63})@" + NAME + r"(?![\w@])")
_TRACKED = r"\bwandb: [^\n/]{0,80}\b(?:entity/)?(?:entity|team|project)\b[^\n/]{0,12}[ :=\"']"
ACCOUNTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\blogged in as:? ([A-Za-z][\w.-]{1,31})",
        r"\blogged in as:? [\w.-]{1,40} \(([A-Za-z][\w.-]{1,31})\)",
        r"(?<![\w.])wandb\.ai/([A-Za-z][\w.-]{1,31})/[\w.-]",
        r"\bWANDB_ENTITY[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z][\w.-]{1,31})",
        _TRACKED + r"([A-Za-z][\w.-]{1,31})/[\w.-]",
    )
)
"""Where the name of a user or team of an experiment tracker stands."""
PROJECT = re.compile(
    r"((?<![\w.])wandb\.ai/[A-Za-z][\w.-]{1,31}/|\bWANDB_PROJECT=|"
    + _TRACKED
    + r"[A-Za-z][\w.-]{1,31}/)([A-Za-z][\w.-]{1,60})"
)
REMOTE = re.compile(r"\bgit@" + NAME + r"[:/]([\w.~-]{1,60}(?:/[\w.~-]{1,60}){0,5})")
URL = re.compile(r"\bhttps?://(?:[\w.\[\]-]{1,80}@)?" + NAME + r"(?::\d{1,5})?/([\w.~-]{1,60}(?:/[\w.~-]{1,60}){0,5})")
NO_ACCOUNT = frozenset(
    """
    git admin info support help noreply no-reply postmaster ops team all dev hello contact security sales office list
    site authorize settings home login quickstart guides sweeps reports train training gpu node host test nccl torch
    python cuda wandb ubuntu
    """.split()
)
"""Left parts of addresses and first parts of URLs that name nobody."""


def base_domain(name: str) -> Optional[str]:
    """What was registered of a host's or mail domain: acme-research.io of dc1.acme-research.io; None where the name is
    too short for that, or belongs to everybody.
    """
    labels = name.lower().rstrip(".").split(".")
    if len(labels) < 2 or not labels[-1].isalpha() or len(labels[-1]) < 2 or labels[-1] in _FILE_ENDINGS:
        return None
    count = 3 if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND else 2
    base = ".".join(labels[-count:])
    return None if base in PUBLIC_DOMAINS else base


def is_domain(name: str) -> bool:
    """Whether a dotted name ends as names of the net do, rather than as attributes of programs."""
    last = name.rpartition(".")[2].lower()
    return "." in name and last not in _FILE_ENDINGS and ((len(last) == 2 and last.isalpha()) or last in _ENDINGS)


def relatives(known: Iterable[str], candidates: Iterable[str]) -> Set[str]:
    """Those candidates that are named like a known host: the same text, and numbers of about the same length."""
    families: Dict[str, Set[Tuple[Tuple[int, int], ...]]] = {}
    for name in known:
        widths = _widths(name)
        if widths:
            families.setdefault(_shape(name), set()).add(widths)
    found = set()
    for name in candidates:
        lengths = [len(digits) for digits in re.findall(r"\d+", name)]
        for widths in families.get(_shape(name), ()):
            if all(low <= n <= high for n, (low, high) in zip(lengths, widths)):
                found.add(name)
    return found


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _widths(name: str) -> Tuple[Tuple[int, int], ...]:
    """How many digits each number of a relative may have; nothing where the family would hold more than hosts."""
    first = re.match(r"[A-Za-z-]*", name)
    prefix = first.group().rstrip("-").lower() if first else ""
    numbers: List[str] = re.findall(r"\d+", name)
    alone = len(numbers) == 1 and "-" not in name
    if not numbers or prefix in _COUNTED or (alone and len(prefix) < 3):
        return ()
    device = alone and prefix in _DEVICES
    if device and len(numbers[0]) < 2:
        return ()
    return tuple(
        (len(n), len(n)) if n.startswith("0") and len(n) > 1 else (max(2 if device else 1, len(n) - 1), len(n) + 1)
        for n in numbers
    )


def natural(name: str) -> List[Tuple[int, object]]:
    """Sort key by which node9 comes before node10."""
    return [(0, int(p)) if p.isdigit() else (1, p) for p in re.split(r"(\d+)", name) if p]  # type: ignore[misc]


def expand(before: str, numbers: str, after: str) -> List[str]:
    """The names of a node list such as gpu[001-003,007]-ib; the name alone where there are no numbers."""
    if not numbers:
        return [before + after]
    names: List[str] = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or len(first) > 6 or len(last) > 6:
            continue
        low, high = int(first), int(last or first)
        if high - low > MAX_EXPANDED or len(names) > MAX_EXPANDED:
            break
        names += ["%s%0*d%s" % (before, len(first), n, after) for n in range(low, high + 1)]
    return names


def compress(tokens: List[str]) -> str:
    """Host tokens as a node list: h[0001-0003,0007]."""
    numbers = [int(t[1:]) for t in tokens]
    width = len(tokens[0]) - 1
    spans: List[List[int]] = []
    for n in numbers:
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    parts = ["%0*d" % (width, a) if a == b else "%0*d-%0*d" % (width, a, width, b) for a, b in spans]
    return "h[%s]" % ",".join(parts) if len(numbers) > 1 else tokens[0]
