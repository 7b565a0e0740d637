"""YAML of rule files: plain data, and places for errors.

Only what rules need: mappings with text keys, lists, scalars. Plain scalars are read as YAML 1.2 does (`true`, `12`,
`1.5`, `null`; `on`, `yes`, `012`, `10:30` and dates stay texts). Anchors, tags and duplicate keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[+-]?(?:(0|[1-9]\d*)|(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\Z", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}

MAX_DEPTH = 20
MAX_DIGITS = 25

Path = Sequence[str | int]


class Mistake(NamedTuple):
    """An error with its place, both 1-based."""

    line: int
    column: int
    text: str


class Document:
    """One parsed file: `data`, and the place of each of its parts on demand."""

    def __init__(self, text: str) -> None:
        self.mistakes: list[Mistake] = []
        self.data: Any = None
        self._root: yaml.Node | None = None
        self._seen: set[int] = set()
        try:
            self._root = yaml.compose(text, Loader=_LOADER)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            told = getattr(error, "problem", None) or str(error)
            self.mistakes.append(Mistake(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, f"YAML: {told}"))
            return
        if self._root is not None:
            self.data = self._plain(self._root, 0)

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of the deepest part of `path` that exists."""
        node = self._find(path)
        return (node.start_mark.line + 1, node.start_mark.column + 1) if node else (1, 1)

    def inside(self, path: Path, column: int) -> tuple[int, int]:
        """Place of the character `column` (1-based) of a text, where it lies on one line; else the text's start."""
        node = self._find(path)
        line, start = self.place(path)
        if not isinstance(node, yaml.ScalarNode) or node.start_mark.line != node.end_mark.line:
            return line, start
        return line, start + column - 1 + (node.style in ("'", '"'))

    def key_place(self, path: Path) -> tuple[int, int]:
        """Line and column of the key that ends `path`."""
        node = self._find(path[:-1])
        if isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                if key.value == path[-1]:
                    return key.start_mark.line + 1, key.start_mark.column + 1
        return self.place(path)

    def _find(self, path: Path) -> yaml.Node | None:
        node = self._root
        for part in path:
            below: yaml.Node | None = None
            if isinstance(node, yaml.MappingNode):
                below = next((value for key, value in node.value if key.value == part), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                below = node.value[part]
            if below is None:
                break
            node = below
        return node

    def _wrong(self, node: yaml.Node, text: str) -> None:
        self.mistakes.append(Mistake(node.start_mark.line + 1, node.start_mark.column + 1, text))

    def _plain(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if id(node) in self._seen or depth > MAX_DEPTH:
            self._wrong(node, "anchors and aliases are not supported" if depth <= MAX_DEPTH else "nested too deeply")
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, depth + 1) for item in node.value]
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(key, "a key must be a word")
            elif key.value in found:
                self._wrong(key, f"duplicate key '{key.value}'")
            else:
                found[key.value] = self._plain(value, depth + 1)
        return found


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if node.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    found = _NUMBER.match(text) if len(text) <= MAX_DIGITS else None
    if found is None:
        return text
    return int(text) if found[1] is not None else float(text)
