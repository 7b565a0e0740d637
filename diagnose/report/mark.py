"""Text from evidence inside Markdown: prose that formats, links and mentions nothing, spans and fences that hold it."""

from __future__ import annotations

import re

from diagnose.report.safe import safe, safe_lines

_TOKEN = re.compile(r"\S+")
# Mentions, issue references, addresses that trackers turn into links, and emoji codes act even in plain prose.
_ACTIVE = re.compile(
    r"@\w|#\d|://|\bwww\.|(?-i:\b[A-Z][A-Z0-9]{1,9}-\d)|\bmailto:|javascript:|\bxmpp:|:[a-z_+-]+:|\w@\w", re.IGNORECASE
)
_BEFORE, _AFTER = "(\"'", ")\"'.,;:!?"
"""Punctuation of the sentence around a word: it stands outside of the code span."""
_SPECIAL = re.compile(r"[\\`*\[\]{}<>|~#&$^]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
_LINE_START = re.compile(r"^(\s*)([-+=]|\d+[.)](?=\s|$))")
_LINK = re.compile(r"https?://[A-Za-z0-9./_%~:?&=#+,@-]+\Z")
_TICKS = re.compile("`+")
_FENCE_COLUMNS = 500


def prose(text: str) -> str:
    """`text` as one line of Markdown that shows it as it is; words that a tracker would act on become code spans."""
    return _LINE_START.sub(_start, _TOKEN.sub(_token, safe(text).strip()))


def _start(match: re.Match[str]) -> str:
    mark = match[2]
    return f"{match[1]}{mark[:-1]}\\{mark[-1]}"


def _token(match: re.Match[str]) -> str:
    token = match[0]
    if not _ACTIVE.search(token):
        return _SPECIAL.sub(r"\\\g<0>", token)
    word = token.rstrip(_AFTER)
    before = len(word) - len(word.lstrip(_BEFORE))
    inner = word[before:]
    return f"{word[:before]}{code(inner)}{token[len(word) :]}" if _ACTIVE.search(inner) else code(token)


def code(text: str) -> str:
    """`text` as a code span, whatever backticks it holds."""
    text = safe(text)
    if not text.strip():
        return ""
    fence = "`" * (_longest(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or (text[0] == text[-1] == " ") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str = "text", indent: int = 0) -> str:
    """`text` as a fenced block that no line of it can close; every line is indented alike."""
    lines = safe_lines(text, _FENCE_COLUMNS if language == "text" else None)
    fence = "`" * max(3, _longest("\n".join(lines)) + 1)
    return "\n".join(" " * indent + line for line in [fence + language, *lines, fence])


def _longest(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)


def is_link(text: str) -> bool:
    """Whether `text` is a plain web address that may become a link."""
    return _LINK.match(text) is not None


def reference(text: str) -> str:
    """A reference: plain web addresses link, everything else is prose."""
    return f"<{text}>" if is_link(text) else prose(text)
