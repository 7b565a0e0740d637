"""Outputs that a terminal broke at its last column, joined again. For logs see `parsing.wrapping`.

A terminal is as wide as its longest lines, which break anywhere and go on in the next line. Tables whose rows are that
wide by themselves end their rows with borders, and lists have few lines of one and the same width.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from diagnose.model import Line

WIDTHS = frozenset({72, 76, 78, 79, 80, 100, 120, 132, 160, 200, 240})
"""Columns of terminals and mail programs."""
_MIN_FULL = 3
"""Full lines."""
_MOST = 0.9
"""Share of the full lines that must go on in a shorter one, or …"""
_INSIDE = 0.3
"""… share of them that must break inside a word."""
MAX_LINES = 4_000
MAX_PIECES = 400


def rejoined_columns(lines: Sequence[Line]) -> list[Line] | None:
    """The lines with their pieces joined, under the number of the first piece; None when nothing was broken."""
    if not _MIN_FULL < len(lines) <= MAX_LINES:
        return None
    width = max(len(line.text) for line in lines)
    if width not in WIDTHS:
        return None
    pairs = [(a.text, b.text) for a, b in itertools.pairwise(lines) if len(a.text) == width and b.text]
    if len(pairs) < _MIN_FULL or any(following.startswith(("|", "+")) for _, following in pairs):
        return None
    shorter = sum(len(following) < width for _, following in pairs)
    inside = sum(line[-1].isalnum() and following[0].isalnum() for line, following in pairs)
    if shorter < _MOST * len(pairs) and inside < _INSIDE * len(pairs):
        return None
    return list(_joined(lines, width))


def _joined(lines: Sequence[Line], width: int) -> Iterator[Line]:
    first, pieces = lines[0], [lines[0].text]
    for line in lines[1:]:
        if len(pieces[-1]) == width and line.text and len(pieces) < MAX_PIECES:
            pieces.append(line.text)
            continue
        yield first._replace(text="".join(pieces))
        first, pieces = line, [line.text]
    yield first._replace(text="".join(pieces))
