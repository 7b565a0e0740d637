"""Times, numbers and units in text."""

from __future__ import annotations

import calendar
import contextlib
import datetime
import re
import time
import zoneinfo
from collections.abc import Iterator
from contextvars import ContextVar

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


_YEARS = range(1970, 2200)
"""Other years in a log are no times."""
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?(\d\d))?", re.I)
_assumed: ContextVar[datetime.tzinfo | None] = ContextVar("assumed_zone", default=None)


def zone_named(name: str) -> datetime.tzinfo:
    """`Europe/Berlin`, `UTC`, `+02:00`; ValueError for anything else."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return datetime.UTC
    m = _OFFSET.fullmatch(name)
    if m:
        offset = datetime.timedelta(hours=int(m.group(2)), minutes=int(m.group(3) or 0))
        if offset < datetime.timedelta(hours=24):
            return datetime.timezone(offset if m.group(1) == "+" else -offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"unknown time zone {name!r}; use a name such as Europe/Berlin or an offset such as +02:00"
        ) from error


@contextlib.contextmanager
def assumed_zone(name: str | None) -> Iterator[None]:
    """While this is open, times that carry no zone are local times of zone `name` (None: unknown, read as UTC)."""
    mark = _assumed.set(zone_named(name) if name else None)
    try:
        yield
    finally:
        _assumed.reset(mark)


def _epoch(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float:
    zone = _assumed.get()
    at = float(calendar.timegm((year, month, day, hour, minute, second)))
    if zone is None:
        return at
    try:
        offset = zone.utcoffset(datetime.datetime(year, month, day, min(hour, 23), minute))
    except (ValueError, OverflowError):  # 31 February
        return at
    return at - offset.total_seconds() if offset is not None else at


def parse_time(text: str) -> tuple[float | None, bool]:
    """ISO-like time as (epoch seconds, zone known). Without a zone: see `assumed_zone`."""
    m = _TIME.match(text)
    if m is None:
        return None, False
    year, month, day, hour, minute, second = (int(g) for g in m.groups()[:6])
    if not (year in _YEARS and 1 <= month <= 12 and 1 <= day <= 31 and hour < 25 and minute < 60 and second < 62):
        return None, False
    fraction = float("0." + m.group(7)) if m.group(7) else 0.0
    zone = m.group(8)
    if not zone:
        return _epoch(year, month, day, hour, minute, second) + fraction, _assumed.get() is not None
    at = calendar.timegm((year, month, day, hour, minute, second)) + fraction
    if zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        at -= (1 if zone[0] == "+" else -1) * minutes * 60
    return at, True


def parse_ctime(text: str) -> float | None:
    """`Sun Feb 23 16:24:18 2025` as epoch seconds, or None. It carries no zone: see `assumed_zone`."""
    try:
        t = time.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None
    if t.tm_year not in _YEARS:
        return None
    return _epoch(t.tm_year, t.tm_mon, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec)


_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")


def number(text: str | None) -> float | None:
    """First number of a text, or None. Thousands separators are not understood."""
    if text is None:
        return None
    m = _NUMBER.search(text)
    return float(m.group()) if m else None


def integer(text: str | None) -> int | None:
    """Whole text as a decimal or 0x integer, or None."""
    if text is None:
        return None
    text = text.strip()
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def drop_none(**fields: object) -> dict[str, object]:
    """The fields that are known."""
    return {name: value for name, value in fields.items() if value is not None}
