"""Every key of the screen in one place: bindings, key line, help, palette and docs/screen.md are made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Place = Literal["everywhere", "lists and texts", "findings", "detail", "fix", "ranks", "topology", "source", "search"]

PLACES: dict[Place, str] = {
    "everywhere": "Everywhere",
    "lists and texts": "In every list and text",
    "findings": "With a finding",
    "detail": "In the detail pane",
    "fix": "Tab 3, Fix",
    "ranks": "Tab 4, Ranks",
    "topology": "Tab 5, Topology",
    "source": "In a whole source (opened with o)",
    "search": "In the search results",
}


@dataclass(frozen=True)
class Key:
    """One action: `id` is what a user's key map names, `keys` are Textual key names, `action` a Textual action."""

    id: str
    keys: tuple[str, ...]
    action: str
    label: str
    help: str
    place: Place
    palette: bool = False


KEYS: tuple[Key, ...] = (
    Key("help", ("?",), "help", "help", "Show the keys.", "everywhere", True),
    Key("palette", ("ctrl+p", ":"), "command_palette", "commands", "All commands, findings and sources.", "everywhere"),
    Key("search", ("/",), "search", "search", "Search findings, evidence and all sources.", "everywhere", True),
    Key("search.next", ("n",), "hit(1)", "next hit", "Go to the next hit.", "everywhere"),
    Key("search.previous", ("N",), "hit(-1)", "previous hit", "Go to the previous hit.", "everywhere"),
    Key("theme", ("t",), "next_theme", "theme", "Change the theme: dark, light, high contrast.", "everywhere", True),
    Key("wrap", ("w",), "wrap", "wrap", "Wrap long lines, or not.", "everywhere", True),
    Key("mouse", ("m",), "mouse", "mouse", "Leave the mouse to the terminal, or take it back.", "everywhere", True),
    Key("export", ("e",), "export", "export", "Write a report: Markdown, HTML or JSON.", "everywhere", True),
    Key("quit", ("q", "ctrl+c"), "quit", "quit", "Leave.", "everywhere", True),
    Key("down", ("j", "down"), "down(1)", "down", "One line down.", "lists and texts"),
    Key("up", ("k", "up"), "down(-1)", "up", "One line up.", "lists and texts"),
    Key("page.down", ("pagedown", "ctrl+d"), "page(1)", "page down", "One page down.", "lists and texts"),
    Key("page.up", ("pageup", "ctrl+u"), "page(-1)", "page up", "One page up.", "lists and texts"),
    Key("top", ("g", "home"), "edge(-1)", "top", "To the top.", "lists and texts"),
    Key("bottom", ("G", "end"), "edge(1)", "end", "To the end.", "lists and texts"),
    Key("right", ("l", "right"), "pan(1)", "right", "Scroll to the right.", "lists and texts"),
    Key("left", ("h", "left"), "pan(-1)", "left", "Scroll to the left.", "lists and texts"),
    Key("open", ("enter",), "open", "open", "Open: finding, group, rank row or hit.", "lists and texts"),
    Key("back", ("escape",), "back", "back", "Back to where you came from.", "lists and texts"),
    Key("filter", ("f",), "filter", "filter", "All severities, or minor, major, critical and up.", "findings", True),
    Key("copy", ("y",), "copy_item", "copy", "Copy: the command of the step, or the evidence shown.", "findings", True),
    Key("copy.all", ("Y",), "copy_all", "copy all", "Copy the whole finding; on tab 3 all commands.", "findings", True),
    Key("comment", ("c",), "comment", "comment", "Write a comment on the finding for the ticket.", "findings", True),
    Key("tab.evidence", ("1",), "tab('evidence')", "evidence", "Original lines of logs and outputs.", "detail", True),
    Key("tab.why", ("2",), "tab('why')", "why", "Cause, confidence, look-alikes, references.", "detail", True),
    Key("tab.fix", ("3",), "tab('fix')", "fix", "Checklist of what to do.", "detail", True),
    Key("tab.ranks", ("4",), "tab('ranks')", "ranks", "Progress of all ranks.", "detail", True),
    Key("tab.topology", ("5",), "tab('topology')", "topology", "How GPUs and NICs are connected.", "detail", True),
    Key("evidence.previous", ("[",), "evidence(-1)", "previous", "Previous evidence.", "detail"),
    Key("evidence.next", ("]",), "evidence(1)", "next", "Next evidence.", "detail"),
    Key("source", ("o",), "source", "whole source", "Open the whole file at the evidence shown.", "detail", True),
    Key("tick", ("space",), "tick", "tick", "Tick the step, or take the tick away. Nothing is ever run.", "fix", True),
    Key("zoom", ("z",), "zoom", "zoom", "Job, node or rank; in the list: fold or unfold.", "ranks", True),
    Key("view", ("v",), "view", "view", "Matrix, or list of paths.", "topology", True),
    Key("line", ("ctrl+g",), "line", "go to line", "Go to a line by its number.", "source"),
    Key("time.forward", (".",), "minute(1)", "+1 min", "Go one minute ahead, where lines have times.", "source"),
    Key("time.back", (",",), "minute(-1)", "-1 min", "Go one minute back.", "source"),
    Key("copy.hit", ("y",), "copy_item", "copy", "Copy the line or the hit.", "search"),
)  # fmt: skip

