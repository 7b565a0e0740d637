"""What LogView shows: documents of log rows, made from evidence or from a whole source."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diagnose.model import Evidence, Line

from .case import LineReader, window
from .plain import fit

BLOCK = 512
"""Lines read at a time from a source."""


@dataclass(frozen=True)
class LogRow:
    """One line as drawn: number (None for headings), text fit for cells, look, spans to highlight, evidence or not."""

    number: int | None
    text: str
    token: str = "text"
    spans: Sequence[tuple[int, int]] = ()
    hit: bool = False


class LogDocument(Protocol):
    """Rows by position."""

    def __len__(self) -> int: ...

    def row(self, index: int) -> LogRow: ...


class Rows:
    """A document that is all there."""

    def __init__(self, rows: Sequence[LogRow]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> LogRow:
        return self._rows[index]


class SourceRows:
    """A whole source, read by blocks as they come into view; evidence lines are marked."""

    def __init__(self, reader: LineReader, marked: Sequence[Evidence] = ()) -> None:
        self._reader = reader
        self._marked: dict[int, list[Evidence]] = {}
        for evidence in marked:
            for number in range(evidence.first, evidence.last + 1):
                self._marked.setdefault(number, []).append(evidence)
        self._blocks: OrderedDict[int, list[Line]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._reader)

    def line(self, index: int) -> Line | None:
        """The line at a position (0-based); None past the end."""
        number, offset = divmod(index, BLOCK)
        block = self._blocks.get(number)
        if block is None:
            block = window(self._reader, number * BLOCK + 1, (number + 1) * BLOCK)
            self._blocks[number] = block
            if len(self._blocks) > 64:
                self._blocks.popitem(last=False)
        return block[offset] if offset < len(block) else None

    def row(self, index: int) -> LogRow:
        line = self.line(index)
        if line is None:
            return LogRow(None, "")
        return _row(line, self._marked.get(line.number, ()))


def spans_in(evidence: Evidence, line: Line) -> list[tuple[int, int]]:
    """The highlighted columns of one line of an evidence; its text may lack a prefix that the line has."""
    start = 0
    for number, part in enumerate(evidence.text.split("\n"), evidence.first):
        if number == line.number:
            shift = line.text.find(part) if part else -1
            if shift < 0:
                return []
            inside = [(a - start, b - start) for a, b in evidence.spans if a < start + len(part) and b > start]
            return [(max(0, a) + shift, min(len(part), b) + shift) for a, b in inside]
        start += len(part) + 1
    return []


def _row(line: Line, evidence: Sequence[Evidence]) -> LogRow:
    mine = [e for e in evidence if e.first <= line.number <= e.last]
    text, spans = fit(line.text, [span for e in mine for span in spans_in(e, line)])
    return LogRow(line.number, text, "text", spans, bool(mine))


@dataclass(frozen=True)
class Sheet:
    """Evidence laid out: rows, and for each evidence item where to scroll to and its first line."""

    rows: Sequence[LogRow]
    starts: Sequence[int]
    hits: Sequence[int]


def sheet(items: Sequence[Evidence], lines: Sequence[Sequence[Line] | None], heading: Callable[[str], str]) -> Sheet:
    """Evidence items in their order, each with the lines read around it; neighbours in one source share a section.

    `lines` may be shorter than `items` or hold None: then the excerpt alone is shown. `heading` names a source.
    """
    rows: list[LogRow] = []
    starts: list[int] = []
    hits: list[int] = []
    number = 0
    while number < len(items):
        section: dict[int, Line] = {}
        first = number
        while number < len(items) and (number == first or _touches(section, items[number], items[first])):
            read = lines[number] if number < len(lines) else None
            section.update((line.number, line) for line in read or _excerpt(items[number]))
            number += 1
        if rows:
            rows.append(LogRow(None, ""))
        start = len(rows)
        rows.append(LogRow(None, fit(heading(items[first].source))[0], "head"))
        places = {n: start + 1 + i for i, n in enumerate(sorted(section))}
        rows += [_row(section[n], items[first:number]) for n in sorted(section)]
        for evidence in items[first:number]:
            hit = places.get(evidence.first, start)
            starts.append(hit if starts and len(starts) > first else start)
            hits.append(hit)
    return Sheet(rows, starts, hits)


def _excerpt(evidence: Evidence) -> list[Line]:
    return [Line(n, part) for n, part in enumerate(evidence.text.split("\n"), evidence.first)]


def _touches(section: dict[int, Line], evidence: Evidence, before: Evidence) -> bool:
    """Is the evidence within or right after the lines of the section?"""
    return evidence.source == before.source and min(section) <= evidence.first <= max(section) + 1
