"""Layout as text frames: what a screen looks like at three sizes, in fixtures/tui/*.txt.

After a wanted change: DIAGNOSE_WRITE_FRAMES=1 pytest tests/tui/test_frames.py, and read the diff.
"""

from __future__ import annotations

import pytest

from .support import check_frame, press, running

SIZES = {"120x36": (120, 36), "80x24": (80, 24), "60x20": (60, 20), "48x20": (48, 20)}

SCREENS: dict[str, tuple[str, ...]] = {
    "evidence": (),
    "why": ("j", "2"),
    "fix": ("escape", "k", "3", "space"),
    "ranks": ("4",),
    "topology": ("5",),
    "help": ("question_mark",),
    "source": ("escape", "1", "o"),
    "search": ("escape", "slash", *"port", "enter"),
}
"""Name of a frame -> keys that lead there from the frame before."""


@pytest.mark.parametrize("size", SIZES)
async def test_frames(size: str) -> None:
    async with running(size=SIZES[size]) as (app, pilot):
        for name, keys in SCREENS.items():
            await press(pilot, *keys)
            if name == "search":
                await pilot.pause(0.1)
            check_frame(app, f"{name}-{size}")
