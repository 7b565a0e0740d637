"""Help: the keys, out of the registry; scrolls."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import ModalScreen

from ..keys import KEYS, PLACES, by_id, shown
from ..widgets.lineview import LineView
from ..widgets.page import Block, Page

if TYPE_CHECKING:
    from ..app import DiagnoseApp

KEY_WIDTH = 12


class HelpScreen(ModalScreen[None]):
    """All keys by place."""

    BINDINGS = [("question_mark,q", "dismiss", "back")]
    DEFAULT_CSS = """
HelpScreen { align: center middle; background: $background 60%; }
HelpScreen Page { width: 84; max-width: 100%; height: 100%; border: round $primary; border-title-color: $primary; }
"""

    def compose(self) -> ComposeResult:
        page = Page(id="help")
        say = cast("DiagnoseApp", self.app).words
        page.border_title = Content(say("Keys"))
        page.border_subtitle = Content(say("esc goes back"))
        yield page

    def on_mount(self) -> None:
        owner = cast("DiagnoseApp", self.app)
        blocks: list[Block] = []
        for place, title in PLACES.items():
            blocks += [Block(owner.words(title), "head")]
            for key in KEYS:
                if key.place == place:
                    keys = shown(by_id(key.id, owner.keymap))
                    blocks.append(Block(owner.words(key.help), lead=((f"  {keys:<{KEY_WIDTH}}", "key"),)))
            blocks.append(Block(""))
        note = "Actions can have other keys: name them by id in keys.toml of the configuration folder (docs/screen.md)."
        blocks.append(Block(owner.words(note), "muted"))
        page = self.query_one(Page)
        page.show(blocks)
        page.focus()

    def on_line_view_left(self, event: LineView.Left) -> None:
        event.stop()
        self.dismiss()
