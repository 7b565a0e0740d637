"""What is read: sources, lines, records, and the digests that logs are boiled down to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]
Fields = Mapping[str, Value]

SourceStatus = Literal["parsed", "partial", "unrecognised", "empty", "error"]

MAX_EXCERPT = 2_000
"""Longest evidence excerpt kept, in characters."""

UNNAMED_HOST = "unnamed-host"
"""Stands for the one host of files that name none (a lone `topo.txt` out of a ticket)."""


class Line(NamedTuple):
    """One line of a source: 1-based number, text without its line end, time if a prefix told it."""

    number: int
    text: str
    at: float | None = None


class Block(NamedTuple):
    """A run of whole lines (some MiB) for scanners of big logs: number of its first line, and its text."""

    first: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """One readable thing of the bundle.

    `path` is what the user sees: relative to the argument given, never absolute. `location` is where the bytes
    lie on this machine (a private copy for archives and stdin); it never reaches a report.
    `host`, `rank`, `taken_at` (epoch seconds), `snapshot` (0, 1, 2 …), `command` are what manifest, path or name
    told; content may know better. `job_began` (epoch seconds): the manifest knows no process of the job before that.
    `apart`: the kinds that read the lines of each host or task in it one by one, without prefixes.
    """

    id: str
    path: str
    location: str = field(repr=False, default="")
    size: int = 0
    digest: str = ""
    kinds: tuple[str, ...] = ()
    host: str | None = None
    rank: int | None = None
    command: str | None = None
    snapshot: int | None = None
    taken_at: float | None = None
    line_count: int = 0
    status: SourceStatus = "parsed"
    notes: tuple[str, ...] = ()
    job_began: float | None = None
    apart: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Lines of one source that show something. `spans` are (start, end) columns of `text` worth highlighting."""

    source: str
    first: int
    last: int
    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What a parser saw: one kind of the vocabulary with flat fields. `count` repetitions are folded into it."""

    kind: str
    fields: Fields
    evidence: tuple[Evidence, ...] = ()
    at: float | None = None
    host: str | None = None
    rank: int | None = None
    count: int = 1
    last_at: float | None = None


@dataclass(slots=True)
class Digest:
    """A log boiled down: bounded whatever the log's length, and mergeable.

    `tallies` holds each distinct observation once (first occurrence wins, counts add up). `tails` holds the last
    few records of each stream, in the order read; `totals` adds up plain numbers. Keys start with the record kind.
    """

    kind: str
    tallies: dict[tuple[Scalar | None, ...], Record] = field(default_factory=dict[Any, Any])
    tails: dict[tuple[Scalar | None, ...], list[Record]] = field(default_factory=dict[Any, Any])
    totals: dict[str, float] = field(default_factory=dict[str, float])
    max_tallies: int = 20_000
    max_tail: int = 4

    def add(self, key: tuple[Scalar | None, ...], record: Record) -> None:
        """Count `record` under `key`; the first record stays, later ones raise its count and last time."""
        seen = self.tallies.get(key)
        if seen is None:
            if len(self.tallies) < self.max_tallies:
                self.tallies[key] = record
            else:
                self.totals["tallies_dropped"] = self.totals.get("tallies_dropped", 0) + record.count
            return
        last_at = record.last_at if record.last_at is not None else record.at
        self.tallies[key] = Record(
            seen.kind, seen.fields, seen.evidence, seen.at, seen.host, seen.rank, seen.count + record.count,
            last_at if last_at is not None else seen.last_at,
        )  # fmt: skip

    def push(self, key: tuple[Scalar | None, ...], record: Record) -> None:
        """Keep `record` as the newest of its stream; only the last `max_tail` stay."""
        tail = self.tails.setdefault(key, [])
        tail.append(record)
        if len(tail) > self.max_tail:
            del tail[0]

    def merge(self, later: Digest) -> None:
        """Take in the digest of the part that follows."""
        for key, record in later.tallies.items():
            self.add(key, record)
        for key, tail in later.tails.items():
            for record in tail:
                self.push(key, record)
        for name, number in later.totals.items():
            self.totals[name] = self.totals.get(name, 0) + number

    def records(self) -> Iterator[Record]:
        """All records kept, tallies first."""
        yield from self.tallies.values()
        for tail in self.tails.values():
            yield from tail


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read or judged because it failed. Nothing else is lost by it."""

    text: str
    source: str | None = None
    first: int | None = None
    last: int | None = None
