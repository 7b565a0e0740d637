"""Every distinct observation once, counted, with its first and last line; bounded whatever the log's length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from diagnose.model import MAX_EXCERPT, Evidence, Record

from ._prefix import Head, Process

MAX_PER_KIND = 12_000
MAX_PER_PROCESS = 2_000
"""Beyond so many observations of a kind, those of the processes of one host are folded together."""


class Place:
    """The line being read: its number, text and time, worked out only when somebody asks."""

    __slots__ = ("_number", "_text", "at", "last_number", "lookup", "offset")

    def __init__(self, lookup: Callable[[int], tuple[int, str]], offset: int, at: float | None) -> None:
        self.lookup = lookup
        self.offset = offset
        self.at = at
        self.last_number: int | None = None
        self._number: int | None = None
        self._text = ""

    @property
    def number(self) -> int:
        """1-based number of the line."""
        if self._number is None:
            self._number, self._text = self.lookup(self.offset)
        return self._number

    @property
    def text(self) -> str:
        """The line as printed."""
        if self._number is None:
            self._number, self._text = self.lookup(self.offset)
        return self._text

    def take(self, text: str, last_number: int) -> None:
        """The message goes on until `last_number`; `text` is all of its lines."""
        self._number = self.number
        self._text = text
        self.last_number = last_number


class Slot:
    """One observation: fields, how often, by whom, first and last place."""

    __slots__ = ("at", "count", "fields", "first", "head", "kind", "last", "last_at", "process", "shared")

    def __init__(self, kind: str, fields: dict[str, Any], head: Head, place: Place | None) -> None:
        self.kind = kind
        self.fields = fields
        self.head = head
        self.process: Process = head.process
        self.shared = False
        self.count = 1
        self.first = (place.number, place.last_number or place.number, place.text) if place else None
        self.last: tuple[int, int, str] | None = None
        self.at = place.at if place else None
        self.last_at: float | None = None

    def again(self, head: Head, place: Place | None) -> None:
        """Seen once more; `place` is kept as the last one when given."""
        self.count += 1
        if head.process is not self.process:
            self.shared = True
        if place is not None:
            self.last = (place.number, place.last_number or place.number, place.text)
            if place.at is not None:
                self.last_at = place.at


class Ledger:
    """All observations of one log."""

    def __init__(self) -> None:
        self.slots: dict[tuple[Any, ...], Slot] = {}
        self._kinds: dict[str, int] = {}
        self.dropped: dict[str, int] = {}

    def note(
        self,
        kind: str,
        fields: dict[str, Any],
        head: Head,
        place: Place,
        key: tuple[Any, ...] | None = None,
        *,
        own: bool = False,
        track: bool = False,
    ) -> Slot | None:
        """Count one observation. `own`: kept apart per process while there are few; `track`: keep the last place too.

        `key` tells observations apart; by default all fields do. None when there are too many of the kind.
        """
        known = self._kinds.get(kind, 0)
        pid = head.pid if own and known < MAX_PER_PROCESS else None
        whole = (kind, head.host, pid, *(key if key is not None else fields.items()))
        slot = self.slots.get(whole)
        if slot is not None:
            slot.again(head, place if track else None)
            return slot
        if known >= MAX_PER_KIND:
            self.dropped[kind] = self.dropped.get(kind, 0) + 1
            return None
        slot = Slot(kind, fields, head, place)
        self.slots[whole] = slot
        self._kinds[kind] = known + 1
        return slot

    def find(self, kind: str, head: Head, key: tuple[Any, ...]) -> Slot | None:
        """The observation of that host noted under `key`, or None."""
        return self.slots.get((kind, head.host, None, *key))

    def records(self, path: str, rank_of: Callable[[Head], int | None]) -> Iterator[tuple[tuple[Any, ...], Record]]:
        """Keys and records in the order of first sight."""
        for key, slot in self.slots.items():
            yield key, record_of(slot, path, rank_of)


def evidence_of(path: str, place: tuple[int, int, str]) -> Evidence:
    """Evidence of a place kept as (first line, last line, text)."""
    return Evidence(path, place[0], place[1], place[2].rstrip()[:MAX_EXCERPT])


def record_of(slot: Slot, path: str, rank_of: Callable[[Head], int | None]) -> Record:
    """The slot as a record; pid and rank only where one process said it."""
    fields = dict(slot.fields)
    rank: int | None = None
    if not slot.shared:
        rank = rank_of(slot.head)
        if slot.head.pid is not None and slot.kind in WITH_PID:
            fields["pid"] = slot.head.pid
    places = [slot.first] if slot.first else []
    if slot.last and slot.last != slot.first:
        places.append(slot.last)
    return Record(
        slot.kind,
        fields,
        tuple(evidence_of(path, place) for place in places),
        at=slot.at,
        host=slot.head.host,
        rank=rank,
        count=slot.count,
        last_at=slot.last_at,
    )


WITH_PID = frozenset(
    {
        "nccl_version",
        "nccl_env",
        "nccl_bootstrap",
        "nccl_network",
        "nccl_net_device",
        "nccl_net_list",
        "nccl_net_absent",
        "nccl_completion_error",
        "nccl_async_event",
        "nccl_connect_error",
        "nccl_peer_closed",
        "nccl_cuda_error",
        "nccl_verbs_error",
        "nccl_config_mismatch",
        "nccl_warning",
        "nccl_error_return",
        "nccl_ofi",
    }
)
"""Kinds whose facts carry a pid."""
