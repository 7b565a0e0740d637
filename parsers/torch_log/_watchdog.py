"""Messages of ProcessGroupNCCL's watchdog and heartbeat monitor, torch 1.7 to 2.14.

Structured messages are matched without their white space, so that a message wrapped by a terminal (inside a word or
between words) reads like a whole one.
"""

from __future__ import annotations

import re

_WORK = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,20}),)?OpType=(?P<op>\w{1,40})(?P<rest>[,)])"
    r"(?:TensorShape=\[[^\]]{0,400}\],)?"
    r"(?:NumelIn=(?P<numel_in>\d{1,20}),NumelOut=(?P<numel_out>\d{1,20}),)?"
    r"(?:Timeout\(ms\)=(?P<timeout>\d{1,20})\))?"
    r"(?:ranfor(?P<elapsed>\d{1,20})milliseconds)?"
)

_STATUS = re.compile(
    r"(?:(?:at(?:NCCL)?work(?:sequenceid)?:(?P<work>-?\d{1,20}))?[,.]?(?:PGstatus:)?)?"
    r"lastenqueued(?:NCCL)?work:(?P<enqueued>-?\d{1,20})(?P<cut1>,)?"
    r"(?:laststarted(?:NCCL)?work:(?P<started>-?\d{1,20}),)?"
    r"(?:lastcompleted(?:NCCLwork:(?P<completed>-?\d{1,20})\.|work:(?P<newer>-?\d{1,20})))?",
    re.IGNORECASE,
)

MAX_SEQ = 2**31
"""Larger sequence numbers are counters that torch 2.3 and 2.4 never set."""


def squeeze(text: str) -> str:
    """Text without white space."""
    return "".join(text.split())


def work(squeezed: str) -> dict[str, int | float | str] | None:
    """Fields of `WorkNCCL(…)`: seq, op, numel_in, numel_out, timeout_ms, elapsed_ms; None when cut within `op`."""
    m = _WORK.search(squeezed)
    if m is None:
        return None
    found: dict[str, int | float | str] = {"op": m.group("op")}
    for name in ("seq", "numel_in", "numel_out"):
        if m.group(name) is not None:
            found[name] = int(m.group(name))
    for name, field in (("timeout", "timeout_ms"), ("elapsed", "elapsed_ms")):
        if m.group(name) is not None:
            found[field] = float(m.group(name))
    return found


def status(squeezed: str) -> dict[str, int] | None:
    """Fields of a `last enqueued …, last completed …` message, without counters that were never set."""
    m = _STATUS.search(squeezed)
    if m is None:
        return None
    found: dict[str, int] = {}
    for name, field in (
        ("work", "work_seq"),
        ("enqueued", "last_enqueued"),
        ("started", "last_started"),
        ("completed", "last_completed"),
    ):
        digits = m.group(name) or (m.group("newer") if name == "completed" else None)
        if digits is not None and -1 <= int(digits) < MAX_SEQ:
            found[field] = int(digits)
    if "last_enqueued" in found and "last_completed" not in found and m.group("cut1") is None:
        del found["last_enqueued"]
    return found or None


# Literal, event. The first that is contained in the squeezed message counts.
_EVENTS: tuple[tuple[str, str], ...] = (
    ("watchdoggotstuckfor", "watchdog_stuck"),
    ("Heartbeatmonitortimedout!", "heartbeat_abort"),
    ("duetoProcessGroupNCCLwatchdoghang", "heartbeat_abort"),
    ("attemptingtodumpdebuginfo,duetocollectivetimeout", "timeout_abort"),
    ("attemptingtodumpdebuginfo,duetoProcessGroupNCCLcollectivetimeout", "timeout_abort"),
    ("CouldnotacquireGILwithin", "gil_held"),
    ("remoteerrordetectedfromrank", "remote_error"),
    ("Receivedadumpsignal", "dump_signal"),
    ("Receivedaglobaldumpsignal", "dump_signal"),
    ("Receivedatimeoutsignal", "dump_signal"),
    ("Receivedaglobaltimeout", "dump_signal"),
    ("Observedflightrecorderdumpsignalfromanotherrank", "dump_signal"),
    ('Failedtocheckthe"shoulddump"flag', "dump_missing"),
    ("TCPStorecheckfordumpkey", "dump_missing"),
    ("ErroropeningfileforwritingFlightRecorder", "dump_missing"),
)
_FROM_RANK = re.compile(r"from(?:rank:?)(\d{1,6})")


def event(squeezed: str) -> tuple[str, int | None] | None:
    """(event, rank that caused it) of a monitor message, or None."""
    for literal, name in _EVENTS:
        if literal in squeezed:
            m = _FROM_RANK.search(squeezed) if name in ("dump_signal", "remote_error") else None
            return name, int(m.group(1)) if m else None
    return None


# --- desync report (TORCH_NCCL_DESYNC_DEBUG, or TORCH_DISTRIBUTED_DEBUG=DETAIL) ------------------------

DESYNC_GATES = ("Timeout at collective", "To our best knowledge", "Snapshot of ranks")
_DESYNC_HEAD = re.compile(r"- \[(\d{1,6})\] Timeout at collective: (\w{1,40}), #(\d{1,12})")
_DESYNC_NEVER = re.compile(r"ranks \[([\d, ]{1,20000})\] are the lagging ranks")
_DESYNC_UNFINISHED = re.compile(r"\[([\d, ]{1,20000})\] joined but didn't finish collective #(\d{1,12})")
_DESYNC_MISSING = re.compile(
    r"\[([\d, ]{1,20000})\] finished collective #\d{1,12}, but didn't join collective #(\d{1,12})"
)
_DESYNC_STATE = re.compile(r"#(\d{1,12}) (started|finished) ranks:")
_DESYNC_RANKS = re.compile(r"\[([\d, ]{1,20000})\] (?:started|finished) (\w{1,40})")


def desync(
    text: str, pending: tuple[int, str] | None
) -> tuple[list[tuple[str, str, int | None, str | None]], tuple[int, str] | None]:
    """One line of a desync report as [(state, ranks, seq, op)]; `pending` is the snapshot heading it stands under."""
    found: list[tuple[str, str, int | None, str | None]] = []
    for m in _DESYNC_HEAD.finditer(text):
        found.append(("timed_out", m.group(1), int(m.group(3)), m.group(2)))
    for m in _DESYNC_NEVER.finditer(text):
        found.append(("missing", m.group(1), None, None))
    for m in _DESYNC_UNFINISHED.finditer(text):
        found.append(("joined", m.group(1), int(m.group(2)), None))
    for m in _DESYNC_MISSING.finditer(text):
        found.append(("missing", m.group(1), int(m.group(2)), None))
    heading = _DESYNC_STATE.search(text)
    if heading:
        pending = (int(heading.group(1)), "joined" if heading.group(2) == "started" else "finished")
    if pending:
        for m in _DESYNC_RANKS.finditer(text):
            found.append((pending[1], m.group(1), pending[0], m.group(2)))
    return found, pending
