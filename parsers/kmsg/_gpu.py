"""Messages of the NVIDIA driver: Xids, NVSwitch errors, GPUs off the bus, nvidia-peermem."""

from __future__ import annotations

import re

from ._event import BDF, Event, Match, Recogniser, event, named
from ._xid import XID_NAMES

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
    return event(
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
    found = event("xid", message, device, 79, None, None, code=79, code_name=XID_NAMES[79], device=device)
    found.weak = True
    return found


def _sxid(m: Match, message: str) -> Event:
    code, device, rest = int(m["code"]), m["device"].lower(), m["text"] or ""
    fatal = "nonfatal" if rest.startswith("Non-fatal") else "fatal" if rest.startswith("Fatal") else None
    found = event("sxid", message[m.start() :], device, code, code=code, device=device, severity=fatal)
    if rest.startswith(("Data", "Severity")):
        found.adds, found.weak = 0, True
    return found


def _switch_error(m: Match, message: str) -> Event:
    fatal = "fatal" if m["fatal"] == "fatal" else "nonfatal"
    return event(
        "sxid", message, m["device"].lower(), int(m["code"]), code=int(m["code"]), device=m["device"].lower(),
        severity=fatal,
    )  # fmt: skip


_PEERMEM = re.compile(r"nv(?:idia)?[-_]peer[-_]?mem\S{0,4} .{0,160}\bERROR\b")


RECOGNISERS: tuple[Recogniser, ...] = (
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
            rf"(?P<device>{BDF})"
        ),
        _switch_error,
    ),
    ("peermem", _PEERMEM, named("peermem")),
    ("peer_mem", _PEERMEM, named("peermem")),
    (
        "RmInitAdapter failed",
        re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?(?P<device>[0-9A-Fa-f:.]{4,20}): RmInitAdapter failed"),
        named("nvrm_error"),
    ),
    ("NVRM: API mismatch", re.compile(r"NVRM: API mismatch"), named("nvrm_error")),
)
