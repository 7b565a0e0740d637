"""ptp4l, phc2sys and pmc: servo states summed up, port states, clock jumps.

Format: linuxptp 2.0 to 4.x, bare, behind syslog or journal prefixes, or with message tags. Offsets are nanoseconds,
positive when the local clock is ahead. The bracket is uptime and gives no date. Summary lines (`rms … max …`) print no
servo state; a stream of which only these are known counts as locked while `max` stays below one millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from diagnose.model import Digest, Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence, unprefix

KIND = "ptp"
TOPICS = ("ptp", "clock_sync")
READS_PREFIXES = True

MAX_STREAMS = 500
_SUMMARY_LOCKED_NS = 1_000_000

_DAEMON = re.compile(r"(?:(?<=\s)|^)(?:([\w.-]{1,63}) )?(ptp4l|phc2sys)(?:\[[\d.]{1,20}\])?: (?:\[[\d.]{1,20}\]:? ?)?")
_TAG = re.compile(r"\[([\w.:-]{1,60})\] ")
_OFFSET = re.compile(
    r"(?:(?P<device>[\w/.-]{1,40}) )?(?:master|phc|sys|[\w/.-]{1,40}) offset\s{1,20}"
    r"(?P<offset>-?\d{1,19}) (?P<state>s[0-3]) freq\s"
)
_SUMMARY = re.compile(
    r"(?:(?P<device>[\w/.-]{1,40}) )?rms\s{1,20}(?P<rms>\d{1,19}) max\s{1,20}(?P<max>\d{1,19}) freq\s"
)
_PORT = re.compile(
    r"port (?P<port>\d{1,4})(?: \((?P<device>[\w.@-]{1,20})\))?: (?P<old>[A-Z_]{4,14}) to (?P<new>[A-Z_]{4,14})"
    r" on (?P<why>[A-Z_]{4,40})"
)
_PMC_STATE = re.compile(r"^\s{1,20}portState\s{1,30}([A-Z_]{4,14})\s*$")
_CLOCK_CHECK = re.compile(r"clockcheck: clock (jumped|frequency changed).{0,120}")
_MARKS = re.compile(
    r"\b(?:ptp4l|phc2sys)(?:\[[\d.]{1,20}\])?: |^sending: GET [A-Z_]{6,40}\s*$|RESPONSE MANAGEMENT [A-Z_]{6,40}", re.M
)


@dataclass(slots=True)
class _Stream:
    """One servo: its clock, and what was seen of it."""

    daemon: str
    device: str | None
    host: str | None
    first: Line
    last: Line
    worst: Line | None = None
    state: str = ""
    samples: int = 0
    unlocked: int = 0
    last_offset: int = 0
    max_offset: int | None = None
    at: float | None = None
    calm: bool = True
    """The last summary shows offsets of a locked servo."""

    def sample(self, offset: int, state: str, line: Line) -> None:
        self.samples += 1
        self.state, self.last_offset, self.last = state, offset, line
        if state not in ("s2", "s3"):
            self.unlocked += 1
        elif self.max_offset is None or abs(offset) > self.max_offset:
            self.max_offset, self.worst = abs(offset), line

    def summary(self, worst: int, rms: int, line: Line) -> None:
        self.samples += 1
        self.last_offset, self.last = rms, line
        self.calm = worst < _SUMMARY_LOCKED_NS
        state = self.state or ("summary" if self.calm else "")
        if not state or state in ("s0", "s1"):
            self.unlocked += 1
        elif self.max_offset is None or worst > self.max_offset:
            self.max_offset, self.worst = worst, line

    def record(self, source: Source) -> Record:
        settled = self.unlocked == 0 or (
            self.calm and self.unlocked * 2 < self.samples
        )  # a servo that starts is not off
        locked = self.state in ("s2", "s3") or (not self.state and settled)
        fields = drop_none(
            daemon=self.daemon, device=self.device, state=self.state or None, locked=locked,
            max_offset_ns=self.max_offset, last_offset_ns=self.last_offset, samples=self.samples,
            unlocked_share=round(self.unlocked / self.samples, 4),
        )  # fmt: skip
        telling = (self.worst, self.last, self.first) if locked else (self.last, self.worst, self.first)
        lines = {x.number: x for x in telling if x is not None}
        grounds = tuple(evidence(source, line) for line in lines.values())
        return Record("ptp_servo", cast(Fields, fields), grounds, at=self.at, host=self.host)


def sniff(head: str, name: str) -> float:
    """Sure on lines of the daemons or answers of pmc."""
    for m in _MARKS.finditer(head):
        rest = head[m.end() : m.end() + 300].split("\n", 1)[0]
        if m.group()[0] in "sR" or "offset" in rest or " rms " in f" {rest}" or "port " in rest or "clock" in rest:
            return 0.9
    return 0.0


def _is_fault(change: re.Match[str]) -> bool:
    """Whether a port change tells trouble, wherever the port went later."""
    lost = change["why"] == "ANNOUNCE_RECEIPT_TIMEOUT_EXPIRES" and change["old"] in ("SLAVE", "UNCALIBRATED")
    return change["new"] == "FAULTY" or change["why"] == "SYNCHRONIZATION_FAULT" or lost


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """One `ptp_servo` per clock; faults, the last state of each port and clock jumps as digests."""
    streams: dict[tuple[str | None, str, str | None], _Stream] = {}
    ports = Digest("ptp_port", max_tallies=500)
    events = Digest("clock_event", max_tallies=200)
    last: dict[tuple[str | None, str], tuple[tuple[str | None, ...], Record]] = {}
    for line in lines:
        text = line.text
        if "portState" in text:
            m = _PMC_STATE.match(text)
            if m:
                record = Record("ptp_port", {"state": m.group(1), "text": text.strip()}, (evidence(source, line),))
                ports.add(("ptp_port", "pmc", line.number), record)
            continue
        if "ptp4l" not in text and "phc2sys" not in text:
            continue
        prefix = unprefix(text)
        m = _DAEMON.search(prefix.text)
        if m is None:
            continue
        host = prefix.host or m.group(1)
        at = prefix.at if prefix.at is not None else line.at
        message = prefix.text[m.end() :]
        tag = _TAG.match(message)
        if tag:
            message = message[tag.end() :]
        daemon = m.group(2)
        found = _OFFSET.match(message) or _SUMMARY.match(message)
        if found:
            device = found["device"] or (tag.group(1) if tag else None)
            key = (host, daemon, device)
            if key not in streams and len(streams) >= MAX_STREAMS:
                continue
            stream = streams.setdefault(key, _Stream(daemon, device, host, line, line, at=at))
            if found.re is _OFFSET:
                stream.sample(int(found["offset"]), found["state"], line)
            else:
                stream.summary(int(found["max"]), int(found["rms"]), line)
            continue
        found = _PORT.search(message)
        if found:
            fields = {"state": found["new"], "text": found.group()}
            record = Record("ptp_port", fields, (evidence(source, line),), at=at, host=host)
            key = ("ptp_port", host, found["port"], found["old"], found["new"], found["why"])
            last.pop((host, found["port"]), None)
            if _is_fault(found):
                ports.add(key, record)
            elif len(last) < MAX_STREAMS:
                last[(host, found["port"])] = (key, record)
            continue
        found = _CLOCK_CHECK.search(message)
        if found:
            event = "stepped" if found.group(1) == "jumped" else "competing_daemons"
            fields = {"event": event, "daemon": daemon, "text": found.group()}
            record = Record("clock_event", fields, (evidence(source, line),), at=at, host=host)
            events.add(("clock_event", host, daemon, event), record)
    for key, record in last.values():
        ports.add(key, record)
    for stream in streams.values():
        yield stream.record(source)
    yield from (digest for digest in (ports, events) if digest.tallies)
