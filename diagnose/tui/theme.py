"""Three themes of our own, and the tokens by which widgets name a look instead of a colour."""

from __future__ import annotations

from collections.abc import Mapping

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
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
        variables={"muted": "#9aa6b2", "cursor": "#26405c", "cursor-blur": "#1d2833", "span": "#4d3a00"},
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

_LOOKS: dict[str, tuple[str | None, str | None, bool, bool]] = {
    "text": ("foreground", None, False, False),
    "muted": ("muted", None, False, False),
    "number": ("muted", None, False, False),
    "tab": ("muted", None, False, False),
    "head": ("primary", None, True, False),
    "label": ("primary", None, True, False),
    "tab-on": ("primary", None, True, True),
    "critical": ("error", None, True, False),
    "major": ("error", None, False, False),
    "minor": ("warning", None, False, False),
    "info": ("secondary", None, False, False),
    "ok": ("success", None, False, False),
    "hit": ("warning", None, True, False),
    "odd": ("error", None, True, False),
    "span": (None, "span", True, False),
    "match": (None, None, True, True),
    "command": ("accent", None, False, False),
    "key": ("accent", None, True, False),
    "cursor": (None, "cursor", True, False),
    "cursor-blur": (None, "cursor-blur", False, False),
}
"""Token -> colour and background as names of theme variables, bold, reverse."""

TOKENS = tuple(_LOOKS)


def look(token: str, variables: Mapping[str, str]) -> Style:
    """The style of a token in a theme, given the theme's variables.

    Component classes would do the same through the stylesheet, and cost half of the time to the first frame.
    """
    color, background, bold, reverse = _LOOKS[token]
    return Style(
        color=_color(color, variables),
        bgcolor=_color(background, variables),
        bold=bold or None,
        reverse=reverse or None,
    )


def _color(name: str | None, variables: Mapping[str, str]) -> RichColor | None:
    return Color.parse(variables[name]).rich_color if name is not None and name in variables else None


def theme_for(wanted: str | None) -> str:
    """Full name of a theme given as `dark`, `light`, `contrast` or its full name; dark when not said."""
    if wanted in NAMES:
        return wanted
    return SHORT.get(wanted or "dark", NAMES[0])
