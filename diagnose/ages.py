"""Which kernel messages are too old, or too late, to be a cause: `old`, `before` and `while_waiting` of `kernel_event`.

Without a time, or without a sign of when the job failed, a message counts as the job's.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from diagnose.model import Fact, Record, Source

DAY_S = 86_400.0
OF_PROCESSES = ("oom_kill", "segfault")
START_SLACK_S = 60.0
"""What killed an earlier try of a job that restarted at once still counts."""
LEAD_S = 1800.0
"""A job survives what stops one of its processes or devices by no more than this (chosen by us)."""
LEAD_WITHOUT_TIMEOUT_S = 3 * 3600.0
"""The same where no time-out tells when the waiting began: the failure came up to a time limit later (chosen by us)."""
ZONES_S = tuple(h * 3600.0 for h in (1, 2, 3, 4, 5, 5.5, 6, 7, 8, 9, 9.5, 10, 11, 12))
"""Distances of time zones from UTC: hosts print local time and containers UTC, often without saying so."""
ZONE_BEFORE_S, ZONE_AFTER_S = 300.0, 120.0
"""So close to such a distance the two stamps may be of one moment (chosen by us)."""
LIFE = frozenset({
    "torch_timeout", "torch_pg_status", "torch_error", "python_exception", "process_exit", "train_step", "nccl_comm",
    "job_event",
})  # fmt: skip
"""Kinds whose times show that the job lived, or how it ended."""
FAILURES = ("torch_error", "python_exception", "process_exit")

MAX_DATE_S = 7.25e9
"""The year 2200, before which all dates are (epoch seconds)."""
_GLOG = re.compile(r"\[?[EWI](?P<stamp>\d{4} \d\d:\d\d:\d\d)")
"""Stamp of a time-out, without a year."""

Read = Sequence[tuple[Source, Sequence[Record]]]


def with_age(observations: Sequence[Fact], read: Read) -> list[Fact]:
    """Kernel messages with `old`, and with `before` in words where the job survived them for long, or no job is known;
    with `while_waiting` where they came clearly after all known waiting had begun.

    Old is what came a day or more before the job's last sign of life (else: before the capture, and where nothing tells
    its time either or stamps count from the boot, before the last line of their own log); what came clearly before the
    job began to wait or failed, unless its process is one of the job's; and the end of a process before the job's first
    process started on the host.
    """
    lived = [r.at for _, records in read for r in records if r.kind in LIFE and r.at is not None]
    taken = {source.path: source.taken_at for source, _ in read}
    began = {source.path: source.job_began for source, _ in read}
    ended = _ends_of_logs(read)
    last = {
        (source.path, r.evidence[0].first): r.last_at
        for source, records in read for r in records
        if r.kind == "kernel_event" and r.last_at is not None and r.evidence
    }  # fmt: skip
    failed = _failed_at(observations)
    waits = _waits(observations, _last_year(observations))
    processes = {(o.fields.get("host"), pid) for o in observations if o.kind in LIFE and (pid := o.fields.get("pid"))}
    settled: list[Fact] = []
    for o in observations:
        at = o.get("at")
        if o.kind == "kernel_event" and isinstance(at, int | float) and o.evidence:
            path = o.evidence[0].source
            end = max(lived) if lived else taken.get(path)
            began_at = began.get(path)
            since = _survived(last.get((path, o.evidence[0].first), at), failed)
            if waits and _while_waiting(at - max(waits)):
                o = replace(o, fields={**o.fields, "while_waiting": True})
            if began_at is not None and at < began_at - START_SLACK_S and o.get("event") in OF_PROCESSES:
                o = replace(o, fields={**o.fields, "old": True})
            elif since is not None and (o.fields.get("host"), o.fields.get("pid")) not in processes:
                before = f"{_span(since)} before the job failed"
                o = replace(o, fields={**o.fields, "old": True, "before": before})
            elif end is not None:
                o = replace(o, fields={**o.fields, "old": end - at > DAY_S})
                if end - at > (DAY_S if lived else LEAD_S):
                    what = "the job's last sign of life" if lived else "the capture"
                    o = replace(o, fields={**o.fields, "before": f"{_span(end - at)} before {what}"})
            elif ended.get(path, at) - at > DAY_S:
                o = replace(o, fields={**o.fields, "old": True})
        elif o.kind == "kernel_event" and isinstance(distance := o.get("before_last_s"), int | float):
            fields = {name: value for name, value in o.fields.items() if name != "before_last_s"}
            o = replace(o, fields={**fields, "old": True} if distance > DAY_S else fields)
        settled.append(o)
    return settled


def _span(seconds: float) -> str:
    return f"{seconds / DAY_S:.0f} days" if seconds >= 2 * DAY_S else f"{seconds / 3600:.1f} h"


def _ends_of_logs(read: Read) -> dict[str, float]:
    ended: dict[str, float] = {}
    for source, records in read:
        for r in records:
            last = r.last_at or r.at
            if last is not None and (r.kind == "kernel_event" or r.fields.get("topic") == "kernel_log"):
                ended[source.path] = max(last, ended.get(source.path, last))
    return ended


def _last_year(observations: Sequence[Fact]) -> int | None:
    """Year of the last kernel message with a date that can be one."""
    times = [
        at for o in observations
        if o.kind == "kernel_event" and isinstance(at := o.get("at"), int | float) and 0 <= at < MAX_DATE_S
    ]  # fmt: skip
    return time.gmtime(max(times)).tm_year if times else None


def _waits(observations: Sequence[Fact], year: int | None = None) -> list[float]:
    """When the operations that timed out began to wait; `year` is that of stamps without one, else they count not."""
    return [
        at - float(ms) / 1000
        for o in observations
        if o.kind == "torch_timeout" and (at := _time_of(o, year)) is not None
        and isinstance(ms := o.fields.get("elapsed_ms", o.get("timeout_ms")), int | float) and 0 <= ms < DAY_S * 1000
    ]  # fmt: skip


def _time_of(o: Fact, year: int | None) -> float | None:
    if isinstance(at := o.get("at"), int | float):
        return at
    m = _GLOG.search(o.evidence[0].text) if year is not None and o.evidence else None
    try:
        return float(calendar.timegm(time.strptime(f"{year} {m['stamp']}", "%Y %m%d %H:%M:%S"))) if m else None
    except ValueError:
        return None


def _failed_at(observations: Sequence[Fact]) -> tuple[float, float] | None:
    """When the job began to wait, else when it first failed, and how long before that a cause may lie; in seconds."""
    if waits := _waits(observations):
        return min(waits), LEAD_S
    failures = [at for o in observations if o.kind in FAILURES and isinstance(at := o.get("at"), int | float)]
    return (min(failures), LEAD_WITHOUT_TIMEOUT_S) if failures else None


def _survived(at: float, failed: tuple[float, float] | None) -> float | None:
    """Seconds for which the job went on after something; None when that is no more than it may take to fail."""
    if failed is None:
        return None
    since = failed[0] - at
    zone = any(-ZONE_AFTER_S <= since - zone <= ZONE_BEFORE_S for zone in ZONES_S)
    return since if since > failed[1] and not zone else None


def _while_waiting(late: float) -> bool:
    """Whether something came after the waiting began by more than clocks and time zones explain."""
    return late > ZONE_AFTER_S and not any(-LEAD_S <= late - zone <= ZONE_AFTER_S for zone in ZONES_S)
