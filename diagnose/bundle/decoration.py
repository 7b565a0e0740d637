"""What a ticket, mail, editor or tool put around every line: quotes, numbers, the indent of a code block, JSON items,
HTML, the marks of diff, what a pager printed, and blanks that became two.

Decided once per file from its start, so that every way of reading it shows the same text. What tells a host, rank or
time (launchers, container runtimes, pdsh) is no decoration: that is for `parsing.unprefix`.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Callable, Sequence

from diagnose.parsing import clean

_MIN_LINES = 3
_MOST = 0.6
"""Share of the lines that must be decorated; the rest may be the words of the person who pasted them."""
_RISING = 0.95
"""Share of neighbours among numbered lines whose numbers differ by one."""
_MAX_LINES = 400
_DEEP = 3
"""Layers, such as a quote of numbered lines."""

_ALL = 0.95
"""Share of the lines that must carry what also means something else."""
_ALIKE = 0.02
"""Share of the lines between whose words a single blank may stand where all blanks became two."""

_QUOTE = re.compile(r" ?>(?:[ >]{0,14}>)? ?")
_NUMBERS = (
    re.compile(r"[ \t]{0,8}(\d{1,8})(?:\t| ?[|│→] ?|:(?! \S|\d\d:))"),
    re.compile(r"(?=[ \d]{6} {2})( {0,5}\d{1,6}) {2}"),
    re.compile(r"[\w./+-]{1,200}:(\d{1,8}):"),
    re.compile(r"[\w./+-]{1,200}?\.(?:txt|log|out|err)-(\d{1,8})-"),
)
"""Editors; nl and cat -n after their tab was lost; grep -n."""
_BORDER = re.compile(r"[│┃║▏▎▍] ?")
_INDENT = re.compile(r" {4}|\t")
_BLOCK = re.compile(r"::|(?:[\w .-]{1,80}:)?\s*[|>][-+]?\s*|[\w .-]{0,80}::")
"""What begins a block in YAML and reStructuredText."""
_ITEM = re.compile(r"\s{1,40}(\"(?:[^\"\\]|\\.)*\"),?\s*")
"""A line as an item of a JSON list, as Ansible and kubectl show `stdout_lines`."""
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|nbsp|#\d{2,4}|#x[0-9a-fA-F]{2,4});")
_TAG = re.compile(r"</?(?:pre|code|p|br|div|span|td|tr|tbody|table|font|b|i)(?: [^<>]{0,200})?/?>", re.I)
_PAGER = re.compile(r"--More--(?: ?\(\d{1,3}%\))?|\(END\)|lines \d{1,9}-\d{1,9}(?:/\d{1,9})?(?: \(END\)| \d{1,3}%)?")
_TWO = re.compile(r"(?<=\S) {2}(?=\S)")
_ONE = re.compile(r"\S \S")
_UNDERLINES = re.compile(r"\s*[-=]{2,}(?: {2,}[-=]{2,})+\s*")

Strip = Callable[[str], str]


def undecorated(lines: Sequence[str]) -> Strip | None:
    """What takes the decoration off a line, from the first lines of a text; None when there is none."""
    layers: list[Strip] = []
    seen = [line for line in lines[:_MAX_LINES] if line.strip()]
    if any(_PAGER.fullmatch(line.strip()) for line in seen):
        layers.append(_unpaged)
        seen = [bare for line in seen if (bare := _unpaged(line)).strip()]
    while len(layers) < _DEEP and len(seen) >= _MIN_LINES and (layer := _layer(seen)) is not None:
        layers.append(layer)
        seen = [bare for line in seen if (bare := layer(line)).strip()]
    if not layers:
        return None

    def strip(line: str) -> str:
        for layer in layers:
            line = layer(line)
        return line

    return strip


def _unpaged(line: str) -> str:
    """Without the prompts of less and more."""
    bare = line.strip()
    return "" if bare == ":" or _PAGER.fullmatch(bare) else line


def _without(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def strip(line: str) -> str:
        found = pattern.match(line)
        return line[found.end() :] if found else line

    return strip


def _unquoted(line: str) -> str:
    """The text of an item of a JSON list; brackets and other lines stay as they are."""
    found = _ITEM.fullmatch(line)
    if found is None:
        return line
    try:
        return clean(json.loads(found.group(1)).replace("\n", " ").replace("\r", " "))
    except ValueError:
        return line


def _unescaped(line: str) -> str:
    return html.unescape(_TAG.sub("", line)).replace("\xa0", " ")


def _framed(line: str) -> bool:
    bare = line.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == "|"


def _unframed(line: str) -> str:
    return line.strip()[1:-1].removeprefix(" ").rstrip() if _framed(line) else line


def _halved(line: str) -> str:
    return _TWO.sub(" ", line)


def _layer(lines: Sequence[str]) -> Strip | None:
    """The outermost decoration of the lines."""
    for pattern in (_QUOTE, _BORDER):
        if _share(lines, lambda line, pattern=pattern: pattern.match(line)) >= _MOST:
            return _without(pattern)
    for pattern in _NUMBERS:
        if _numbered(lines, pattern):
            return _without(pattern)
    if _share(lines, _ITEM.fullmatch) >= _MOST:
        return _unquoted
    if _escaped(lines):
        return _unescaped
    if _share(lines, _framed) >= _ALL:
        return _unframed
    if _share(lines, lambda line: line.startswith("+")) >= _ALL:
        return lambda line: line[1:] if line.startswith("+") and not line.startswith("+++ ") else line
    if _doubled(lines):
        return _halved
    return _indented(lines)


def _doubled(lines: Sequence[str]) -> bool:
    """Whether every blank became two, as text recognition does. Tables with columns two blanks apart underline them."""
    gapped = sum(_TWO.search(line) is not None for line in lines)
    if gapped <= max(_MIN_LINES, len(lines) // 2) or any(_UNDERLINES.fullmatch(line) for line in lines):
        return False
    return _share(lines, _ONE.search) <= _ALIKE


def _share(lines: Sequence[str], test: Callable[[str], object]) -> float:
    return sum(bool(test(line)) for line in lines) / len(lines)


def _numbered(lines: Sequence[str], pattern: re.Pattern[str]) -> bool:
    numbers = [int(found.group(found.lastindex or 1)) for line in lines if (found := pattern.match(line))]
    if len(numbers) < max(_MIN_LINES, _MOST * len(lines)):
        return False
    return sum(b - a == 1 for a, b in itertools.pairwise(numbers)) >= _RISING * (len(numbers) - 1)


def _escaped(lines: Sequence[str]) -> bool:
    """Whether HTML was copied as text: entities, and no angle bracket outside of tags that lay text out."""
    if not any(_ENTITY.search(line) for line in lines) and not lines[0].lstrip().startswith("<pre"):
        return False
    return not any("<" in _TAG.sub("", line) for line in lines)


def _indented(lines: Sequence[str]) -> Strip | None:
    depths = [len(line) - len(line.lstrip(" ")) for line in lines]
    if min(depths) == 4 and depths[0] == 4:
        return _without(_INDENT)
    deep = min(depths[1:])
    if depths[0] == 0 and deep >= 2 and _BLOCK.fullmatch(lines[0]):
        return lambda line: line[deep:] if line[:deep].isspace() else line
    return None
