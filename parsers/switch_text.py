"""Counters of switch ports as text: PFC counters, queue drops, PFC watchdog, LLDP table.

Format: SONiC `show pfc counters`, `show queue counters`, `show pfcwd stats`, `show lldp table` (thousands separators,
`N/A`); Cisco NX-OS `show interface priority-flow-control` and the PFC and drop lines of `show queuing interface`;
Arista `show priority-flow-control counters`; Cumulus `nv show interface swp1 counters qos pfc-stats`. Directions are
the switch's: rx came from the host, tx went to it. The switch is named by the prompt or by the file name
(`leaf-a1.show-pfc-counters.txt`), else called "switch".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence

KIND = "switch_text"
TOPICS = ("switch_counters", "lldp")

UNKNOWN_SWITCH = "switch"
MAX_PORTS = 4_096

_PORT = r"(?:Ethernet|Eth|Et|etp|PortChannel|swp|ii)[\w/.:-]{1,30}"
_PROMPT = re.compile(r"(?:[\w.-]{1,40}@)?([A-Za-z][\w.-]{0,60})(?::[^$#>\n]{0,40})?[#>$]\s*(?:sudo )?(?:nv )?show\s")
_FILE = re.compile(r"([A-Za-z][\w-]{0,60}?)[._ -]+show[-_. ]")
_SONIC_PFC = re.compile(r"\s*Port (Rx|Tx)((?:\s+PFC[0-7])+)\s*$")
_SONIC_QUEUE = re.compile(r"\s*Port\s+TxQ\s+Counter/pkts\s+Counter/bytes\s+Drop/pkts\s+Drop/bytes")
_QUEUE_ROW = re.compile(rf"\s*({_PORT})\s+(UC|MC|ALL)(\d{{1,2}})((?:\s+(?:[\d,]+|N/A)){{4,8}})\s*$")
_WATCHDOG = re.compile(
    rf"\s*({_PORT}):(\d{{1,2}})\s+(operational|stormed|N/A)\s+(\d+)/(\d+)\s+(\d+)/(\d+)\s+(\d+)/(\d+)"
)
_LLDP_ROW = re.compile(rf"\s*({_PORT})\s{{1,60}}(\S+)\s{{1,60}}(\S+)\s{{1,60}}([A-Z]*)\s{{1,60}}(\S+)\s*$")
_NXOS_PFC = re.compile(
    rf"\s*({_PORT})\s+(?:Auto|On|Off)\s+(On|Off)\s+(?:\(([0-9a-fA-F]{{1,2}})\)\s+)?(\d+)\s+(\d+)\s*$"
)
_NXOS_QUEUING = re.compile(rf"\s*(?:Egress|Ingress) Queuing for ({_PORT})")
_LINK_STATES = ("Active", "Inactive")
_NXOS_DROP = re.compile(r"\W*Ingress MMU Drop Pkts\W+(\d+)")
_ARISTA = re.compile(r"\s*Port\s+RxPfc\s+TxPfc\s*$")
_ARISTA_ROW = re.compile(rf"\s*({_PORT})\s+(\d+)\s+(\d+)\s*$")
_CUMULUS = re.compile(r"\s*switch-priority((?:\s+[rt]x-[a-z-]{3,30}){1,8})\s*$")
_CUMULUS_PORT = re.compile(rf"\bnv show interface ({_PORT})\b")
_CUMULUS_ROW = re.compile(r"\s*([0-7])((?:\s+\d{1,20}){1,8})\s*$")
_SNIFF = re.compile(
    r"^\s*Port [RT]x\s+PFC0|^\s*Port\s+TxQ\s+Counter/pkts|^LocalPort\s+RemoteDevice|^\s*QUEUE\s+STATUS\s+STORM DETECTED"
    r"|\bOper\(VL bmap\)|^\s*Port\s+RxPfc\s+TxPfc|^\s*(?:Egress|Ingress) Queuing for Eth"
    r"|^\s*switch-priority\s+[rt]x-pause-",
    re.MULTILINE,
)

Fields = dict[str, str | int | float | bool]


@dataclass(slots=True)
class _Pfc:
    """PFC counters of one port: pauses by priority and direction, and the lines that told."""

    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)


class _Reader:
    """Tables of one switch."""

    def __init__(self, switch: str) -> None:
        self.switch = switch
        self.mode: str | None = None
        self.priorities: list[int] = []
        self.pfc: dict[str, _Pfc] = {}
        self.drops: dict[str, tuple[int, Line]] = {}
        self.port: str | None = None
        self.columns: list[str] = []

    def tables(self, source: Source) -> Iterator[Record]:
        """Records of the tables that are joined by port; priorities without a pause anywhere are left out."""
        active = sorted({priority for p in self.pfc.values() for (priority, _), n in p.counts.items() if n})
        for port, pfc in self.pfc.items():
            shown = tuple(evidence(source, line) for line in pfc.lines.values())
            for priority in active:
                fields: Fields = {"switch": self.switch, "port": port, "priority": priority}
                for way in ("rx", "tx"):
                    if (priority, way) in pfc.counts:
                        fields[f"{way}_pause"] = pfc.counts[priority, way]
                if len(fields) > 3:
                    yield Record("switch_pfc", fields, shown)
            if not active:
                told = {way for _, way in pfc.counts}
                yield Record("switch_pfc", {"switch": self.switch, "port": port,
                                            **{f"{way}_pause": 0 for way in sorted(told)}}, shown)  # fmt: skip
        for port, (drops, line) in self.drops.items():
            yield Record("switch_pfc", {"switch": self.switch, "port": port, "drops": drops}, (evidence(source, line),))
        self.pfc, self.drops = {}, {}


def sniff(head: str, name: str) -> float:
    """Sure with the header of one of the tables."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """switch_pfc, switch_pfc_watchdog, and lldp_neighbour of the hosts in the LLDP table."""
    named = _FILE.match(source.name)
    reader = _Reader(named.group(1) if named else UNKNOWN_SWITCH)
    for line in lines:
        text = line.text
        if "show" in text and (m := _PROMPT.match(text)):
            yield from reader.tables(source)
            reader = _Reader(m.group(1))
            port = _CUMULUS_PORT.search(text)
            reader.port = port.group(1) if port else None
        elif m := _SONIC_PFC.match(text):
            reader.mode = m.group(1).lower()
            reader.priorities = [int(word[3:]) for word in m.group(2).split()]
        elif _SONIC_QUEUE.match(text):
            reader.mode = "queue"
        elif text.startswith("LocalPort"):
            reader.mode = "lldp" if "RemoteDevice" in text else None
        elif "STORM DETECTED" in text and "QUEUE" in text:
            reader.mode = "watchdog"
        elif "Oper(VL bmap)" in text:
            reader.mode = "nxos"
        elif _ARISTA.match(text):
            reader.mode = "arista"
        elif m := _CUMULUS.match(text):
            reader.mode, reader.columns = "cumulus", m.group(1).split()
        elif m := _NXOS_QUEUING.match(text):
            reader.mode, reader.port = "queuing", m.group(1)
        elif reader.mode is not None:
            yield from _row(reader, text, line, source)
    yield from reader.tables(source)


def _row(reader: _Reader, text: str, line: Line, source: Source) -> Iterator[Record]:
    """One row of the table that is open."""
    if reader.mode in ("rx", "tx"):
        _sonic_pfc(reader, text, line)
    elif reader.mode == "queue" and (m := _QUEUE_ROW.match(text)):
        yield from _queue(reader, m, line, source)
    elif reader.mode == "watchdog" and (m := _WATCHDOG.match(text)):
        fields: Fields = {
            "switch": reader.switch, "port": m.group(1), "priority": int(m.group(2)), "status": m.group(3),
            "detected": int(m.group(4)), "restored": int(m.group(5)), "drops": int(m.group(7)) + int(m.group(9)),
        }  # fmt: skip
        yield Record("switch_pfc_watchdog", fields, (evidence(source, line),))
    elif reader.mode == "lldp" and (m := _LLDP_ROW.match(text)):
        if re.fullmatch(_PORT, m.group(5)):
            return
        fields = {"device": m.group(5), "switch": reader.switch, "port": m.group(1)}
        yield Record("lldp_neighbour", fields, (evidence(source, line),), host=m.group(2))
    elif reader.mode == "nxos" and (m := _NXOS_PFC.match(text)):
        fields = {"switch": reader.switch, "port": m.group(1), "rx_pause": int(m.group(4)), "tx_pause": int(m.group(5)),
                  "enabled": m.group(2) == "On"}  # fmt: skip
        bits = int(m.group(3), 16) if m.group(3) else 0
        if bits and bits & (bits - 1) == 0:
            fields["priority"] = bits.bit_length() - 1
        yield Record("switch_pfc", fields, (evidence(source, line),))
    elif reader.mode == "arista" and (m := _ARISTA_ROW.match(text)):
        fields = {"switch": reader.switch, "port": m.group(1), "rx_pause": int(m.group(2)), "tx_pause": int(m.group(3))}
        yield Record("switch_pfc", fields, (evidence(source, line),))
    elif reader.mode == "cumulus" and reader.port is not None and (m := _CUMULUS_ROW.match(text)):
        told = dict(zip(reader.columns, m.group(2).split(), strict=False))
        fields = {"switch": reader.switch, "port": reader.port, "priority": int(m.group(1))}
        fields |= {f"{way}_pause": int(told[key]) for way in ("rx", "tx") if (key := f"{way}-pause-frames") in told}
        if len(fields) > 3:
            yield Record("switch_pfc", fields, (evidence(source, line),))
    elif reader.mode == "queuing" and reader.port is not None:
        yield from _nxos_queuing(reader, reader.port, text, line, source)


def _sonic_pfc(reader: _Reader, text: str, line: Line) -> None:
    words = text.split()
    if len(words) != len(reader.priorities) + 1 or not re.fullmatch(_PORT, words[0]):
        return
    if len(reader.pfc) >= MAX_PORTS and words[0] not in reader.pfc:
        return
    pfc = reader.pfc.setdefault(words[0], _Pfc())
    pfc.lines[str(reader.mode)] = line
    for priority, word in zip(reader.priorities, words[1:], strict=True):
        if (count := _count(word)) is not None:
            pfc.counts[priority, str(reader.mode)] = count


def _queue(reader: _Reader, m: re.Match[str], line: Line, source: Source) -> Iterator[Record]:
    """Drops of one queue: added to its port's sum; told by itself when it dropped."""
    port, kind, number = m.group(1), m.group(2), int(m.group(3))
    drops = _count(m.group(4).split()[2])
    if drops is None or kind == "ALL" or (len(reader.drops) >= MAX_PORTS and port not in reader.drops):
        return
    before, first = reader.drops.get(port, (0, line))
    reader.drops[port] = (before + drops, line if drops else first)
    if drops and kind == "UC" and number < 8:
        fields: Fields = {"switch": reader.switch, "port": port, "priority": number, "drops": drops}
        yield Record("switch_pfc", fields, (evidence(source, line),))


def _nxos_queuing(reader: _Reader, port: str, text: str, line: Line, source: Source) -> Iterator[Record]:
    words = text.replace("|", " ").split()
    if len(words) == 7 and words[0] in set("01234567") and words[3] in _LINK_STATES and words[5] in _LINK_STATES:
        sent, received = _count(words[4]), _count(words[6])
        if sent or received:
            fields: Fields = {"switch": reader.switch, "port": port, "priority": int(words[0])}
            for name, count in (("tx_pause", sent), ("rx_pause", received)):
                if count is not None:
                    fields[name] = count
            yield Record("switch_pfc", fields, (evidence(source, line),))
    elif m := _NXOS_DROP.match(text):
        fields = {"switch": reader.switch, "port": port, "drops": int(m.group(1))}
        yield Record("switch_pfc", fields, (evidence(source, line),))


def _count(word: str) -> int | None:
    """A count with thousands separators; N/A is unknown."""
    digits = word.replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None
