"""LogView: line numbers, highlights, wrapping; cost depends on what is in view, not on the length of the log."""

from __future__ import annotations

from itertools import pairwise

from textual.geometry import Size

from ..logtext import LogDocument, LogRow, Rows
from ..plain import chop, places
from .lineview import LineView, Piece, Row, row_cells

GUTTER = 3
"""Cells beside the line number: mark, and a space on either side."""


class LogView(LineView):
    """Rows of a `LogDocument`. With wrapping on, scrolling goes by lines and a long line takes several rows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.document: LogDocument = Rows(())
        self.wrap = True
        self.current = -1
        self.needle = ""
        self._digits = 1
        self._widest = 0
        self._screenful: tuple[object, list[Row]] = (None, [])

    def show(self, document: LogDocument, at: int = 0, current: int = -1) -> None:
        """Show a document from row `at` on; `current` is the row that stands out (a search hit)."""
        self.document = document
        self.current = current
        self._digits = self._number_width()
        self._widest = 0
        self.content_changed()
        self.jump(at, 0)

    def jump_to(self, at: int, must: int) -> None:
        """Scroll to row `at`, or as far beyond as it takes to have row `must` and the one after it in view."""
        height = self.view_size.height
        if height:
            rows = 0
            for index in range(must, at - 1, -1):
                rows += len(self._wrapped(index)) if self.wrap else 1
                if rows > max(1, height - 1) and index < must:
                    at = index + 1
                    break
        self.jump(at, 0)

    def mark(self, index: int, context: int = 2) -> None:
        """Make a row stand out and bring it into view."""
        self.current = index
        top, height = round(self.scroll_y), self.view_size.height
        if not top <= index < top + max(1, height - 2):
            self.jump(max(0, index - context))
        self.content_changed()

    def set_wrap(self, wrap: bool) -> None:
        """Wrap long lines, or let them run out of view."""
        self.wrap = wrap
        self.content_changed()
        self.jump(self.scroll_y, 0)

    def _number_width(self) -> int:
        count = len(self.document)
        last = max((self.document.row(i).number or 0 for i in range(max(0, count - 50), count)), default=0)
        if isinstance(self.document, Rows):
            last = max((self.document.row(i).number or 0 for i in range(count)), default=0)
        return max(4, len(str(last)))

    # --- rows ---------------------------------------------------------------------------------------

    def row_count(self) -> int:
        return len(self.document)

    def row_width(self) -> int:
        return 0 if self.wrap else self._widest

    def _resize_content(self) -> None:
        self._screenful = (None, [])
        rows = max(1, self.row_count())
        if self.wrap and self.row_count() > 0 and self._total_rows_exceed(self.view_size.height):
            rows += max(0, self.view_size.height - 1)
        self.virtual_size = Size(max(1, self.row_width()), rows)

    def _total_rows_exceed(self, height: int) -> bool:
        """Does the document, wrapped, fill more than the view?"""
        total = 0
        for index in range(min(len(self.document), height + 1)):
            total += len(self._wrapped(index))
            if total > height:
                return True
        return False

    def _wrapped(self, index: int) -> list[Row]:
        row = self.document.row(index)
        room = max(8, self.view_size.width - self._digits - GUTTER)
        if row.number is None:
            return [[(text, row.token)] for text in chop(row.text, max(8, self.view_size.width))]
        parts = chop(row.text, room)
        rows: list[Row] = []
        start = 0
        for part in parts:
            rows.append([*self._gutter(row, index, first=not rows), *self._pieces(row, start, part)])
            start += len(part)
        return rows

    def _gutter(self, row: LogRow, index: int, first: bool = True) -> list[Piece]:
        number = f"{row.number if first else '':>{self._digits}}"
        mark = "▌" if row.hit else "▸" if index == self.current and first else " "
        look = "match" if index == self.current and first else "hit" if row.hit else "number"
        return [(mark, "hit"), (number, look), ("  ", "text")]

    def _pieces(self, row: LogRow, start: int, part: str) -> list[Piece]:
        """A part of a row cut where its look changes: search matches over spans over the row's own token."""
        stop = start + len(part)
        base = row.token
        looks = [(a, b, "span") for a, b in row.spans]
        looks += [(a, b, "match") for a, b in places(row.text, self.needle)]
        if not looks:
            return [(part, base)]
        edges = sorted({start, stop, *(e for a, b, _ in looks for e in (a, b) if start < e < stop)})
        pieces: list[Piece] = []
        for a, b in pairwise(edges):
            token = base
            for first, last, look in looks:
                if first <= a and b <= last:
                    token = look
            pieces.append((row.text[a:b], token))
        return pieces

    def row(self, y: int) -> Row:
        row = self.document.row(y)
        if row.number is None:
            return [(row.text, row.token)]
        pieces = [*self._gutter(row, y), *self._pieces(row, 0, row.text)]
        width = row_cells(pieces)
        if width > self._widest:
            self._widest = width
            self.call_after_refresh(self._grow)
        return pieces

    def view_row(self, y: int) -> Row:
        if not self.wrap:
            return super().view_row(y)
        top = self.scroll_offset.y
        key = (top, self.view_size, self.current, self.needle)
        if self._screenful[0] != key:
            rows: list[Row] = []
            for index in range(top, len(self.document)):
                rows.extend(self._wrapped(index))
                if len(rows) >= self.view_size.height:
                    break
            self._screenful = (key, rows)
        rows = self._screenful[1]
        return rows[y] if 0 <= y < len(rows) else ()

    def _grow(self) -> None:
        self.virtual_size = Size(max(1, self._widest), max(1, self.row_count()))
