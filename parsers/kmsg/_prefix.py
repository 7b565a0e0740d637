"""Takes the stamp, host and tag of a kernel log line off its message.

Formats: util-linux dmesg (plain, -T, -x, --time-format iso/reltime, caller ids), /dev/kmsg records, journalctl -k
(short, short-iso, short-precise, short-full, short-monotonic, short-unix) and rsyslog's /var/log/messages; also behind
the file name of grep.
"""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass

from diagnose.parsing import parse_ctime, parse_time, unprefix

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_STAMP = r"[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d\s|\[\s{0,8}\d|\d{4}-\d\d-\d\dT"
_NAME = r"[A-Za-z0-9][\w.-]{0,62}"
_STEPS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "skip",
        re.compile(
            r"[\w./+-]{1,120}:(?:\d{1,9}:)?(?=[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d\s|\[\s{0,8}\d|\d{4}-\d\d-\d\dT)"
        ),
    ),
    ("skip", re.compile(r"\s*<\d{1,3}>")),
    ("skip", re.compile(r"\d{1,3},\d{1,20},\d{1,20},[^;]{1,120};")),
    ("skip", re.compile(r"(?:kern|user|daemon|syslog|auth)\s{0,4}:\s?[a-z]{3,7}\s{0,4}:\s")),
    ("ctime", re.compile(r"\s*\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4})\]\s?")),
    ("skip", re.compile(r"\s*\[\s{0,8}[+-]?\d{1,9}\.\d{3,9}\]\s?")),
    ("skip", re.compile(r"\s*\[[A-Z][a-z]{2}\s?\d{1,2} \d\d:\d\d\]\s?")),
    ("skip", re.compile(r"\s*\[\s{0,8}[TC]\d{1,9}\]:?\s?")),
    ("full", re.compile(rf"[A-Z][a-z]{{2}} ({_ISO}) (?:UTC|[A-Z]{{3,5}}) (?=\S)")),
    ("iso", re.compile(rf"\s*({_ISO})\s")),
    ("syslog", re.compile(r"([A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d)(?:\.\d{1,9})?\s")),
    ("unix", re.compile(r"(\d{9,11}\.\d{3,9}) (?=\S)")),
    ("host", re.compile(rf"({_NAME}) kernel(?:\[\d+\])?: ?")),
    ("skip", re.compile(r"kernel(?:\[\d+\])?: ")),
    ("host", re.compile(rf"^({_NAME}): (?=\[\s*\d|\[[A-Z][a-z]{{2}}[ \d]|kern )")),
)


@dataclass(frozen=True, slots=True)
class Head:
    """Message of a line and what stood before it: host, and epoch seconds when the stamp is a date."""

    message: str
    at: float | None
    host: str | None


def split(text: str, taken_at: float | None = None) -> Head:
    """Split a line; seconds since boot give no time. `taken_at` lends its year to stamps without one."""
    prefix = unprefix(text)
    at, host, offset = prefix.at, prefix.host, prefix.offset
    for _ in range(6):
        for what, pattern in _STEPS:
            m = pattern.match(text, offset)
            if m is None:
                continue
            offset = m.end()
            if what == "ctime":
                at = parse_ctime(m.group(1))
            elif what in ("iso", "full"):
                at = parse_time(m.group(1))[0]
            elif what == "syslog":
                at = _with_year(m.group(1), taken_at)
            elif what == "unix":
                at = float(m.group(1))
            elif what == "host":
                host = m.group(1)
            break
        else:
            break
    return Head(text[offset:], at, host)


def _with_year(stamp: str, taken_at: float | None) -> float | None:
    if taken_at is None:
        return None
    for year in (time.gmtime(taken_at).tm_year, time.gmtime(taken_at).tm_year - 1):
        try:
            at = float(calendar.timegm(time.strptime(f"{year} {stamp}", "%Y %b %d %H:%M:%S")))
        except ValueError:
            continue
        if at <= taken_at + 86_400:
            return at
    return None
