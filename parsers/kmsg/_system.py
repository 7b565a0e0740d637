"""The host itself: crashed and hung processes, CPUs, clocks, file servers, modules, connection tracking."""

from __future__ import annotations

import re

from ._event import Event, Match, Recogniser, event, named

_COMMUNICATION = re.compile(
    r"(?:lib)?(?:nccl|rccl|cuda(?:rt)?[-.]|amdhip|hsa-runtime|fabric|ibverbs|rdmacm|mlx[45]|efa[-.]|bnxt_re|irdma"
    r"|uc[pstm][-._]|ucx|nvshmem|mca_\w{1,20}_ucx)"
)
"""Starts of the names of NCCL, RCCL, their plugins, CUDA, HIP, libfabric, verbs and its providers, UCX, NVSHMEM."""


def _segfault(m: Match, message: str) -> Event:
    library = m["library"]
    communication = library and _COMMUNICATION.match(library.rsplit("/", 1)[-1])
    return event(
        "segfault", message, m["process"], int(m["pid"]), library, process=m["process"].strip(), pid=int(m["pid"]),
        library=library, library_class=("communication" if communication else "other") if library else None,
    )  # fmt: skip


RECOGNISERS: tuple[Recogniser, ...] = (
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
        named("clocksource_unstable"),
    ),
    (
        "Switched to clocksource ",
        re.compile(r"Switched to clocksource (?P<device>[\w-]{1,30})(?:\\n)?[^\w-]{0,200}$"),
        named("clocksource_slow"),
    ),
    (
        "blocked for more than",
        re.compile(r"INFO: task (?P<process>.{1,64}):(?P<pid>\d{1,9}) blocked for more than \d{1,9} seconds"),
        named("hung_task"),
    ),
    ("soft lockup", re.compile(r"soft lockup - CPU#\d{1,5} stuck for \d{1,9}s"), named("cpu_lockup")),
    ("hard LOCKUP", re.compile(r"hard LOCKUP on cpu"), named("cpu_lockup")),
    ("detected stall", re.compile(r"rcu:? .{0,30}detected (?:expedited )?stalls? on"), named("cpu_lockup")),
    ("detected stall", re.compile(r"rcu\w*(?:: INFO: \w{1,30})? (?:self-)?detected stalls?"), named("cpu_lockup")),
    (
        "nfs: server",
        re.compile(r"nfs: server (?P<device>[\w.:\[\]-]{1,120}) (?:not responding|timed out)"),
        named("nfs_stall"),
    ),
    ("nfs: server", re.compile(r"nfs: server (?P<device>[\w.:\[\]-]{1,120}) OK"), named("nfs_ok")),
    (
        "in progress operations using this service will wait",
        re.compile(r"Lustre: (?P<device>[\w.-]{1,120}): Connection to "),
        named("lustre_stall"),
    ),
    (
        "unknown parameter",
        re.compile(r"(?P<device>[\w-]{1,60}): unknown parameter '[^']{1,80}' ignored"),
        named("module_unknown_parameter"),
    ),
    (
        "temperature above threshold",
        re.compile(r"(?:Core|Package) temperature (?:is )?above threshold"),
        named("thermal"),
    ),
    ("table full, dropping packet", re.compile(r"nf_conntrack: table full, dropping packet"), named("conntrack_full")),
)
