"""Search: a text to look for, and the hits grouped by finding and source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import get_current_worker

from ..case import CaseLike
from ..keys import bindings
from ..search import MAX_HITS, FindingHit, Hit, SourceHit, in_findings, in_sources
from ..widgets.bars import Bar
from ..widgets.lineview import LineView
from ..widgets.page import Block, Page

if TYPE_CHECKING:
    from ..app import DiagnoseApp


class SearchScreen(Screen[None]):
    """Searches in a thread; enter on a hit goes there, n and N walk them afterwards."""

    BINDINGS = [*bindings("search"), ("escape", "leave", "back")]
    AUTO_FOCUS = "Input"
    DEFAULT_CSS = """
SearchScreen Input, SearchScreen Input:focus { border: round $primary; background: $surface;
    border-title-color: $primary; }
SearchScreen Page { height: 1fr; }
"""

    def __init__(self, only: str | None = None) -> None:
        super().__init__()
        self._only = only

    @property
    def owner(self) -> DiagnoseApp:
        return cast("DiagnoseApp", self.app)

    def compose(self) -> ComposeResult:
        box = Input(self.owner.needle)
        box.border_title = Content(self.owner.words("Search for") + (f" · {self._only}" if self._only else ""))
        yield box
        yield Page(id="hits")
        yield Bar(id="said")

    def on_mount(self) -> None:
        self._tell(self.owner.words("enter searches, esc goes back"), "muted")

    def _tell(self, text: str, token: str, more: str = "") -> None:
        self.query_one("#said", Bar).show([(" " + text, token), ("  " + more if more else "", "muted")])

    @property
    def page(self) -> Page:
        return self.query_one(Page)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        needle, case = event.value, self.owner.case
        if not needle or case is None:
            return
        self.owner.needle = self.page.needle = needle
        self.run_worker(lambda: self._search(case, needle), thread=True, exclusive=True)
        self.page.focus()

    def _search(self, case: CaseLike, needle: str) -> None:
        """In a thread: findings first, then source by source."""
        worker = get_current_worker()
        hits: list[Hit] = []
        if not self._only:
            hits.extend(islice(in_findings(case.diagnosis, needle), MAX_HITS))

        def on_source(path: str) -> None:
            self.app.call_from_thread(self._take, tuple(hits), path)

        for hit in in_sources(case, self.owner.reader, needle, self._only, lambda: worker.is_cancelled, on_source):
            hits.append(hit)
            if len(hits) >= MAX_HITS:
                break
        if not worker.is_cancelled:
            self.app.call_from_thread(self._take, tuple(hits), None)

    def _take(self, hits: Sequence[Hit], path: str | None) -> None:
        """Show what is found so far; `path` is the source being searched, None at the end."""
        say = self.owner.words
        grown = len(hits) != len(self.owner.hits) or path is None
        self.owner.hits, self.owner.hit_at = hits, -1
        if grown:
            self.page.show(self._blocks(hits), keep=True)
        text = say.count(len(hits), "hit", "hits")
        if len(hits) >= MAX_HITS:
            text += " " + say("(there are more)")
        keys = say("enter opens a hit, n and N walk through them") if hits else ""
        self._tell(text, "label", f"{path} …" if path else keys)

    def _blocks(self, hits: Sequence[Hit]) -> list[Block]:
        blocks: list[Block] = []
        group = ""
        for number, hit in enumerate(hits):
            if isinstance(hit, SourceHit):
                title, lead = hit.path, f"{hit.line:>8}  "
            else:
                title, lead = hit.title, " " * 6
            if title != group:
                group = title
                blocks.append(Block(title, "head"))
            blocks.append(Block(" ".join(hit.excerpt.split()), "text", ((lead, "number"),), number))
        return blocks or [Block(self.owner.words("Nothing found."), "muted")]

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        event.stop()
        if self.owner.hits:
            self.owner.goto_hit(event.item)

    def on_line_view_left(self, event: LineView.Left) -> None:
        event.stop()
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()

    def action_copy_item(self) -> None:
        if self.owner.hits:
            hit = self.owner.hits[self.page.cursor]
            self.owner.copy(hit.excerpt if isinstance(hit, FindingHit) else f"{hit.path}:{hit.line}: {hit.excerpt}")
