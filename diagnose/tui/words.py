"""The fixed words of the screen in the languages it knows; an unknown word stays English."""

from __future__ import annotations

_ZH: dict[str, str] = {}


class Words:
    """Translator of fixed words: `words("Findings")`."""

    def __init__(self, lang: str = "en") -> None:
        self.lang = lang
        self._table = _ZH if lang.lower().startswith("zh") else {}

    def __call__(self, text: str) -> str:
        return self._table.get(text, text)
