"""`ip link`, `ip addr` (with or without -d, -s, -br, -j) and `ifconfig`: interfaces: kind, MTU, state, lower device.

Format: iproute2 4.x to 6.x, net-tools 2. The kind is the first word of the detail line that `-d` prints; without it
only the link layer, `name@lower` and the names that container networks always use tell something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence, integer, problem

KIND = "ip_link"
TOPICS = ("ip_link",)

KINDS = {
    "vxlan": "vxlan", "geneve": "geneve", "ipip": "ipip", "ip6tnl": "ipip", "gre": "gre", "gretap": "gre",
    "ip6gre": "gre", "ip6gretap": "gre", "erspan": "gre", "wireguard": "wireguard", "vlan": "vlan", "bridge": "bridge",
    "veth": "veth", "bond": "bond", "macvlan": "macvlan", "macvtap": "macvlan", "ipvlan": "ipvlan", "ipvtap": "ipvlan",
    "ipoib": "ipoib", "dummy": "dummy", "tun": "tun", "sit": "sit", "vrf": "vrf", "team": "bond", "ifb": "ifb",
    "openvswitch": "openvswitch",
}  # fmt: skip
"""Kind words of iproute2 -> type."""

_LAYERS = {"loopback": "loopback", "ipip": "ipip", "gre": "gre", "infiniband": "ipoib", "sit": "sit"}
_BY_NAME = (
    (re.compile(r"flannel\.\d+|vxlan\.calico|cilium_vxlan|vxlan_sys_\d+|weave-vxlan|antrea-tun0"), "vxlan"),
    (re.compile(r"cilium_geneve|genev_sys_\d+"), "geneve"),
    (re.compile(r"tunl0"), "ipip"),
    (re.compile(r"wireguard\.cali|wg\d+|cilium_wg0"), "wireguard"),
    (re.compile(r"docker0|cni0|virbr\d+|br-[0-9a-f]{12}"), "bridge"),
    (re.compile(r"(?:cali|lxc|veth)[0-9a-f]{6,}"), "veth"),
    (re.compile(r"bond\d+"), "bond"),
)
"""Names that container networks and distributions always give to one kind, for output without `-d`."""

_WITH_LOWER = ("vlan", "macvlan", "ipvlan", "ipoib")
_STATES = r"UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT|TESTING|NOTPRESENT"
_HEAD = re.compile(r"\d{1,7}: ([\w.:-]{1,40})(?:@([\w.:-]{1,40}))?: <([A-Z0-9_,-]*)>(.*)")
_BRIEF = re.compile(
    rf"([\w.:-]{{1,40}})(?:@([\w.:-]{{1,40}}))?\s+({_STATES})\s+"
    r"(?:[0-9a-f:]{17,60} <([A-Z0-9_,-]*)>|((?:[0-9a-f.:]+/\d{1,3}(?: |$))+))\s*$"
)
_IFCONFIG = re.compile(r"([\w.:-]{1,40}): flags=\d+<([A-Z0-9_,]*)>\s+mtu (\d+)")
_WORD = re.compile(r"\b(mtu|state|master) (\S+)")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,62}): (.*)", re.DOTALL)
_SNIFF = re.compile(
    r"^(?:[A-Za-z][\w.-]{0,62}: )?\d{1,7}: [\w.:-]{1,40}(?:@[\w.:-]{1,40})?: <[A-Z0-9_,-]*> mtu \d"
    r"|^[\w.:-]{1,40}: flags=\d+<[A-Z0-9_,]*>\s+mtu \d"
    rf"|^lo\s+(?:{_STATES})\s+(?:00:00:00:00:00:00 <LOOPBACK|127\.0\.0\.1/8)"
    r'|"ifname": ?"[^"\n]{1,40}",(?:"flags"|\s*"flags"): ?\[',
    re.MULTILINE,
)
_MAX_JSON_LINES = 50_000

Fields = dict[str, str | int | float | bool]


@dataclass(slots=True)
class _Interface:
    """One interface being read."""

    host: str | None
    lower: str | None
    fields: Fields
    lines: list[Line] = field(default_factory=list)
    detailed: bool = False


def sniff(head: str, name: str) -> float:
    """Sure with an interface line of ip or ifconfig, or with their JSON."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """One `ip_interface` per interface; of one named twice, every mention gives its own record."""
    current: _Interface | None = None
    held: list[Line] = []
    for line in lines:
        if held:
            held.append(line)
            if (line.text.rstrip().endswith("]") and line.text[:1] in "]}") or len(held) > _MAX_JSON_LINES:
                yield from _json(held, source)
                held = []
            continue
        if line.text.startswith("[{") or line.text.rstrip() == "[ {" or line.text.startswith("[ {"):
            if line.text.rstrip().endswith("]"):
                yield from _json([line], source)
            else:
                held = [line]
            continue
        text, host = line.text, None
        started = _start(text, line)
        if started is None and (m := _HOST.match(text)):
            if current is not None and current.host == m.group(1):
                host, text = m.group(1), m.group(2)
                started = _start(text, line)
            else:
                started = _start(m.group(2), line)
                host = m.group(1) if started else None
        if started is not None:
            yield from _finish(current, source)
            current = started
            current.host = host
        elif current is not None:
            if text[:1] not in (" ", "\t"):
                yield from _finish(current, source)
                current = None
            else:
                _detail(current, text, line)
    yield from _finish(current, source)
    if held:
        yield from _json(held, source)


def _start(text: str, line: Line) -> _Interface | None:
    """The interface whose first line this is."""
    if "mtu " in text:
        if m := _HEAD.match(text):
            name, lower, flags, rest = m.groups()
            fields: Fields = {"device": name, "up": "UP" in flags.split(",")}
            for word, value in _WORD.findall(rest):
                if word == "mtu":
                    _put(fields, "mtu", integer(value))
                else:
                    fields[word] = value
            return _Interface(None, lower, fields, [line])
        if m := _IFCONFIG.match(text):
            name, flags, mtu = m.groups()
            fields = {"device": name, "up": "UP" in flags.split(","), "mtu": int(mtu)}
            return _Interface(None, None, fields, [line])
    elif m := _BRIEF.match(text):
        name, lower, state, flags, addresses = m.groups()
        fields = {"device": name, "state": state}
        if flags is not None:
            fields["up"] = "UP" in flags.split(",")
        elif state == "UP":
            fields["up"] = True
        first = next((a.split("/")[0] for a in (addresses or "").split() if ":" not in a), None)
        _put(fields, "address", first)
        return _Interface(None, lower, fields, [line])
    return None


def _detail(current: _Interface, text: str, line: Line) -> None:
    """One of the indented lines below an interface line."""
    words = text.split(None, 12)
    if not words:
        return
    word, fields = words[0], current.fields
    if word.startswith("link/"):
        current.detailed = "promiscuity" in text
        _put(fields, "type", _LAYERS.get(word[5:]))
        current.lines.append(line)
    elif word == "inet" and len(words) > 1:
        if "address" not in fields:
            fields["address"] = words[1].split("/")[0]
            current.lines.append(line)
    elif word == "loop":
        fields.setdefault("type", "loopback")
    elif word in KINDS and current.detailed and fields.get("type") not in ("loopback",):
        fields["type"] = KINDS[word]
        current.lines.append(line)
        if m := re.search(r"\bdev (\S+)", text):
            fields["parent"] = m.group(1)
        if word == "vxlan":
            if m := re.search(r"(?<!external )\bid (\d{1,9})\b", text):
                fields["vxlan_id"] = int(m.group(1))
            if m := re.search(r"\bdstport (\d{1,6})\b", text):
                fields["vxlan_port"] = int(m.group(1))


def _finish(current: _Interface | None, source: Source) -> Iterator[Record]:
    if current is None:
        return
    fields, lower = current.fields, current.lower
    if "type" not in fields:
        kind = _kind_by_name(str(fields["device"]), lower)
        _put(fields, "type", kind or ("physical" if current.detailed and not lower else None))
    if lower and not re.fullmatch(r"if\d+|NONE", lower) and fields.get("type") in _WITH_LOWER:
        fields.setdefault("parent", lower)
    shown = tuple(evidence(source, line) for line in current.lines[:4])
    yield Record("ip_interface", fields, shown, host=current.host)


def _kind_by_name(name: str, lower: str | None) -> str | None:
    if lower and re.fullmatch(rf"{re.escape(lower)}\.\d{{1,4}}", name):
        return "vlan"
    return next((kind for pattern, kind in _BY_NAME if pattern.fullmatch(name)), None)


def _put(fields: Fields, name: str, value: str | int | None) -> None:
    if value is not None:
        fields[name] = value


# --- JSON ---------------------------------------------------------------------------------------------


def _json(lines: list[Line], source: Source) -> Iterator[Record]:
    """`ip -j`: a list of objects with `ifname`; JSON of other tools gives nothing."""
    text = "\n".join(line.text for line in lines)
    if '"ifname"' not in text or '"flags"' not in text:
        return
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        yield problem(source, "JSON of ip cannot be read", lines[0], lines[-1])
        return
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict) and isinstance(item.get("ifname"), str) and isinstance(item.get("flags"), list):
            yield Record("ip_interface", _from_json(item), (_shown(lines, item["ifname"], source),))


def _shown(lines: list[Line], name: str, source: Source) -> Any:
    line = next((line for line in lines if f'"{name}"' in line.text), lines[0])
    at = max(0, line.text.find(f'"{name}"') - 40)
    return evidence(source, Line(line.number, line.text[at : at + 400]))


def _from_json(item: dict[str, Any]) -> Fields:
    fields: Fields = {"device": item["ifname"], "up": "UP" in item["flags"]}
    if isinstance(item.get("mtu"), int):
        fields["mtu"] = item["mtu"]
    for key, name in (("operstate", "state"), ("master", "master")):
        if isinstance(item.get(key), str):
            fields[name] = item[key]
    info = item.get("linkinfo") if isinstance(item.get("linkinfo"), dict) else {}
    assert isinstance(info, dict)
    data = info.get("info_data") if isinstance(info.get("info_data"), dict) else {}
    assert isinstance(data, dict)
    kind, lower = info.get("info_kind"), item.get("link")
    if item.get("link_type") == "loopback":
        fields["type"] = "loopback"
    elif isinstance(kind, str):
        fields["type"] = KINDS.get(kind, kind)
    elif isinstance(item.get("link_type"), str) and item["link_type"] in _LAYERS:
        fields["type"] = _LAYERS[item["link_type"]]
    elif by_name := _kind_by_name(item["ifname"], lower if isinstance(lower, str) else None):
        fields["type"] = by_name
    elif "promiscuity" in item and "link" not in item:
        fields["type"] = "physical"
    lower = data.get("link") if fields.get("type") == "vxlan" else lower
    if isinstance(lower, str) and fields.get("type") in (*_WITH_LOWER, "vxlan"):
        fields["parent"] = lower
    if fields.get("type") == "vxlan":
        for key, name in (("id", "vxlan_id"), ("port", "vxlan_port")):
            if isinstance(data.get(key), int) and data[key] > 0 and data[key] is not True:
                fields[name] = data[key]
    for address in item.get("addr_info") or () if isinstance(item.get("addr_info"), list) else ():
        if isinstance(address, dict) and address.get("family") == "inet" and isinstance(address.get("local"), str):
            fields.setdefault("address", address["local"])
    return fields
