"""What a ticket, mail, editor or tool put around every line: quotes, numbers, the indent of a code block, JSON items.

Decided once per file from its start, so that every way of reading it shows the same text. What tells a host, rank or
time (launchers, container runtimes, pdsh) is no decoration: that is for `parsing.unprefix`.
"""

from __future__ import annotations

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

_QUOTE = re.compile(r" ?>(?:[ >]{0,14}>)? ?")
_NUMBER = re.compile(r"[ \t]{0,8}(\d{1,8})(?:\t| ?[|│→] ?|:(?! \S|\d\d:))")
_INDENT = re.compile(r" {4}|\t")
_ITEM = re.compile(r"\s{1,40}(\"(?:[^\"\\]|\\.)*\"),?\s*")
"""A line as an item of a JSON list, as Ansible and kubectl show `stdout_lines`."""


def undecorated(lines: Sequence[str]) -> Callable[[str], str] | None:
    """What takes the decoration off a line, from the first lines of a text; None when there is none."""
    layers: list[Callable[[str], str]] = []
    seen = [line for line in lines[:_MAX_LINES] if line.strip()]
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


def _layer(lines: Sequence[str]) -> Callable[[str], str] | None:
    if sum(_QUOTE.match(line) is not None for line in lines) >= _MOST * len(lines):
        return _without(_QUOTE)
    numbers = [int(found.group(1)) for line in lines if (found := _NUMBER.match(line))]
    if len(numbers) >= max(_MIN_LINES, _MOST * len(lines)):
        rising = sum(b - a == 1 for a, b in itertools.pairwise(numbers))
        if rising >= _RISING * (len(numbers) - 1):
            return _without(_NUMBER)
    if sum(_ITEM.fullmatch(line) is not None for line in lines) >= _MOST * len(lines):
        return _unquoted
    depths = [len(line) - len(line.lstrip(" ")) for line in lines]
    return _without(_INDENT) if min(depths) == 4 and depths[0] == 4 else None
