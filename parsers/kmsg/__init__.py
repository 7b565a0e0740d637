"""Kernel log: dmesg, journalctl -k, /dev/kmsg and /var/log/messages.

One `kernel_event` per distinct incident (event, device, code, process …): the first line tells the fields, later ones
raise the count and the last time. Lines that merely continue an incident (call traces, RPC histories, AER details)
are not counted. A log without any such message yields `covered`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from diagnose.model import Block, Digest, Fields, Line, Record, Scalar, Source
from diagnose.parsing import evidence

from ._events import GATE, MAX_TEXT, Event, recognise
from ._prefix import Head, split

KIND = "kmsg"
TOPICS = ("kernel_log",)

MAX_PROCESSES = 32
"""Crashes of one library told apart by process id; further ones are counted together."""

_STAMPED = re.compile(
    r"^(?:<\d{1,3}>)?(?:[A-Za-z][\w.-]{0,62}: )?\[\s{0,8}\d{1,9}\.\d{6}\] ?\S"
    r"|^\d{1,3},\d{1,20},\d{1,20},[-c][^;\n]{0,120};"
    r"|^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4}\] (?!\[)\S"
    r"|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d \S"
    r"|^(?:kern|user|daemon)\s{0,4}:[a-z]{3,7}\s{0,4}: \S"
    r"|^[^\n]{10,100} kernel: ",
    re.M,
)
_SURE = re.compile(
    r"NVRM: Xid \(|SXid \(PCI|oom-kill:constraint=|segfault at [0-9a-f]{1,16} ip |PCIe Bus Error: severity="
    r"|available PCIe bandwidth, limited by|Marking clocksource '|out of memory: Killed process \d"
    r"|nv_get_p2p_free_callback:|detected NVSwitch (?:non-)?fatal error|: unknown parameter '[^'\n]{1,80}' ignored"
)
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
_END = 1 << 16
"""Characters at the end of a block among which its last stamp is looked for."""
_OFF_BUS = re.compile(r"NVRM: The NVIDIA GPU ([0-9A-Fa-f:.]{7,20})")


def sniff(head: str, name: str) -> float:
    """Sure with a kernel message of a known kind or several kernel stamps."""
    stamped = 0
    for _ in _STAMPED.finditer(head):
        stamped += 1
        if stamped == 3:
            return 0.9
    if _SURE.search(head):
        return 0.9 if stamped else 0.6
    return 0.6 if stamped and ("dmesg" in name or "kern" in name or "kmsg" in name) else 0.0


@dataclass(slots=True)
class _Incident:
    fields: dict[str, object]
    head: Head
    first: Line
    last: Line
    last_at: float | None
    strong: int = 0
    weak: int = 0


class _Log:
    """Gathers the incidents of one log, line by line."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.incidents: dict[tuple[object, ...], _Incident] = {}
        self.killed: dict[int, tuple[object, ...]] = {}
        self.crashes: dict[tuple[object, ...], set[object]] = {}
        self.old_cgroup: str | None = None
        self.chosen: Event | None = None
        """The OOM kill that was told last."""
        self.off_bus: str | None = None
        """The GPU of which a message in several lines speaks."""
        self.apei_severity: str | None = None
        self.clocks: dict[str | None, tuple[Event, Head, Line]] = {}
        """The clock source that each host switched to last."""
        self.read = 0
        self.ended = ""
        """The last line with a stamp."""

    def line(self, line: Line, before: str) -> None:
        """Take in one line that passed the gate; `before`, the line before it, may hold its stamp where mail wraps."""
        head = split(line.text, self.source.taken_at)
        if head.at is None and line.at is not None:
            head = replace(head, at=line.at)
        if head.at is None and before.endswith("]"):
            stamp = split(before, self.source.taken_at)
            head = head if stamp.message else replace(head, at=stamp.at)
        event = recognise(head.message)
        if event is None:
            self._continuation(head, line)
            return
        if event.key[0] == "clocksource_slow":
            self.clocks[head.host] = (event, head, line)
            return
        repeated = _REPEATED.search(head.message)
        if repeated:
            event.adds = int(repeated.group(1))
        kind = event.key[0]
        if kind == "oom_kill" and self._same_kill(event, line):
            return
        if kind == "xid" and "device" not in event.fields and self.off_bus:
            event.fields["device"] = self.off_bus
            event.key = ("xid", self.off_bus, *event.key[2:])
        if kind == "segfault":
            self._limit_processes(event)
        self._note(event, head, line)

    def _note(self, event: Event, head: Head, line: Line) -> None:
        key = (head.host, *event.key)
        seen = self.incidents.get(key)
        if seen is None:
            if len(self.incidents) >= 20_000:
                return
            seen = self.incidents[key] = _Incident(event.fields, head, line, line, head.at)
        elif not event.weak and not seen.strong:
            seen.fields, seen.first = event.fields, line
        seen.last = line
        if head.at is not None:
            seen.last_at = max(head.at, seen.last_at or head.at)
        if event.weak:
            seen.weak += event.adds
        else:
            seen.strong += event.adds

    def _same_kill(self, event: Event, line: Line) -> bool:
        """An OOM kill is told twice: constraint and cgroup first, then the victim."""
        pid = cast(int, event.fields["pid"])
        if "constraint" not in event.fields and self.chosen is not None:
            self.chosen.fields |= {name: event.fields[name] for name in ("pid", "process")}
            self.chosen = None
            return True
        self.chosen = event
        if not event.weak:
            self.killed[pid], self.old_cgroup = event.key, None
            return False
        if self.killed.pop(pid, None) is not None:
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

    def _continuation(self, head: Head, line: Line) -> None:
        message = head.message
        bit = _ERROR_BIT.search(message)
        if bit:
            self._name_error(head.host, bit["device"].lower(), bit["name"])
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
            self._note(Event(("aer", device, self.apei_severity), fields), head, line)
            self.apei_severity = None
            return
        m = _OFF_BUS.search(message)
        if m:
            self.off_bus = m.group(1).lower().removesuffix(".0")
            return
        m = _OLD_OOM.search(message)
        if m:
            self.old_cgroup = m.group(1) or self.old_cgroup or m.group(2)

    def _name_error(self, host: str | None, device: str, name: str) -> None:
        for severity in ("corrected", "uncorrected", "fatal"):
            seen = self.incidents.get((host, "aer", device, severity))
            if seen is None:
                continue
            text = str(seen.fields["text"])
            if f" {name}" not in text and len(text) < MAX_TEXT:
                seen.fields["text"] = f"{text} {name}"
            return

    def digest(self) -> Digest:
        """All incidents, in the order of their first line."""
        digest = Digest("kernel_event")
        for key, seen in self.incidents.items():
            grounds = [evidence(self.source, seen.first)]
            if seen.last.number != seen.first.number:
                grounds.append(evidence(self.source, seen.last))
            record = Record(
                "kernel_event", cast(Fields, seen.fields), tuple(grounds), at=seen.head.at, host=seen.head.host,
                count=seen.strong or seen.weak or 1, last_at=seen.last_at,
            )  # fmt: skip
            digest.add(("kernel_event", *cast(tuple[Scalar | None, ...], key)), record)
        return digest

    def close(self) -> None:
        """Of the clock sources that a kernel switched to only the last one counts: every boot passes by slow ones."""
        for event, head, line in self.clocks.values():
            if event.fields["device"] in _SLOW_CLOCKS:
                self._note(event, head, line)

    def records(self) -> Iterator[Record | Digest]:
        """The digest, and `covered` when the log goes on after its incidents: its end tells their age."""
        self.close()
        if self.incidents:
            yield self.digest()
        last = split(self.ended, self.source.taken_at).at
        told = [i.last_at for i in self.incidents.values() if i.last_at is not None]
        if (last is not None and told and last > max(told)) or (self.read and not self.incidents):
            yield Record("covered", {"topic": "kernel_log"}, at=last)


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """The incidents of a kernel log as one digest."""
    log = _Log(source)
    before = ""
    for line in lines:
        if GATE.search(line.text):
            log.line(line, before)
        before = line.text
        if _STAMPED.match(line.text):
            log.read, log.ended = 1, line.text
    yield from log.records()


def scan(blocks: Iterable[Block], source: Source) -> Iterator[Record | Digest]:
    """The same for a big log, read in blocks: only the lines that hold a literal of interest are looked at."""
    log = _Log(source)
    for block in blocks:
        text, number, counted, done = block.text, block.first, 0, 0
        if not log.read and _STAMPED.search(text):
            log.read = 1
        log.ended = next((line for line in reversed(text[-_END:].split("\n")) if _STAMPED.match(line)), log.ended)
        for hit in GATE.finditer(text):
            if hit.start() < done:
                continue
            start = text.rfind("\n", 0, hit.start()) + 1
            end = text.find("\n", hit.end())
            done = len(text) if end < 0 else end
            number += text.count("\n", counted, start)
            counted = start
            log.line(
                Line(number, text[start:done]), text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
            )
    yield from log.records()
