"""Base of all our widgets: rows of (text, token) pieces, drawn only where visible; a cursor; keys for moving.

Every segment carries a style of its own, also the padding: under NO_COLOR the monochrome filter of Textual 8.2 fails
on a segment without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..keys import bindings
from ..plain import printable
from ..theme import look

MIN_WIDTH = 20
"""Cells that a sentence in place of a table is wrapped to at least."""

Piece = tuple[str, str]
Row = Sequence[Piece]


def row_text(row: Row) -> str:
    """The text of a row without its tokens."""
    return "".join(text for text, _ in row)


class LineView(ScrollView, can_focus=True):
    """A scrolling view of `row_count()` rows; `row(y)` makes one. Items are what the cursor moves over.

    A view without items (`item_count()` is 0) scrolls line by line.
    """

    BINDINGS = bindings("lists and texts")
    DEFAULT_CSS = """
LineView { background: $background; color: $foreground; scrollbar-size: 1 1; overflow: auto auto;
    scrollbar-gutter: stable;
    scrollbar-color: $panel; scrollbar-background: $background; scrollbar-corner-color: $background; }
LineView:focus { scrollbar-color: $primary; }
"""

    class Moved(Message):
        """The cursor stands on another item."""

        def __init__(self, view: LineView, item: int) -> None:
            super().__init__()
            self.view = view
            self.item = item

        @property
        def control(self) -> LineView:
            return self.view

    class Opened(Moved):
        """Enter or a click on the item under the cursor."""

    class Left(Message):
        """Escape was pressed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self._laid_for = -1
        self._styles: dict[tuple[str, bool, bool], Style] = {}

    # --- what a view shows --------------------------------------------------------------------------

    def row_count(self) -> int:
        """Rows in all."""
        return 0

    def row(self, y: int) -> Row:
        """Pieces of row `y`."""
        return ()

    def row_width(self) -> int:
        """Width of the widest row in cells; 0 when no row is wider than the view."""
        return 0

    def item_count(self) -> int:
        """Items that the cursor moves over."""
        return 0

    def item_rows(self, item: int) -> tuple[int, int]:
        """First and last row of an item."""
        return item, item

    def item_at(self, y: int) -> int | None:
        """The item that row `y` belongs to."""
        return y if 0 <= y < self.item_count() else None

    def relayout(self) -> None:
        """Rows depend on the width: make them again."""

    # --- drawing ------------------------------------------------------------------------------------

    @property
    def view_size(self) -> Size:
        """Cells there are for rows, scroll bars taken off."""
        return self.scrollable_content_region.size

    def content_changed(self) -> None:
        """Call after rows have changed: sizes, cursor and picture follow."""
        self._resize_content()
        self.cursor = max(0, min(self.cursor, self.item_count() - 1))
        self.refresh()

    def _resize_content(self) -> None:
        self.virtual_size = Size(max(self.row_width(), 1), max(self.row_count(), 1))

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        """Lay rows out for the width there is now."""
        self._laid_for = self.view_size.width
        self.relayout()
        self._resize_content()
        self.show_cursor()
        self.refresh()

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def style_of(self, token: str, at_cursor: bool) -> Style:
        """The full style of a token, never None."""
        key = (token, at_cursor, self.has_focus)
        style = self._styles.get(key)
        if style is None:
            variables = self.app.theme_variables
            style = Style() + self.rich_style + look(token, variables)
            if at_cursor and token != "match":
                style += look("cursor" if self.has_focus else "cursor-blur", variables)
            self._styles[key] = style
        return style

    def render_line(self, y: int) -> Strip:
        left = self.scroll_offset.x
        width = self.view_size.width
        if width != self._laid_for:  # a resize event may come before the region it tells of
            self._laid_for = width
            self.relayout()
            self.call_after_refresh(self._fit)
        pieces = self.view_row(y)
        at_cursor = self._is_cursor_row(y + self.scroll_offset.y)
        strip = Strip([Segment(printable(text), self.style_of(token, at_cursor)) for text, token in pieces if text])
        return strip.crop_extend(left, left + width, self.style_of("text", at_cursor))

    def view_row(self, y: int) -> Row:
        """The row drawn `y` rows below the top of the view."""
        y += self.scroll_offset.y
        return self.row(y) if 0 <= y < self.row_count() else ()

    def _is_cursor_row(self, y: int) -> bool:
        if not self.item_count():
            return False
        first, last = self.item_rows(self.cursor)
        return first <= y <= last

    # --- moving -------------------------------------------------------------------------------------

    def goto(self, item: int, tell: bool = True) -> None:
        """Move the cursor to an item, as far as there is one, and bring it into view."""
        count = self.item_count()
        item = max(0, min(item, count - 1))
        changed = item != self.cursor
        self.cursor = item
        self.show_cursor()
        self.refresh()
        if changed and tell and count:
            self.post_message(self.Moved(self, item))

    def show_cursor(self) -> None:
        """Scroll so that the cursor's rows are in view, with as little movement as possible."""
        if not self.item_count() or not self.view_size.height:
            return
        first, last = self.item_rows(self.cursor)
        top, height = round(self.scroll_y), self.view_size.height
        if first < top or last - first >= height:
            self.jump(first)
        elif last >= top + height:
            self.jump(last - height + 1)

    def jump(self, y: float, x: float | None = None) -> None:
        """Scroll at once."""
        self.scroll_to(x=x, y=y, animate=False, immediate=True, force=True)

    def action_down(self, step: int) -> None:
        if self.item_count():
            self.goto(self.cursor + step)
        else:
            self.jump(self.scroll_y + step)

    def action_page(self, step: int) -> None:
        height = max(1, self.view_size.height - 1)
        if not self.item_count():
            self.jump(self.scroll_y + step * height)
            return
        first, _ = self.item_rows(self.cursor)
        target = max(0, min(first + step * height, self.row_count() - 1))
        item = self.item_at(target)
        self.goto(self.cursor + step if item is None or item == self.cursor else item)

    def action_edge(self, step: int) -> None:
        if self.item_count():
            self.goto(0 if step < 0 else self.item_count() - 1)
        self.jump(0 if step < 0 else self.row_count())

    def action_pan(self, step: int) -> None:
        self.jump(self.scroll_y, self.scroll_x + step * max(8, self.view_size.width // 2))

    def action_open(self) -> None:
        self.post_message(self.Opened(self, self.cursor))

    def action_back(self) -> None:
        self.post_message(self.Left())

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        item = self.item_at(offset.y + round(self.scroll_y))
        if item is None or not self.item_count():
            return
        again = item == self.cursor
        self.goto(item)
        if again:
            self.action_open()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def visible_text(self) -> list[str]:
        """The rows in view as text."""
        return [row_text(self.view_row(y)) for y in range(self.view_size.height)]


def row_cells(row: Row) -> int:
    """Width of a row in cells."""
    return sum(cell_len(text) for text, _ in row)
