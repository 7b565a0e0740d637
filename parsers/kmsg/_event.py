"""What every kind of kernel message is made into."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_TEXT = 400
BDF = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


@dataclass(slots=True)
class Event:
    """One recognised message. Events with equal keys are the same incident; `adds` is 0 for its continuation lines."""

    key: tuple[object, ...]
    fields: dict[str, object]
    adds: int = 1
    weak: bool = field(default=False)
    """Announces what another line of the same key tells better."""


Match = re.Match[str]
Handler = Callable[[Match, str], "Event | None"]
Recogniser = tuple[str, re.Pattern[str], Handler]
"""A literal that the message must hold, its pattern, and what makes an event of the match."""


def event(name: str, text: str, *key: object, **fields: object) -> Event:
    """The event `name`; further arguments tell incidents apart, keywords are fields (None: not said)."""
    known = {k: v for k, v in fields.items() if v is not None}
    return Event((name, *key), {"event": name, **known, "text": text.strip()[:MAX_TEXT]})


def named(name: str, **fixed: object) -> Handler:
    """Handler for messages whose groups are the fields: device, process, pid; equal devices are one incident."""

    def handle(m: Match, message: str) -> Event:
        groups = m.groupdict()
        pid = groups.get("pid")
        device = groups.get("device")
        return event(
            name, message, device, groups.get("process"), *fixed.values(), device=device, process=groups.get("process"),
            pid=int(pid) if pid and pid.isdecimal() else None, **fixed,
        )  # fmt: skip

    return handle
