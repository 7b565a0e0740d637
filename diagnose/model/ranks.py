"""Sets of ranks as text: sorted numbers and ranges."""

from __future__ import annotations

from typing import Any


def fold_ranks(ranks: Any) -> str:
    """Numbers as sorted ranges: {0,1,2,5} -> '0-2,5'. Empty gives ''."""
    numbers = sorted({int(r) for r in ranks})
    parts: list[str] = []
    start = previous = None
    for n in [*numbers, None]:
        if previous is not None and n == previous + 1:
            previous = n
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = n
    return ",".join(parts)


def unfold_ranks(text: str) -> list[int]:
    """The reverse of `fold_ranks`; ValueError on anything else."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranks.extend(range(int(first), int(last or first) + 1))
    return ranks
