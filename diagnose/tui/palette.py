"""The command palette: the actions of the key registry, every finding, every source, the themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from .items import GLYPHS, subjects_text
from .keys import KEYS, shown
from .plain import shorten
from .theme import SHORT

if TYPE_CHECKING:
    from .app import DiagnoseApp

WIDTH = 90


class Commands(Provider):
    """All commands; findings and sources are offered once something is typed."""

    @property
    def owner(self) -> DiagnoseApp:
        return cast("DiagnoseApp", self.app)

    def _actions(self) -> Iterator[tuple[str, Callable[[], object], str]]:
        say = self.owner.words
        for key in KEYS:
            if key.palette:
                yield f"{say(key.label)}  ({shown(key)})", partial(self._act, key.action), say(key.help)
        for short, name in SHORT.items():
            yield f"{say('theme')}: {say(short)}", partial(setattr, self.owner, "theme", name), ""

    async def _act(self, action: str) -> None:
        await self.owner.screen.run_action(action) if hasattr(
            self.owner.screen, "action_" + action.split("(")[0]
        ) else await self.owner.run_action(action)

    def _places(self) -> Iterator[tuple[str, Callable[[], object], str]]:
        diagnosis = self.owner.diagnosis
        if diagnosis is None:
            return
        say = self.owner.words
        for f in diagnosis.findings:
            text = f"{say('go to')} {GLYPHS[f.severity]} {f.title} ({subjects_text(f.subjects)})"
            yield shorten(text, WIDTH), partial(self.owner.triage.goto_finding, f.key), f.id
        for s in diagnosis.sources:
            yield (
                shorten(f"{say('open')} {s.path}", WIDTH),
                partial(self.owner.open_source, s.path, 1),
                ", ".join(s.kinds),
            )

    async def discover(self) -> Hits:
        for text, call, help_ in self._actions():
            yield DiscoveryHit(Content(text), call, text, help_)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, call, help_ in (*self._actions(), *self._places()):
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, Content(text), call, text, help_)
