"""Text from evidence is data: whatever it holds, it reaches a terminal, ticket or page as visible characters.

Escapes, control and bidi characters, invisible characters and lone surrogates are shown as `\\x1b`-like codes.
"""

from __future__ import annotations

import re
import unicodedata

UNSAFE = (
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidi, separators
    "\ud800-\udfff\ue000-\uf8ff"  # lone surrogates, private use
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags, variation selectors, private planes
    "]"
)
_UNSAFE = re.compile(UNSAFE)
_MARK = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]"
_STACKED_MARKS = re.compile(f"({_MARK}{{3}}){_MARK}+")


def safe(text: str, limit: int | None = None) -> str:
    """`text` as one line of visible characters: line ends become blanks, tabs four of them; cut to `limit` columns."""
    text = text.replace("\r\n", "\n").replace("\n", " ").replace("\r", " ").replace("\t", "    ")
    text = _STACKED_MARKS.sub(r"\1", _UNSAFE.sub(_visible, text))
    return text if limit is None else cut(text, limit)


def safe_lines(text: str, limit: int | None = None) -> list[str]:
    """The lines of `text`, each made safe; blank lines at its end go."""
    lines = [safe(line, limit) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """Terminal columns that `text` (made safe) takes."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if "\ue000" <= char <= "\ue0ff" or unicodedata.combining(char):  # style marks of `text` take no room
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, limit: int, around: int = 0) -> str:
    """At most `limit` columns of `text`; what is left out is marked by `…`. `around` is a column to keep in view."""
    if columns(text) <= limit:
        return text
    start = 0
    if around > limit * 2 // 3:
        start = min(around - limit // 3, max(0, len(text) - limit + 1))
    head = "…" if start else ""
    room = limit - len(head) - 1
    taken: list[str] = []
    for char in text[start:]:
        room -= _columns_of(char)
        if room < 0:
            return head + "".join(taken) + "…"
        taken.append(char)
    return head + "".join(taken)


def wrap(text: str, width: int, first: str = "", rest: str | None = None, lines: int | None = None) -> list[str]:
    """`text` (made safe) in lines of at most `width` columns, after `first` and then `rest`.

    Words longer than a line stay whole: a path or command that is broken cannot be pasted. CJK text breaks anywhere.
    At most `lines` lines; the last then ends with `…`.
    """
    rest = " " * columns(first) if rest is None else rest
    out: list[str] = []
    line, used = first, columns(first)
    empty = True
    for piece in _pieces(text):
        need = columns(piece.rstrip())
        if not empty and used + need > width:
            if lines is not None and len(out) + 1 == lines:
                return [*out, _left_off(line.rstrip(), width)]
            out.append(line.rstrip())
            line, used, empty = rest, columns(rest), True
            piece = piece.lstrip()
        line += piece
        used += columns(piece)
        empty = False
    return [*out, line.rstrip()]


def _left_off(line: str, width: int) -> str:
    marked = line + " …"
    return marked if columns(marked) <= width else cut(line + " ", min(width, columns(line)))


_PIECE = re.compile(
    r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef][，。；：、！？）」]?|[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+\s*|\s+"
)


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)
