"""Three themes of our own, and the tokens by which widgets name a look instead of a colour."""

from __future__ import annotations

from textual.theme import Theme

THEMES: tuple[Theme, ...] = (
    Theme(
        name="diagnose-dark",
        primary="#6cb6ff",
        secondary="#8ab4c4",
        accent="#d2a8ff",
        error="#ff7b72",
        warning="#e3b341",
        success="#7ee787",
        foreground="#d6dbe1",
        background="#0f1419",
        surface="#151b22",
        panel="#2b3540",
        dark=True,
        variables={"muted": "#8a96a3", "cursor": "#26405c", "cursor-blur": "#1d2833", "span": "#4d3a00"},
    ),
    Theme(
        name="diagnose-light",
        primary="#0550ae",
        secondary="#255d75",
        accent="#6639ba",
        error="#b3161e",
        warning="#7d4e00",
        success="#116329",
        foreground="#1c2128",
        background="#ffffff",
        surface="#f7f8fa",
        panel="#d5dae1",
        dark=False,
        variables={"muted": "#57606a", "cursor": "#cfe3ff", "cursor-blur": "#e6ebf1", "span": "#ffe7a3"},
    ),
    Theme(
        name="diagnose-contrast",
        primary="#00ffff",
        secondary="#ffffff",
        accent="#ff9dff",
        error="#ff9a9a",
        warning="#ffff00",
        success="#00ff66",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#606060",
        dark=True,
        variables={"muted": "#e0e0e0", "cursor": "#0000c0", "cursor-blur": "#303030", "span": "#7a0000"},
    ),
)

NAMES = tuple(theme.name for theme in THEMES)
SHORT = {name.removeprefix("diagnose-"): name for name in NAMES}

TOKENS = (
    "text", "muted", "head", "critical", "major", "minor", "info", "ok", "hit", "span", "match", "number", "command",
    "cursor", "cursor-blur", "key", "label", "tab", "tab-on", "odd",
)  # fmt: skip

TOKEN_CSS = """
LineView .v--text { color: $foreground; }
LineView .v--muted, LineView .v--number { color: $muted; }
LineView .v--head, LineView .v--label { color: $primary; text-style: bold; }
LineView .v--critical { color: $error; text-style: bold; }
LineView .v--major { color: $error; }
LineView .v--minor { color: $warning; }
LineView .v--info { color: $secondary; }
LineView .v--ok { color: $success; }
LineView .v--hit { color: $warning; text-style: bold; }
LineView .v--odd { color: $error; text-style: bold; }
LineView .v--span { background: $span; text-style: bold; }
LineView .v--match { text-style: bold reverse; }
LineView .v--command { color: $accent; }
LineView .v--key { color: $accent; text-style: bold; }
LineView .v--tab { color: $muted; }
LineView .v--tab-on { color: $primary; text-style: bold reverse; }
LineView .v--cursor { background: $cursor; text-style: bold; }
LineView .v--cursor-blur { background: $cursor-blur; }
"""


def theme_for(wanted: str | None) -> str:
    """Full name of a theme given as `dark`, `light`, `contrast` or its full name; dark when not said."""
    if wanted in NAMES:
        return wanted
    return SHORT.get(wanted or "dark", NAMES[0])
