"""Undoes hard line wrapping of logs that went through a terminal, a mail program or a ticket system.

A wrapped log shows itself: messages of NCCL or torch end at one and the same column again and again, and what follows
has no head of its own. Only then are lines joined; a log with such a column by chance has heads after it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from diagnose.model import Block, Line

MIN_WIDTH = 60
"""Narrower columns are not taken for wrapping."""
MAX_PIECES = 40
"""Pieces of one message."""
_SAMPLE = 1 << 16
_TERMINALS = frozenset({72, 76, 78, 79, 80, 100, 120, 132, 160, 200, 240})

_QUOTE = re.compile(r"[ ]?(?:> ?){1,8}")
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:"
_SPEAKER = re.compile(
    r"(?<![\w.%/-])[A-Za-z0-9][\w.%/-]{0,100}:\d{1,10}:\d{1,10} (?:\[-?\d|NCCL )|\[rank\d{1,6}\]:|\[default\d{1,4}\]:"
    r"|^\s{0,4}\[\d{1,10},\d{1,6}\]<(?:stdout|stderr)>:|^libfabric:\d{1,10}:"
    r"|\[[EWIF](?:\d{3,4} | ?[A-Z]\w{1,60}\.cpp)|[EWIF]\d{4} \d\d:\d\d:\d\d"
)
_HEAD = re.compile(
    rf"\s{{0,8}}(?:\[?{_STAMP}|\d{{1,6}}: |\[\d{{1,10}},\d{{1,6}}\]<|\[pod/|\((?:[\w.]{{1,60}} )?pid="
    r"|Traceback \(|NCCL version |[\w.-]{1,63}@[\w.-]{1,63}[:~ ]|[$#] |```|[-=*#]{3}"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
)


def rejoin(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines with the pieces of hard-wrapped messages joined, under the number of their first piece.

    Looks at about 64 KiB of lines before it decides, and again for each further 4 MiB. Unwrapped logs pass unchanged.
    """
    pending: list[Line] = []
    size = 0
    for line in lines:
        pending.append(line)
        size += len(line.text) + 1
        if size > 4 << 20:
            yield from _rejoin(pending)
            pending, size = [], 0
    yield from _rejoin(pending)


def rejoined(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks with wrapped messages joined on their first line and empty lines in place of the other pieces.

    So line numbers stay true. A message cut by the end of a block stays cut. Costs next to nothing when unwrapped.
    """
    for block in blocks:
        text = rejoin_text(block.text)
        yield block if text is block.text else Block(block.first, text)


def rejoin_text(text: str) -> str:
    """The same for one text: as many lines as before; the very same object when nothing is wrapped."""
    width = wrap_width(text)
    if width is None:
        return text
    joined = _join(text.split("\n"), width)
    return "\n".join("" if piece is None else piece for piece in joined)


def _rejoin(lines: Sequence[Line]) -> Iterator[Line]:
    width = wrap_width("\n".join(line.text for line in lines))
    if width is None:
        yield from lines
        return
    for line, text in zip(lines, _join([line.text for line in lines], width), strict=True):
        if text is not None:
            yield line._replace(text=text)


def wrap_width(text: str) -> int | None:
    """Column at which a log was cut, from its first 64 KiB; None when it was not."""
    lines = _bodies(text[:_SAMPLE].split("\n"))
    if len(text) > _SAMPLE:
        lines.pop()
    full: dict[int, set[str]] = {}
    broken: dict[int, set[str]] = {}
    longest = 0
    chain = 0
    for n, line in enumerate(lines):
        speaks = _speaks(line)
        if speaks:
            longest = max(longest, len(line))
            chain = len(line)
        elif _is_head(line) or not line:
            chain = 0
        if chain < MIN_WIDTH or len(line) != chain:
            chain = 0
            continue
        following = lines[n + 1] if n + 1 < len(lines) else ""
        if not following:
            chain = 0
        elif _speaks(following) or _is_head(following):
            broken.setdefault(chain, set()).add(re.sub(r"\d+", "0", line))
        elif len(following) <= chain:
            full.setdefault(chain, set()).add(re.sub(r"\d+", "0", line))
    return _decide(full, broken, longest, lines)


def _decide(full: dict[int, set[str]], broken: dict[int, set[str]], longest: int, lines: Sequence[str]) -> int | None:
    for width in sorted(full, key=lambda w: -len(full[w])):
        evidence = len(full[width])
        if longest > width or len(broken.get(width, ())) * 4 > evidence:
            continue
        if evidence >= 2 or (width in _TERMINALS and _inside_a_word(lines, width)):
            return width
    return None


def _inside_a_word(lines: Sequence[str], width: int) -> bool:
    for line, following in itertools.pairwise(lines):
        if len(line) == width and _speaks(line) and following:
            return line[-1].isalnum() and following[0].isalnum()
    return False


def _bodies(lines: Sequence[str]) -> list[str]:
    """Lines without the ticket quotes that all of them carry."""
    quoted = sum(1 for line in lines if line.startswith((">", " >")))
    if quoted * 2 > len(lines):
        return [_QUOTE.sub("", line, count=1) if line.startswith((">", " >")) else line for line in lines]
    return list(lines)


def _speaks(line: str) -> bool:
    return "]" in line and _SPEAKER.search(line, 0, 240) is not None


def _is_head(line: str) -> bool:
    return _HEAD.match(line) is not None


def _join(lines: Sequence[str], width: int) -> list[str | None]:
    """Per line its text, joined with its pieces, or None for a piece that went to an earlier line."""
    bodies = _bodies(lines)
    joined: list[str | None] = list(lines)
    at = 0
    while at < len(bodies):
        if not _speaks(bodies[at]) or len(bodies[at]) not in (width, width - 1):
            at += 1
            continue
        pieces = [bodies[at]]
        end = at + 1
        while end < len(bodies) and len(pieces) < MAX_PIECES and len(bodies[end - 1]) in (width, width - 1):
            piece = bodies[end]
            if not piece or len(piece) > width or _speaks(piece) or _is_head(piece):
                break
            if len(bodies[end - 1]) == width - 1:
                pieces.append(" ")
            pieces.append(piece)
            joined[end] = None
            end += 1
        if end > at + 1:
            joined[at] = "".join(pieces)
        at = end
    return joined
