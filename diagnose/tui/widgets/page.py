"""Page: wrapped text in blocks; blocks of one item form what the cursor moves over (steps, keys, search hits)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..plain import places, wrap
from .lineview import LineView, Piece, Row, row_cells


@dataclass(frozen=True)
class Block:
    """A paragraph: `lead` stands before its first line, more lines hang beneath the text. Without `item` no cursor."""

    text: str
    token: str = "text"
    lead: tuple[Piece, ...] = ()
    item: int | None = None


class Page(LineView):
    """Blocks of text, wrapped to the width."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.blocks: Sequence[Block] = ()
        self.needle = ""
        self._rows: list[tuple[int | None, Row]] = []
        self._spans: list[tuple[int, int]] = []

    def show(self, blocks: Sequence[Block], keep: bool = False) -> None:
        """Show blocks; with `keep` the cursor and the place stay, else both go to the top."""
        self.blocks = blocks
        if not keep:
            self.cursor = 0
        self.relayout()
        self.content_changed()
        if keep:
            self.show_cursor()
        else:
            self.jump(0, 0)

    def relayout(self) -> None:
        self._rows = []
        spans: dict[int, tuple[int, int]] = {}
        width = max(8, self.view_size.width - 1)
        for block in self.blocks:
            inset = row_cells(block.lead)
            start = len(self._rows)
            for number, line in enumerate(wrap(block.text, width - inset)):
                lead: Row = block.lead if number == 0 else ((" " * inset, "text"),)
                self._rows.append((block.item, (*lead, *self._marked(line, block))))
            if block.item is not None:
                first = spans.get(block.item, (start, start))[0]
                spans[block.item] = (first, len(self._rows) - 1)
        self._spans = [spans[item] for item in sorted(spans)]

    def _marked(self, line: str, block: Block) -> Row:
        """A line with the needle standing out, in blocks that the cursor can reach."""
        pieces: list[Piece] = []
        start = 0
        for first, last in places(line, self.needle) if block.item is not None else ():
            pieces += [(line[start:first], block.token), (line[first:last], "match")]
            start = last
        return (*pieces, (line[start:], block.token))

    def row_count(self) -> int:
        return len(self._rows)

    def row(self, y: int) -> Row:
        item, pieces = self._rows[y]
        mark = "▌" if item is not None and item == self.cursor else " "
        return ((mark, "key"), *pieces)

    def item_count(self) -> int:
        return len(self._spans)

    def item_rows(self, item: int) -> tuple[int, int]:
        return self._spans[item]

    def item_at(self, y: int) -> int | None:
        return self._rows[y][0] if 0 <= y < len(self._rows) else None
