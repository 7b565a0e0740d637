"""Sets of ranks as text: sorted numbers and ranges."""

from __future__ import annotations

import re
from typing import Any

MAX_RANK = 10_000_000
"""No job has a rank above this (chosen by us)."""
MAX_WORLD = 1_000_000
"""No job has more ranks (chosen by us: several times the largest systems)."""
_PART = re.compile(r"([0-9]{1,8})(?:-([0-9]{1,8}))?", re.ASCII)


def fold_ranks(ranks: Any) -> str:
    """Numbers as sorted ranges: {0,1,2,5} -> '0-2,5'. Empty gives ''; what no rank can be is left out."""
    numbers = sorted(n for n in {int(r) for r in ranks} if 0 <= n <= MAX_RANK)
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
    """The reverse of `fold_ranks`; what is no rank or range of ranks is left out, and so is what exceeds MAX_WORLD."""
    ranks: list[int] = []
    for part in text.split(","):
        m = _PART.fullmatch(part.strip())
        if m:
            first, last = int(m[1]), min(int(m[2] or m[1]), MAX_RANK)
            ranks.extend(range(first, min(last + 1, first + MAX_WORLD - len(ranks))))
    return ranks
