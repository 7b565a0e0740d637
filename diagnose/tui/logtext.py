"""What LogView shows: documents of log rows, made from evidence or from a whole source."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
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
        self._marked = {n: e for e in marked for n in range(e.first, e.last + 1)}
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
        evidence = self._marked.get(line.number)
        return _row(line, evidence)


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


def _row(line: Line, evidence: Evidence | None) -> LogRow:
    if evidence is None or not evidence.first <= line.number <= evidence.last:
        text, _ = fit(line.text)
        return LogRow(line.number, text)
    text, spans = fit(line.text, spans_in(evidence, line))
    return LogRow(line.number, text, "text", spans, True)


def evidence_rows(evidence: Evidence, heading: str, lines: Sequence[Line] | None) -> list[LogRow]:
    """Heading, then the lines with their context; without `lines` (not read yet, or gone) the excerpt alone."""
    if not lines:
        lines = [Line(n, part) for n, part in enumerate(evidence.text.split("\n"), evidence.first)]
    return [LogRow(None, fit(heading)[0], "head"), *(_row(line, evidence) for line in lines)]
