"""Credentials refused because two clocks disagree: munge, Slurm, Kerberos, TLS, etcd."""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.model import Line

from ._seen import Seen, short

GATES = (
    "ewound credential", "xpired credential", "ob credential expired", "lock skew too great", "AP_ERR_SKEW",
    "not yet valid", "clock difference against peer", "high clock drift",
)  # fmt: skip

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("munge", re.compile(r"[Rr]ewound credential|[Ee]xpired credential(?!s)")),
    ("slurm", re.compile(r"[Jj]ob credential expired")),
    ("kerberos", re.compile(r"[Cc]lock skew too great|KRB\w{0,8}_AP_ERR_SKEW")),
    ("etcd", re.compile(r"clock difference against peer \w{1,40} is too high|found high clock drift")),
    # `has expired or is not yet valid: current time A is after B` is an expired certificate, not a clock
    (
        "tls",
        re.compile(r"certificate is not yet valid|not yet valid: current time \S{1,40} is before|verify error:num=9:"),
    ),
)
_TASK_HOST = re.compile(r"failed on node (?P<host>[A-Za-z][\w.-]{0,62})\b")
_SYSLOG_HOST = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\S*\d{4}-\d\d-\d\dT\S{8,24}) "
    r"(?P<host>[A-Za-z][\w.-]{0,62}) [\w./()-]{1,60}(?:\[\d{1,9}\])?: "
)


def credentials(line: Line, text: str) -> Iterator[Seen]:
    """What this line says."""
    for system, pattern in _PATTERNS:
        if pattern.search(text):
            m = _SYSLOG_HOST.match(line.text) or _TASK_HOST.search(text)
            host = m["host"] if m else None
            yield Seen("auth_clock_error", {"system": system, "text": short(text)}, [line], host, key=(system, host))
            return
