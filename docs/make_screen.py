#!/usr/bin/env python3
"""Writes what docs/screen.md and docs/screen.svg show of the program: the table of keys, and a picture.

python3 docs/make_screen.py      run from a development environment; the picture is of a made-up case
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))
START, END = "<!-- keys: written by make_screen.py -->", "<!-- end of keys -->"


def with_keys(text: str) -> str:
    """The page with the table of keys put in anew."""
    from diagnose.tui.keys import markdown_table

    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{markdown_table()}\n{END}{after}"


async def picture() -> str:
    """The main screen as SVG, without the web fonts that it would fetch."""
    from tests.tui import fake

    app = fake.app()
    async with app.run_test(size=(120, 30)) as pilot:
        while app.case is None:
            await pilot.pause(0.01)
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()
        svg = app.export_screenshot(title="diagnose view")
    return re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")


def main() -> None:
    """Write both."""
    page = DOCS / "screen.md"
    page.write_text(with_keys(page.read_text("utf-8")), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=folder, TEXTUAL_ANIMATIONS="none")
        (DOCS / "screen.svg").write_text(asyncio.run(picture()), "utf-8")


if __name__ == "__main__":
    main()
