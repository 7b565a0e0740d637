"""`mlnx_qos -i DEV`: trust mode, DSCP map, PFC priorities of a ConnectX interface.

Format: mlnx-tools and MLNX_OFED 4 to 24. A priority's DSCPs take several `prio:N dscp:` lines of eight; pastes lose the
tabs of the PFC table. The device comes from the command typed, the capture's command or the file name, else "nic".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Line, Record, Source
from diagnose.parsing import device_from_name, evidence, is_gap, problem

KIND = "mlnx_qos"
TOPICS = ("qos",)

UNKNOWN_DEVICE = "nic"

_COMMAND = re.compile(r"\bmlnx_qos\b.{0,80}?(?:-i|--interface)[ =]?\s*([\w.@:-]{1,40})")
_TRUST = re.compile(r"\s*Priority trust state: (dscp|pcp|both)\b", re.IGNORECASE)
_DSCP = re.compile(r"\s*prio:([0-7]) dscp:([\d, ]*\d,?)\s*$")
_ENABLED = re.compile(r"\s*enabled((?:\s+[01]){1,8})\s*$")
_PRIORITY = re.compile(r"\s*priority((?:\s+[0-7]){1,8})\s*$")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,62}): (.*)", re.DOTALL)
_SNIFF = re.compile(
    r"^(?:[\w.-]{1,63}: )?\s*(?:Priority trust state: |PFC configuration:\s*$|DCBX mode: (?:OS|Firmware) controlled"
    r"|prio:[0-7] dscp:\d)",
    re.MULTILINE,
)
_STARTS = ("DCBX mode:", "Priority trust state:")


def sniff(head: str, name: str) -> float:
    """Sure with one of the tool's section lines."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """qos_trust, qos_dscp (one per DSCP) and qos_pfc of each answer."""
    told = _COMMAND.search(source.command) if source.command else None
    named = device_from_name(source.name) if source.name.startswith("mlnx_qos") else None
    default = told.group(1) if told else (named if named and named != "i" else UNKNOWN_DEVICE)
    device, host = default, None
    columns: tuple[int, ...] | None = None
    in_pfc = False
    header: Line | None = None
    for line in lines:
        text = line.text
        if "mlnx_qos" in text and (m := _COMMAND.search(text)):
            device, host, in_pfc = m.group(1), None, False
            continue
        if is_gap(text):
            device, host, in_pfc = UNKNOWN_DEVICE, None, False
            continue
        if (m := _HOST.match(text)) and (m.group(2).startswith(_STARTS) or m.group(1) == host):
            host, text = m.group(1), m.group(2)
        if m := _TRUST.match(text):
            fields: dict[str, str | int | float | bool] = {"device": device, "trust": m.group(1).lower()}
            yield Record("qos_trust", fields, (evidence(source, line),), host=host)
        elif "dscp:" in text and (m := _DSCP.match(text)):
            yield from _mapped(m, device, host, line, source)
        elif text.strip() == "PFC configuration:":
            in_pfc, columns, header = True, None, line
        elif in_pfc and (m := _PRIORITY.match(text)):
            columns = tuple(int(word) for word in m.group(1).split())
        elif in_pfc and (m := _ENABLED.match(text)):
            in_pfc = False
            states = m.group(1).split()
            order = columns or tuple(range(8))
            if len(states) != len(order):
                yield problem(source, f"PFC table of {device}: {len(states)} states, {len(order)} priorities", line)
                continue
            enabled = [str(n) for n, state in zip(order, states, strict=True) if state == "1"]
            fields = {"device": device, "priorities": ",".join(enabled), "count": len(enabled),
                      "control": "7" in enabled}  # fmt: skip
            yield Record("qos_pfc", fields, (evidence(source, line),), host=host)
        elif in_pfc and text.strip().startswith("enabled"):
            in_pfc = False
            yield problem(source, f"PFC table of {device} cannot be read", line)
    if in_pfc and header is not None:
        yield problem(source, f"PFC table of {device} ends early", header)


def _mapped(m: re.Match[str], device: str, host: str | None, line: Line, source: Source) -> Iterator[Record]:
    """One record per DSCP of a `prio:3 dscp:31,30,…` line."""
    for word in m.group(2).replace(" ", "").split(","):
        if word and int(word) < 64:
            fields = {"device": device, "dscp": int(word), "priority": int(m.group(1))}
            yield Record("qos_dscp", fields, (evidence(source, line),), host=host)
