"""A one-line question at the foot of the screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input


class PromptScreen(ModalScreen[str | None]):
    """Asks for one line; None when the user backs out."""

    BINDINGS = [("escape", "dismiss_none", "back")]
    DEFAULT_CSS = """
PromptScreen { align: left bottom; background: $background 30%; }
PromptScreen Vertical { height: auto; width: 1fr; border: round $primary; background: $surface;
    border-title-color: $primary; }
PromptScreen Input, PromptScreen Input:focus { border: none; height: 1; padding: 0 1; background: $surface; }
"""

    def __init__(self, label: str, value: str = "") -> None:
        super().__init__()
        self._label = label
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._label)
            yield Input(self._value, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_dismiss_none(self) -> None:
        self.dismiss(None)
