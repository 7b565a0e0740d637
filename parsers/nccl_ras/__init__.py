"""Answers of NCCL's RAS service: status as text (plain and verbose) and JSON, monitor events, diagnostics.

Formats: `ncclras` and `nc localhost 28028`, NCCL 2.24 to 2.32; JSON since 2.28.7, whose early releases leave out a
comma in `missing_ranks`; monitor mode since 2.29; diagnostics since 2.31. Ranks are those of the communicator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Line, Record, Source

from ._json import parse_json
from ._text import parse_text

KIND = "nccl_ras"
TOPICS = ("ras",)

_TEXT = re.compile(
    r"Communicators\.\.\.|Communicator ranks have different|ranks have launched up to operation"
    r"|considered dead \(unreachable via the RAS|Missing communicator data from \d"
    r"|^\s{0,8}\(total\)\s{1,8}per node\s{1,8}per process"
)
_MONITOR = re.compile(r"\] PEER_[A-Z_]{3,30}: (?:Process|Peer)|\"event\": ?\"PEER_[A-Z_]{3,30}\"")


def sniff(head: str, name: str) -> float:
    """0.9 for a status, a monitor line or a diagnostics line."""
    if '"communicators"' in head and ('"nccl_version"' in head or '"collective_counts"' in head):
        return 0.9
    if "ommunicator" in head and _TEXT.search(head):
        return 0.9
    if "PEER_" in head and _MONITOR.search(head):
        return 0.9
    return 0.9 if " NCCL DIAG " in head else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """`ras_*` and `nccl_diagnostic` records."""
    everything = list(lines)
    if any('"communicators"' in line.text for line in everything):
        yield from parse_json(everything, source)
    yield from parse_text(everything, source)
