"""One whole source: any length, with line numbers, jumps by line and by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.worker import get_current_worker

from ..clock import minute_away
from ..keys import bindings, hints
from ..logtext import SourceRows
from ..widgets.bars import Bar, KeyLine
from ..widgets.lineview import LineView
from ..widgets.logview import LogView

if TYPE_CHECKING:
    from ..app import DiagnoseApp

_HINTS = ("down", "up", "bottom", "line", "time.forward", "search", "search.next", "wrap", "back")


class SourceScreen(Screen[None]):
    """A log view of all lines; evidence lines of any finding are marked."""

    BINDINGS = bindings("source", "search")
    DEFAULT_CSS = "SourceScreen LogView { height: 1fr; }"

    def __init__(self, path: str, line: int) -> None:
        super().__init__()
        self.path = path
        self._line = line
        self._rows: SourceRows | None = None

    @property
    def owner(self) -> DiagnoseApp:
        return cast("DiagnoseApp", self.app)

    def compose(self) -> ComposeResult:
        yield Bar(id="top")
        yield LogView(id="text")
        yield KeyLine(id="keys")

    @property
    def view(self) -> LogView:
        return self.query_one(LogView)

    def on_mount(self) -> None:
        self.view.wrap = self.owner.wrap_lines
        self.query_one(KeyLine).hint(*hints(_HINTS, self.owner.keymap, self.owner.words))
        self.view.focus()
        self.show(self.path, self._line)

    def show(self, path: str, line: int) -> None:
        """Go to a line of a source; the text is read anew only for another source."""
        self.view.needle = self.owner.needle
        self._line = line
        if path == self.path and self._rows is not None:
            self.view.mark(line - 1)
            return
        self.path, self._rows = path, None
        self._say(self.owner.words("reading …"))
        self.run_worker(self._read, thread=True, exclusive=True)

    def _say(self, text: str) -> None:
        self.query_one("#top", Bar).show([(" " + self.path, "head")], [(text + " ", "muted")])

    def _read(self) -> None:
        """In a thread: the first look at a source builds its index."""
        path, case = self.path, self.owner.case
        reader = self.owner.reader(path) if case is not None else None
        count = len(reader) if reader is not None else 0
        if get_current_worker().is_cancelled:
            return
        if reader is None:
            self.app.call_from_thread(self._say, self.owner.words("the text is not at hand"))
            return
        diagnosis = self.owner.diagnosis
        marked = [
            e
            for f in (diagnosis.findings if diagnosis else ())
            for e in f.evidence
            if self.owner.path_of(e.source) == path
        ]
        self.app.call_from_thread(self._take, SourceRows(reader, marked), count)

    def _take(self, rows: SourceRows, count: int) -> None:
        self._rows = rows
        self._say(self.owner.words.count(count, "line", "lines"))
        at = max(0, min(self._line, count) - 1)
        self.view.show(rows, max(0, at - self.view.size.height // 3), at)

    # --- actions ------------------------------------------------------------------------------------

    def on_line_view_left(self, event: LineView.Left) -> None:
        event.stop()
        self.dismiss()

    def action_line(self) -> None:
        from .prompt import PromptScreen

        def done(text: str | None) -> None:
            if text and text.strip().isdecimal():
                self.view.mark(max(0, min(int(text), len(self.view.document)) - 1))

        self.app.push_screen(PromptScreen(self.owner.words("Line number")), done)

    def action_minute(self, step: int) -> None:
        """To the first line a minute away from the one on top; lines without a time are passed over."""
        if self._rows is None:
            return
        target = minute_away(self._rows, self.view.scroll_offset.y, step)
        if target is None:
            self.notify(self.owner.words("The lines here have no times."), timeout=2, markup=False)
        else:
            self.view.jump(target)

    def action_copy_item(self) -> None:
        index = self.view.current if self.view.current >= 0 else round(self.view.scroll_y)
        line = self._rows.line(index) if self._rows else None
        self.owner.copy(line.text if line else "")
