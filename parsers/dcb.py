"""`dcb pfc show`, `dcb app show` of iproute2 (text and JSON), and `lldptool -V PFC`.

Format: iproute2 5.11 to 7. Answers without a device in the command take it from the capture's command or the file
name, else "nic". DSCP names (CS6, AF31, EF) stand for their numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import device_from_name, evidence

KIND = "dcb"
TOPICS = ("qos", "nic_counters")

UNKNOWN_DEVICE = "nic"

_COMMAND = re.compile(r"\bdcb\b.{0,60}\bdev\s+([\w.@:-]{1,40})|\blldptool\b.{0,60}-i\s*([\w.@:-]{1,40})")
_PFC = re.compile(r"\s*prio-pfc((?: +[0-7]:(?:on|off)){1,8})\s*$")
_COUNTS = re.compile(r"\s*(requests|indications)((?: +[0-7]:\d{1,20}){1,8})\s*$")
_DSCP = re.compile(r"\s*dscp-prio((?: +\w{1,4}:[0-7])+)\s*$")
_LLDPTOOL = re.compile(r"\s*enabled=(none|[0-7](?:,[0-7])*)\s*$")
_SNIFF = re.compile(
    r"^\s*(?:prio-pfc [0-7]:(?:on|off) |pfc-cap \d+ macsec-bypass |dscp-prio \w+:[0-7]|tc-tsa [0-7]:)"
    r'|"prio_pfc": ?\[|"dscp_prio": ?\[',
    re.MULTILINE,
)

DSCP_NAMES = {
    "CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56, "EF": 46, "VA": 44, "LE": 1,
    **{f"AF{c}{d}": 8 * c + 2 * d for c in range(1, 5) for d in range(1, 4)},
}  # fmt: skip
"""Names that iproute2 prints for DSCP values (RFC 2474, 2597, 3246, 5865, 8622)."""

Fields = dict[str, str | int | float | bool]


def sniff(head: str, name: str) -> float:
    """Sure with a line that only dcb prints."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """qos_pfc, qos_dscp, and the pause frames of `-s` as nic_counter."""
    told = _device(_COMMAND.search(source.command)) if source.command else None
    named = device_from_name(source.name) if source.name.startswith("dcb") else None
    if named in ("show", "pfc", "app", "ets", "buffer"):
        named = None
    device = told or named or UNKNOWN_DEVICE
    lldptool = False
    for line in lines:
        text = line.text
        if ("dcb" in text or "lldptool" in text) and (m := _COMMAND.search(text)):
            device, lldptool = _device(m) or device, "lldptool" in text
        elif "prio-pfc" in text and (m := _PFC.match(text)):
            enabled = [word[0] for word in m.group(1).split() if word.endswith(":on")]
            yield _pfc(device, enabled, line, source)
        elif m := _COUNTS.match(text):
            way = "tx" if m.group(1) == "requests" else "rx"
            for word in m.group(2).split():
                priority, _, value = word.partition(":")
                fields: Fields = {"device": device, "name": f"{way}_prio{priority}_pause", "value": int(value)}
                yield Record("nic_counter", fields, (evidence(source, line),))
        elif "dscp-prio" in text and (m := _DSCP.match(text)):
            for word in m.group(1).split():
                name, _, priority = word.partition(":")
                dscp = int(name) if name.isdigit() else DSCP_NAMES.get(name)
                if dscp is not None and dscp < 64:
                    yield _dscp(device, dscp, int(priority), line, source)
        elif lldptool and (m := _LLDPTOOL.match(text)):
            yield _pfc(device, [] if m.group(1) == "none" else m.group(1).split(","), line, source)
        elif text.startswith('{"') and ('"prio_pfc"' in text or '"dscp_prio"' in text):
            yield from _json(device, line, source)


def _device(m: re.Match[str] | None) -> str | None:
    return (m.group(1) or m.group(2)) if m else None


def _pfc(device: str, enabled: list[str], line: Line, source: Source) -> Record:
    fields: Fields = {"device": device, "priorities": ",".join(enabled), "count": len(enabled),
                      "control": "7" in enabled}  # fmt: skip
    return Record("qos_pfc", fields, (evidence(source, line),))


def _dscp(device: str, dscp: int, priority: int, line: Line, source: Source) -> Record:
    fields: Fields = {"device": device, "dscp": dscp, "priority": priority}
    return Record("qos_dscp", fields, (evidence(source, line),))


def _json(device: str, line: Line, source: Source) -> Iterator[Record]:
    """One-line JSON: `prio_pfc` is an array by priority, `dscp_prio` a list of pairs."""
    try:
        found: Any = json.loads(line.text)
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    states, pairs = found.get("prio_pfc"), found.get("dscp_prio")
    if isinstance(states, list) and 0 < len(states) <= 8 and all(isinstance(s, bool) for s in states):
        yield _pfc(device, [str(n) for n, on in enumerate(states) if on], line, source)
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair) and 0 <= pair[0] < 64:
            yield _dscp(device, pair[0], pair[1], line, source)
