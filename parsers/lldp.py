"""LLDP neighbours as a host sees them: `lldpctl` (plain, keyvalue, json, json0), `networkctl lldp`, `lldptool -t -n`.

Format: lldpd 0.9 to 1.0, systemd 250+, lldpad 1.x. In lldpd's json `interface` is an object for one neighbour, a list
for several; json0 is lists everywhere. A port named by MAC address is shown by its description where there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence, problem

KIND = "lldp"
TOPICS = ("lldp",)

_INTERFACE = re.compile(r"Interface:\s+(\S{1,40}?),(?:\s|$)")
_FIELD = re.compile(r"\s+(SysName|PortID|PortDescr|ChassisID):\s+(\S.*)$")
_KEY = re.compile(r"lldp\.(\S{1,40}?)\.(chassis|port)\.(name|mac|ifname|local|ifalias|descr)=(.*)$")
_NETWORKCTL = re.compile(r"LINK\s+(?:PEER\s+)?CHASSIS[- ]ID\s+SYSTEM[- ]NAME\s+CAPS\s+PORT[- ]ID")
_LLDPTOOL = re.compile(r"\blldptool\b.{0,60}?-i\s*([\w.@:-]{1,40})")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}", re.IGNORECASE)
_SNIFF = re.compile(
    r"^LLDP neighbors:\s*$|^lldp\.\S{1,40}\.(?:via|chassis|port)|^\s*\"lldp\": ?[{\[]"
    r"|^LINK\s+(?:PEER\s+)?CHASSIS[- ]ID\s+SYSTEM|^System Name TLV\s*$",
    re.MULTILINE,
)
_MAX_JSON_LINES = 50_000


class _Neighbour:
    """What is known of one neighbour while its block is read."""

    def __init__(self, device: str, line: Line) -> None:
        self.device = device
        self.names: dict[str, str] = {}
        self.lines = [line]

    def tell(self, what: str, value: str, line: Line) -> None:
        if value and what not in self.names:
            self.names[what] = value[:200]
            self.lines.append(line)

    def record(self, source: Source) -> Record | None:
        switch = self.names.get("name") or self.names.get("chassis")
        if not switch:
            return None
        fields: dict[str, str | int | float | bool] = {"device": self.device, "switch": switch}
        port = self.names.get("port", "")
        if (not port or _MAC.fullmatch(port)) and "descr" in self.names:
            port = self.names["descr"]
        if port:
            fields["port"] = port
        return Record("lldp_neighbour", fields, tuple(evidence(source, line) for line in self.lines[:5]))


def sniff(head: str, name: str) -> float:
    """Sure with the header or key of one of the tools."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """One `lldp_neighbour` per neighbour."""
    current: _Neighbour | None = None
    keyed: list[_Neighbour] = []
    held: list[Line] = []
    table = False
    tlv: str | None = None
    for line in lines:
        text = line.text
        if held:
            held.append(line)
            if text.startswith("}") or len(held) > _MAX_JSON_LINES:
                yield from _json(held, source)
                held = []
        elif text.startswith("{") and text.rstrip() != "}":
            held = [line]
            if text.rstrip().endswith("}"):
                yield from _json(held, source)
                held = []
        elif (m := _INTERFACE.match(text)) or ("lldptool" in text and (m := _LLDPTOOL.search(text))):
            yield from _finished(current, source)
            current = _Neighbour(m.group(1), line)
        elif text.rstrip().endswith(" TLV") and current is not None:
            tlv = text.strip()
        elif tlv is not None and current is not None and text[:1] == "\t":
            _tlv(current, tlv, text.strip(), line)
            tlv = None
        elif current is not None and (m := _FIELD.match(text)):
            _plain(current, m.group(1), m.group(2).strip(), line)
        elif text.startswith("lldp.") and (m := _KEY.match(text)):
            _keyvalue(keyed, m, line)
        elif _NETWORKCTL.match(text):
            table = True
        elif table:
            words = text.split()
            if len(words) < 5:
                table = bool(words) and "…" in text
                continue
            neighbour = _Neighbour(words[0], line)
            if words[2] not in ("-", "n/a"):
                neighbour.tell("name", words[2], line)
            neighbour.tell("port", words[4], line)
            yield from _finished(neighbour, source)
    yield from _finished(current, source)
    for neighbour in keyed:
        yield from _finished(neighbour, source)
    if held:
        yield from _json(held, source)


def _finished(neighbour: _Neighbour | None, source: Source) -> Iterator[Record]:
    if neighbour is not None and (record := neighbour.record(source)) is not None:
        yield record


def _plain(current: _Neighbour, key: str, value: str, line: Line) -> None:
    if key == "SysName":
        current.tell("name", value, line)
    elif key == "PortDescr":
        current.tell("descr", value, line)
    else:
        current.tell("port" if key == "PortID" else "chassis", value.partition(" ")[2] or value, line)


def _tlv(current: _Neighbour, tlv: str, value: str, line: Line) -> None:
    """A TLV of lldptool: its value is on the line below the title."""
    name = {
        "System Name TLV": "name",
        "Port ID TLV": "port",
        "Port Description TLV": "descr",
        "Chassis ID TLV": "chassis",
    }
    if tlv in name:
        current.tell(name[tlv], re.sub(r"^(?:MAC|Ifname|Local|Ifalias): ", "", value), line)


def _keyvalue(keyed: list[_Neighbour], m: re.Match[str], line: Line) -> None:
    """`lldp.DEV.chassis.name=…`: keys repeat when one interface has several neighbours."""
    device, part, key, value = m.groups()
    what = {"chassis.mac": "chassis", "chassis.name": "name", "chassis.ifname": "chassis", "chassis.local": "chassis",
            "port.descr": "descr", "port.mac": "port", "port.ifname": "port", "port.local": "port",
            "port.ifalias": "port"}.get(f"{part}.{key}")  # fmt: skip
    if what is None:
        return
    if not keyed or keyed[-1].device != device or what in keyed[-1].names:
        keyed.append(_Neighbour(device, line))
        keyed[-1].lines.clear()
    keyed[-1].tell(what, value.strip(), line)


# --- JSON ---------------------------------------------------------------------------------------------


def _json(lines: list[Line], source: Source) -> Iterator[Record]:
    text = "\n".join(line.text for line in lines)
    if '"lldp"' not in text:
        return
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        yield problem(source, "JSON of lldpctl cannot be read", lines[0], lines[-1])
        return
    for block in _each(found.get("lldp") if isinstance(found, dict) else None):
        for device, item in _interfaces(block.get("interface")):
            line = next((line for line in lines if f'"{device}"' in line.text), lines[0])
            neighbour = _Neighbour(device, line)
            for name, chassis in _chassis(item.get("chassis")):
                neighbour.tell("name", name, line)
                neighbour.tell("chassis", _value(chassis.get("id")), line)
            for port in _each(item.get("port")):
                neighbour.tell("port", _value(port.get("id")), line)
                neighbour.tell("descr", _value(port.get("descr")), line)
            neighbour.lines = [line]
            yield from _finished(neighbour, source)


def _each(value: Any) -> Iterator[dict[str, Any]]:
    """The dicts of a dict or a list of them."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def _interfaces(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in _each(value):
        if isinstance(item.get("name"), str):
            yield item["name"], item
        else:
            yield from ((name, inner) for name, inner in item.items() if isinstance(inner, dict))


def _chassis(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(system name, chassis): json keys the chassis by its name, or not at all; json0 has a `name` list."""
    for item in _each(value):
        if "id" in item:
            yield _value(item.get("name")), item
        else:
            yield from ((name, inner) for name, inner in item.items() if isinstance(inner, dict))


def _value(value: Any) -> str:
    """A string, or the `value` of a dict or of the first dict of a list."""
    if isinstance(value, str):
        return value
    first = next(_each(value), None)
    inner = first.get("value") if first else None
    return inner if isinstance(inner, str) else ""
