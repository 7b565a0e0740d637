"""The Chinese words: none missing, none left over, and they fit where they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from diagnose.model import SEVERITIES
from diagnose.tui import grids
from diagnose.tui.items import EFFECT_WORDS, STATUS_GLYPHS
from diagnose.tui.keys import KEYS, PLACES
from diagnose.tui.theme import SHORT
from diagnose.tui.widgets.detail import TABS
from diagnose.tui.widgets.matrix import LEGEND
from diagnose.tui.words_zh import ZH

from . import fake
from .support import press, running

TUI = Path(__file__).parents[2] / "diagnose" / "tui"


def _said() -> Iterator[str]:
    """Texts that the code hands to a translator as literals."""
    for path in TUI.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            arguments = node.args if name in ("say", "_say", "words") else node.args[1:] if name == "count" else []
            for argument in arguments:
                choices = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                yield from (c.value for c in choices if isinstance(c, ast.Constant) and isinstance(c.value, str))


def _fixed() -> set[str]:
    words = {*_said(), *PLACES.values(), *EFFECT_WORDS.values(), *STATUS_GLYPHS, *grids.STATES, *grids.ZOOMS, *SHORT}
    words |= {word for key in KEYS for word in (key.label, key.help)}
    words |= {label[2:] for _, label in TABS} | {meaning for _, meaning in LEGEND}
    words |= {case for s in SEVERITIES for case in (s, s.upper())}
    words |= {c + end for c in ("high", "medium", "low") for end in ("", " confidence")}
    return {word for word in words if any(c.isalpha() for c in word)}


def test_no_word_is_missing() -> None:
    assert sorted(_fixed() - set(ZH)) == []


async def test_the_screen_in_chinese() -> None:
    async with running(fake.app(lang="zh"), size=(100, 30)) as (app, pilot):
        assert "严重" in fake.frame(app) and "1 证据" in fake.frame(app)
        await press(pilot, "3", "question_mark")
        assert "搜索发现" in fake.frame(app)
