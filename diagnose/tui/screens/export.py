"""Export: choose a format and a path, look at the text, write it. Nothing is overwritten without asking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from diagnose.model import Diagnosis

from ..logtext import LogRow, Rows
from ..notes import Notes
from ..plain import fit
from ..ticket import FORMATS, SUFFIXES, Format, ticket
from ..widgets.bars import Bar, TabBar
from ..widgets.lineview import LineView
from ..widgets.logview import LogView

if TYPE_CHECKING:
    from ..app import DiagnoseApp

MAX_NAMES = 1_000
"""Names tried before the last one is proposed although there is such a file."""


class ExportScreen(ModalScreen[None]):
    """Enter writes; a file that is there is overwritten only by a second enter."""

    BINDINGS = [
        ("escape", "leave", "back"),
        ("ctrl+f", "format", "format"),
        ("f", "format", "format"),
    ]
    AUTO_FOCUS = "Input"
    DEFAULT_CSS = """
ExportScreen { align: center middle; background: $background 60%; }
ExportScreen Vertical { width: 96%; height: 96%; border: round $primary; background: $surface;
    border-title-color: $primary; }
ExportScreen Input, ExportScreen Input:focus { border: none; height: 1; padding: 0 1; background: $panel; }
ExportScreen LogView { height: 1fr; }
"""

    def __init__(self, diagnosis: Diagnosis, notes: Notes, names: Sequence[str]) -> None:
        super().__init__()
        self._diagnosis = diagnosis
        self._notes = notes
        stem = Path(names[0]).name.split(".")[0] if names else ""
        self._stem = "diagnose-" + (stem or "report")
        self.format: Format = "markdown"
        self._text = ""
        self._asked = ""

    @property
    def owner(self) -> DiagnoseApp:
        return cast("DiagnoseApp", self.app)

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self.owner.words("Export"))
            yield TabBar(id="formats")
            yield Input(self._free(self.format))
            yield Bar(id="said")
            yield LogView(id="preview")

    def on_mount(self) -> None:
        self._show()

    def _free(self, format: Format) -> str:
        """The name proposed: one that no file has yet, so that a second report does not take the place of the first."""
        names = (self._stem + (f"-{n}" if n > 1 else "") + SUFFIXES[format] for n in range(1, MAX_NAMES))
        return next((name for name in names if not Path(name).exists()), self._stem + SUFFIXES[format])

    def _say(self, text: str, token: str = "muted") -> None:
        self.query_one("#said", Bar).show([(" " + text, token)])

    def _show(self) -> None:
        say = self.owner.words
        labels = [(name, name) for name in FORMATS]
        self.query_one(TabBar).tabs(labels, self.format, [(f"^f {say('format')} ", "key")])
        try:
            self._text = ticket(self._diagnosis, self._notes, self.format, say)
        except Exception as error:
            self._text = ""
            self._say(f"{say('This report cannot be made')}: {error}", "critical")
        else:
            self._say(say("enter writes this text, esc goes back"))
        rows = [LogRow(None, fit(line)[0]) for line in self._text.split("\n")]
        self.query_one(LogView).show(Rows(rows))

    def on_tab_bar_picked(self, event: TabBar.Picked) -> None:
        self._choose(cast(Format, event.name))

    def action_format(self) -> None:
        self._choose(FORMATS[(FORMATS.index(self.format) + 1) % len(FORMATS)])

    def _choose(self, format: Format) -> None:
        box = self.query_one(Input)
        old, proposed = SUFFIXES[self.format], self._free(self.format)
        self.format = format
        if box.value == proposed:
            box.value = self._free(format)
        elif box.value.endswith(old):
            box.value = box.value.removesuffix(old) + SUFFIXES[format]
        self._asked = ""
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        path = Path(event.value.strip()).expanduser()
        if not self._text or not event.value.strip():
            return
        say = self.owner.words
        fresh = self._asked != str(path)
        if path.exists() and fresh:
            self._asked = str(path)
            self._say(f"{say('There is a file of that name; enter again overwrites it')}: {path.absolute()}", "minor")
            return
        try:
            with path.open("x" if fresh else "w", encoding="utf-8") as out:
                out.write(self._text)
        except OSError as error:
            self._say(f"{say('Not written')}: {error}", "critical")
            return
        self.app.notify(f"{say('Written')}: {path.absolute()}", timeout=6, markup=False)
        self.dismiss()

    def on_line_view_left(self, event: LineView.Left) -> None:
        event.stop()
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()
