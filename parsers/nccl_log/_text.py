"""Small things that readers of messages share."""

from __future__ import annotations

import re


def named(table: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str:
    """Name of the first pattern of the table found in the text, else `other`."""
    return next((name for name, pattern in table if pattern.search(text)), "other")


def number_in(pattern: re.Pattern[str], text: str) -> int | None:
    """First group of the pattern as a number, or None."""
    found = pattern.search(text)
    return int(found.group(1)) if found else None


def word_in(pattern: re.Pattern[str], text: str) -> str | None:
    """First group of the pattern without trailing commas, or None."""
    found = pattern.search(text)
    return found.group(1).rstrip(",;") if found else None


def whole(text: str | None) -> int | None:
    """Decimal digits as a number; None stays None."""
    return int(text) if text is not None else None