_NAMES = {
    "left": "←", "right": "→", "up": "↑", "down": "↓", "enter": "⏎", "escape": "esc", "pageup": "pgup",
    "pagedown": "pgdn", "ctrl+p": "^p", "ctrl+c": "^c", "ctrl+d": "^d", "ctrl+u": "^u", "ctrl+g": "^g",
}  # fmt: skip


def by_id(key_id: str, keymap: dict[str, str] | None = None) -> Key:
    """The key of an id, with the user's own keys where `keymap` names it."""
    key = next(k for k in KEYS if k.id == key_id)
    own = (keymap or {}).get(key_id)
    if own is None:
        return key
    return Key(key.id, tuple(own.split(",")), key.action, key.label, key.help, key.place, key.palette)


def shown(key: Key) -> str:
    """How the keys of an action are written: `j ↓`."""
    return " ".join(_NAMES.get(name, name) for name in key.keys)


def hints(
    ids: Sequence[str], keymap: dict[str, str], say: Callable[[str], str]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The key line: (key, label) pairs of some actions, and on the right, always there, help and commands."""
    pairs = [(shown(key).split(" ")[0], say(key.label)) for key in (by_id(i, keymap) for i in ids)]
    right: list[tuple[str, str]] = []
    for key_id in ("help", "palette"):
        key = by_id(key_id, keymap)
        right += [(shown(key).split(" ")[0] + " ", "key"), (say(key.label) + "  ", "muted")]
    return pairs, right


def bindings(*places: Place) -> list[BindingType]:
    """Textual bindings of the keys of some places; ids let a user's key map replace the keys."""
    return [
        Binding(",".join("comma" if n == "," else n for n in key.keys), key.action, key.label, show=False, id=key.id)
        for key in KEYS
        if key.place in places
    ]


def keymap_problems(keymap: dict[str, str]) -> list[str]:
    """What is wrong with a user's key map: unknown ids, with the closest known one."""
    from difflib import get_close_matches

    known = [key.id for key in KEYS]
    problems = []
    for name in keymap:
        if name not in known:
            close = get_close_matches(name, known, 1)
            problems.append(f"keys.toml: no action {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return problems


def markdown_table() -> str:
    """The keys as Markdown tables, one per place."""
    parts: list[str] = []
    for place, title in PLACES.items():
        rows = [k for k in KEYS if k.place == place]
        parts.append(f"### {title}\n\n| key | what it does | action id |\n| --- | --- | --- |")
        parts.extend(f"| `{shown(k)}` | {k.help} | `{k.id}` |" for k in rows)
        parts.append("")
    return "\n".join(parts)
