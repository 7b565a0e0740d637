"""Process exits that the launcher, the interpreter or a data loader reports: one record per process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from diagnose.model import Evidence, Record

from ._head import Segment, Speaker
from ._torchrun import Exit, exit_fields, report, short_line, torn_report
from ._window import Window

_MAX_KEPT = 20_000

_WORKER = re.compile(
    r"DataLoader worker \(pid (?P<pid>\d{1,9})\) is killed by signal: (?P<word>[A-Z][a-z]{1,20}(?: [a-z]{1,20})?)"
)
_FATAL = re.compile(r"Fatal Python error: (?P<word>Segmentation fault|Bus error|Aborted|Floating point exception)")
_SIGNALS = {
    "Bus error": "SIGBUS", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Terminated": "SIGTERM",
    "Floating point exception": "SIGFPE", "Killed": "SIGKILL",
}  # fmt: skip

_DEEPSPEED = re.compile(r"sigkill_handler\].{0,4000}?exits with return code = (?P<code>-?\d{1,3})")
_RAY = re.compile(r"Worker exit type: (?P<type>[A-Z_]{4,40})")
_RAY_REASONS = {"SYSTEM_ERROR": "crashed", "USER_ERROR": "error", "NODE_OUT_OF_MEMORY": "killed"}
_RAY_WORKER = re.compile(r"\b(?P<key>pid|ip|Worker PID|Worker IP address): (?P<value>[\w.:]{1,60}?)\.?(?=\s|$)")
_RAY_LINES = 6


class Exits:
    """Collects exits; the failure report of torchrun replaces its short line about the same process."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], tuple[Exit, Evidence, Speaker]] = {}
        self._ranks: dict[int, int] = {}

    def rank_at(self, line: int) -> int | None:
        """Rank of the failure report that this line (number) belongs to."""
        return self._ranks.get(line)

    def launcher(self, window: Window, index: int, segment: Segment) -> list[int]:
        """Read a launcher's line or report; the indices of the lines that it took."""
        short = short_line(segment.text, index)
        if short is not None:
            self.add(short, window.evidence(index), segment.speaker)
            return []
        used: list[int] = []
        if "exitcode" in segment.text:
            exits = torn_report(window, index)
        else:
            exits, used = report(window, index, segment)
        for found in exits:
            if found.rank is not None:
                self._ranks.update(
                    dict.fromkeys(range(window.first + found.first, window.first + found.last + 1), found.rank)
                )
            self.add(found, window.evidence(found.first, found.last), segment.speaker)
        return used

    def fatal(self, window: Window, index: int, segment: Segment) -> None:
        """`Fatal Python error: Segmentation fault` (faulthandler)."""
        m = _FATAL.search(segment.text)
        if m:
            self._signalled(m, None, window.evidence(index), segment.speaker, segment.speaker.rank)

    def worker(self, message: str, evidence: Evidence, speaker: Speaker, rank: int | None) -> None:
        """`DataLoader worker (pid 4242) is killed by signal: Bus error.`"""
        m = _WORKER.search(message)
        if m:
            self._signalled(m, int(m["pid"]), evidence, speaker, rank)

    def deepspeed(self, window: Window, index: int, segment: Segment) -> None:
        """`[launch.py:322:sigkill_handler] ['python', …] exits with return code = -9` (deepspeed).

        The command is the last one started, whichever process ended: its local rank is not read.
        """
        m = _DEEPSPEED.search(window.lines[index])
        if m and int(m["code"]):
            fields = exit_fields(int(m["code"])) | {"reporter": "deepspeed"}
            fields["text"] = f"exits with return code = {m['code']}"
            self.add(Exit(fields, index, index), window.evidence(index), segment.speaker)

    def ray(self, window: Window, index: int, segment: Segment) -> None:
        """`Worker exit type: SYSTEM_ERROR`, with the worker's pid and address before it or in the line."""
        m = _RAY.search(segment.text)
        reason = _RAY_REASONS.get(m["type"]) if m else None
        if m is None or reason is None:
            return
        worker: dict[str, str] = {}
        for line in window.lines[max(0, index - _RAY_LINES) : index + 1]:
            worker |= {k["key"].rpartition(" ")[2].lower(): k["value"] for k in _RAY_WORKER.finditer(line)}
        pid, address = worker.get("pid", ""), worker.get("ip") or worker.get("address")
        text = segment.text[m.start() :].partition(" There are some potential")[0].strip()[:240].rstrip(".")
        fields: dict[str, Any] = {"reason": reason, "reporter": "ray"}
        fields["pid"] = int(pid) if pid.isdigit() and len(pid) < 10 else None
        fields["text"] = f"worker on {address}: {text}" if address else text
        self.add(Exit(fields, index, index), window.evidence(index), segment.speaker)

    def _signalled(
        self, m: re.Match[str], pid: int | None, evidence: Evidence, speaker: Speaker, rank: int | None
    ) -> None:
        signal = _SIGNALS.get(m["word"])
        if signal is None:
            return
        fields = exit_fields(None, signal) | {"pid": pid, "reporter": "python", "text": m.group()}
        self.add(Exit(fields, 0, 0, rank), evidence, speaker)

    def add(self, found: Exit | None, evidence: Evidence, speaker: Speaker) -> None:
        """Keep an exit, unless the process is known already and better."""
        if found is None:
            return
        fields = found.fields
        process = (fields.get("pid"), fields.get("local_rank"), fields.get("exit_code"), fields.get("reporter"))
        if fields.get("pid") is None:
            process = (*process, found.rank, fields.get("signal"))
        seen = self._seen.get(process)
        if seen is not None and (seen[0].rank is not None or found.rank is None):
            if fields.get("first_failure"):
                seen[0].fields["first_failure"] = True
        elif len(self._seen) < _MAX_KEPT:
            self._seen[process] = (found, evidence, speaker)

    def records(self) -> Iterator[tuple[tuple[Any, ...], Record]]:
        """(key, record) of each process."""
        for key, (found, evidence, speaker) in self._seen.items():
            fields = {name: value for name, value in found.fields.items() if value is not None}
            at = found.at if found.at is not None else speaker.at
            yield key, Record("process_exit", fields, (evidence,), at, found.host or speaker.host, found.rank)
