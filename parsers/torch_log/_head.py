"""Who speaks: launcher prefixes, `[rank3]:`, glog headers and process-group prefixes, also several on one line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from diagnose.parsing import Prefix, parse_time, unprefix

# Formats: torch 1.x-2.1 `[E ProcessGroupNCCL.cpp:828] `, 2.2-2.3 `[rank7]:[E ProcessGroupNCCL.cpp:577] `, since 2.4
# `[rank0]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] ` (month and day, local time, no year), Python glog
# `E1130 17:20:00.123000 4711 torch/distributed/run.py:793] `.
_GLOG = (
    r"\[?[IWEFC](?P<day>\d{3,4}) (?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?) +(?:\d{1,9} +)?"
    r"(?P<file>[\w./-]{1,120}):\d{1,6}\] ?"
    r"|\[[IWEF] (?P<old_file>[\w./-]{1,120}):\d{1,6}\] ?"
)
_HEADER = re.compile(
    rf"(?P<rank>\[rank(?P<global>[0-9]{{1,6}})\]:\s?)|\[(?P<role>default|trainer|worker)(?P<local>[0-9]{{1,4}})\]:"
    rf"|\[\d{{1,6}},(?P<mpi>\d{{1,6}})\]<(?:stdout|stderr)>:|{_GLOG}"
)
_HEADER_GATES = ("[rank", "]:", "]<", "] ")

# Torch 2.3 `[PG 0 Rank 7]`, 2.4 `[PG 0 (default_pg) Rank 0]`, 2.5+ `[PG ID 0 PG GUID 0(default_pg) Rank 0]`. The GUID
# is the name that all ranks of the group share; the ID is a counter of the process and says nothing across ranks.
_GROUP = re.compile(
    r"\[PG (?:ID \S{1,40} PG GUID (?P<guid>[^\s()\]]{1,80})|(?P<name>[^\s()\]]{1,80}))"
    r"\s?(?:\((?P<desc>[^()\]]{0,80})\))?\s?Rank (?P<rank>[0-9]{1,6})\]\s*"
)
_GROUP_RANK = re.compile(r"\[Rank ([0-9]{1,6})\]")
_MPI = re.compile(r"\[\d{1,6},(\d{1,6})\]<std")
_GLOBAL = re.compile(r"\[rank([0-9]{1,6})\]:")
_TASK = re.compile(r"(?:^|[\s\]:])(\d{1,6}): $")
_PLAIN_GROUPS = (None, "undefined", "")


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who printed a message: global rank where known, task number of srun, local rank, host, time (epoch s)."""

    rank: int | None = None
    task: int | None = None
    local_rank: int | None = None
    host: str | None = None
    at: float | None = None

    def without_task(self) -> Speaker:
        """The speaker, its task unknown."""
        return replace(self, task=None)


@dataclass(frozen=True, slots=True)
class Segment:
    """One message of a physical line; `last`: nothing follows it there; `origin`: file of its glog header."""

    text: str
    speaker: Speaker
    last: bool
    origin: str = ""


class Years:
    """Supplies the year that glog headers leave out: the newest date seen in the log so far, else the manifest's."""

    def __init__(self, year: int | None) -> None:
        self.year = year
        self.month = 0

    def see(self, at: float | None) -> None:
        """A full time was read."""
        if at is not None:
            date = time.gmtime(at)
            self.year, self.month = date.tm_year, date.tm_mon

    def at(self, day: str, clock: str) -> float | None:
        """`1118`, `20:32:23.955` as epoch seconds; None while the year is unknown."""
        if self.year is None:
            return None
        month = int(day[:-2])
        turn = {(1, 12): -1, (12, 1): 1}.get((self.month, month), 0)
        return parse_time(f"{self.year + turn:04d}-{month:02d}-{day[-2:]}T{clock}")[0]


def segments(text: str, years: Years) -> Iterator[Segment]:
    """The messages of one line with their speakers. A progress bar before a header is a message of its own."""
    prefix = unprefix(text)
    years.see(prefix.at)
    base = _outer(text[: prefix.offset], prefix)
    heads = list(_headers(prefix.text, base, years))
    if not heads:
        yield Segment(prefix.text, base, True)
        return
    if heads[0][0] > 0:
        yield Segment(prefix.text[: heads[0][0]], base, False)
    for n, (_, end, speaker, origin) in enumerate(heads):
        following = heads[n + 1][0] if n + 1 < len(heads) else len(prefix.text)
        yield Segment(prefix.text[end:following], speaker, n + 1 == len(heads), origin)


def _outer(text: str, prefix: Prefix) -> Speaker:
    """Ranks of the prefixes taken off: `[rank3]:` and mpirun tags are global, `[default3]:` is local, `3: ` is a task.

    With torchrun between, the task is a node, so it says nothing beside a local rank.
    """
    rank = task = None
    m = _GLOBAL.search(text) or _MPI.search(text)
    if m:
        rank = int(m.group(1))
    elif prefix.rank is not None and prefix.local_rank is None:
        m = _TASK.search(text)
        task = int(m.group(1)) if m else None
    return Speaker(rank, task, prefix.local_rank, prefix.host, prefix.at)


def _headers(text: str, base: Speaker, years: Years) -> Iterator[tuple[int, int, Speaker, str]]:
    """(start, end, speaker, file) of each header; `[rank3]:` and the glog header after it make one."""
    if not any(gate in text for gate in _HEADER_GATES):
        return
    start = end = -1
    speaker, origin = base, ""
    for m in _HEADER.finditer(text):
        if m.start() != end and start >= 0:
            yield start, end, speaker, origin
        if m.start() != end:
            start, speaker, origin = m.start(), base, ""
        end = m.end()
        origin = m.group("file") or m.group("old_file") or origin
        rank, at, local = speaker.rank, speaker.at, speaker.local_rank
        if m.group("global") or m.group("mpi"):
            rank = int(m.group("global") or m.group("mpi"))
        elif m.group("local"):
            local = int(m.group("local"))
        elif m.group("day"):
            at = years.at(m.group("day"), m.group("time")) or at
        speaker = Speaker(rank, speaker.task, local, speaker.host, at)
    if start >= 0:
        yield start, end, speaker, origin


def group_of(text: str) -> tuple[str | None, int | None]:
    """(process group, rank inside it) of a message: `PG 17 (tp)`, 3. None where the dialect prints none."""
    m = _GROUP.search(text)
    if m is None:
        return None, None
    name = f"PG {m.group('guid') or m.group('name')}"
    description = m.group("desc")
    return (name if description in _PLAIN_GROUPS else f"{name} ({description})"), int(m.group("rank"))


def rank_of(text: str, speaker: Speaker) -> int | None:
    """Global rank of a message's speaker.

    The rank in `[PG … Rank 3]` counts inside the group, so it stands for the global one only in the default group.
    The bare `[Rank 3]` of old dialects is taken when no launcher tells better.
    """
    if speaker.rank is not None:
        return speaker.rank
    group, inner = group_of(text)
    if group is not None:
        return inner if group in ("PG 0", "PG 0 (default_pg)", "PG default_pg") else speaker.task
    m = _GROUP_RANK.search(text)
    if m:
        return int(m.group(1))
    return speaker.task
