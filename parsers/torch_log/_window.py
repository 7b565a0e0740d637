"""Finds the lines of a log that matter: literal gates over whole blocks, then a bounded look-ahead from each hit."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from diagnose.model import Block, Evidence, Line, Source
from diagnose.parsing import evidence

from ._head import Segment, Years, segments

LOOK_AHEAD = 20_000
"""Lines that a record may reach beyond its first one (tracebacks, launcher reports)."""

_BLOCK_LINES = 20_000
_STRIDE = 200
_MAX_SHOWN = 12

Identity = tuple[int | str | None, ...]


def identity(segment: Segment) -> Identity:
    """What tells speakers apart: global rank, task, local rank, host."""
    speaker = segment.speaker
    return speaker.rank, speaker.task, speaker.local_rank, speaker.host


class Window:
    """Lines of a part of the log; `hits` are indices of gated lines, `first` is the number of the first line."""

    def __init__(self, first: int, lines: list[str], hits: list[int], source: Source) -> None:
        self.first = first
        self.lines = lines
        self.hits = hits
        self.source = source
        self._segments: dict[int, Segment] = {}
        self._spoken: dict[Identity, list[int]] = {}
        self._indexed = 0

    def segment(self, index: int) -> Segment:
        """The message of a line that names its rank, else the first."""
        found = self._segments.get(index)
        if found is None:
            all_of = list(segments(self.lines[index], Years(None)))
            found = next((s for s in all_of if s.speaker.rank is not None), all_of[0])
            self._segments[index] = found
        return found

    def lines_of(self, speaker: Identity, after: int) -> Iterator[int]:
        """Indices of the speaker's lines after an index, at most LOOK_AHEAD lines away."""
        self._indexed = max(self._indexed, after + 1)
        end = min(after + 1 + LOOK_AHEAD, len(self.lines))
        while True:
            spoken = self._spoken.get(speaker, [])
            n = bisect.bisect_right(spoken, after)
            while n < len(spoken) and spoken[n] < end:
                after = spoken[n]
                yield after
                n += 1
            if n < len(spoken) or self._indexed >= end:
                return
            self._index(min(self._indexed + _STRIDE, len(self.lines)))

    def _index(self, end: int) -> None:
        for index in range(self._indexed, end):
            self._spoken.setdefault(identity(self.segment(index)), []).append(index)
        self._indexed = end

    def line(self, index: int) -> Line:
        """A line with its number."""
        return Line(self.first + index, self.lines[index])

    def evidence(self, first: int, last: int | None = None) -> Evidence:
        """Evidence of the lines `first` to `last` (indices, inclusive)."""
        last = first if last is None else min(last, len(self.lines) - 1)
        return evidence(self.source, *(self.line(i) for i in range(first, last + 1)))

    def evidence_of(self, indices: Sequence[int]) -> Evidence:
        """Evidence of lines with others between them; only the last of many are shown."""
        shown = indices[-_MAX_SHOWN:]
        return evidence(self.source, *(self.line(i) for i in shown))


def blocks_of(lines: Iterable[Line]) -> Iterator[Block]:
    """Lines as blocks of contiguous lines."""
    pending: list[str] = []
    first = expected = 1
    for line in lines:
        if pending and (line.number != expected or len(pending) >= _BLOCK_LINES):
            yield Block(first, "\n".join(pending))
            pending = []
        if not pending:
            first = line.number
        pending.append(line.text)
        expected = line.number + 1
    if pending:
        yield Block(first, "\n".join(pending))


def windows(blocks: Iterable[Block], source: Source, gates: Sequence[str]) -> Iterator[Window]:
    """Windows whose hits have at least LOOK_AHEAD lines after them, save at the end of the log.

    Every line is a hit at most once. Windows without a hit are not produced.
    """
    held = ""
    first = 1
    started = False
    for block in blocks:
        text = block.text[:-1] if block.text.endswith("\n") else block.text
        if not started:
            first, started = block.first, True
        else:
            missing = block.first - (first + held.count("\n") + 1)
            text = held + "\n" * (1 + min(max(missing, 0), 1)) + text
        cut = _start_of_tail(text)
        if cut:
            yield from _window(text, cut, first, source, gates)
            first += text.count("\n", 0, cut)
        held = text[cut:]
    if started:
        yield from _window(held, len(held), first, source, gates)


def _start_of_tail(text: str) -> int:
    at = len(text)
    for _ in range(LOOK_AHEAD):
        at = text.rfind("\n", 0, at)
        if at == -1:
            return 0
    return at + 1


def _window(text: str, limit: int, first: int, source: Source, gates: Sequence[str]) -> Iterator[Window]:
    starts = gated(text, limit, gates)
    if not starts:
        return
    hits: list[int] = []
    index = previous = 0
    for start in starts:
        index += text.count("\n", previous, start)
        previous = start
        hits.append(index)
    yield Window(first, text.split("\n"), hits, source)


def gated(text: str, limit: int, gates: Sequence[str]) -> list[int]:
    """Offsets of the starts of the lines before `limit` that hold any of the literals, in order."""
    starts: set[int] = set()
    for gate in gates:
        at = text.find(gate, 0, limit)
        while at != -1:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            if end == -1:
                break
            at = text.find(gate, end, limit)
    return sorted(starts)
