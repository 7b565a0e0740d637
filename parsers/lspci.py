"""lspci, plain, -v, -vv or -vvv: links of GPUs, network cards and NVMe disks, and bridges that matter.

Format: pciutils 3.5 to 3.13. A link is downgraded where lspci says so or, for endpoints, where LnkSta is below LnkCap
(an idle GPU may be at its lowest speed on purpose). lspci prints no mark at ports, whose slot may be wider than the
card, so bridges appear only with a printed mark or with ACS redirection on. `-t` and `-n` output is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence

KIND = "lspci"
TOPICS = ("pcie",)

_HEAD = re.compile(
    r"^[ >]{0,4}(?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<class>[A-Z0-9][\w /()&-]{2,60}?)"
    r"(?: \[[0-9a-f]{4}\])?: (?P<device>\S.{0,300})$", re.M,
)  # fmt: skip
_SPEED = re.compile(r"Speed (\d{1,3}(?:\.\d)?)GT/s(?: \((\w{2,20})\))?")
_WIDTH = re.compile(r"Width x(\d{1,2})(?: \((\w{2,20})\))?")
_READ_REQUEST = re.compile(r"MaxReadReq (\d{2,5}) bytes")
_NUMA = re.compile(r"^\s{1,12}NUMA node: (\d{1,4})\s*$")
_ACS = re.compile(r"ACSCtl:\s")
_REVISION = re.compile(r"\s\(rev [0-9a-f]{2}\)(?: \(prog-if .{0,60})?$")
_MANAGEMENT = re.compile(
    r"(?<!\d[ -])\bGigabit (?:Ethernet|Network)|\bX550|\bI2[12]\d\b|\bI350\b|\bRTL8\d{3}|\bBCM57[12]\d\b"
)
"""Onboard ports of 1 to 10 Gbit/s: often wired with fewer lanes than the chip has, and no rail of any job."""
MAX_DEVICES = 2_000


@dataclass(slots=True)
class _Device:
    bus: str
    role: str
    description: str
    first: Line
    values: dict[str, float | int | bool] = field(default_factory=dict[str, float | int | bool])
    lines: list[Line] = field(default_factory=list[Line])
    marked: bool = False


def sniff(head: str, name: str) -> float:
    """Sure on device headings with their class; likely on a lone ACSCtl excerpt."""
    for m in _HEAD.finditer(head):
        if "controller" in m["class"] or "bridge" in m["class"].lower() or "accelerator" in m["class"]:
            return 0.9
    return 0.6 if "ACSCtl:" in head and "ReqRedir" in head else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `pcie_link` per device of interest."""
    device: _Device | None = None
    seen: set[str] = set()
    loose: Line | None = None
    devices = 0
    for line in lines:
        text = line.text
        if not text[:1].isspace() or text[:4].lstrip() != text[:4]:
            m = _HEAD.match(text)
            if m:
                yield from _record(device, source, seen)
                devices += 1
                device = _device(m, line) if devices <= MAX_DEVICES else None
                continue
        if device is not None and text[:1].isspace():
            _detail(device, text, line)
        elif not text.strip():
            continue
        elif devices == 0 and loose is None and _redirects(text):
            loose = line
    yield from _record(device, source, seen)
    if loose is not None and devices == 0:
        yield Record(
            "pcie_link", {"bus_id": "unknown", "role": "bridge", "acs_redirect": True}, (evidence(source, loose),)
        )


def _device(m: re.Match[str], line: Line) -> _Device:
    bus = m["bus"].lower()
    said = m["device"]
    name = m["class"].lower()
    device = _Device(bus if bus.count(":") == 2 else f"0000:{bus}", _role(name, said), "", line)
    device.description = _REVISION.sub("", said).strip()[:200]
    if "(rev ff)" in said:
        device.values["gone"] = True
        device.lines.append(line)
    return device


def _role(name: str, said: str) -> str:
    if "bridge" in name and "host" not in name and "isa" not in name:
        return "bridge" if name.startswith("pci") else "other"
    if "ethernet" in name or "infiniband" in name or "network" in name:
        return "other" if _MANAGEMENT.search(said) else "nic"
    if "non-volatile" in name or "nvm" in name:
        return "nvme"
    if "3d controller" in name or "accelerator" in name or "display" in name:
        return "gpu"
    return "gpu" if "vga" in name and "NVIDIA" in said else "other"


def _redirects(text: str) -> bool:
    return _ACS.search(text) is not None and ("ReqRedir+" in text or "CmpltRedir+" in text)


def _detail(device: _Device, text: str, line: Line) -> None:
    if "LnkCap:" in text or "LnkSta:" in text:
        current = "LnkSta:" in text
        for name, pattern in (("speed", _SPEED), ("width", _WIDTH)):
            m = pattern.search(text)
            if m is None or float(m.group(1)) == 0:
                continue
            key = {"speed": "speed_gts", "width": "width"}[name]
            key = key if current else {"speed_gts": "speed_max_gts", "width": "width_max"}[key]
            device.values.setdefault(key, float(m.group(1)) if name == "speed" else int(m.group(1)))
            device.marked = device.marked or (current and m.group(2) == "downgraded")
        device.lines.append(line)
    elif "MaxReadReq" in text:
        m = _READ_REQUEST.search(text)
        if m:
            device.values.setdefault("max_read_request", int(m.group(1)))
    elif "NUMA node:" in text:
        m = _NUMA.match(text)
        if m:
            device.values["numa"] = int(m.group(1))
    elif "ACSCtl:" in text and device.role == "bridge":
        device.values["acs_redirect"] = _redirects(text)
        if device.values["acs_redirect"]:
            device.lines.append(line)
    elif "Unknown header type 7f" in text:
        device.values["gone"] = True
        device.lines.append(line)


def _record(device: _Device | None, source: Source, seen: set[str]) -> Iterator[Record]:
    if device is None or (device.role == "other" and "gone" not in device.values):
        return
    values = device.values
    below = any(
        values[now] < values[best]
        for now, best in (("speed_gts", "speed_max_gts"), ("width", "width_max"))
        if now in values and best in values
    )
    downgraded: bool | None = device.marked or (below and device.role != "bridge")
    if "speed_gts" not in values and "width" not in values:
        downgraded = None
    if device.role == "bridge" and not (values.get("acs_redirect") or downgraded or values.get("gone")):
        return
    if not values and device.bus in seen:
        return
    seen.add(device.bus)
    fields = drop_none(
        bus_id=device.bus, description=device.description, role=device.role, downgraded=downgraded, **values
    )
    telling = sorted(device.lines[:4], key=lambda line: "LnkSta:" not in line.text)
    grounds = dict.fromkeys((*telling, device.first))
    yield Record("pcie_link", cast(Fields, fields), tuple(evidence(source, line) for line in grounds))
