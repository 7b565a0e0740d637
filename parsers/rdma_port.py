"""RDMA ports: `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`, sysfs state files.

Format: rdma-core 20 to 64, iproute2 4.x to 6.x, MLNX_OFED scripts. What several tools of one text say about a port is
joined into one record. The rate of a port that is down and the
LID 0 of a RoCE port are placeholders and left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence, integer

KIND = "rdma_port"
TOPICS = ("rdma_port",)

_STATES = {"active": "active", "init": "init", "initializing": "init", "initialize": "init", "down": "down",
           "armed": "armed", "active_defer": "active"}  # fmt: skip
_PHYSICAL = {
    "linkup": "link_up", "link_up": "link_up", "polling": "polling", "disabled": "disabled", "sleep": "sleep",
    "nop": "nop", "linkerrorrecovery": "link_error_recovery", "link_error_recover": "link_error_recovery",
    "portconfigurationtraining": "training", "port_configuration_training": "training",
}  # fmt: skip
_LAYERS = {"infiniband": "IB", "ethernet": "RoCE"}

_CA = re.compile(r"CA '([\w.-]{1,40})'")
_STATUS = re.compile(r"Infiniband device '([\w.-]{1,40})' port (\d{1,3}) status:")
_HCA_ID = re.compile(r"hca_id:\s+([\w.-]{1,40})")
_RDMA_LINK = re.compile(
    r"(?:\d+/\d+: |link )([\w.-]{1,40})/(\d{1,3}):? (?=(?:subnet_prefix|state|sm_lid|lid|lmc) )(.*)"
)
_NETDEV = re.compile(
    r"([\w.-]{1,40})[ ]{1,20}port[ ]{1,20}(\d{1,3})[ ]{1,20}(?:\((\w+)\)[ ]{1,20})?"
    r"==>[ ]{1,20}(\S+)[ ]{1,40}\((Up|Down)\)"
)
_NETDEV_LONG = re.compile(
    r"[0-9a-f:.]{7,12} ([\w.-]{1,40}) \(.{0,200}fw (\S+) port (\d{1,3}) \((\w+)\s*\) ==> (\S+) \((Up|Down)\)"
)
_SYSFS = re.compile(
    r"(?:^|/|: )([A-Za-z][\w.-]{0,39})/(?:ports/(\d{1,3})/)?(state|phys_state|rate|link_layer|lid|fw_ver)\s*:\s*(\S.*)"
)
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?: Gb/sec)?(?: \((\d{1,2})X)?")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,62}): (.*)", re.DOTALL)
_SNIFF = re.compile(
    r"^(?:[A-Za-z][\w.-]{0,62}: )?(?:CA '[\w.-]{1,40}'\s*$"
    r"|Infiniband device '[\w.-]{1,40}' port \d+ status:|hca_id:\s+\w"
    r"|(?:\d+/\d+: |link )[\w.-]{1,40}/\d{1,3}:? (?:subnet_prefix|state) "
    r"|[\w.-]{1,40}[ ]{1,20}port[ ]{1,20}\d{1,3}[ ]{1,20}==>[ ]{1,20}\S+[ ]{1,40}\((?:Up|Down)\)"
    r"|[0-9a-f:.]{7,12} [\w.-]{1,40} \(.{0,200} ==> \S+ \((?:Up|Down)\))"
    r'|"physical_state": ?"|/ports/\d{1,3}/(?:phys_)?state\s*:\s*\d: ',
    re.MULTILINE,
)

Fields = dict[str, str | int | float | bool]
Key = tuple[str | None, str, int | None]


@dataclass(slots=True)
class _Port:
    """What is known of one port, and the lines that told it."""

    fields: Fields
    lines: list[Line] = field(default_factory=list)


class _Ports:
    """All ports of a text, and the block that is being read."""

    def __init__(self) -> None:
        self.ports: dict[Key, _Port] = {}
        self.firmware: dict[tuple[str | None, str], tuple[str, Line]] = {}
        self.tool: str | None = None
        self.device = ""
        self.port: int | None = None
        self.host: str | None = None
        self.lane_gbps: float | None = None

    def tell(self, line: Line, device: str, port: int | None, **told: str | int | float | None) -> None:
        """Add what a line says; the first word on a field wins."""
        known = {name: value for name, value in told.items() if value is not None}
        if not known:
            return
        entry = self.ports.setdefault((self.host, device, port), _Port({"device": device}))
        if port is not None:
            entry.fields["port"] = port
        for name, value in known.items():
            entry.fields.setdefault(name, value)
        if len(entry.lines) < 12 and line not in entry.lines:
            entry.lines.append(line)

    def records(self, source: Source) -> Iterator[Record]:
        for (host, device, _), entry in self.ports.items():
            fields = entry.fields
            if (host, device) in self.firmware:
                fields.setdefault("firmware", self.firmware[host, device][0])
            if fields.get("state") == "down" or fields.get("physical_state") in ("disabled", "polling"):
                fields.pop("rate_gbps", None)
            if fields.get("link_layer") == "RoCE" and fields.get("lid") == 0:
                del fields["lid"]
            shown = tuple(evidence(source, line) for line in entry.lines[:12])
            yield Record("rdma_port", fields, shown, host=host)


def sniff(head: str, name: str) -> float:
    """Sure with the first line of a block of one of the tools."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """One `rdma_port` record per port."""
    ports = _Ports()
    held: list[Line] = []
    for line in lines:
        text = line.text
        if held:
            held.append(line)
            if text.rstrip().endswith("]") or len(held) > 20_000:
                _json(held, ports)
                held = []
        elif text.startswith(("[ {", "[{")):
            held = [line]
            if text.rstrip().endswith("]"):
                _json(held, ports)
                held = []
        else:
            _line(ports, line)
    yield from ports.records(source)


def _line(ports: _Ports, line: Line) -> None:
    text, host = line.text, None
    started = _opens(ports, text, line, None)
    if not started and (m := _HOST.match(text)):
        if ports.tool and m.group(1) == ports.host:
            host, text = m.group(1), m.group(2)
        started = _opens(ports, m.group(2), line, m.group(1))
    if started or not ports.tool:
        return
    if ports.host is not None and host is None:
        return
    if not text.strip() and ports.tool == "ibstatus":
        ports.tool = None
    elif text[:1] not in (" ", "\t"):
        if text.strip():
            ports.tool = None
    else:
        _inside(ports, text, line)


def _opens(ports: _Ports, text: str, line: Line, host: str | None) -> bool:
    """Whether a line starts a block, or says all about a port by itself."""
    if m := _CA.match(text):
        ports.tool, ports.device, ports.port, ports.host = "ibstat", m.group(1), None, host
    elif m := _STATUS.match(text):
        ports.tool, ports.device, ports.port, ports.host = "ibstatus", m.group(1), int(m.group(2)), host
    elif m := _HCA_ID.match(text):
        ports.tool, ports.device, ports.port, ports.host = "ibv_devinfo", m.group(1), None, host
    elif m := _RDMA_LINK.match(text):
        ports.host = host
        words = m.group(3).split()
        told = dict(zip(words[::2], words[1::2], strict=False))
        ports.tell(
            line, m.group(1), int(m.group(2)), state=_STATES.get(told.get("state", "").lower()),
            physical_state=_PHYSICAL.get(told.get("physical_state", "").lower()), netdev=told.get("netdev"),
            lid=integer(told.get("lid")), link_layer="IB" if "subnet_prefix" in told else None,
        )  # fmt: skip
    elif m := _NETDEV_LONG.match(text):
        ports.host = host
        ports.tell(line, m.group(1), int(m.group(3)), state=_STATES.get(m.group(4).lower()), netdev=m.group(5),
                   firmware=m.group(2))  # fmt: skip
    elif m := _NETDEV.match(text):
        ports.host = host
        state = "active" if m.group(5) == "Up" else "down"
        ports.tell(line, m.group(1), int(m.group(2)), state=state, netdev=m.group(4))
    elif "/" in text and (m := _SYSFS.search(text)):
        ports.host = host
        _sysfs(ports, m, line)
    else:
        return False
    return True


def _sysfs(ports: _Ports, m: re.Match[str], line: Line) -> None:
    device, port, name, value = m.groups()
    value = value.strip()
    if name == "fw_ver":
        if re.match(r"\d+\.\d+", value):
            ports.firmware[ports.host, device] = (value, line)
    elif port is not None:
        number = int(port)
        if name in ("state", "phys_state"):
            word = value.partition(": ")[2].lower()
            ports.tell(line, device, number, **{"state": _STATES.get(word)} if name == "state" else
                       {"physical_state": _PHYSICAL.get(word)})  # fmt: skip
        elif name == "rate":
            ports.tell(line, device, number, **_rate(value))
        elif name == "link_layer":
            ports.tell(line, device, number, link_layer=_LAYERS.get(value.lower()))
        else:
            ports.tell(line, device, number, lid=integer(value))


def _inside(ports: _Ports, text: str, line: Line) -> None:
    """A `key: value` line of ibstat, ibstatus or ibv_devinfo."""
    key, _, value = text.strip().partition(":")
    value = value.strip()
    key = key.lower().replace(" ", "_")
    device, port = ports.device, ports.port
    if ports.tool == "ibstat" and (m := re.fullmatch(r"port_(\d{1,3})", key)):
        ports.port = int(m.group(1))
    elif ports.tool == "ibv_devinfo" and key == "port" and value.isdigit():
        ports.port, ports.lane_gbps = int(value), None
    elif key in ("firmware_version", "fw_ver"):
        if value and value != "0.0.0":
            ports.firmware[ports.host, device] = (value, line)
    elif port is None:
        return
    elif key == "state":
        word = value.partition(": ")[2] or value
        ports.tell(line, device, port, state=_STATES.get(word.lower().removeprefix("port_").split(" ")[0]))
    elif key in ("physical_state", "phys_state"):
        word = (value.partition(": ")[2] or value).split(" ")[0]
        ports.tell(line, device, port, physical_state=_PHYSICAL.get(word.lower()))
    elif key == "rate":
        ports.tell(line, device, port, **_rate(value))
    elif key in ("base_lid", "port_lid"):
        ports.tell(line, device, port, lid=integer(value))
    elif key == "link_layer":
        ports.tell(line, device, port, link_layer=_LAYERS.get(value.lower()))
    elif key == "active_mtu":
        ports.tell(line, device, port, active_mtu=integer(value.split(" ")[0]))
    elif key in ("active_width", "active_speed"):
        _width_and_speed(ports, key, value, line)


def _width_and_speed(ports: _Ports, key: str, value: str, line: Line) -> None:
    """`active_width: 4X (2)`, then `active_speed: 100.0 Gbps (128)` of one lane."""
    m = _RATE.match(value)
    if m is None:
        return
    if key == "active_width":
        ports.lane_gbps = float(m.group(1))
        ports.tell(line, ports.device, ports.port, width=int(ports.lane_gbps))
    elif ports.lane_gbps is not None:
        ports.tell(line, ports.device, ports.port, rate_gbps=float(m.group(1)) * ports.lane_gbps)


def _rate(value: str) -> dict[str, str | int | float | None]:
    m = _RATE.match(value)
    if m is None:
        return {}
    return {"rate_gbps": float(m.group(1)), "width": int(m.group(2)) if m.group(2) else None}


def _json(lines: list[Line], ports: _Ports) -> None:
    """`rdma -j link`: a list of {ifname, port, state, physical_state, netdev}."""
    text = "\n".join(line.text for line in lines)
    if '"physical_state"' not in text:
        return
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    ports.host = None
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict) and isinstance(item.get("ifname"), str) and type(item.get("port")) is int:
            line = next((line for line in lines if f'"{item["ifname"]}"' in line.text), lines[0])
            netdev, lid = item.get("netdev"), item.get("lid")
            ports.tell(
                line, item["ifname"], item["port"], state=_STATES.get(str(item.get("state")).lower()),
                physical_state=_PHYSICAL.get(str(item.get("physical_state")).lower()),
                netdev=netdev if isinstance(netdev, str) else None, lid=lid if type(lid) is int else None,
            )  # fmt: skip
