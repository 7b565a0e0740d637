"""GID tables: `show_gids`, `ibv_devinfo -v`, sysfs `gids` and `gid_attrs` files.

Format: MLNX_OFED script (header `DEV PORT INDEX GID IPv4 VER DEV`, tab separated, the IPv4 cell empty for link-local),
rdma-core 30+ (`GID[  3]: ::ffff:192.0.2.7, RoCE v2`; older releases print full hex and no type). Empty entries do not
count.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence

KIND = "show_gids"
TOPICS = ("rdma_gid",)

_ROW = re.compile(
    r"\s*([A-Za-z][\w.-]{0,39})\s+(\d{1,3})\s+(\d{1,4})\s+([0-9a-fA-F:]{15,39})\s+(?:(\d{1,3}(?:\.\d{1,3}){3})\s+)?v([12])(?:\s+(\S+))?\s*$"
)
_HCA_ID = re.compile(r"hca_id:\s+([\w.-]{1,40})")
_PORT = re.compile(r"\s+port:\s+(\d{1,3})\s*$")
_GID = re.compile(r"\s*GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]{2,45})\s*(?:,(.*))?$")
_SYSFS = re.compile(
    r"(?:^|/)([A-Za-z][\w.-]{0,39})/ports/(\d{1,3})/(gids|gid_attrs/types|gid_attrs/ndevs)/(\d{1,4})\s*:\s*(\S.*)"
)
_SNIFF = re.compile(
    r"^DEV\s+PORT\s+INDEX\s+GID\b|^\s*[A-Za-z][\w.-]{0,39}\s+\d{1,3}\s+\d{1,4}\s+[0-9a-f]{4}(?::[0-9a-f]{4}){7}\s"
    r"|^\s*GID\[\s*\d{1,4}\]:\s|/ports/\d{1,3}/gids/\d{1,4}\s*:",
    re.MULTILINE,
)

Fields = dict[str, str | int | float | bool]


@dataclass(slots=True)
class _Entry:
    fields: Fields
    lines: list[Line] = field(default_factory=list)


def sniff(head: str, name: str) -> float:
    """Sure with the table's header, a row, or a GID line."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """One `rdma_gid` per entry that holds a GID."""
    entries: dict[tuple[str, int | None, int], _Entry] = {}
    device: str | None = None
    port: int | None = None
    for line in lines:
        text = line.text
        if m := _ROW.match(text):
            fields = _fields(m.group(1), int(m.group(2)), int(m.group(3)), m.group(4))
            if fields is not None:
                fields["type"] = "v" + m.group(6)
                if m.group(5):
                    fields["address"] = m.group(5)
                if m.group(7):
                    fields["netdev"] = m.group(7)
                entries[m.group(1), int(m.group(2)), int(m.group(3))] = _Entry(fields, [line])
        elif m := _HCA_ID.match(text):
            device, port = m.group(1), None
        elif "port:" in text and (m := _PORT.match(text)):
            port = int(m.group(1))
        elif "GID[" in text and (m := _GID.match(text)):
            fields = _fields(device, port, int(m.group(1)), m.group(2)) if device else None
            if fields is not None and device:
                _type(fields, m.group(3) or "")
                entries[device, port, int(m.group(1))] = _Entry(fields, [line])
        elif "/gid" in text and (m := _SYSFS.search(text)):
            _sysfs(entries, m, line)
    for entry in entries.values():
        if "gid" in entry.fields:
            yield Record("rdma_gid", entry.fields, tuple(evidence(source, line) for line in entry.lines[:4]))


def _sysfs(entries: dict[tuple[str, int | None, int], _Entry], m: re.Match[str], line: Line) -> None:
    device, port, folder, index, value = m.group(1), int(m.group(2)), m.group(3), int(m.group(4)), m.group(5).strip()
    key = (device, port, index)
    if folder == "gids":
        fields = _fields(device, port, index, value)
        if fields is not None:
            entry = entries.setdefault(key, _Entry({}))
            entry.fields.update(fields)
            entry.lines.append(line)
    elif "cat:" not in value and "rror" not in value and len(entries) < 100_000:
        entry = entries.setdefault(key, _Entry({}))
        if folder.endswith("types"):
            _type(entry.fields, value)
        elif re.fullmatch(r"\S{1,40}", value):
            entry.fields["netdev"] = value
        entry.lines.append(line)


def _type(fields: Fields, text: str) -> None:
    """`RoCE v2` -> v2, `IB/RoCE v1` -> v1."""
    if "v2" in text:
        fields["type"] = "v2"
    elif "v1" in text:
        fields["type"] = "v1"


def _fields(device: str, port: int | None, index: int, gid: str) -> Fields | None:
    """Fields of an entry; None when the GID is empty or no address."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return None
    if int(address) == 0:
        return None
    fields: Fields = {"device": device, "index": index, "gid": gid}
    if port is not None:
        fields["port"] = port
    if address.ipv4_mapped is not None:
        fields["address"] = str(address.ipv4_mapped)
    return fields
