"""The fixed words of the screen; findings arrive in the language chosen. A word without translation stays English."""

from __future__ import annotations


class Words:
    """Translator of fixed words: `words("Findings")`."""

    def __init__(self, lang: str = "en") -> None:
        self.lang = lang
        self._table: dict[str, str] = {}
        if lang.lower().startswith("zh"):
            from .words_zh import ZH

            self._table = ZH

    def __call__(self, text: str) -> str:
        return self._table.get(text, text)

    def count(self, number: int, one: str, many: str) -> str:
        """`1 source`, `2 sources`."""
        return f"{number} {self(one if number == 1 else many)}"
