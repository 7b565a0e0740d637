"""Every distinct WARN and ATTN, with the area it speaks about and the lines it goes on for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.parsing import drop_none

from ._areas import area_of
from ._dispatch import from_warning
from ._ledger import Place
from ._messages_ranks import nvls_call
from ._prefix import HEAD, Head, last_head

if TYPE_CHECKING:
    from ._reader import Reader

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F.]*|(?<![A-Za-z])\d+(?:\.\d+)*")
_WHERE = re.compile(r"(\S{1,200}:\d{1,6})(?: \([^)]{1,120}\))?$")
_GOES_ON = re.compile(
    r"This is usually caused|Disable NVLS|Do not force-enable|The buffer is left|Please use |\*|repeated occurrences"
)
_ADVICE_FOLLOWS = "is deprecated."
_MAY_GO_ON = re.compile(r"bind|deprecated|completed with error", re.I)
_FAILED = re.compile(r"\bfailed\b|^Error\b|: invalid \w")
"""A call that failed or was refused, by the words of NCCL 2.16 to 2.32."""
MAX_TEXT = 1_800


def shape(message: str) -> str:
    """The message with numbers, pointers and addresses blotted out, to tell texts apart."""
    return _NUMBERS.sub("#", message[:600])


def warning(log: Reader, level: str, message: str, head: Head, place: Place, raw: str, line: int) -> None:
    """Take one WARN or ATTN that starts in the line at offset `line`; `raw` is the text in front of it."""
    if _MAY_GO_ON.search(message):
        message = _whole(log, message, place, line)
    head.chain = None
    if message.startswith("HINT:"):
        return
    fields = drop_none(
        area=area_of(message),
        level=level,
        text=message[:MAX_TEXT],
        file=_file(raw),
        cuda_dev=head.dev,
        failed=True if _FAILED.search(message) else None,
    )
    log.ledger.note("nccl_warning", fields, head, place, (shape(message),), own=True, track=True)
    from_warning(log, message, head, place)
    nvls_call(log, message, _file(raw), head, place)


def _whole(log: Reader, message: str, place: Place, line: int) -> str:
    taken: list[str] = []
    for number, text in enumerate(log.following(line)):
        if "NCCL " in text and HEAD.search(text):
            break
        if _GOES_ON.match(text.lstrip()) or (number == 0 and text and message.endswith(_ADVICE_FOLLOWS)):
            taken.extend("" for _ in range(number - len(taken)))
            taken.append(text.rstrip())
        elif text.strip():
            break
    if not taken:
        return message
    place.take("\n".join([place.text, *taken]), place.number + len(taken))
    return "\n".join([message, *taken])


def _file(raw: str) -> str | None:
    """`file:line` in front of the message; plugins print a function there."""
    last = last_head(raw)
    where = (raw[last.end() :] if last else raw).strip()
    found = _WHERE.search(where)
    if found is None:
        return None
    return where[:200] if last and not found.group(1).startswith(("/", ".")) else found.group(1)
