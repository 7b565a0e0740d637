"""Helpers of the screen tests: wait until the analysis is shown, press keys, compare frames."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from diagnose.tui.app import DiagnoseApp

from . import fake

FRAMES = Path(__file__).parents[2] / "fixtures" / "tui"


async def settle(pilot: Pilot[int]) -> None:
    """Wait until all that was asked for has been read and drawn."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys one after the other, then wait until all is drawn."""
    await pilot.press(*keys)
    await settle(pilot)


@asynccontextmanager
async def running(
    app: DiagnoseApp | None = None, size: tuple[int, int] = (120, 36)
) -> AsyncIterator[tuple[DiagnoseApp, Pilot[int]]]:
    """The app with its case open."""
    app = app or fake.app()
    async with app.run_test(size=size) as pilot:
        for _ in range(400):
            if app.case is not None:
                break
            await pilot.pause(0.01)
        await settle(pilot)
        yield app, pilot


def check_frame(app: DiagnoseApp, name: str) -> None:
    """Compare the screen with fixtures/tui/NAME.txt; DIAGNOSE_WRITE_FRAMES=1 writes it anew."""
    path = FRAMES / f"{name}.txt"
    text = fake.frame(app)
    if os.environ.get("DIAGNOSE_WRITE_FRAMES") == "1":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"{name}: the screen differs from {path.name}"
