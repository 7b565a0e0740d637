"""Flight-recorder dumps of all ranks as one picture: who each dump belongs to, and each group with its members.

A dump is placed by its content before its name. Of two dumps of one rank the better placed one counts, then the newer.
A dump whose numbers are older than what its peers completed together with it, or that is hours older, is another
moment's: its rank counts as unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.model import Fact, FactBase
from diagnose.tables.progress.placing import OTHER_MOMENT_S, last_at, place, unfold_steps

SYMMETRIC = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "all_to_all", "alltoall_base", "barrier",
             "all_reduce_barrier", "allreduce", "all_gather", "reduce_scatter")  # fmt: skip
"""Operations that complete on no rank before all have entered."""


@dataclass(slots=True)
class Row:
    """What one rank's dump says of one group; numbers are None when unknown. `peers` counts the pending transfers by
    kind (s or r) and peer, `head` holds those of the first pending one, several in a batch."""

    rank: int
    fact: Fact
    enqueued: int | None
    completed: int
    pending: int | None
    order: int
    op: str
    at: float | None
    peers: dict[tuple[str, int], int]
    p2p_seq: int | None
    p2p_order: int
    head: tuple[tuple[str, int], ...]

    @property
    def first_order(self) -> int:
        """Position of its first pending operation in the dump, collective or not; huge when none."""
        return min(self.order, self.p2p_order)


NEVER = 1 << 60


@dataclass(slots=True)
class Group:
    """A process group and what the dumps say of it; `members` is empty when no dump lists them."""

    name: str
    desc: str
    members: tuple[int, ...]
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The group in words."""
        return group_label(self.name, self.desc)

    @property
    def kind(self) -> str:
        """Groups of one kind stand for the same calls of the program: by description, else by how their members lie."""
        if self.desc and self.desc != "undefined":
            return self.desc
        return f"{len(self.members)} ranks {self.members[1] - self.members[0]} apart" if self.members[1:] else self.name

    def everyone(self) -> Iterable[int]:
        """Members, or the ranks seen when nobody lists them."""
        return self.members or sorted(self.rows)


def group_label(name: str, desc: str) -> str:
    """`process group 3 (DATA_PARALLEL_GROUP)`."""
    return f"process group {name}" + (f" ({desc})" if desc and desc != "undefined" else "")


@dataclass(slots=True)
class Recording:
    """All dumps; `running` when they show that the job moved on while they were taken, `moved` when few of them do.
    `impossible` ranks told numbers that most others contradict; `exchanged` ones left a second dump that fits;
    `foreign` dumps stem from another job or attempt and are left out."""

    dumps: dict[int, Fact] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    contested: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)
    impossible: set[int] = field(default_factory=set)
    exchanged: set[int] = field(default_factory=set)
    unplaced: int = 0
    foreign: int = 0
    world: int = 0
    running: bool = False
    moved: bool = False

    @property
    def left(self) -> set[int]:
        """Ranks that left a dump which does not count."""
        return self.stale | self.cut | self.unread | self.impossible


def recording(base: FactBase) -> Recording:
    """The picture; empty without dumps."""
    by_source: dict[str, list[Fact]] = defaultdict(list)
    dumps: list[Fact] = []
    for o in base.observations:
        if o.kind == "fr_group":
            by_source[o.evidence[0].source].append(o)
        elif o.kind == "fr_dump":
            dumps.append(o)
    found = Recording()
    if not dumps:
        return found
    standing = {
        s for s, groups in by_source.items() if any("pending_seq" in g.fields or "p2p" in g.fields for g in groups)
    }
    placed = place(dumps, base, standing)
    found.contested, found.stale, found.unplaced = placed.contested, placed.stale, placed.unplaced
    found.foreign = len(dumps) - len(placed.kept)
    for rank, dump in placed.dumps.items():
        if dump.fields.get("unread") is True:
            found.unread.add(rank)
        elif dump.fields.get("truncated") is True:  # what is cut off is the newest
            found.cut.add(rank)
        else:
            found.dumps[rank] = dump
    found.world = max((w for d in placed.kept if isinstance(w := d.fields.get("world"), int)), default=0)
    found.groups = _groups(found.dumps, by_source)
    low, high = _contradicting(found)
    if better := {r: placed.spare[r][0] for r in low | high if placed.spare.get(r)}:
        found.dumps |= better
        found.groups = _groups(found.dumps, by_source)
        low, high = _contradicting(found)
        found.contested -= better.keys()
        found.exchanged |= better.keys() - low - high
    _drop_contradicting(found, low, high)
    waiting = {r for g in found.groups for r, row in g.rows.items() if row.first_order < NEVER}
    fresh = sum("fresh" in found.dumps[r].fields for r in waiting & found.dumps.keys())
    found.running |= fresh * 4 >= len(waiting) > 0  # long after a stall began, nothing of who waits has just completed
    return found


def _groups(dumps: Mapping[int, Fact], by_source: Mapping[str, Sequence[Fact]]) -> list[Group]:
    groups: dict[tuple[str, str], Group] = {}
    folds: dict[str, tuple[int, ...]] = {}
    for rank, dump in sorted(dumps.items()):
        for fact in by_source.get(dump.evidence[0].source, ()):
            name, text = str(fact.fields["group"]), str(fact.fields.get("members", ""))
            group = groups.get((name, text))
            if group is None:
                members = folds.setdefault(text, unfold_steps(text))
                group = groups[name, text] = Group(name, str(fact.fields.get("desc", "")), members)
            row, known = _row(rank, fact), group.rows.get(rank)
            if known is None or (row.enqueued or -1) > (known.enqueued or -1):  # damage tears a group in two
                group.rows[rank] = row
    for group in groups.values():
        _pass_left_over(group)
    for group in groups.values():
        lost = [row for row in group.rows.values() if row.pending is not None and not row.op]
        for row in lost if len(lost) * 2 > len(group.rows) else ():  # their status counts otherwise: none is lost
            row.pending, row.order = None, NEVER
    return list(groups.values())


