"""Runs takes: lanes side by side, the takes of a lane one after another, so that no tool runs twice at once.

A lane that hangs holds up no other lane. A tool that hung twice, or sits in uninterruptible sleep, is not started
again. No take starts after its deadline.
"""

import os
import threading
import time
from typing import Any, Dict, List, Optional, Sequence

from . import runner
from .takes import FIRST, ONCE, SECOND, Take
from .writer import Buffer, Writer, utc

PATIENCE = 2
"""Time-outs after which a tool is not tried any more."""
PARALLEL = 6
ANSWERS = ("not installed", "gave nothing")
"""Reasons that say what the host has not, rather than what could not be taken."""


class Lane(object):
    """Takes that run one after another: the first snapshot, what is taken once, and in time the second snapshot."""

    def __init__(self, takes: Sequence[Take]) -> None:
        self.first = [t for t in takes if t.phase == FIRST]
        self.once = [t for t in takes if t.phase == ONCE]
        self.second = [t for t in takes if t.phase == SECOND]
        self.first_done = threading.Event()
        self.done = threading.Event()


class Executor(object):
    """Runs takes into a writer, at most `PARALLEL` commands at a time. `end` is on the monotonic clock."""

    def __init__(self, writer: Writer, host: str, total_cap: int, say: Any) -> None:
        self.writer = writer
        self.host = host
        self.total_cap = total_cap
        self.say = say
        self.end = time.monotonic()
        self.interval = 0.0
        self.command_limit = 600.0
        self.stop = [False]
        self.incomplete = 0
        self.lanes: Dict[str, Lane] = {}
        self._threads: List[threading.Thread] = []
        self._hung: Dict[str, int] = {}
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(PARALLEL)

    def start(self, takes: Sequence[Take]) -> None:
        """Start a thread for each lane of these takes; a lane is started once, with all of its takes."""
        grouped: Dict[str, List[Take]] = {}
        for take in takes:
            grouped.setdefault(take.lane, []).append(take)
        for name, group in grouped.items():
            lane = self.lanes[name] = Lane(group)
            thread = threading.Thread(target=self._drive, args=(lane,), name="lane " + name)
            thread.daemon = True
            thread.start()
            self._threads.append(thread)

    def wait(self, names: Sequence[str], limit_s: float, first_only: bool = False) -> None:
        """Wait until these lanes have ended (or have their first snapshot), but no longer than `limit_s`."""
        until = time.monotonic() + limit_s
        for lane in [self.lanes[n] for n in names if n in self.lanes]:
            event = lane.first_done if first_only else lane.done
            while not event.wait(0.1) and time.monotonic() < until and not self.stop[0]:
                pass

    def join(self) -> None:
        """Wait for all lanes; they end by themselves soon after `end`."""
        for thread in self._threads:
            while thread.is_alive():
                thread.join(0.1)

    def interrupt(self) -> None:
        """End what runs; what waits is recorded as not taken."""
        self.stop[0] = True
        runner.RUNNING.end_all()

    def _drive(self, lane: Lane) -> None:
        try:
            for take in lane.first:
                self._run(take, self.end - self.interval - 1)
            lane.first_done.set()
            due = time.monotonic() + self.interval
            once, second = list(lane.once), list(lane.second)
            while once or second:
                if second and (time.monotonic() >= due or not once):
                    while time.monotonic() < due and not self.stop[0]:
                        time.sleep(0.05)
                    for take in second:
                        self._run(take, self.end)
                    second = []
                else:
                    self._run(once.pop(0), self.end - (self.interval / 4 if second else 0))
        finally:
            lane.first_done.set()
            lane.done.set()

    def _run(self, take: Take, deadline: float) -> None:
        while not self._slots.acquire(timeout=0.1):
            if self.stop[0] or time.monotonic() >= deadline:
                self._miss(take, "interrupted before it was taken" if self.stop[0] else "not taken: time was up")
                return
        try:
            self.take(take, deadline)
        except Exception as error:  # one take never ends the collection
            self._miss(take, "internal error: %s: %s" % (type(error).__name__, error))
        finally:
            self._slots.release()

    # --- one take ----------------------------------------------------------------------------------

    def take(self, take: Take, deadline: float) -> None:
        """Run one take and store what it gave, or why it gave nothing."""
        reason = ""
        for argv in [take.argv] + take.otherwise:
            reason = self._refusal(take, argv, deadline)
            if reason:
                continue
            reason = self._attempt(take, argv, deadline)
            if not reason:
                return
            if reason.startswith(("timed out", "interrupted")):
                break
        self._miss(take, reason)

    def _miss(self, take: Take, reason: str) -> None:
        more = {"snapshot": take.snapshot()} if take.snapshot() else {}
        if not reason.startswith(ANSWERS) or "interrupted" in reason:
            with self._lock:
                self.incomplete += 1
        self.writer.miss(take.command, reason, host=self.host, **more)

    def _refusal(self, take: Take, argv: Sequence[str], deadline: float) -> str:
        tool = os.path.basename(argv[0])
        key = take.lane + " " + tool
        if self.stop[0]:
            return "interrupted before it was taken"
        if time.monotonic() >= deadline:
            return "not taken: time was up"
        if self.writer.full:
            return "disk full"
        if self.writer.bytes >= self.total_cap:
            return "not taken: the bundle has reached its size limit"
        if self._hung.get(key, 0) >= PATIENCE:
            return "not tried: %s did not answer before" % tool
        if runner.find_program(argv[0]) is None:
            return "not installed"
        return ""

    def _attempt(self, take: Take, argv: Sequence[str], deadline: float) -> str:
        """Run it; the reason when nothing came of it."""
        key = take.lane + " " + os.path.basename(argv[0])
        out = Buffer()
        limit = max(0.5, min(take.limit, self.command_limit, deadline - time.monotonic()))
        program = runner.find_program(argv[0]) or argv[0]
        outcome = runner.run([program] + list(argv[1:]), out, limit, take.cap, self.stop)
        data, errors = out.getvalue(), outcome.stderr
        if outcome.timed_out and not self.stop[0]:
            with self._lock:
                self._hung[key] = self._hung.get(key, 0) + (PATIENCE if outcome.abandoned else 1)
        if outcome.error:
            return "cannot be started: " + outcome.error
        if not data and outcome.timed_out:
            what = "interrupted" if self.stop[0] else "timed out after %g s" % round(limit, 1)
            return what + (", " + outcome.abandoned if outcome.abandoned else "")
        said = errors.decode("utf-8", "replace").strip()
        if not data.strip():
            if take.quiet or not said:
                return _why_empty(outcome.exit_code, said)
            if take.otherwise and argv is not take.otherwise[-1]:
                return _why_empty(outcome.exit_code, said)
            data = errors
        elif take.otherwise and outcome.exit_code and argv is not take.otherwise[-1]:
            return _why_empty(outcome.exit_code, said)
        entry = self._entry(take, argv, outcome)
        if said and data is not errors and not take.quiet:
            entry["stderr"] = self.writer.clean(errors[:2000]).decode("utf-8", "replace")
        stored = self.writer.put(self.host + "/" + take.file_name(), data, entry, take.binary)
        if outcome.timed_out or stored is None:
            with self._lock:
                self.incomplete += 1
        self.say("%s (%.1f s)" % (take.command[:100], outcome.duration))
        return ""

    def _entry(self, take: Take, argv: Sequence[str], outcome: "runner.Outcome") -> Dict[str, Any]:
        command = take.command if argv is take.argv else " ".join(argv)
        entry = {
            "host": self.host,
            "command": self.writer.clean(command.encode("utf-8", "surrogateescape")).decode("utf-8", "replace"),
            "start": utc(outcome.start),
            "duration_s": round(outcome.duration, 3),
            "exit_code": outcome.exit_code,
        }  # type: Dict[str, Any]
        if take.snapshot() is not None:
            entry["snapshot"] = take.snapshot()
        if outcome.truncated:
            entry["truncated"] = True
        if outcome.timed_out:
            entry["stopped"] = "interrupted" if self.stop[0] else "timed out"
        if outcome.abandoned:
            entry["stopped"] = outcome.abandoned
        entry.update(take.extra)
        return entry


def _why_empty(code: Optional[int], said: str) -> str:
    if "ermission denied" in said or "peration not permitted" in said:
        return "no permission: " + said.splitlines()[0][:200]
    if said:
        return "gave nothing: " + said.splitlines()[0][:200]
    return "gave nothing" + (" (exit code %d)" % code if code else "")
