"""Gathers what the messages say, joins what belongs together, and fills the digest at the end of the log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Digest, Evidence, Record, Scalar, Source
from diagnose.parsing import problem, unprefix

from ._head import Segment, Speaker, Years, group_of, rank_of, segments
from ._watchdog import event, squeeze, status, work
from ._window import Window

_MAX_WRAPPED = 12
_WRAP_COLUMNS = 60
_MAX_LINKS = 50_000
_MAX_TEXT = 300

_RESTATED = ("terminated with exception", "what():")


@dataclass(slots=True)
class Timeout:
    """A watchdog record while its process group is still being looked for."""

    fields: dict[str, Any]
    evidence: Evidence
    rank: int | None
    speaker: Speaker
    count: int = 0
    last_at: float | None = None
    groups: set[str] = field(default_factory=set[str])


class Collector:
    """State of one pass over a log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.digest = Digest("torch_log")
        self.years = Years(time.gmtime(source.taken_at).tm_year if source.taken_at else None)
        self.done: set[int] = set()
        self.spoke = False
        self._timeouts: dict[tuple[Any, ...], Timeout] = {}
        self._groups: dict[tuple[int, int], set[str]] = {}

    def read(self, window: Window) -> None:
        """Take in the gated lines of a window."""
        self.done = {n for n in self.done if n >= window.first}
        for index in window.hits:
            if window.first + index in self.done:
                continue
            for segment in segments(window.lines[index], self.years):
                self.segment(window, index, segment)

    def segment(self, window: Window, index: int, segment: Segment) -> None:
        """Take in one message."""
        if segment.origin.startswith("ProcessGroup") or "WorkNCCL(" in segment.text or "last enqueued" in segment.text:
            self.spoke = True
            self._watchdog(window, index, segment)

    def take(self, first: int, last: int, window: Window) -> None:
        """Lines (indices) that were read as part of a record and shall not be read again."""
        self.done.update(range(window.first + first, window.first + last + 1))

    def add(
        self,
        kind: str,
        fields: Mapping[str, Any],
        evidence: Evidence,
        speaker: Speaker,
        rank: int | None = None,
        key: tuple[Scalar | None, ...] | None = None,
    ) -> None:
        """Count a record; equal fields of one rank are one record unless `key` says what makes it distinct."""
        known = {name: value for name, value in fields.items() if value is not None}
        distinct = key if key is not None else (rank, speaker.host, *(known.get(name) for name in sorted(known)))
        self.digest.add((kind, *distinct), Record(kind, known, (evidence,), speaker.at, speaker.host, rank))

    def finish(self) -> Digest:
        """The digest, with the watchdog records of the log joined to their process groups."""
        for (kind, *key), timeout in ((("torch_timeout", *k), t) for k, t in self._timeouts.items()):
            seq = timeout.fields.get("seq")
            groups = timeout.groups
            if not groups and seq is not None and timeout.rank is not None:
                groups = self._groups.get((timeout.rank, seq), set())
            if len(groups) == 1:
                timeout.fields["group"] = next(iter(groups))
            record = Record(
                str(kind), timeout.fields, (timeout.evidence,), timeout.speaker.at, timeout.speaker.host,
                timeout.rank, max(1, timeout.count), timeout.last_at,
            )  # fmt: skip
            self.digest.add((kind, *key), record)
        if self.spoke and not any(key[0] != "parse_problem" for key in self.digest.tallies):
            self.digest.add(("covered", "torch_log"), Record("covered", {"topic": "torch_log"}))
        return self.digest

    # --- watchdog and monitor -------------------------------------------------------------------------

    def _watchdog(self, window: Window, index: int, segment: Segment) -> None:
        text, last = self._unwrapped(window, index, segment)
        squeezed = squeeze(text)
        speaker = segment.speaker
        rank = rank_of(text, speaker)
        group, _ = group_of(text)
        evidence = window.evidence(index, last)
        if "WorkNCCL(" in squeezed:
            self._timeout(text, squeezed, evidence, rank, group, speaker)
        elif "Watchdogcaught" in squeezed and "timeout" not in squeezed:
            self._cut(window, index)
        found = status(squeezed)
        if found:
            self.add("torch_pg_status", {"group": group, **found}, evidence, speaker, rank)
            if group is not None and rank is not None and "work_seq" in found and len(self._groups) < _MAX_LINKS:
                self._groups.setdefault((rank, found["work_seq"]), set()).add(group)
        happened = event(squeezed)
        if happened:
            fields = {"event": happened[0], "from_rank": happened[1], "text": " ".join(text.split())[:_MAX_TEXT]}
            self.add("torch_heartbeat", fields, evidence, speaker, rank, (rank, speaker.host, group, *happened))

    def _timeout(
        self, text: str, squeezed: str, evidence: Evidence, rank: int | None, group: str | None, speaker: Speaker
    ) -> None:
        fields = work(squeezed)
        if fields is None:
            self.digest.add(
                ("parse_problem", "watchdog", evidence.first),
                Record("parse_problem", {"text": "watchdog record is cut off"}, (evidence,), host=speaker.host),
            )
            return
        if "timeout" not in squeezed and "elapsed_ms" not in fields:
            return
        restated = any(literal in text for literal in _RESTATED)
        key = (rank, speaker.host, fields.get("seq"), fields["op"], fields.get("elapsed_ms"))
        seen = self._timeouts.get(key)
        if seen is None:
            if len(self._timeouts) >= self.digest.max_tallies:
                return
            seen = self._timeouts[key] = Timeout(fields, evidence, rank, speaker)
        else:
            seen.last_at = speaker.at
        if not restated:
            seen.count += 1
        if group is not None:
            seen.groups.add(group)

    def _cut(self, window: Window, index: int) -> None:
        record = problem(self.source, "watchdog record is cut off", window.line(index))
        self.digest.add(("parse_problem", "watchdog", window.first + index), record)

    def _unwrapped(self, window: Window, index: int, segment: Segment) -> tuple[str, int]:
        """The message, with the following lines that complete it where a terminal wrapped it, and its last index."""
        text = segment.text
        if not segment.last or _complete(squeeze(text)) or len(window.lines[index].rstrip()) < _WRAP_COLUMNS:
            return text, index
        joined = text.rstrip()
        for following in range(index + 1, min(index + _MAX_WRAPPED, len(window.lines))):
            more = unprefix(window.lines[following]).text
            if not more.strip() or any(s.origin or s.speaker.rank is not None for s in segments(more, Years(None))):
                break
            joined += more.rstrip()
            if _complete(squeeze(joined)):
                self.take(index + 1, following, window)
                return joined, following
        return text, index


def _complete(squeezed: str) -> bool:
    """A watchdog or status message is whole."""
    fields = work(squeezed)
    if fields is not None and "elapsed_ms" in fields:
        return True
    found = status(squeezed)
    return found is not None and "last_completed" in found
