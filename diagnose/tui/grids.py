"""The tables `progress` and `topology` of a diagnosis, checked and made ready for drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from diagnose.model import UNNAMED_HOST, Diagnosis, fold_ranks, unfold_ranks

STATES: dict[str, str] = {"done": "■", "waiting": "▣", "absent": "·", "failed": "×", "unknown": "?"}
"""State of a rank at a collective -> glyph."""

STATE_TOKENS: dict[str, str] = {
    "done": "ok",
    "waiting": "minor",
    "absent": "odd",
    "failed": "critical",
    "unknown": "muted",
}

Zoom = Literal["job", "node", "rank"]
ZOOMS: tuple[Zoom, ...] = ("job", "node", "rank")
MAX_RANKS = 100_000


@dataclass(frozen=True)
class RankRow:
    """Ranks that look alike: `ranks` folded, `count` how many, `states` one per collective of the group."""

    ranks: str
    count: int
    host: str
    states: tuple[str, ...]
    note: str
    odd: bool


@dataclass(frozen=True)
class RankGroup:
    """A process group: its collectives in order, its rows as the table gives them, and the hosts of ranks."""

    name: str
    op: str
    seqs: tuple[str, ...]
    rows: tuple[RankRow, ...]
    hosts: Mapping[int, str] = field(default_factory=dict)


def _state(value: Any) -> str:
    text = str(value)
    return text if text in STATES else "unknown"


def _count(ranks: str) -> int:
    return len(unfold_ranks(ranks)) or 1


def rank_groups(diagnosis: Diagnosis | None) -> list[RankGroup]:
    """Groups of the progress table; none where the evidence has none."""
    table = diagnosis.tables.get("progress") if diagnosis else None
    groups: list[RankGroup] = []
    hosts = _hosts(table.get("hosts") if isinstance(table, Mapping) else None)
    for group in _mappings(table.get("groups") if isinstance(table, Mapping) else None):
        rows = [
            RankRow(
                str(row.get("ranks", "?")),
                _count(str(row.get("ranks", "?"))),
                str(row.get("host") or ""),
                tuple(_state(s) for s in row.get("states") or ()),
                str(row.get("note") or ""),
                bool(row.get("odd")),
            )
            for row in _mappings(group.get("rows"))
        ]
        seqs = tuple(str(s) for s in group.get("seqs") or ())
        groups.append(RankGroup(str(group.get("group", "")), str(group.get("op") or ""), seqs, tuple(rows), hosts))
    return groups


def _hosts(value: Any) -> dict[int, str]:
    """Rank -> host, of a table of hosts and their ranks."""
    found: dict[int, str] = {}
    for host, ranks in value.items() if isinstance(value, Mapping) else ():
        numbers = _numbers(str(ranks))
        if len(found) + len(numbers) > MAX_RANKS:
            break
        found.update(dict.fromkeys(numbers, str(host)))
    return found


def _numbers(ranks: str) -> list[int]:
    """Ranks of a row; none where the text is no list of ranks."""
    try:
        return unfold_ranks(ranks)[:MAX_RANKS]
    except ValueError:
        return []


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def zoomed(group: RankGroup, zoom: Zoom) -> list[RankRow]:
    """Rows at a level: all ranks alike in one row, one row per host and look, or one row per rank; odd ones first."""
    if zoom == "rank":
        ranks = [(row, n) for row in group.rows for n in _numbers(row.ranks)][:MAX_RANKS]
        ranks.sort(key=lambda pair: (not pair[0].odd, pair[1]))
        return [replace(row, ranks=str(n), count=1, host=group.hosts.get(n, row.host)) for row, n in ranks]
    rows = [part for row in group.rows for part in _by_host(row, group.hosts)] if zoom == "node" else group.rows
    merged: dict[tuple[str, ...], list[RankRow]] = {}
    for row in rows:
        key = (row.host if zoom == "node" else "", row.note, str(row.odd), *row.states)
        merged.setdefault(key, []).append(row)
    found = [_merge(alike) for alike in merged.values()]
    if zoom == "node":
        return sorted(found, key=lambda row: (not row.odd, (_numbers(row.ranks.split(",")[0]) or [MAX_RANKS])[0]))
    return sorted(found, key=lambda row: (not row.odd, row.count))


def _by_host(row: RankRow, hosts: Mapping[int, str]) -> list[RankRow]:
    """The row as one row per host; as it is where hosts are not known."""
    ranks: dict[str, list[int]] = {}
    for n in _numbers(row.ranks):
        ranks.setdefault(hosts.get(n, ""), []).append(n)
    if not ranks or ranks.keys() == {""}:
        return [row]
    return [replace(row, ranks=fold_ranks(part), count=len(part), host=host) for host, part in ranks.items()]


def _merge(rows: Sequence[RankRow]) -> RankRow:
    if len(rows) == 1:
        return rows[0]
    first = rows[0]
    try:
        ranks = fold_ranks(n for row in rows for n in unfold_ranks(row.ranks))
    except ValueError:
        ranks = ",".join(row.ranks for row in rows)
    hosts = {row.host for row in rows}
    host = first.host if len(hosts) == 1 else ""
    return RankRow(ranks, sum(row.count for row in rows), host, first.states, first.note, first.odd)


@dataclass(frozen=True)
class Cell:
    """One cell of a topology matrix: kind of link, and whether it is at fault."""

    text: str
    odd: bool = False


@dataclass(frozen=True)
class HostMatrix:
    """Devices of a host against devices: `cells[i][j]` is how row i reaches column j."""

    host: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


def topology(diagnosis: Diagnosis | None) -> list[HostMatrix]:
    """Matrices of the topology table; none where the evidence has none."""
    table = diagnosis.tables.get("topology") if diagnosis else None
    matrices: list[HostMatrix] = []
    for entry in _mappings(table.get("hosts") if isinstance(table, Mapping) else None):
        rows = _mappings(entry.get("rows"))
        cells = tuple(tuple(_cell(c) for c in row.get("cells") or ()) for row in rows)
        columns = tuple(str(c) for c in entry.get("columns") or ())
        matrices.append(
            HostMatrix(_host(entry.get("host")), columns, tuple(str(r.get("name", "")) for r in rows), cells)
        )
    return matrices


def _cell(value: Any) -> Cell:
    if isinstance(value, Mapping):
        return Cell(str(value.get("text", "")), bool(value.get("odd")))
    return Cell("" if value is None else str(value))


def _host(name: object) -> str:
    return "the host" if name == UNNAMED_HOST else str(name or "")


def faulty(diagnosis: Diagnosis | None) -> dict[tuple[str, str], str]:
    """(host, device) -> key of the first finding about it, most urgent first."""
    found: dict[tuple[str, str], str] = {}
    for finding in diagnosis.findings if diagnosis else ():
        for subject in finding.subjects:
            if subject.host and subject.kind != "host" and subject.host != subject.name:
                found.setdefault((subject.host, subject.name.lower()), finding.key)
    return found
