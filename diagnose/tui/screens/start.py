"""The first screen: where the analysis stands. It is light, so that it is there at once; triage takes its place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen

from ..case import ProgressLike
from ..keys import hints
from ..plain import wrap
from ..widgets.bars import Bar, KeyLine
from ..widgets.lineview import LineView, Row

if TYPE_CHECKING:
    from ..app import DiagnoseApp


class Lines(LineView):
    """A few wrapped lines of text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: tuple[str, ...] = ()
        self._rows: list[Row] = []

    def show(self, *texts: str) -> None:
        """Replace the text."""
        self.texts = texts
        self.relayout()
        self.content_changed()

    def relayout(self) -> None:
        width = max(8, self.view_size.width - 2)
        self._rows = [[(" " + line, "muted")] for text in self.texts for line in wrap(text, width)]

    def row_count(self) -> int:
        return len(self._rows)

    def row(self, y: int) -> Row:
        return self._rows[y]


class StartScreen(Screen[None]):
    """Progress, then failure or nothing more: `DiagnoseApp` pushes the triage screen over it."""

    AUTO_FOCUS = "Lines"
    DEFAULT_CSS = """
StartScreen Container { height: 1fr; border: round $panel; border-title-color: $primary; }
StartScreen Lines { height: 1fr; }
"""

    def __init__(self) -> None:
        super().__init__()
        self._started = time.monotonic()

    @property
    def owner(self) -> DiagnoseApp:
        return cast("DiagnoseApp", self.app)

    def compose(self) -> ComposeResult:
        yield Bar(id="top")
        with Container() as box:
            box.border_title = Content(self.owner.words("Findings"))
            yield Lines()
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        say = self.owner.words
        self.query_one(KeyLine).hint(*hints(("theme", "quit"), self.owner.keymap, say))
        self.query_one("#top", Bar).show([(" diagnose ", "head"), (say("reading …"), "muted")])
        self.query_one(Lines).show(say("Reading the evidence …"), "", *self.owner.names)

    def on_screen_resume(self) -> None:
        self.owner.show_triage()

    def show_progress(self, progress: ProgressLike) -> None:
        """Say where the analysis stands."""
        count = f" {progress.done}/{progress.total}" if progress.total else ""
        seconds = int(time.monotonic() - self._started)
        stage = f"{self.owner.words(progress.stage)}{count}"
        self.query_one(Lines).show(stage, progress.text, f"{seconds} s")
        self.query_one("#top", Bar).show(
            [(" diagnose ", "head"), (f"{stage}  {progress.text}", "muted")], [(f"{seconds} s ", "muted")]
        )

    def show_failure(self, text: str) -> None:
        """The analysis came to nothing."""
        say = self.owner.words
        self.query_one(Lines).show(say("Nothing could be analysed."), "", text)
        self.query_one("#top", Bar).show([(" diagnose ", "head"), (say("nothing analysed"), "critical")])
