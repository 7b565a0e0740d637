"""docs/screen.md lists the keys that there are, and the picture is one of this program."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_keys_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_screen", DOCS / "make_screen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (DOCS / "screen.md").read_text("utf-8")
    assert module.with_keys(text) == text, "run: python docs/make_screen.py"


def test_the_picture_fetches_nothing() -> None:
    text = (DOCS / "screen.svg").read_text("utf-8")
    ElementTree.fromstring(text)
    assert "url(http" not in text and "<script" not in text
    assert "CRITICAL" in text
