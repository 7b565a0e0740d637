"""Ranks whose calls cannot be a part of what the others called: an extra, a missing or an exchanged call.

Ranks that run the same program are at most at different places of it: of two of them, one has called at least as much
as the other in every group. A rank that has called more in one group and less in another follows another order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

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


def _classes(found: Recording) -> list[tuple[list[int], list[tuple[int, ...]]]]:
    """Ranks of one pipeline stage with groups of the same descriptions, and how much each has called in them."""
    numbers: dict[int, dict[str, int]] = defaultdict(dict)
    stage: dict[int, list[tuple[str, int]]] = defaultdict(list)
    mixed: set[str] = set()
    for group in found.groups:
        kind = group.desc or group.name
        transfers = any(r.p2p_seq is not None or r.enqueued is None for r in group.rows.values())
        for place, rank in enumerate(group.everyone()):
            row = group.rows.get(rank)
            if row is None:
                continue
            if transfers:
                stage[rank].append((kind, place))
            elif row.enqueued is not None:
                if kind in numbers[rank]:
                    mixed.add(kind)
                numbers[rank][kind] = row.enqueued
    by_class: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, counts in numbers.items():
        kinds = tuple(sorted(k for k in counts if k not in mixed))
        by_class[kinds, tuple(sorted(stage[rank]))].append(rank)
    classes: list[tuple[list[int], list[tuple[int, ...]]]] = []
    for (kinds, _), ranks in by_class.items():
        names = list(kinds) if isinstance(kinds, tuple) else []
        if len(names) > 1 and len(ranks) > 2:
            classes.append((ranks, [tuple(numbers[r][str(k)] for k in names) for r in ranks]))
    return classes


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
    calls = list(dict.fromkeys((o.group.desc or o.group.name, o.seq) for o in operations))[:12]
    places: dict[tuple[str, int | None], dict[int, int]] = {}
    for kind, seq in calls:
        places[kind, seq] = found_places = {}
        for group in found.groups:
            if (group.desc or group.name) != kind:
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
