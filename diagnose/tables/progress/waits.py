"""Who waits for whom: the wait-for graph of ranks and operations, and where it ends.

A rank waits in its first operation that did not complete (a stream works in order). An operation waits for the members
that have not enqueued it; if all have, for members whose GPU has not come to it; if all have come, it is stuck itself.
Following these edges ends at a rank that waits for nobody, at an operation that everybody is in, at ranks of which
nothing is known, or in a ring. Streams of different groups and pairs run beside each other, so a ring may stem from an
old operation that nobody waits for right now: where the newer ones of its ranks lead out of it, it is none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from diagnose.tables.progress.recorder import NEVER, SYMMETRIC, Group, Recording, Row

Ending = Literal["behind", "own_gpu", "stuck", "unknown", "ring"]


@dataclass(slots=True)
class Operation:
    """One operation of a group that some ranks wait in; all sets hold global ranks.

    `behind` has not enqueued it (with the number reached, None when unknown), `elsewhere` has, but its GPU has not come
    to it, `unfinished` has not finished what others have, `unknown` are members without a dump.
    """

    group: Group
    seq: int | None
    op: str
    waiting: set[int] = field(default_factory=set)
    behind: dict[int, int | None] = field(default_factory=dict)
    elsewhere: set[int] = field(default_factory=set)
    unfinished: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    peer_to_peer: bool = False

    def blockers(self) -> list[int]:
        """Ranks that it waits for, as far as known."""
        return sorted(self.behind) or sorted(self.elsewhere)


@dataclass(frozen=True, slots=True)
class End:
    """Where waiting ends: the guilty ranks (empty for a stuck operation), and the operations that lead there."""

    kind: Ending
    ranks: tuple[int, ...]
    operations: tuple[Operation, ...]
    victims: int


def ends(found: Recording) -> list[End]:
    """All ends of the wait-for graph, those that most ranks wait for first."""
    firsts = _first_operations(found)
    one = {rank: (key,) for rank, key in firsts.items()}
    made = _ends(one, _operations(found, firsts, one))
    if any(e.kind == "ring" for e in made):
        every = _pending_operations(found, firsts)
        wider = _ends(every, _operations(found, firsts, every))
        if not any(e.kind == "ring" for e in wider):
            return wider
    return made


_Key = tuple[int, str, int]  # place of the group, "c" or the pair, number of a collective


def _first_operations(found: Recording) -> dict[int, _Key]:
    """Rank -> its first operation that did not complete."""
    best: dict[int, tuple[int, _Key]] = {}
    for place, group in enumerate(found.groups):
        for rank, row in group.rows.items():
            if row.first_order >= NEVER:
                continue
            if row.order <= row.p2p_order:
                key = (place, "c", row.pending or 0)
            else:
                key = (place, _pair(group, rank, row), 0)  # numbers of a pair's two sides count other pairs too
            if rank not in best or row.first_order < best[rank][0]:
                best[rank] = (row.first_order, key)
    return {rank: key for rank, (_, key) in best.items()}


def _pair(group: Group, rank: int, row: Row) -> str:
    """Of the first pending transfers one that the peer has not come to, as `from>to` in global ranks."""
    keys: list[tuple[int, str]] = []
    for kind, peer in row.head:
        theirs, back = group.rows.get(peer), ("r" if kind == "s" else "s", rank)
        met = 0 if theirs is None or not theirs.peers.get(back) else 1 if back not in theirs.head else 2
        keys.append((met, f"{rank}>{peer}" if kind == "s" else f"{peer}>{rank}"))
    return min(keys)[1] if keys else f"{rank}>"


def _pending_operations(found: Recording, firsts: Mapping[int, _Key]) -> dict[int, list[_Key]]:
    """Rank -> what it waits for in every group and with every peer, its first operation first."""
    every = {rank: [key] for rank, key in firsts.items()}
    for place, group in enumerate(found.groups):
        for rank, row in group.rows.items():
            keys = [(place, "c", row.pending)] if row.pending is not None else []
            keys += [
                (place, f"{rank}>{peer}" if kind == "s" else f"{peer}>{rank}", 0) for kind, peer in sorted(row.peers)
            ]
            every.setdefault(rank, []).extend(k for k in keys if k not in every.get(rank, ()))
    return every


def _operations(
    found: Recording, firsts: Mapping[int, _Key], pending: Mapping[int, Sequence[_Key]]
) -> dict[_Key, Operation]:
    made: dict[_Key, Operation] = {}
    for rank, keys in pending.items():
        for key in keys:
            group = found.groups[key[0]]
            if key not in made:
                make = _collective if key[1] == "c" else _transfer
                made[key] = make(found, firsts, group, key)
            made[key].waiting.add(rank)
            made[key].rows.append(group.rows[rank])
    return made


def _collective(found: Recording, firsts: Mapping[int, _Key], group: Group, key: _Key) -> Operation:
    seq = key[2]
    rows = group.rows
    op = next((r.op for r in rows.values() if r.pending == seq and r.op), "")
    made = Operation(group, seq, op)
    finished = False
    earliest = min((r.at for r in rows.values() if r.pending == seq and r.at is not None), default=None)
    for member in group.everyone():
        row = rows.get(member)
        if row is None:
            dump = found.dumps.get(member)
            first_at = dump.fields.get("first_at") if dump is not None else None
            sure = isinstance(first_at, float) and earliest is not None and first_at < earliest
            active = dump is not None and (dump.fields.get("only_active") is True or dump.fields.get("entries") == 0)
            if dump is not None and (op in SYMMETRIC if active else sure):  # it would be among the active operations
                made.behind[member] = None
            else:
                made.unknown.add(member)
        elif row.enqueued is None or row.enqueued < seq:
            made.behind[member] = row.enqueued
        elif row.completed >= seq and (row.pending is None or row.pending > seq):
            finished = True
        elif firsts.get(member) != key:
            made.elsewhere.add(member)
        else:
            made.unfinished.add(member)
    if not finished:
        made.unfinished.clear()
    return made


def _transfer(found: Recording, firsts: Mapping[int, _Key], group: Group, key: _Key) -> Operation:
    sender, _, receiver = key[1].partition(">")
    if not receiver:  # the ring of the dump has lost with whom
        made = Operation(group, None, f"transfers of rank {sender}", peer_to_peer=True)
        made.elsewhere = {r for r in group.everyone() if r in firsts and firsts[r] != key}
        return made
    source, target = int(sender), int(receiver)
    made = Operation(group, None, f"transfer from rank {source} to rank {target}", peer_to_peer=True)
    posted = {
        rank: key for rank, key in ((source, ("s", target)), (target, ("r", source))) if _posted(group, rank, key)
    }
    for rank, peer in ((source, target), (target, source)):
        if rank not in posted and rank not in found.dumps:
            made.unknown.add(rank)
        elif rank not in posted:
            made.behind[rank] = None
        elif len(posted) == 2 and len(group.members) == 2 and _number(group, peer) > _number(group, rank):
            made.unfinished.add(rank)  # in larger groups the numbers count other pairs too
        elif not _is_in(firsts, key, group, rank, posted[rank]):
            made.elsewhere.add(rank)
    return made


def _posted(group: Group, rank: int, transfer: tuple[str, int]) -> bool:
    return rank in group.rows and bool(group.rows[rank].peers.get(transfer))


def _number(group: Group, rank: int) -> int:
    return group.rows[rank].p2p_seq or 0


def _is_in(firsts: Mapping[int, _Key], key: _Key, group: Group, rank: int, transfer: tuple[str, int]) -> bool:
    """The rank's first operation is this transfer, or a batch that holds it."""
    first = firsts.get(rank)
    return first == key or (
        first is not None and first[0] == key[0] and first[1] != "c" and transfer in group.rows[rank].head
    )


