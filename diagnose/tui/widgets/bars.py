"""One-row bars: top line, tabs, key line."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from ..plain import shorten
from .lineview import LineView, Piece, Row, row_cells


class Bar(LineView, can_focus=False):
    """A row of pieces on the left and another on the right; the left one gives way when both do not fit."""

    DEFAULT_CSS = """
Bar { height: 1; overflow: hidden hidden; scrollbar-gutter: auto; background: $surface; }
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.left: Row = ()
        self.right: Row = ()

    def show(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        """Replace what the bar says."""
        if (tuple(left), tuple(right)) != (tuple(self.left), tuple(self.right)):
            self.left, self.right = left, right
            self.refresh()

    def row_count(self) -> int:
        return 1

    def row(self, y: int) -> Row:
        width = self.view_size.width
        right = self.right if row_cells(self.right) + 8 <= width else ()
        room = width - row_cells(right) - (1 if right else 0)
        pieces: list[Piece] = []
        for text, token in self.left:
            text = shorten(text, room)
            pieces.append((text, token))
            room -= row_cells([(text, token)])
            if room <= 0:
                break
        gap = width - row_cells(pieces) - row_cells(right)
        return [*pieces, (" " * max(0, gap), "text"), *right]


class KeyLine(Bar):
    """Hints: key and label, as many as fit."""

    def hint(self, hints: Sequence[tuple[str, str]], right: Sequence[Piece] = ()) -> None:
        """Show (key, label) pairs."""
        self._hints = hints
        self._right = right
        self.relayout()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._hints: Sequence[tuple[str, str]] = ()
        self._right: Sequence[Piece] = ()

    def relayout(self) -> None:
        pieces: list[Piece] = []
        room = self.view_size.width - row_cells(self._right) - 1
        for key, label in self._hints:
            more: list[Piece] = [(f" {key}", "key"), (f" {label} ", "muted")]
            if row_cells(pieces) + row_cells(more) > room:
                break
            pieces.extend(more)
        self.show(pieces, self._right)


class TabBar(Bar):
    """The tabs of the detail pane; a click picks one."""

    class Picked(Message):
        """A tab was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._edges: list[tuple[int, str]] = []
        self._tabs: tuple[Sequence[tuple[str, str]], str, Sequence[Piece]] = ((), "", ())

    def tabs(self, labels: Sequence[tuple[str, str]], active: str, right: Sequence[Piece] = ()) -> None:
        """Show (name, label) pairs, one of them active."""
        self._tabs = (labels, active, right)
        self.relayout()

    def relayout(self) -> None:
        labels, active, right = self._tabs
        pieces: list[Piece] = []
        self._edges = []
        narrow = sum(len(label) + 2 for _, label in labels) + row_cells(right) > self.view_size.width
        for name, label in labels:
            text = label if narrow and name == active else label[0] if narrow else label
            pieces.append((f" {text} ", "tab-on" if name == active else "tab"))
            self._edges.append((row_cells(pieces), name))
        self.show(pieces, right)

    def on_click(self, event: events.Click) -> None:
        for edge, name in self._edges:
            if event.x < edge:
                self.post_message(self.Picked(name))
                return
