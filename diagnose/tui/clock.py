"""Moving through a log by time: the first line a minute away, found by a few probes instead of reading all between."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from diagnose.model import Line

MINUTE = 60.0
DAY = 86_400.0
REACH = 200
"""Lines looked through for one with a time."""

_DAY_TIME = re.compile(r"(?<![\d:.])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,](\d{1,9}))?(?![\d:])")
_KERNEL = re.compile(r"\[ {0,8}(\d{1,9}\.\d{6})\]")


class Timed(Protocol):
    """Lines by position (0-based)."""

    def __len__(self) -> int: ...

    def line(self, index: int) -> Line | None: ...


def _epoch(line: Line) -> float | None:
    if line.at is not None:
        return line.at
    from diagnose.parsing import unprefix

    return unprefix(line.text[:1_000]).at


def _time_of_day(line: Line) -> float | None:
    """`02:07:08.408` near the start of a line (glog, syslog): seconds of the day."""
    found = _DAY_TIME.search(line.text[:160])
    if found is None:
        return None
    hours, minutes, seconds, fraction = found.groups()
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction or 0}")


def _uptime(line: Line) -> float | None:
    """`[12345.678901]` of the kernel log: seconds since boot."""
    found = _KERNEL.match(line.text[:40].lstrip())
    return float(found.group(1)) if found else None


_READINGS: tuple[Callable[[Line], float | None], ...] = (_epoch, _time_of_day, _uptime)


def minute_away(lines: Timed, here: int, step: int) -> int | None:
    """Index of the first line a minute after (`step` 1) or before (-1) the one at `here`; the last or first when there
    is none so far away; None when no line here has a time."""
    for reading in _READINGS:
        start = _near(lines, here, reading)
        if start is not None:
            break
    else:
        return None
    day = reading is _time_of_day

    def far(index: int) -> bool:
        at = _near(lines, index, reading)
        if at is None:
            return False
        ahead = at - start
        if day and abs(ahead) > DAY / 2:
            ahead -= DAY if ahead > 0 else -DAY
        return ahead * step >= MINUTE

    end = len(lines) - 1 if step > 0 else 0
    near, width = here, 1
    while True:
        probe = near + step * width
        if (probe - end) * step >= 0:
            if not far(end):
                return end
            probe = end
        if far(probe):
            break
        near, width = probe, width * 2
    while abs(probe - near) > 1:
        middle = (probe + near) // 2
        probe, near = (middle, near) if far(middle) else (probe, middle)
    return probe


def _near(lines: Timed, index: int, reading: Callable[[Line], float | None]) -> float | None:
    """The time of the line at `index`, or of the next one that has one."""
    for number in range(index, index + REACH):
        line = lines.line(number) if number < len(lines) else None
        if line is None:
            return None
        at = reading(line)
        if at is not None:
            return at
    return None
