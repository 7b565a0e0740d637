"""Lines of libfabric itself: `libfabric:PID:EPOCH:CORE:PROVIDER:SUBSYSTEM:function():LINE<LEVEL> text`.

Format: libfabric 1.9 and later; the epoch is in seconds and the field after it may be empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.parsing import drop_none, unprefix

if TYPE_CHECKING:
    from ._reader import Reader

_LINE = re.compile(
    r"libfabric:(\d{1,10}):(\d{9,13}):[\w./-]{0,40}:([\w;-]{1,40}):(\w{1,40}):(\w{1,120})\(\):(\d{1,6})<(\w{1,8})> ?"
    r"([^\n]{0,1500})",
    re.ASCII,
)
_LEVELS = ("warn", "error", "critical")
_EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("no_provider", re.compile(r"provider efa output empty list")),
    ("request_error", re.compile(r"[rt]x_error|cq_.{0,40}err|prov_err|completed with|err: \d", re.I)),
    ("connect_error", re.compile(r"connect|handshake|peer|unreachable|unresponsive|insert", re.I)),
)


def libfabric_lines(log: Reader, text: str) -> None:
    """Warnings of libfabric in a block; its pid is looked up among the NCCL processes of the log."""
    for found in _LINE.finditer(text):
        if found.group(7) not in _LEVELS:
            continue
        line = text.rfind("\n", 0, found.start()) + 1
        raw = text[line : found.start()]
        place = log.place(line, "")
        place.at = float(found.group(2)[:10])
        head = log.foreign(int(found.group(1)), unprefix(raw + "|"))
        message = found.group(8).strip()
        said = f"{found.group(5)} {message}"
        event = next((name for name, pattern in _EVENTS if pattern.search(said)), "other")
        fields = drop_none(event=event, provider=found.group(3), text=message)
        key = (event, log.shape(message))
        log.ledger.note("nccl_ofi", fields, head, place, key, own=True, track=True)
