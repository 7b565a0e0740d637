"""Gathers the incidents of the kernel logs in one text: a log per host, and per task of a launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from diagnose.model import Digest, Fields, Line, Record, Scalar, Source
from diagnose.parsing import evidence

from ._boot import RESTART_S, Starts, address, turned
from ._events import MAX_TEXT, Event, recognise
from ._prefix import Head, spliced, split

MAX_PROCESSES = 32
"""Crashes of one library told apart by process id; further ones are counted together."""
MAX_INCIDENTS = 20_000
MAX_LOGS = 4_096
APART_S = 86_400.0
"""Messages of one kind and device that are further apart are two incidents: an old one says nothing of today."""
_REBOOT_S = 60.0
"""Stamps that count from the boot and fall by more than that tell of a reboot (seconds; chosen by us: stamps of several
CPUs are out of order by less)."""

DRIFT_S = 3_600.0
"""A stamp since boot drifts from the wall clock by less (seconds; chosen by us: 100 ppm for a year). What was seen
later was printed late: a dump of the whole buffer."""

_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_REPEATED = re.compile(r"message repeated (\d{1,9}) times: \[")
_ERROR_BIT = re.compile(
    r"(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):\s{1,8}\[ ?\d{1,2}\] (?P<name>\w{3,20})"
)
_APEI_SEVERITY = re.compile(r"Hardware Error\]:\s{0,4}event severity: (corrected|recoverable|fatal|info)")
_APEI_DEVICE = re.compile(r"Hardware Error\]:\s{1,8}device_id: ([0-9a-fA-F:.]{7,16})")
_OLD_OOM = re.compile(
    r"Task in \S{1,400} killed as a result of limit of (\S{1,400})|^Memory cgroup stats for (/\S{1,400}?):(?: |$)"
)
_OFF_BUS = re.compile(r"NVRM: The NVIDIA GPU ([0-9A-Fa-f:.]{7,20})")


@dataclass(slots=True)
class Moment:
    """When a line was written: a date, or a boot, the seconds since then, and when somebody saw the line."""

    at: float | None
    boot: int
    uptime: float | None
    shipped: float | None

    def after(self, other: Moment) -> float:
        """Seconds from `other` to this; 0 when the stamps do not tell."""
        if self.at is not None and other.at is not None:
            return self.at - other.at
        if self.uptime is None or other.uptime is None:
            return 0.0
        if self.boot == other.boot:
            return self.uptime - other.uptime
        return self.shipped - other.shipped if self.shipped is not None and other.shipped is not None else self.uptime


@dataclass(slots=True)
class _Incident:
    fields: dict[str, object]
    host: str | None
    first: Line
    last: Line
    began: Moment
    ended: Moment
    strong: int = 0
    weak: int = 0


@dataclass(slots=True)
class _Clock:
    """Turns seconds since boot into dates, as far as something tells when a boot was."""

    boot: int = 0
    uptime: float | None = None
    began: dict[int, float] = field(default_factory=dict[int, float])
    """Epoch seconds before which each boot was: a line is shipped after it was written."""

    def moment(self, head: Head) -> Moment:
        if head.uptime is not None:
            if self.uptime is not None and head.uptime < self.uptime - _REBOOT_S:
                self.boot += 1
            self.uptime = head.uptime
            if head.shipped is not None:
                began = head.shipped - head.uptime
                self.began[self.boot] = min(began, self.began.get(self.boot, began))
        return Moment(head.at, self.boot, head.uptime, head.shipped)

    def date(self, moment: Moment) -> float | None:
        """Epoch seconds, or None when only seconds since an unknown boot are known."""
        if moment.at is not None or moment.uptime is None:
            return moment.at
        began = self.began.get(moment.boot)
        if began is None:
            return None
        written = began + moment.uptime
        if moment.shipped is not None and moment.shipped - written <= DRIFT_S:
            return moment.shipped
        return written


class Log:
    """One host's log, line by line."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.incidents: dict[tuple[object, ...], _Incident] = {}
        self.episodes: dict[tuple[object, ...], int] = {}
        """How often a kind of incident came again after more than a day."""
        self.clock = _Clock()
        self.killed: set[int] = set()
        self.crashes: dict[tuple[object, ...], set[object]] = {}
        self.old_cgroup: str | None = None
        self.chosen: Event | None = None
        """The OOM kill that was told last."""
        self.off_bus: str | None = None
        """The GPU of which a message in several lines speaks."""
        self.apei_severity: str | None = None
        self.switched: tuple[Event, str | None, Moment, Line] | None = None
        """The clock source that the kernel switched to last."""
        self.starts = Starts()
        self.turns: dict[str, tuple[int, Moment]] = {}
        """Line and time at which a host (empty) or the driver of a NIC last stopped or started, by PCI address."""
        self.end: tuple[Moment, str | None] | None = None
        """When the last line with a stamp was written, and its host."""

    def take(self, head: Head, line: Line) -> None:
        """Take in one line that may tell something."""
        now = self.clock.moment(head)
        event = recognise(head.message)
        if event is None:
            self._continuation(head, now, line)
            return
        if event.key[0] == "clocksource_slow":
            self.switched = (event, head.host, now, line)
            return
        repeated = _REPEATED.search(head.message)
        if repeated:
            event.adds = int(repeated.group(1))
        kind = event.key[0]
        if kind == "oom_kill" and self._same_kill(event):
            return
        if kind == "xid" and "device" not in event.fields and self.off_bus:
            event.fields["device"] = self.off_bus
            event.key = ("xid", self.off_bus, *event.key[2:])
        if kind == "segfault":
            self._limit_processes(event)
        self._note(event, head.host, now, line)

    def ends(self, head: Head) -> None:
        """Note the last line with a stamp."""
        self.end = (self.clock.moment(head), head.host)

    def _note(self, event: Event, host: str | None, now: Moment, line: Line) -> None:
        episode = self.episodes.get(event.key, 0)
        seen = self.incidents.get((*event.key, episode))
        if seen is not None and now.after(seen.ended) > APART_S:
            self.episodes[event.key] = episode = episode + 1
            seen = None
        if seen is None:
            if len(self.incidents) >= MAX_INCIDENTS:
                return
            seen = self.incidents[*event.key, episode] = _Incident(event.fields, host, line, line, now, now)
        elif not event.weak and not seen.strong:
            seen.fields, seen.first = event.fields, line
        if "driver" in event.fields:
            seen.fields.setdefault("driver", event.fields["driver"])
        seen.last = line
        if now.after(seen.ended) > 0 or (seen.ended.at is None and now.at is not None):
            seen.ended = now
        if event.weak:
            seen.weak += event.adds
        else:
            seen.strong += event.adds

    def _same_kill(self, event: Event) -> bool:
        """An OOM kill is told twice: constraint and cgroup first, then the victim."""
        pid = cast(int, event.fields["pid"])
        if "constraint" not in event.fields and self.chosen is not None:
            self.chosen.fields |= {name: event.fields[name] for name in ("pid", "process")}
            self.chosen = None
            return True
        self.chosen = event
        if not event.weak:
            self.killed.add(pid)
            self.old_cgroup = None
            return False
        if pid in self.killed:
            self.killed.remove(pid)
            return True
        event.weak = False
        if self.old_cgroup and event.fields.get("constraint") == "memcg":
            event.fields["cgroup"] = self.old_cgroup
            event.key = ("oom_kill", self.old_cgroup, *event.key[2:])
        self.old_cgroup = None
        return False

    def _limit_processes(self, event: Event) -> None:
        name, process, pid, library = event.key
        pids = self.crashes.setdefault((process, library), set())
        if pid not in pids and len(pids) >= MAX_PROCESSES:
            event.key = (name, process, None, library)
            del event.fields["pid"]
        else:
            pids.add(pid)

    def _continuation(self, head: Head, now: Moment, line: Line) -> None:
        message = head.message
        self.starts.take(message, now.at, now.uptime)
        device = turned(message)
        if device is not None and len(self.turns) < MAX_INCIDENTS:
            self.turns[device] = (line.number, now)
        bit = _ERROR_BIT.search(message)
        if bit:
            self._name_error(bit["device"].lower(), bit["name"])
            return
        m = _APEI_SEVERITY.search(message)
        if m:
            self.apei_severity = {"corrected": "corrected", "fatal": "fatal"}.get(m.group(1), "uncorrected")
            return
        m = _APEI_DEVICE.search(message)
        if m and self.apei_severity:
            device = m.group(1).lower()
            fields: dict[str, object] = {
                "event": "aer", "device": device, "severity": self.apei_severity, "text": message.strip()[:MAX_TEXT],
            }  # fmt: skip
            self._note(Event(("aer", device, self.apei_severity), fields), head.host, now, line)
            self.apei_severity = None
            return
        m = _OFF_BUS.search(message)
        if m:
            self.off_bus = m.group(1).lower().removesuffix(".0")
            return
        m = _OLD_OOM.search(message)
        if m:
            self.old_cgroup = m.group(1) or self.old_cgroup or m.group(2)

    def _name_error(self, device: str, name: str) -> None:
        for severity in ("corrected", "uncorrected", "fatal"):
            key = ("aer", device, severity)
            seen = self.incidents.get((*key, self.episodes.get(key, 0)))
            if seen is None:
                continue
            text = str(seen.fields["text"])
            if f" {name}" not in text and len(text) < MAX_TEXT:
                seen.fields["text"] = f"{text} {name}"
            return

    def close(self) -> None:
        """Of the clock sources that a kernel switched to only the last one counts: every boot passes by slow ones."""
        if self.switched is not None:
            event, host, now, line = self.switched
            if event.fields["device"] in _SLOW_CLOCKS:
                self._note(event, host, now, line)
        self._settle_links()

    def _settle_links(self) -> None:
        """Of links that went down: whether they came up again, or were not up yet when their driver started.

        Of a driver that did not take a NIC: whether it did later.
        """
        ups: dict[str, tuple[int, int]] = {}
        for key, seen in self.incidents.items():
            if key[0] == "link_up":
                device = str(seen.fields.get("device", ""))
                first, last = ups.get(device, (seen.first.number, 0))
                ups[device] = min(first, seen.first.number), max(last, seen.last.number)
                at = f"at {address(str(seen.fields['text']))}"
                ups[at] = 0, max(seen.last.number, ups.get(at, (0, 0))[1])
        for key, seen in self.incidents.items():
            device = str(seen.fields.get("device", ""))
            if key[0] == "nic_probe_failed":
                taken = max(self.turns.get(device, (0,))[0], ups.get(f"at {device}", (0, 0))[1])
                if taken > seen.last.number:
                    seen.fields["recovered"] = True
                continue
            if key[0] != "link_down":
                continue
            up = ups.get(device)
            if (up is not None and up[1] > seen.last.number) or self._restarted(seen):
                seen.fields["recovered"] = True
            elif (up is None or up[0] > seen.last.number) and self.starts.near(
                str(seen.fields["text"]), seen.ended.at, seen.ended.uptime
            ):
                seen.fields["at_start"] = True

    def _restarted(self, seen: _Incident) -> bool:
        """Whether its host or driver stopped or started soon after a link went down."""
        turns = [self.turns[d] for d in ("", address(str(seen.fields["text"]))) if d in self.turns]
        return any(n > seen.last.number and moment.after(seen.ended) < RESTART_S for n, moment in turns)

    def records(self) -> Iterator[Record | Digest]:
        """The incidents, and `covered` when the log goes on after them: its end tells their age."""
        self.close()
        if self.incidents:
            digest = Digest("kernel_event")
            for key, seen in self.incidents.items():
                digest.add(("kernel_event", seen.host, *cast(tuple[Scalar | None, ...], key)), self._record(seen))
            yield digest
        if self.end is None:
            return
        moment, host = self.end
        date = self._date(moment)
        later = [moment.after(seen.ended) > 0 for seen in self.incidents.values()]
        if not later or (date is not None and all(later)):
            yield Record("covered", {"topic": "kernel_log"}, at=date, host=host)

    def _record(self, seen: _Incident) -> Record:
        grounds = [evidence(self.source, seen.first)]
        if seen.last.number != seen.first.number:
            grounds.append(evidence(self.source, seen.last))
        at = self._date(seen.began)
        fields = dict(seen.fields)
        if at is None and seen.ended.uptime is not None and self.end is not None:
            fields["before_last_s"] = round(max(0.0, self.end[0].after(seen.ended)), 6)
        return Record(
            "kernel_event", cast(Fields, fields), tuple(grounds), at=at, host=seen.host,
            count=seen.strong or seen.weak or 1, last_at=self._date(seen.ended),
        )  # fmt: skip

    def _date(self, moment: Moment) -> float | None:
        """Epoch seconds. The last line was written before the capture, so the others were that much earlier."""
        date = self.clock.date(moment)
        if date is not None or moment.uptime is None or self.source.taken_at is None or self.end is None:
            return date
        return self.source.taken_at - max(0.0, self.end[0].after(moment))