def _ends(pending: Mapping[int, Sequence[_Key]], operations: Mapping[_Key, Operation]) -> list[End]:
    edges: dict[Hashable, list[Hashable]] = {rank: list(keys) for rank, keys in pending.items()}
    for key, operation in operations.items():
        edges[key] = list(operation.blockers())
        for rank in operation.blockers():
            edges.setdefault(rank, [])
    components = list(_components(edges))
    place = {node: n for n, component in enumerate(components) for node in component}
    reach = _reach(components, edges, place)
    found: list[End] = []
    for n, component in enumerate(components):
        if any(place[t] != n for node in component for t in edges[node]):
            continue
        ranks = sorted(node for node in component if isinstance(node, int))
        inside = [operations[node] for node in component if node in operations]  # type: ignore[index]
        leading = inside or [o for o in operations.values() if set(ranks) & o.behind.keys()]
        kind: Ending
        if len(ranks) > 1:
            kind = "ring"
        elif ranks:
            kind = "behind"
        elif inside[0].unfinished and len(inside[0].unfinished) * 2 <= len(list(inside[0].group.everyone())):
            kind, ranks = "own_gpu", sorted(inside[0].unfinished)
            leading = inside + [o for o in operations.values() if set(ranks) & o.behind.keys()]
        elif inside[0].unknown:
            kind = "unknown"
        else:
            kind = "stuck"
        victims = reach[n] - (0 if kind == "ring" else len(ranks))
        found.append(End(kind, tuple(ranks), tuple(leading), victims))
    return sorted(found, key=lambda e: (-e.victims, e.ranks))


def _components(edges: Mapping[Hashable, Sequence[Hashable]]) -> Iterator[list[Hashable]]:
    """Strongly connected components, successors first (Tarjan, without recursion)."""
    index: dict[Hashable, int] = {}
    low: dict[Hashable, int] = {}
    stack: list[Hashable] = []
    on_stack: set[Hashable] = set()
    for start in edges:
        if start in index:
            continue
        work: list[tuple[Hashable, Iterator[Hashable]]] = []
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        work.append((start, iter(edges[start])))
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[Hashable] = []
                    while True:
                        last = stack.pop()
                        on_stack.discard(last)
                        component.append(last)
                        if last == node:
                            break
                    yield component


def _reach(
    components: Sequence[Sequence[Hashable]],
    edges: Mapping[Hashable, Sequence[Hashable]],
    place: Mapping[Hashable, int],
) -> list[int]:
    """How many ranks wait, directly or not, for each component that waits for none; a rank counts for its first end."""
    end_of: list[int] = []
    counts = [0] * len(components)
    for n, component in enumerate(components):  # successors come first
        outside = [place[t] for node in component for t in edges[node] if place[t] != n]
        end_of.append(end_of[outside[0]] if outside else n)
        counts[end_of[n]] += sum(isinstance(node, int) for node in component)
    return counts
