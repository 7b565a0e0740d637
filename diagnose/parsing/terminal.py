"""Pasted terminals: prompts, gaps, and devices in commands and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diagnose.model import Line

_PROMPT = re.compile(
    r"^(?:\[?[\w.-]+@[\w.-]+[^\n$#]{0,80}[$#]|[\w./~-]{0,60}[$#]|\+|==>|###?)\s+(?P<command>\S.*?)(?:\s+<==)?\s*$"
)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines that follow a shell prompt or banner; `command` is None before the first one."""

    command: str | None
    lines: tuple[Line, ...]


def sections(lines: Iterable[Line]) -> Iterator[Section]:
    """Split a pasted terminal by its prompts (`$ cmd`, `user@host:~# cmd`, `+ cmd`, `==> file <==`, `# cmd`)."""
    command: str | None = None
    pending: list[Line] = []
    for line in lines:
        m = _PROMPT.match(line.text[:300])
        if m:
            if pending or command:
                yield Section(command, tuple(pending))
            command, pending = m.group("command"), []
        else:
            pending.append(line)
    if pending or command:
        yield Section(command, tuple(pending))


_GAP = re.compile(
    r"\s{0,20}(?:[\[(<]?(?:\.{3,10}|…)[\])>]?"
    r"|[\[(<](?:snip(?:ped)?|cut|truncated|omitted|skipped|\d{1,9} lines)[^\])>\n]{0,60}[\])>]"
    r"|-{2,20} ?(?:snip|8<|cut)[^\n]{0,40})\s{0,20}"
)


def is_gap(text: str) -> bool:
    """Whether a line says that lines were left out here: `[...]`, `<snip>`, `(200 lines omitted)` and the like."""
    return len(text) < 120 and _GAP.fullmatch(text) is not None


_NAME_DEVICE = re.compile(
    r"^[\w]+(?:-[A-Za-z]{1,2}|-{1,2}[a-z][a-z-]+)?[.-](?P<device>[A-Za-z][\w@]*(?:\.\d+)?)(?:\.t?\d+)?(?:\.(?:txt|log|out|json))+$"
)


def device_from_name(name: str) -> str | None:
    """Device in a file name such as `ethtool-S.eth2.t0.txt` or `ethtool-S-ens3.txt`, or None."""
    m = _NAME_DEVICE.match(name)
    if m is None or m.group("device") in ("txt", "log", "json"):
        return None
    return re.sub(r"\.t\d+$", "", m.group("device"))


def device_from_command(command: str | None) -> str | None:
    """Last word of a command that is no option: the interface of `ethtool -S eth0`."""
    if not command:
        return None
    words = [w for w in command.split() if not w.startswith("-") and re.fullmatch(r"[\w.@:-]{1,40}", w)]
    return words[-1] if len(words) > 1 else None
