"""Recognises the kernel messages that matter, one pattern per kind of message.

Sources: NVIDIA driver (NVRM, nvswitch), mlx5 driver, PCIe AER and APEI, memcg OOM killer, x86 traps, clocksource
watchdog, hung-task detector, sunrpc, Lustre, IOMMU drivers, EDAC/MCE (Linux 4.15 to 6.12).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ._xid import XID_NAMES

MAX_TEXT = 400
_BDF = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


@dataclass(slots=True)
class Event:
    """One recognised message. Events with equal keys are the same incident; `adds` is 0 for its continuation lines."""

    key: tuple[object, ...]
    fields: dict[str, object]
    adds: int = 1
    weak: bool = field(default=False)
    """Announces what another line of the same key tells better."""


Match = re.Match[str]
Handler = Callable[[Match, str], "Event | None"]


def _event(name: str, text: str, *key: object, **fields: object) -> Event:
    known = {k: v for k, v in fields.items() if v is not None}
    return Event((name, *key), {"event": name, **known, "text": text.strip()[:MAX_TEXT]})


_PROCESS = re.compile(r"pid='?(?P<pid>[^,']{1,20})'?, (?:name=(?P<name>[^,]{0,64}), )?")
_GPU_INDEX = re.compile(r"\bGPU(\d{1,2})\b")
_NVLINK5 = re.compile(r"\b(Fatal|Nonfatal)\b")
_ACTION = re.compile(r"to 0x[0-9a-fA-F]{1,4} \(([^)]{1,60})\)")


def _xid(m: Match, message: str) -> Event:
    code = int(m["code"])
    device = m["device"].lower()
    rest = m["text"] or ""
    process = _PROCESS.match(rest)
    pid = int(process["pid"]) if process and process["pid"].isdecimal() else None
    name = process["name"].strip("'<> ") if process and process["name"] else None
    said = rest[process.end() :] if process else rest
    gpu = _GPU_INDEX.search(said)
    action = _ACTION.search(said) if code == 154 else None
    fatal = _NVLINK5.search(said) if 144 <= code <= 150 else None
    return _event(
        "xid", message[m.start() :], device, code,
        action.group(1) if action else None, fatal.group(1) if fatal else None,
        code=code, code_name=f"recovery action: {action.group(1)}" if action else XID_NAMES.get(code), device=device,
        gpu=int(gpu.group(1)) if gpu else None,
        process=name if name not in ("", "unknown", "N/A") else None, pid=pid,
        severity=fatal.group(1).lower() if fatal else None,
    )  # fmt: skip


def _off_bus(m: Match, message: str) -> Event:
    """What the driver says instead of Xid 79, or beside it, when a GPU does not answer on the bus.

    `NVRM: The NVIDIA GPU 0000:b3:00.0 … fallen off the bus and is not responding to commands.` comes in three lines (a
    failed probe), `NVRM: GPU 0000:09:00.0: GPU has fallen off the bus.` in one.
    """
    device = m["device"] or m["before"]
    device = device.lower().removesuffix(".0") if device else None
    event = _event("xid", message, device, 79, None, None, code=79, code_name=XID_NAMES[79], device=device)
    event.weak = True
    return event


def _sxid(m: Match, message: str) -> Event:
    code, device, rest = int(m["code"]), m["device"].lower(), m["text"] or ""
    fatal = "nonfatal" if rest.startswith("Non-fatal") else "fatal" if rest.startswith("Fatal") else None
    event = _event("sxid", message[m.start() :], device, code, code=code, device=device, severity=fatal)
    if rest.startswith(("Data", "Severity")):
        event.adds, event.weak = 0, True
    return event


def _switch_error(m: Match, message: str) -> Event:
    fatal = "fatal" if m["fatal"] == "fatal" else "nonfatal"
    return _event(
        "sxid", message, m["device"].lower(), int(m["code"]), code=int(m["code"]), device=m["device"].lower(),
        severity=fatal,
    )  # fmt: skip


def _aer_severity(text: str) -> str:
    low = text.lower()
    if low.startswith("correct"):
        return "corrected"
    return "uncorrected" if "non-fatal" in low or "fatal" not in low else "fatal"


def _aer(m: Match, message: str) -> Event:
    severity = _aer_severity(m["severity"])
    return _event("aer", message, m["device"].lower(), severity, device=m["device"].lower(), severity=severity)


def _aer_announced(m: Match, message: str) -> Event:
    event = _aer(m, message)
    event.weak = True
    return event


def _oom_detail(m: Match, message: str) -> Event:
    constraint = m["constraint"].lower()
    pid = int(m["pid"])
    where = {"memcg": "memcg", "none": "host"}.get(constraint, constraint)
    memcg = m["memcg"] or m["task_memcg"]
    return _event(
        "oom_kill", message, memcg, m["task"], constraint=where, cgroup=memcg, process=m["task"], pid=pid,
    )  # fmt: skip


def _oom_killed(m: Match, message: str) -> Event:
    event = _event(
        "oom_kill", message, None, m["task"], constraint="memcg" if m["memcg"] else "host", process=m["task"],
        pid=int(m["pid"]),
    )  # fmt: skip
    event.weak = True
    return event


def _old_kill(m: Match, message: str) -> Event:
    """Linux up to 4.x names the process that was really killed, a child perhaps, on a line of its own."""
    event = _event("oom_kill", message, None, m["task"], process=m["task"], pid=int(m["pid"]))
    event.weak = True
    return event


_COMMUNICATION = re.compile(
    r"(?:lib)?(?:nccl|rccl|cuda(?:rt)?[-.]|amdhip|hsa-runtime|fabric|ibverbs|rdmacm|mlx[45]|efa[-.]|bnxt_re|irdma"
    r"|uc[pstm][-._]|ucx|nvshmem|mca_\w{1,20}_ucx)"
)
"""Starts of the names of NCCL, RCCL, their plugins, CUDA, HIP, libfabric, verbs and its providers, UCX, NVSHMEM."""


def _segfault(m: Match, message: str) -> Event:
    library = m["library"]
    communication = library and _COMMUNICATION.match(library.rsplit("/", 1)[-1])
    return _event(
        "segfault", message, m["process"], int(m["pid"]), library, process=m["process"].strip(), pid=int(m["pid"]),
        library=library, library_class=("communication" if communication else "other") if library else None,
    )  # fmt: skip


def _named(name: str, **fixed: object) -> Handler:
    """Handler for messages whose groups are the fields: device, process, pid; equal devices are one incident."""

    def handle(m: Match, message: str) -> Event:
        groups = m.groupdict()
        pid = groups.get("pid")
        device = groups.get("device")
        return _event(
            name, message, device, groups.get("process"), *fixed.values(), device=device, process=groups.get("process"),
            pid=int(pid) if pid and pid.isdecimal() else None, **fixed,
        )  # fmt: skip

    return handle


def _edac(m: Match, message: str) -> Event:
    severity = "corrected" if m["kind"] == "CE" else "uncorrected"
    return _event("mce", message, m["device"], severity, device=m["device"], severity=severity)


_PEERMEM = re.compile(r"nv(?:idia)?[-_]peer[-_]?mem\S{0,4} .{0,160}\bERROR\b")
_NOTICE = re.compile(r"severity\([4-7]\)")


def _mlx5_health(m: Match, message: str) -> Event | None:
    """Firmware also reports warnings and notes (syslog severities 4 to 7); those are no failure."""
    return None if _NOTICE.search(message) else _named("mlx5_health")(m, message)


_INTERFACE = r"(?P<device>[A-Za-z][\w.@-]{1,31})"
RECOGNISERS: tuple[tuple[str, re.Pattern[str], Handler], ...] = (
    (
        "Xid (",
        re.compile(
            r"\bNVRM: Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{4,20})(?: GPU-I:\d{1,3})?\): "
            r"(?P<code>\d{1,4})(?:, (?P<text>.*))?"
        ),
        _xid,
    ),
    (
        "allen off the bus",
        re.compile(
            r"(?:(?:The NVIDIA GPU (?P<before>[0-9A-Fa-f:.]{7,20})\b.{0,160}?)?\bfallen off the bus and is not "
            r"responding|NVRM: GPU (?:at )?(?:PCI:)?(?P<device>[0-9A-Fa-f:.]{7,20}): GPU has fallen off the bus)"
        ),
        _off_bus,
    ),
    ("SXid (", re.compile(r"SXid \((?:PCI:)?(?P<device>[^)]{4,20})\): (?P<code>\d{1,6})(?:, (?P<text>.*))?"), _sxid),
    (
        "detected NVSwitch",
        re.compile(
            r"detected NVSwitch (?P<fatal>non-fatal|fatal) error (?P<code>\d{1,6}) on NVSwitch pci (?:bus )?id "
            rf"(?P<device>{_BDF})"
        ),
        _switch_error,
    ),
    (
        "PCIe Bus Error",
        re.compile(rf"(?P<device>{_BDF}): (?:AER: )?PCIe Bus Error: severity=(?P<severity>[A-Za-z() -]{{4,40}}),"),
        _aer,
    ),
    (
        "AER: ",
        re.compile(
            r"AER: (?:Multiple )?(?P<severity>(?:Unc|C)orrect(?:ed|able)(?: \((?:Non-)?Fatal\))?) error (?:message )?"
            rf"received(?: from|:) (?P<device>{_BDF})"
        ),
        _aer_announced,
    ),
    (
        "oom-kill:",
        re.compile(
            r"oom-kill:constraint=CONSTRAINT_(?P<constraint>[A-Z_]{3,20}),.{0,200}?(?:oom_memcg=(?P<memcg>[^,]{1,400}),|global_oom,)"
            r"(?:task_memcg=(?P<task_memcg>[^,]{1,400}),)?task=(?P<task>[^,]{1,64}),pid=(?P<pid>\d{1,9})"
        ),
        _oom_detail,
    ),
    (
        "ut of memory: Kill",
        re.compile(
            r"(?:(?P<memcg>Memory cgroup) out of memory|Out of memory(?: \([^)]{1,40}\))?): Kill(?:ed)? process "
            r"(?P<pid>\d{1,9}) \((?P<task>[^)]{1,64})\)"
        ),
        _oom_killed,
    ),
    (
        "Killed process ",
        re.compile(r"^Killed process (?P<pid>\d{1,9}) \((?P<task>[^)]{1,64})\),? (?:UID \d{1,9},? )?total-vm:"),
        _old_kill,
    ),
    (
        "segfault at",
        re.compile(
            r"(?P<process>[^\[\]:]{1,64})\[(?P<pid>\d{1,9})\]: segfault at (?:[0-9a-f]{1,16}|\(null\)) .{0,120}?"
            r"error [0-9a-f]{1,8}(?: in (?P<library>[^\[ ]{1,120}))?"
        ),
        _segfault,
    ),
    (
        "traps: ",
        re.compile(
            r"traps: (?P<process>[^\[\]:]{1,64})\[(?P<pid>\d{1,9})\] (?:general protection|trap [a-z ]{3,30}).{0,160}?"
            r"error:[0-9a-f]{1,8}(?: in (?P<library>[^\[ ]{1,120}))?"
        ),
        _segfault,
    ),
    (
        "unstable",
        re.compile(r"Marking (?:clocksource '?(?P<device>[\w-]{1,30})'? as unstable|TSC unstable)"),
        _named("clocksource_unstable"),
    ),
    (
        "Switched to clocksource ",
        re.compile(r"Switched to clocksource (?P<device>[\w-]{1,30})$"),
        _named("clocksource_slow"),
    ),
    (
        "available PCIe bandwidth, limited by",
        re.compile(rf"(?P<device>{_BDF})(?: [^:]{{1,40}})?: [\d.]{{1,12}} Gb/s available PCIe bandwidth, limited by"),
        _named("pcie_bandwidth"),
    ),
    (
        "blocked for more than",
        re.compile(r"INFO: task (?P<process>.{1,64}):(?P<pid>\d{1,9}) blocked for more than \d{1,9} seconds"),
        _named("hung_task"),
    ),
    ("soft lockup", re.compile(r"soft lockup - CPU#\d{1,5} stuck for \d{1,9}s"), _named("cpu_lockup")),
    ("hard LOCKUP", re.compile(r"hard LOCKUP on cpu"), _named("cpu_lockup")),
    ("detected stall", re.compile(r"rcu:? .{0,30}detected (?:expedited )?stalls? on"), _named("cpu_lockup")),
    ("detected stall", re.compile(r"rcu\w*(?:: INFO: \w{1,30})? (?:self-)?detected stalls?"), _named("cpu_lockup")),
    (
        "nfs: server",
        re.compile(r"nfs: server (?P<device>[\w.:\[\]-]{1,120}) (?:not responding|timed out)"),
        _named("nfs_stall"),
    ),
    ("nfs: server", re.compile(r"nfs: server (?P<device>[\w.:\[\]-]{1,120}) OK"), _named("nfs_ok")),
    (
        "in progress operations using this service will wait",
        re.compile(r"Lustre: (?P<device>[\w.-]{1,120}): Connection to "),
        _named("lustre_stall"),
    ),
    (
        "unknown parameter",
        re.compile(r"(?P<device>[\w-]{1,60}): unknown parameter '[^']{1,80}' ignored"),
        _named("module_unknown_parameter"),
    ),
    (
        "DMAR: [DMA",
        re.compile(r"DMAR: \[DMA (?:Read|Write)[^\]]{0,30}\] Request device \[(?P<device>[0-9a-fA-F:.]{4,16})\]"),
        _named("iommu_fault"),
    ),
    (
        "AMD-Vi: Event logged",
        re.compile(
            r"(?:(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F:.]{4,12}): )?AMD-Vi: Event logged \["
            r"(?:IO_PAGE_FAULT|INVALID_DEVICE)"
        ),
        _named("iommu_fault"),
    ),
    ("Unhandled context fault", re.compile(r"arm-smmu.{0,60}Unhandled context fault"), _named("iommu_fault")),
    ("EDAC ", re.compile(r"EDAC (?P<device>MC\d{1,3}): \d{1,9} (?P<kind>CE|UE) "), _edac),
    ("Machine check events logged", re.compile(r"\bmce: .{0,40}Machine check events logged"), _named("mce")),
    ("Machine Check", re.compile(r"\bmce: .{0,40}CPU \d{1,5}: Machine Check"), _named("mce", severity="uncorrected")),
    (
        "temperature above threshold",
        re.compile(r"(?:Core|Package) temperature (?:is )?above threshold"),
        _named("thermal"),
    ),
    (
        "High ",
        re.compile(rf"mlx5_core (?P<device>{_BDF}).{{0,80}}High [Tt]emperature"),
        _named("thermal"),
    ),
    (
        "Port module event",
        re.compile(rf"mlx5_core (?P<device>{_BDF}).{{0,60}}Port module event\[error\]: module \d{{1,3}}, Cable error"),
        _named("cable_error"),
    ),
    (
        "Cable unplugged",
        re.compile(rf"mlx5_core (?P<device>{_BDF}).{{0,60}}Port module event: module \d{{1,3}}, Cable unplugged"),
        _named("cable_unplugged"),
    ),
    (
        "insufficient power",
        re.compile(rf"mlx5_core (?P<device>{_BDF}).{{0,120}}Detected insufficient power on the PCIe slot"),
        _named("nic_power"),
    ),
    (
        "ealth",
        re.compile(
            rf"mlx5_core (?P<device>{_BDF}).{{0,120}}(?:Health issue observed|health compromised|health recovery flow|"
            r"health recovery failed)"
        ),
        _mlx5_health,
    ),
    (
        "mlx5_core ",
        re.compile(
            rf"mlx5_core (?P<device>{_BDF}).{{0,120}}(?:Fatal error \d{{1,3}} detected|firmware internal error|"
            r"mlx5_enter_error_state)"
        ),
        _mlx5_health,
    ),
    (
        "imeout",
        re.compile(
            rf"mlx5_core (?P<device>{_BDF})(?: [^:]{{1,40}})?: .{{0,120}}(?:TX timeout|timeout\. Will cause a leak)"
        ),
        _named("mlx5_timeout"),
    ),
    (
        "NETDEV WATCHDOG",
        re.compile(rf"NETDEV WATCHDOG: (?:CPU: \d{{1,5}}: )?{_INTERFACE} \(mlx5_core\w{{0,8}}\): transmit queue"),
        _named("mlx5_timeout"),
    ),
    (
        "Link down",
        re.compile(rf"(?:mlx5_core|mlx4_en):? [0-9a-fA-F:.]{{7,16}},? {_INTERFACE}: Link down"),
        _named("link_down"),
    ),
    (
        "Link up",
        re.compile(rf"(?:mlx5_core|mlx4_en):? [0-9a-fA-F:.]{{7,16}},? {_INTERFACE}: Link up"),
        _named("link_up"),
    ),
    ("ink is ", re.compile(rf"{_INTERFACE}: (?:NIC )?[Ll]ink is [Dd]own"), _named("link_down")),
    ("ink is ", re.compile(rf"{_INTERFACE}: (?:NIC )?[Ll]ink is [Uu]p"), _named("link_up")),
    (
        "link status definitely down",
        re.compile(rf"(?:slave|interface) {_INTERFACE}\)?:? link status definitely down"),
        _named("link_down"),
    ),
    (
        "error cqe",
        re.compile(r"infiniband (?P<device>[\w-]{2,32}): .{0,60}(?:Respond[eo]r|Request[eo]r|dump) error cqe"),
        _named("rdma_event"),
    ),
    ("peermem", _PEERMEM, _named("peermem")),
    ("peer_mem", _PEERMEM, _named("peermem")),
    (
        "RmInitAdapter failed",
        re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?(?P<device>[0-9A-Fa-f:.]{4,20}): RmInitAdapter failed"),
        _named("nvrm_error"),
    ),
    ("NVRM: API mismatch", re.compile(r"NVRM: API mismatch"), _named("nvrm_error")),
    ("table full, dropping packet", re.compile(r"nf_conntrack: table full, dropping packet"), _named("conntrack_full")),
)

CONTINUATIONS = (
    "(First)", "event severity: ", "device_id: ", "killed as a result of limit of", "Memory cgroup stats for ",
    "NVRM: The NVIDIA GPU ",
)  # fmt: skip
GATE = re.compile("|".join(re.escape(x) for x in dict.fromkeys([*(r[0] for r in RECOGNISERS), *CONTINUATIONS])))


def recognise(message: str) -> Event | None:
    """The event that a message tells, or None."""
    for literal, pattern, handler in RECOGNISERS:
        if literal in message:
            m = pattern.search(message)
            if m:
                return handler(m, message)
    return None
