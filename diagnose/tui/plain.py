"""Untrusted text made fit for a terminal cell grid: no controls, bounded length, wrapped by cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells, set_cell_size

MAX_LINE = 20_000
"""Longest line drawn, in characters; the rest is told by its length. The file itself is untouched."""

TAB = 8
REPLACEMENT = "�"
Spans = Sequence[tuple[int, int]]

_WORDS = re.compile(r"\s+|\S+")


def printable(text: str) -> str:
    """The text with every character that does not print (escapes, bidi marks, NUL …) replaced; length is kept."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else REPLACEMENT for c in text)


def fit(text: str, spans: Spans = ()) -> tuple[str, list[tuple[int, int]]]:
    """One line for display: cut at MAX_LINE, tabs expanded, unprintables replaced; spans move along."""
    cut = len(text) - MAX_LINE
    if cut > 0:
        text = text[:MAX_LINE]
    moved = [(max(0, a), min(b, len(text))) for a, b in spans if a < len(text) and b > a]
    if "\t" in text:
        parts: list[str] = []
        starts: list[int] = []
        column = 0
        for c in text:
            starts.append(column)
            piece = " " * (TAB - column % TAB) if c == "\t" else c
            parts.append(piece)
            column += len(piece)
        starts.append(column)
        moved = [(starts[a], starts[b]) for a, b in moved]
        text = "".join(parts)
    text = printable(text)
    if cut > 0:
        text += f" … (+{cut} characters)"
    return text, moved


def places(text: str, needle: str) -> list[tuple[int, int]]:
    """Where a needle stands in a text, whatever the case; nowhere when the needle is empty."""
    found: list[tuple[int, int]] = []
    low, needle, at = text.lower(), needle.lower(), 0
    while needle and (at := low.find(needle, at)) >= 0:
        found.append((at, at + len(needle)))
        at += len(needle)
    return found


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis where it was cut."""
    text = printable(text[: max(0, width) + 1])
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return "…"[: max(0, width)]
    return set_cell_size(text, width - 1).rstrip() + "…"


def pad(text: str, width: int) -> str:
    """The text with blanks up to `width` cells; a longer one stays."""
    return text + " " * max(0, width - cell_len(text))


def chop(text: str, width: int) -> list[str]:
    """Pieces of at most `width` cells, cut anywhere (log lines)."""
    if text.isascii():
        return [text[i : i + width] for i in range(0, len(text), width)] or [""]
    return chop_cells(text, max(2, width)) or [""]


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, cut between words where possible (prose). Line breaks of the text stay."""
    width = max(4, width)
    lines: list[str] = []
    for part in text.split("\n"):
        line, used = "", 0
        for word in _WORDS.findall(printable(part.replace("\t", "    "))):
            size = cell_len(word)
            if used + size <= width:
                line, used = line + word, used + size
                continue
            if word.isspace():
                lines.append(line)
                line, used = "", 0
                continue
            if line.strip() and size <= width:
                lines.append(line.rstrip())
                line, used = word, size
                continue
            pieces = chop(line + word, width)
            lines.extend(pieces[:-1])
            line, used = pieces[-1], cell_len(pieces[-1])
        lines.append(line.rstrip())
    return lines