class Logs:
    """All logs of one text, told apart by host and task."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.logs: dict[tuple[str | None, int | None], Log] = {}

    def take(self, line: Line, before: str) -> None:
        """Take in a line; `before`, the line before it, may hold its stamp where mail wraps."""
        for text in spliced(line.text):
            self._take(split(text, self.source.taken_at), line._replace(text=text), before)

    def _take(self, head: Head, line: Line, before: str) -> None:
        if head.at is None and head.uptime is None and before.endswith("]"):
            stamp = split(before, self.source.taken_at)
            if not stamp.message:
                host = head.host or stamp.host
                head = Head(head.message, stamp.at, host, stamp.uptime, stamp.shipped, head.task)
        if head.at is None and line.at is not None:
            head = replace(head, shipped=line.at) if head.uptime is not None else replace(head, at=line.at)
        self._of(head).take(head, line)

    def ends(self, head: Head) -> None:
        """Note a line with a stamp, which comes after all those taken so far."""
        self._of(head).ends(head)

    def _of(self, head: Head) -> Log:
        key = (head.host, head.task)
        if key not in self.logs and len(self.logs) >= MAX_LOGS:
            key = (None, None)
        return self.logs.setdefault(key, Log(self.source))

    def records(self) -> Iterator[Record | Digest]:
        """The records of all of them, in the order in which they came up."""
        for log in self.logs.values():
            yield from log.records()
