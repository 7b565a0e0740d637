"""Takes the stamp, host and tag of a kernel log line off its message.

Formats: util-linux dmesg (plain, -T, -x, --time-format iso/reltime, caller ids), /dev/kmsg records, journalctl -k
(short, short-iso, short-precise, short-full, short-monotonic, short-unix) and rsyslog's /var/log/messages; also behind
the file name of grep and behind what launchers and log shippers put before a line.
"""

from __future__ import annotations

import calendar
import itertools
import re
import time
from dataclasses import dataclass

from diagnose.parsing import Prefix, parse_ctime, parse_time, unprefix

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_DMESG_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d ")
MAX_PREFIX = 240
"""Characters before a kernel's own stamp."""
_HIDDEN = re.compile(
    r"(?:(?<![\w.])|(?<=\\n))\[\s{0,8}\d{1,9}\.\d{6}\] ?(?=[A-Za-z<{])"
    r"|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4}\] (?=[^\[\s])"
)
_SIX = re.compile(r"\[\s{0,8}\d{1,9}\.\d{6}\]")
_NAME = r"[A-Za-z0-9][\w.-]{0,62}"
_STEPS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "grep",
        re.compile(
            r"[\w./+-]{1,120}:(?:\d{1,9}:)?(?=[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d\s|\[\s{0,8}\d|\[[A-Z][a-z]{2} "
            r"|\d{4}-\d\d-\d\dT)"
        ),
    ),
    ("skip", re.compile(r"\s*<\d{1,3}>")),
    ("kmsg", re.compile(r"\d{1,3},\d{1,20},(\d{1,20}),[-c][^;]{0,120};")),
    ("level", re.compile(r"(?:kern|user|daemon|syslog|auth)\s{0,4}:\s?[a-z]{3,7}\s{0,4}:\s")),
    ("ctime", re.compile(r"\s*\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4})\]\s?")),
    ("uptime", re.compile(r"\s*\[\s{0,8}(\d{1,9}\.\d{3,9})\]\s?")),
    ("level", re.compile(r"\s*\[\s{0,8}[+-]\d{1,9}\.\d{3,9}\]\s?")),
    ("level", re.compile(r"\s*\[[A-Z][a-z]{2}\s?\d{1,2} \d\d:\d\d\]\s?")),
    ("skip", re.compile(r"\s*\[\s{0,8}[TC]\d{1,9}\]:?\s?")),
    ("iso", re.compile(rf"\s*({_ISO})\s")),
    ("syslog", re.compile(r"([A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d)(?:\.\d{1,9})?\s")),
    ("unix", re.compile(r"(\d{9,11}\.\d{3,9}) (?=\S)")),
    ("kernel", re.compile(rf"({_NAME}) kernel(?:\[\d+\])?: ?")),
    ("kernel", re.compile(r"kernel(?:\[\d+\])?: ()")),
    ("host", re.compile(rf"({_NAME}): (?=\[\s*\d|\[[A-Z][a-z]{{2}}[ \d]|kern )")),
)


@dataclass(frozen=True, slots=True)
class Head:
    """Message of a line and what stood before it.

    `at` is in epoch seconds when the stamp is a date; `uptime` are seconds since boot. `shipped` is the time at which a
    logger, launcher or log shipper saw a line whose own stamp counts from the boot: it happened then or before. `task`
    is the rank or task of a launcher. `stamped`: the line has the head of a kernel log.
    """

    message: str
    at: float | None
    host: str | None
    uptime: float | None = None
    shipped: float | None = None
    task: int | None = None
    stamped: bool = False


def split(text: str, taken_at: float | None = None) -> Head:
    """Split a line. `taken_at` lends its year to stamps without one.

    Of a prefix that is not known nothing is told, but the kernel's own stamp behind it is found.
    """
    prefix = unprefix(text)
    head = _steps(text, prefix.offset, prefix, taken_at)
    if not head.stamped:
        hidden = _HIDDEN.search(text, prefix.offset, prefix.offset + MAX_PREFIX)
        if hidden is not None:
            found = _steps(text, hidden.start(), prefix, taken_at)
            return found if found.stamped else head
    return head


def spliced(text: str) -> list[str]:
    """The messages of a line in which line feeds were lost, each with its stamp."""
    starts = [m.start() for m in _HIDDEN.finditer(text)] if text.count("[") > 1 else []
    if len(starts) < 2 or "message repeated" in text:
        return [text]
    return [text[a:b] for a, b in itertools.pairwise([0, *starts[1:], len(text)])]


def _steps(text: str, offset: int, prefix: Prefix, taken_at: float | None) -> Head:
    host = prefix.host
    begin = offset
    at: float | None = None
    shipped = prefix.at
    uptime: float | None = None
    stamps: set[str] = set()
    for _ in range(6):
        for what, pattern in _STEPS:
            m = pattern.match(text, offset)
            if m is None:
                continue
            offset = m.end()
            stamps.add(what)
            if what == "ctime":
                at = parse_ctime(m.group(1))
            elif what == "iso":
                shipped = parse_time(m.group(1))[0]
            elif what == "syslog":
                shipped = _with_year(m.group(1), taken_at) or shipped
            elif what == "unix":
                shipped = float(m.group(1))
            elif what == "uptime":
                uptime = float(m.group(1))
            elif what == "kmsg":
                uptime = int(m.group(1)) / 1e6
            elif what in ("kernel", "host"):
                host = m.group(1) or host
            break
        else:
            break
    if at is None and uptime is None:
        at, shipped = shipped, None
    message = text[offset:]
    return Head(message, at, host, uptime, shipped, prefix.rank, _of_kernel(text[:offset], begin, message, stamps))


def _of_kernel(before: str, begin: int, message: str, stamps: set[str]) -> bool:
    """Whether what stood before a message is the head of a kernel log; applications print dates in brackets too."""
    if stamps & {"kmsg", "level"} or ("uptime" in stamps and _SIX.search(before, begin)):
        return True
    if "kernel" in stamps:
        return len(before) > 16
    return message[:1] not in ("", "[") and ("ctime" in stamps or _DMESG_ISO.search(before) is not None)


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
