"""Clock synchronisation: chronyc tracking and sources (text and -c), ntpq -p, timedatectl, and what the daemons log.

Formats: chrony 3.x to 4.x, ntpq of ntp and ntpsec, systemd 219 to 257. Signs: `System time … slow` and a positive CSV
value mean a clock behind NTP time; ntpq offsets are positive when the local clock is behind, chronyc's when it is
ahead. Records use chronyc's sign. A daemon that gave no answer is an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from diagnose.model import Digest, Evidence, Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence, problem, unprefix

KIND = "chrony"
TOPICS = ("clock_sync",)

_LABELS = frozenset({
    "Reference ID", "Stratum", "Ref time (UTC)", "System time", "Last offset", "RMS offset", "Frequency",
    "Residual freq", "Skew", "Root delay", "Root dispersion", "Update interval", "Leap status",
})  # fmt: skip
_LABEL = re.compile(r"^[\s>]{0,12}(?:([A-Za-z][\w.-]{1,62}): )?([A-Z][A-Za-z ()]{3,16}?)\s{0,20}: (.{1,200})$")
_SYSTEM_TIME = re.compile(r"(\d{1,12}\.\d{1,9}) seconds (fast|slow) of NTP time")
_SECONDS = re.compile(r"([+-]?\d{1,12}(?:\.\d{1,9})?) (?:seconds|ppm)")
_TRACKING_CSV = re.compile(
    r"^[0-9A-F]{8},[^,\n]{0,100},\d{1,3},\d{1,12}\.\d{1,9}(?:,-?\d{1,12}(?:\.\d{1,9})?){9},[A-Z][a-z ]{3,20}\s*$", re.M
)
_SOURCE = re.compile(
    r"^\s{0,8}([\^=#])([*+\-x~?])\s([\w.:>%()\[\]-]{1,64})\s{1,40}(\d{1,2})\s{1,8}(-?\d{1,2})\s{1,8}([0-7]{1,3})\s{1,8}(\d{1,6}[smhdy]?|-)"
    r"\s{1,12}([+-]\d{1,12})(ns|us|ms|s)\["
)
_SOURCE_CSV = re.compile(
    r"^[\^=#],([*+\-x~?]),([^,\n]{1,100}),\d{1,2},-?\d{1,2},([0-7]{1,3}),\d{1,10},(-?\d{1,12}(?:\.\d{1,9})?),", re.M
)
_NTPQ_HEADER = re.compile(r"^[ ]{1,8}remote\s{1,20}refid\s{1,12}st t when poll reach", re.M)
_NTPQ = re.compile(
    r"^([ x.+#*o-])([\w.:-]{1,46})(?: \([^ ]{0,30})?\s{1,30}(\S{1,20})\s{1,12}(\d{1,2})\s{1,4}[a-zA-Z-]\s{1,8}"
    r"(?:\d{1,8}[mhd]?|-)\s{1,8}\d{1,6}[mhd]?\s{1,8}([0-7]{1,3})\s{1,12}-?[\d.]{1,12}\s{1,12}([+-]?\d{1,9}(?:\.\d{1,9})?)"
)
_TIMEDATECTL = re.compile(r"^[ \t]{0,40}(?:System clock synchronized|NTP synchronized): (yes|no)\s*$", re.M)
_DAEMON = re.compile(
    r"(?:^|\s)(?:([\w.-]{1,64}) )?(chronyd|ntpd|systemd-timesyncd|ntpdate)(?:\[\d{1,9}\])?: (.{1,300})"
)
_STEPPED = re.compile(
    r"System clock was stepped by (-?\d{1,12}(?:\.\d{1,9})?) seconds|time reset ([+-]?\d{1,12}(?:\.\d{1,9})?) s"
    r"|step time server \S{1,60} offset ([+-]?\d{1,12}(?:\.\d{1,9})?)"
)
_WRONG = re.compile(r"System clock wrong by (-?\d{1,12}(?:\.\d{1,9})?) seconds")
FIRST_CORRECTION_S = 1800  # a daemon corrects the clock of a booted host within minutes of its start
_STARTING = re.compile(r"chronyd version \S{1,20} starting|ntpd \S{1,40}(?: \S{1,60}){0,8}: Starting|Starting ntpd")
_UNIT = re.compile(
    r"^\W{0,4}(chrony|chronyd|ntp|ntpd|ntpsec|systemd-timesyncd|phc2sys(?:@[\w.-]{1,40})?)\.service\s{1,60}loaded\s{1,8}active"
    r"\s{1,8}running", re.M,
)  # fmt: skip
_UNREACHABLE = re.compile(
    r"^[ \t]{0,8}(?:506 Cannot talk to daemon|Could not open connection to daemon|501 Not authorised)", re.M
)
_SYNCHRONISED = frozenset({"Normal", "Insert second", "Delete second"})
_MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_STATES = {
    "*": "selected", "+": "combined", "-": "not_combined", "x": "falseticker", "~": "too_variable", "?": "unusable",
    "#": "combined", "o": "selected", ".": "not_combined", " ": "unusable",
}  # fmt: skip
_MARKS = re.compile(
    r"^[ \t>]{0,12}(?:[A-Za-z][\w.-]{1,62}: )?(?:Reference ID\s{1,12}: [0-9A-F]{8} \(|"
    r"System time\s{1,12}: [\d.]{1,22} seconds (?:fast|slow)|MS Name/IP address |"
    r"Leap status\s{1,12}: (?:Normal|Not synchronised|Insert second|Delete second)\s*$)",
    re.M,
)


@dataclass(slots=True)
class _Block:
    """The labels of one `chronyc tracking`, or of what was picked out of it, and their lines."""

    values: dict[str, str] = field(default_factory=dict[str, str])
    lines: list[Line] = field(default_factory=list[Line])


def sniff(head: str, name: str) -> float:
    """Sure on the headers and labels of the tools, likely on daemon messages."""
    for pattern in (_MARKS, _TRACKING_CSV, _SOURCE_CSV, _NTPQ_HEADER, _UNREACHABLE, _TIMEDATECTL):
        if pattern.search(head):
            return 0.9
    if "chronyd" in head or "timesyncd" in head or "ntpd" in head:
        return 0.6 if _UNIT.search(head) or any(_event_of(m.group(3)) for m in _DAEMON.finditer(head)) else 0.0
    return 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """Trackings and sources one record each; daemon messages as a digest."""
    events = Digest("clock_event", max_tallies=500)
    blocks: dict[str | None, _Block] = {}
    ntpq = False
    fresh: dict[tuple[str | None, str], float | None] = {}
    units: list[tuple[str, Line]] = []
    silent: Line | None = None
    produced = False
    for line in lines:
        text = line.text
        label = _LABEL.match(text) if ": " in text else None
        if label and label.group(2).strip() in _LABELS:
            name, host = label.group(2).strip(), label.group(1)
            block = blocks.setdefault(host, _Block())
            if name in block.values:
                yield from _tracking(blocks.pop(host), host, source)
                block = blocks.setdefault(host, _Block())
            block.values[name] = label.group(3).strip()
            block.lines.append(line)
            produced = True
            continue
        if not text:
            continue
        if None in blocks:
            yield from _tracking(blocks.pop(None), None, source)
        if ntpq or text[:1] in "^=#0123456789ABCDEF \t" or "synchronized: " in text:
            for record in _row(text, line, source, ntpq):
                produced = True
                yield record
        if _NTPQ_HEADER.match(text):
            ntpq = True
        elif ntpq and text and not text.startswith(("=", " ")) and not _NTPQ.match(text):
            ntpq = False
        silent = silent or (line if _UNREACHABLE.match(text) else None)
        unit = _UNIT.match(text) if ".service" in text else None
        if unit:
            units.append((unit.group(1).partition("@")[0].removesuffix("d"), line))
        _log_line(line, source, events, fresh)
    for host, block in blocks.items():
        yield from _tracking(block, host, source)
    names = {name for name, _ in units}
    if len(names) > 1:
        grounds = tuple(evidence(source, line) for _, line in units[:6])
        said = "running together: " + ", ".join(sorted(names))
        events.add(("clock_event", "competing_daemons"), _clock_event("competing_daemons", said, grounds))
    if silent is not None and not produced and not events.tallies:
        yield _clock_event("daemon_silent", silent.text.strip(), (evidence(source, silent),), daemon="chronyd")
    if events.tallies:
        yield events


def _seconds(text: str | None) -> float | None:
    m = _SECONDS.match(text) if text else None
    return float(m.group(1)) if m else None


def _ms(text: str | None) -> float | None:
    seconds = _seconds(text)
    return None if seconds is None else _round(seconds)


def _round(seconds: float) -> float:
    """Seconds as milliseconds, without the noise of binary fractions."""
    return round(seconds * 1e3, 9)


def _tracking(block: _Block, host: str | None, source: Source) -> Iterator[Record]:
    values = block.values
    if len(values) < 3 or not {"Ref time (UTC)", "System time"} & set(values):
        yield from _leap_alone(block, host, source)
        return
    m = _SYSTEM_TIME.match(values.get("System time", ""))
    if m is None:
        yield problem(source, "chronyc tracking without a readable 'System time'", block.lines[0])
        return
    signed = float(m.group(1)) * 1e3 * (1 if m.group(2) == "fast" else -1)
    stratum = values.get("Stratum", "")
    yield _tracking_record(
        signed, values.get("Leap status"), int(stratum) if stratum.isdecimal() and len(stratum) < 4 else None,
        _ms(values.get("Root delay")), _ms(values.get("Root dispersion")), _ms(values.get("RMS offset")),
        _seconds(values.get("Skew")), values.get("Reference ID"), host,
        tuple(evidence(source, line) for line in _telling(block)),
    )  # fmt: skip


def _leap_alone(block: _Block, host: str | None, source: Source) -> Iterator[Record]:
    """`chronyc tracking | grep Leap`."""
    leap = block.values.get("Leap status", "")
    if leap == "Not synchronised":
        line = block.lines[list(block.values).index("Leap status")]
        fields = {"event": "unsynchronised", "daemon": "chronyd", "text": f"Leap status: {leap}"}
        yield Record("clock_event", cast(Fields, fields), (evidence(source, line),), host=host)
    elif leap in _SYNCHRONISED:
        yield Record("covered", {"topic": "clock_sync"})


def _telling(block: _Block) -> list[Line]:
    """The lines that say how far the clock can be trusted."""
    return [
        line
        for name, line in zip(block.values, block.lines, strict=True)
        if name in ("System time", "Skew", "Root dispersion", "Leap status")
    ]


def _tracking_record(
    signed: float, leap: str | None, stratum: int | None, delay: float | None, dispersion: float | None,
    rms: float | None, skew: float | None, reference: str | None, host: str | None, grounds: tuple[Evidence, ...],
) -> Record:  # fmt: skip
    signed = round(signed, 9) + 0.0
    synchronised = None if leap is None else leap in _SYNCHRONISED
    fields = drop_none(
        offset_ms=abs(signed), signed_offset_ms=signed, leap=leap, synchronised=synchronised, stratum=stratum,
        root_delay_ms=delay, root_dispersion_ms=dispersion, rms_offset_ms=rms, skew_ppm=skew, reference=reference,
    )  # fmt: skip
    return Record("clock_tracking", cast(Fields, fields), grounds, host=host)


def _row(text: str, line: Line, source: Source, ntpq: bool) -> Iterator[Record]:
    """Records of one line that stands for itself: a source, or a CSV line."""
    grounds = evidence(source, line)
    m = _SOURCE.match(text)
    if m:
        offset = float(m.group(8)) * _MILLISECONDS[m.group(9)]
        yield _source(m.group(3), m.group(2), m.group(6), offset, grounds)
        return
    stripped = text.strip()
    m = _SOURCE_CSV.match(stripped)
    if m:
        yield _source(m.group(2), m.group(1), m.group(3), float(m.group(4)) * 1e3, grounds)
        return
    if _TRACKING_CSV.match(stripped):
        c = stripped.split(",")
        yield _tracking_record(
            -float(c[4]) * 1e3, c[13], int(c[2]), _round(float(c[10])), _round(float(c[11])), _round(float(c[6])),
            float(c[9]), f"{c[0]} ({c[1]})", None, (grounds,),
        )  # fmt: skip
        return
    m = _NTPQ.match(text) if ntpq else None
    if m:
        if m.group(3) != ".POOL.":  # stands for the pool, whose members follow as rows of their own
            yield _source(m.group(2), m.group(1), m.group(5), -float(m.group(6)), grounds)
        return
    m = _TIMEDATECTL.match(text)
    if m:
        if m.group(1) == "no":
            yield _clock_event("unsynchronised", stripped, (grounds,), daemon="timedatectl")
        else:
            yield Record("covered", {"topic": "clock_sync"})


def _source(name: str, state: str, reach: str, offset: float, grounds: Evidence) -> Record:
    register = int(reach, 8)
    word = "unreachable" if not register and state in "? " else _STATES[state]
    fields = drop_none(name=name, state=word, reach=register, offset_ms=round(offset, 9) if register else None)
    return Record("clock_source", cast(Fields, fields), (grounds,))


def _clock_event(event: str, text: str, grounds: tuple[Evidence, ...], **fields: object) -> Record:
    return Record("clock_event", cast(Fields, {"event": event, **drop_none(**fields), "text": text[:300]}), grounds)


def _event_of(message: str) -> tuple[str, float | None] | None:
    m = _STEPPED.search(message)
    if m:
        return "stepped", float(m.group(m.lastindex or 1))
    if "time jump detected" in message:
        return "stepped", None
    m = _WRONG.search(message)
    if m:
        return "wrong", float(m.group(1))
    unmatched = ("no selectable sources", "no server suitable for synchronization", "no majority")
    if any(literal in message for literal in unmatched):
        return "no_sources", None
    if message.startswith("Selected source ") or "Contacted time server" in message:
        return "source_changed", None
    if "Another chronyd may already be running" in message:
        return "competing_daemons", None
    return None


def _log_line(line: Line, source: Source, events: Digest, fresh: dict[tuple[str | None, str], float | None]) -> None:
    """Daemon messages.

    What a daemon that has just started corrects first is no event. `fresh` has the start: (host, event) -> time.
    """
    if "chronyd" not in line.text and "ntpd" not in line.text and "timesyncd" not in line.text:
        return
    prefix = unprefix(line.text)
    m = _DAEMON.search(prefix.text)
    found = _event_of(m.group(3)) if m else None
    host = prefix.host or (m.group(1) if m else None)
    at = prefix.at if prefix.at is not None else line.at
    if m is not None and _STARTING.search(m.group(3)) and len(fresh) < 10_000:
        fresh |= dict.fromkeys(((host, "wrong"), (host, "stepped")), at)
    if m is None or found is None:
        return
    event, seconds = found
    if (host, event) in fresh:
        since = fresh.pop((host, event))
        if since is None or at is None or at - since < FIRST_CORRECTION_S:
            return
    base = _clock_event(
        event, m.group(3).strip(), (evidence(source, line),), daemon=m.group(2),
        seconds=abs(seconds) if seconds is not None else None,
    )  # fmt: skip
    events.add(
        ("clock_event", host, event, m.group(2), seconds),
        Record(base.kind, base.fields, base.evidence, at=at, host=host),
    )