def _pass_left_over(group: Group) -> None:
    """A collective that never started for the recorder, though most peers and the rank's own later ones completed, is
    left over: collectives of a group run in order."""
    for row in group.rows.values():
        f, seq = row.fact.fields, row.pending
        if seq is None or row.completed <= seq or f.get("pending_state") != "scheduled" or "pending_retired" in f:
            continue
        passed = sum(r.completed >= seq and (r.pending is None or r.pending > seq) for r in group.rows.values())
        if passed * 2 > len(group.rows):
            later = f.get("later_at")
            row.pending, row.order = _int(f.get("later_seq")), _int(f.get("later_order"), NEVER) or 0
            row.at = later if isinstance(later, float) else None


def _row(rank: int, fact: Fact) -> Row:
    f = fact.fields
    peers: dict[tuple[str, int], int] = {}
    for word in str(f.get("p2p", "")).split():
        peer, _, count = word[1:].partition("*")
        peers[word[0], int(peer)] = int(count)
    op = f.get("pending_op") or ("" if "pending_seq" in f else f.get("last_op"))
    return Row(
        rank, fact, _int(f.get("enqueued")), _int(f.get("completed"), -1) or 0, _int(f.get("pending_seq")),
        _int(f.get("pending_order"), NEVER) or 0, str(op or ""),
        at if isinstance(at := f.get("pending_at"), float) else None, peers, _int(f.get("p2p_seq")),
        _int(f.get("p2p_order"), NEVER) or 0,
        tuple((word[0], int(word[1:])) for word in str(f.get("p2p_head", "")).split()),
    )  # fmt: skip


def _int(value: object, default: int | None = None) -> int | None:
    return value if isinstance(value, int) else default


RUNNING_S = 30.0
"""Dumps of a stall show its last operations; where one is behind what its peers completed, and yet was taken within so
much of theirs, the job was running (chosen by us)."""


LATER_S = 1.0
"""A dump whose newest operation is so much newer than those of most was taken later (chosen by us)."""


def _contradicting(found: Recording) -> tuple[set[int], set[int]]:
    """Ranks without which their peers could not have completed what they did, and ranks that completed what most of
    their peers, or those whose dumps are much newer, cannot have come to."""
    low: set[int] = set()
    high: set[int] = set()
    for group in found.groups:
        # numbers of the status alone may be those of transfers, which differ from rank to rank
        rows = {rank: row for rank, row in group.rows.items() if "codes" in row.fact.fields}
        if len(rows) < 2:
            continue
        while rows:
            top = max(rows.values(), key=lambda r: r.completed)
            slack = _slack(top)
            behind = {r for r, row in rows.items() if row.enqueued is not None and row.enqueued < top.completed - slack}
            newer = [r for r in behind if last_at(found.dumps[r]) > last_at(found.dumps[top.rank]) + OTHER_MOMENT_S]
            if len(behind) * 2 <= len(rows) and (len(newer) * 2 <= len(behind) or len(behind) < 2):
                low |= behind
                high |= _impossible_status(found, group, top.completed + slack)
                break
            high.add(top.rank)
            del rows[top.rank]
    return low - high, high


def _slack(row: Row) -> int:
    return 1 if str(row.fact.fields.get("last_op")) in SYMMETRIC else 16


def _impossible_status(found: Recording, group: Group, limit: int) -> set[int]:
    """Ranks without any entry whose status tells numbers that no peer comes near, in a group without transfers."""
    rows = group.rows
    if any("p2p" in r.fact.fields or "p2p_seq" in r.fact.fields for r in rows.values()):
        return set()
    return {r for r, row in rows.items() if row.completed > limit and found.dumps[r].fields.get("entries") == 0}


def _drop_contradicting(found: Recording, low: set[int], high: set[int]) -> None:
    """Leaves them out. Where some were taken at about the time of the others, the job may have gone on meanwhile."""
    moments = sorted(last_at(d) for r, d in found.dumps.items() if r not in low | high)
    middle = moments[len(moments) // 2] if moments else 0.0
    near = {r for r in low | high if moments and abs(middle - last_at(found.dumps[r])) < RUNNING_S}
    near -= {r for r in high if last_at(found.dumps[r]) < middle + LATER_S}
    found.moved = bool(near)
    found.running |= len(near) * 4 > len(found.dumps)
    apart = {r for r in high if (at := last_at(found.dumps[r])) and abs(middle - at) > OTHER_MOMENT_S}
    found.stale |= low | apart
    found.impossible |= high - apart
    for rank in low | high:
        del found.dumps[rank]
        for group in found.groups:
            group.rows.pop(rank, None)


TAKEN_SLACK_S = 120.0
"""Clocks of the host that took a dump and of the rank's may differ by so much (chosen by us)."""


def symptom_age(found: Recording) -> float:
    """Longest time (s) that an operation had been pending when its dump was taken, or when its rank still enqueued."""
    oldest = 0.0
    for group in found.groups:
        for rank, row in group.rows.items():
            if row.at is None or rank not in found.dumps:
                continue
            taken = row.fact.fields.get("at")
            oldest = max(oldest, last_at(found.dumps[rank]) - row.at)
            if isinstance(taken, float | int):
                oldest = max(oldest, taken - row.at - TAKEN_SLACK_S)
    return oldest


Rows = Mapping[int, Row]
