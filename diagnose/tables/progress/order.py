"""Ranks whose calls cannot be a part of what the others called: an extra, a missing or an exchanged call.

Ranks that run the same program are at most at different places of it: of two of them, one has called at least as much
as the other in every group. A rank that has called more in one group and less in another follows another order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.tables.progress.recorder import Recording, Row
from diagnose.tables.progress.waits import Operation

MAX_DISTINCT = 2_000


def out_of_order(found: Recording) -> set[int]:
    """Ranks that are incomparable with more than half of their kind; empty when the majority cannot be told."""
    odd: set[int] = set()
    for ranks, vectors in _classes(found):
        odd |= _odd(ranks, vectors)
    return odd


@dataclass(slots=True)
class _Calls:
    """Per rank: how much it has called in each kind of group, and its places in pipelines; kinds of which a rank has
    several groups are `mixed`."""

    numbers: dict[int, dict[str, int]]
    stage: dict[int, list[tuple[str, int]]]
    mixed: set[str]


def _calls(found: Recording) -> _Calls:
    made = _Calls(defaultdict(dict), defaultdict(list), set())
    for group in found.groups:
        kind = group.kind
        transfers = any(r.p2p_seq is not None or r.enqueued is None for r in group.rows.values())
        for place, rank in enumerate(group.everyone()):
            row = group.rows.get(rank)
            if row is None:
                continue
            if transfers:
                made.stage[rank].append((kind, place))
            elif row.enqueued is not None:
                if kind in made.numbers[rank]:
                    made.mixed.add(kind)
                made.numbers[rank][kind] = row.enqueued
    return made


def _classes(found: Recording) -> list[tuple[list[int], list[tuple[int, ...]]]]:
    """Ranks of one pipeline stage with groups of the same kinds, and how much each has called in them."""
    calls = _calls(found)
    by_class: dict[tuple[tuple[str, ...], tuple[tuple[str, int], ...]], list[int]] = defaultdict(list)
    for rank, counts in calls.numbers.items():
        kinds = tuple(sorted(k for k in counts if k not in calls.mixed))
        by_class[kinds, tuple(sorted(calls.stage[rank]))].append(rank)
    return [
        (ranks, [tuple(calls.numbers[r][k] for k in kinds) for r in ranks])
        for (kinds, _), ranks in by_class.items()
        if len(kinds) > 1 and len(ranks) > 2
    ]


def miscounted(found: Recording, operations: Sequence[Operation], ranks: set[int]) -> set[int]:
    """In a ring whose hosts have called everything but for one rank in one operation: did that rank leave a call out,
    or have those that wait in it made one more? Other groups of the kind, of the same pipeline stage, tell."""
    missing = {(n, r) for n, o in enumerate(operations) for r in o.behind if r in ranks}
    if len(missing) != 1:
        return set()
    ((place, rank),) = missing
    operation = operations[place]
    kind, seq = operation.group.kind, operation.seq
    calls = _calls(found)
    if seq is None or kind in calls.mixed:
        return set()
    members = set(operation.group.everyone())
    others = [
        counts[kind] for r, counts in calls.numbers.items()
        if r not in members and kind in counts and calls.stage[r] == calls.stage[rank]
    ]  # fmt: skip
    called = sum(n >= seq for n in others)
    if called * 2 == len(others):
        return set()
    return {rank} if called * 2 > len(others) else operation.waiting & ranks


def _odd(ranks: list[int], vectors: list[tuple[int, ...]]) -> set[int]:
    weights = Counter(vectors)
    if len(weights) < 2 or len(weights) > MAX_DISTINCT:
        return set()
    distinct = list(weights)
    table = np.array(distinct)
    less = (table[:, None, :] <= table[None, :, :]).all(axis=2)
    incomparable = ~(less | less.T)
    against = incomparable @ np.array([weights[v] for v in distinct])
    strange = {v for v, n in zip(distinct, against, strict=True) if n * 2 > len(ranks)}
    odd = {r for r, v in zip(ranks, vectors, strict=True) if v in strange}
    return odd if len(odd) * 2 < len(ranks) else set()


def against_the_order(found: Recording, operations: Sequence[Operation], times: int = 3) -> set[int]:
    """Ranks that call two of these operations in another order than `times` as many do; empty when nobody does.

    The same number in a group of the same description stands for the same call of the program; a transfer counts where
    it is pending.
    """
    calls = list(dict.fromkeys((o.group.kind, o.seq) for o in operations))[:12]
    places: dict[tuple[str, int | None], dict[int, int]] = {}
    for kind, seq in calls:
        places[kind, seq] = found_places = {}
        for group in found.groups:
            if group.kind != kind:
                continue
            if seq is None:
                found_places.update((r, LATER) for r in group.members if r in found.dumps)
            for rank, row in group.rows.items():
                if seq is None:
                    found_places[rank] = row.p2p_order if row.peers else LATER
                elif row.enqueued is not None:
                    found_places[rank] = _place(row, seq)
    votes: Counter[int] = Counter()
    for n, first in enumerate(calls):
        for second in calls[n + 1 :]:
            if first[0] != second[0]:
                votes.update(_minority(places[first], places[second], times))
    return {r for r, n in votes.items() if n == max(votes.values())}


LATER = 1 << 61


def _place(row: Row, seq: int) -> int:
    """Where the rank called it: -1 long ago, its position if pending first, LATER: not yet, -2: unknown."""
    if row.enqueued is None or row.enqueued < seq:
        return LATER
    if row.pending is None or row.pending > seq:
        return -1
    return row.order if row.pending == seq else -2


def _minority(first: dict[int, int], second: dict[int, int], times: int) -> set[int]:
    forwards: set[int] = set()
    backwards: set[int] = set()
    for rank in first.keys() & second.keys():
        a, b = first[rank], second[rank]
        if a != b and -2 not in (a, b):
            (forwards if a < b else backwards).add(rank)
    small, large = sorted((forwards, backwards), key=len)
    return small if small and len(small) * times <= len(large) else set()


MAX_TRIED = 64


def alone_in_ring(operations: Sequence[Operation], ranks: set[int]) -> set[int]:
    """The rank through which every ring goes and that waits with few others in a call that most have not made.

    Without its call nobody would wait in a circle: it has left out, added or exchanged a call. Empty when several ranks
    would do, or none. Members of which nothing is known may have made the call too.
    """
    inside = [(o.waiting & ranks, set(o.blockers()) & ranks) for o in operations]
    lonely = {
        r for o in operations for r in o.waiting & ranks
        if len(o.waiting | o.unknown) * 4 <= len(list(o.group.everyone())) and len(o.behind) > 1
    }  # fmt: skip
    if not 0 < len(lonely) <= MAX_TRIED:
        return set()
    hubs = {r for r in lonely if not _circular(inside, r)}
    return hubs if len(hubs) == 1 else set()


def _circular(operations: Sequence[tuple[set[int], set[int]]], without: int) -> bool:
    """Whether ranks still wait in a circle when `without` waits for nobody; each operation is (waiting, awaited)."""
    left = [(waiting - {without}, awaited) for waiting, awaited in operations]
    while True:
        stuck = {r for waiting, _ in left for r in waiting}
        kept = [(waiting, awaited) for waiting, awaited in left if awaited & stuck]
        if len(kept) == len(left):
            return bool(kept)
        left = kept
