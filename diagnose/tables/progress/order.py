"""Ranks whose calls cannot be a part of what the others called: an extra, a missing or an exchanged call.

Ranks that run the same program are at most at different places of it: of two of them, one has called at least as much
as the other in every group. A rank that has called more in one group and less in another follows another order.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from diagnose.tables.progress.recorder import Recording

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
        for place, rank in enumerate(group.members):
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
