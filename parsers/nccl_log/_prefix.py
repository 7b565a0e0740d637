"""Who said it: the `host:pid:tid [dev]` in front of every NCCL message, and what launchers put before that.

Format: NCCL 2.3–2.32 and RCCL. `[dev]` is the CUDA device of the calling thread, never a rank, and is garbage in
versions before 2.23 when the device could not be read; it is missing on CALL lines.
"""

from __future__ import annotations

import re

from diagnose.parsing import parse_time, unprefix

HEAD = re.compile(
    r"(?:(?<![\w.%/-])(?<![+-]\d\d:)|(?<=[+-]\d\d:\d\d))"
    r"([A-Za-z0-9][\w.%/-]{0,254}):(\d{1,10}):(\d{1,10})(?: \[(-?\d{1,20})\])?(?= )",
    re.ASCII,
)
"""The signature; a console may glue a time with its zone in front (`-07:00node01:79:79 [0]`)."""
SHORT_HEAD = re.compile(r"(?<![\w.%/-])([A-Za-z0-9][\w.%/-]{0,254}):(\d{1,10}) $", re.ASCII)
"""`host:pid ` of diagnostics lines (2.31+)."""


def last_head(text: str) -> re.Match[str] | None:
    """The signature nearest to the end of `text`."""
    found = None
    for head in HEAD.finditer(text):
        found = head
    return found


_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
_TASK = re.compile(r"(?:^|\s)\d{1,5}: $")
MAX_DEVICE = 63
MAX_CACHED = 50_000
MAX_HINT_TRIES = 20


class Process:
    """One (host, pid) and what it told about itself."""

    __slots__ = ("comms", "heads", "hints", "host", "kept", "number", "pid", "tasks")

    def __init__(self, host: str | None, pid: int | None, number: int) -> None:
        self.host = host
        self.pid = pid
        self.number = number
        self.hints: set[int] = set()
        self.tasks: set[int] = set()
        self.comms: list = []
        self.heads: dict[int, Head] = {}
        self.kept = False


class Head:
    """One thread of a process, as it signs its lines."""

    __slots__ = ("chain", "current", "dev", "hint_tries", "host", "pid", "process", "retries", "tid")

    def __init__(self, process: Process, tid: int | None, dev: int | None) -> None:
        self.tid = tid
        self.dev = dev
        self.current: object = self
        self.chain: int | None = None
        self.retries: dict[str, list] = {}
        self.hint_tries = 0
        self.belong(process)

    def belong(self, process: Process) -> None:
        """The process that the thread is one of."""
        self.process = process
        self.host = process.host
        self.pid = process.pid


class Heads:
    """All threads and processes seen, found again by the raw text in front of a message."""

    def __init__(self) -> None:
        self.nobody = Head(Process(None, None, 0), None, None)
        self.processes: dict[tuple[str, int], Process] = {}
        self.by_text: dict[str, Head] = {}
        self._by_identity: dict[tuple[str, int, int, int | None], Head] = {}

    def find(self, raw: str) -> Head:
        """The thread that signs with `raw` (the text from the line's start to `NCCL `)."""
        head = self.by_text.get(raw)
        return head if head is not None else self._read(raw)

    def _read(self, raw: str) -> Head:
        last = last_head(raw[-700:])
        if last is None or (last.group(1).isdigit() and len(last.group(1)) < 3 and int(last.group(2)) < 60):
            return self.nobody
        base = max(0, len(raw) - 700)
        signed = raw[base + last.start() :]
        head = self.by_text.get(signed)
        if head is None:
            dev = last.group(4)
            head = self.of(
                last.group(1),
                int(last.group(2)),
                int(last.group(3)),
                int(dev) if dev is not None and len(dev) < 4 and 0 <= int(dev) <= MAX_DEVICE else None,
            )
            if len(self.by_text) < MAX_CACHED:
                self.by_text[signed] = head
        before = raw[: base + last.start()]
        if before and head.hint_tries < MAX_HINT_TRIES:
            self._hint(raw, len(before), head)
        elif len(self.by_text) < MAX_CACHED and not before:
            self.by_text[raw] = head
        return head

    def of(self, host: str, pid: int, tid: int, dev: int | None) -> Head:
        """The thread of that identity, made when new."""
        key = (host, pid, tid, dev)
        head = self._by_identity.get(key)
        if head is None:
            process = self.process(host, pid)
            head = Head(process, tid, dev)
            twin = process.heads.get(tid)
            if twin is not None and twin.current is not twin:
                head.current = twin.current
            process.heads[tid] = head
            if len(self._by_identity) < 4 * MAX_CACHED:
                self._by_identity[key] = head
        return head

    def process(self, host: str, pid: int) -> Process:
        """The process of that identity, made when new."""
        process = self.processes.get((host, pid))
        if process is None:
            process = Process(host, pid, len(self.processes) + 1)
            if len(self.processes) < MAX_CACHED:
                self.processes[(host, pid)] = process
        return process

    def short(self, raw: str) -> Head:
        """The process that signs a diagnostics line (`host:pid `)."""
        found = SHORT_HEAD.search(raw[-300:])
        if found is None:
            return self.nobody
        process = self.process(found.group(1), int(found.group(2)))
        return process.heads.setdefault(-1, Head(process, None, None))

    def _hint(self, raw: str, before: int, head: Head) -> None:
        head.hint_tries += 1
        told = unprefix(raw)
        if told.rank is None or told.local_rank is not None or told.offset > before:
            return
        (head.process.tasks if _TASK.search(raw[: told.offset]) else head.process.hints).add(told.rank)

    def by_pid(self, pid: int) -> Process | None:
        """The only process with that pid, or None."""
        found = [p for (_, number), p in self.processes.items() if number == pid]
        return found[0] if len(found) == 1 else None


def time_of(raw: str) -> float | None:
    """Time in the text before a message (epoch seconds; without a zone read as UTC), or None."""
    found = _STAMP.findall(raw[-700:])
    return parse_time(found[-1])[0] if found else None
