"""Slurm 20.x to 25.x: slurmstepd and srun messages, `sacct` tables (pipes or columns), `scontrol show job`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.model import Line
from diagnose.parsing import parse_time

from ._seen import SIGNALS, WORDS, Seen, exited, short

GATES = (
    "slurmstepd",
    "srun: error",
    "oom_kill",
    "oom-kill",
    "JobState=",
    "JobID",
    "exceeded memory limit",
    "Node failure on",
    "srun: Terminating",
    "Terminating StepId=",
    "srun: Force Terminated",
    "srun: forcing job termination",
    "srun: sending Ctrl-C",
    "srun: Job step aborted",
    ": exited abnormally",
    "SIGTERM death signal",
    "failed (exitcode",
)

_CANCELLED = re.compile(
    r"\*\*\* (?:STEP|JOB) (?P<job>[\w.+]{1,40}) ON (?P<host>[\w.-]{1,64}) CANCELLED AT (?P<at>[\dT:-]{19})"
    r"(?: DUE TO (?P<why>[A-Z ,]{3,80}))?"
)
_NOT_ENDING = re.compile(
    r"\*\*\* (?:STEP|JOB) (?P<job>[\w.+]{1,40}) STEPD TERMINATED ON (?P<host>[\w.-]{1,64}) AT (?P<at>[\dT:-]{19})"
)
_TASKS = re.compile(
    r"srun: error: (?P<hosts>\S{1,2000}): tasks? (?P<tasks>[\d,-]{1,2000}): "
    r"(?:Exited with exit code (?P<code>\d{1,3})|(?P<word>[A-Z][A-Za-z ]{2,40}?)(?: \(core dumped\))?$)"
)
_ABNORMAL = re.compile(
    r"srun: (?:step:|StepId=|Job step )\S{1,40} (?:.{1,2000}; )?tasks? (?P<tasks>[\d,-]{1,2000}): exited abnormally"
)
_FROM_OUTSIDE = ("srun: forcing job termination", "srun: sending Ctrl-C", "srun: Force Terminated")
_ENDING = ("srun: Terminating", "Terminating StepId=")
_ABORTED = "srun: Job step aborted"
"""srun's words for the end of a step: what ends later was ended, whoever began."""
_OOM = re.compile(r"Detected \d{1,6} oom[_-]kill event(?:\(s\)|s)? in (?:StepId=|step )(?P<job>[\w.+]{1,40})")
_MEMORY = re.compile(
    r"(?:Job|Step|StepId=)\s?(?P<job>[\d.]{1,30}) exceeded memory limit|Exceeded (?:job|step) memory limit"
)
_NODE = re.compile(r"Node failure on (?P<host>[\w.\[\],-]{1,400})")
_WHY = (
    ("TIME LIMIT", "time_limit"),
    ("PREEMPTION", "preempted"),
    ("NODE FAILURE", "node_fail"),
)
_SCONTROL = re.compile(r"(?P<key>[A-Z][A-Za-z:/]{1,40})=(?P<value>\S{0,400})")
_STATES: dict[str, tuple[str | None, str | None]] = {  # state: (event, reason of the process)
    "FAILED": (None, "error"),
    "OUT_OF_MEMORY": ("oom", "oom"),
    "OUT_OF_ME+": ("oom", "oom"),
    "NODE_FAIL": ("node_fail", "node_fail"),
    "TIMEOUT": ("time_limit", "time_limit"),
    "DEADLINE": ("time_limit", "time_limit"),
    "PREEMPTED": ("preempted", "preempted"),
    "CANCELLED": ("cancelled", "cancelled"),
    "CANCELLED+": ("cancelled", "cancelled"),
    "BOOT_FAIL": ("node_fail", "node_fail"),
}
_ENDED = ("time_limit", "preempted", "cancelled")
_FINE = ("COMPLETED", "RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "REQUEUED", "SUSPENDED", "RESIZING")
_EXIT_CODE = re.compile(r"\d{1,3}:\d{1,3}")
_RULE = re.compile(r"\s*-{3,}(?:\s+-{3,})*\s*$")


class Slurm:
    """Reads line by line; remembers the header of a table and the job of a `scontrol` block."""

    def __init__(self) -> None:
        self.judged = False
        """A job's or step's state was told, good or bad."""
        self.tasks_of: dict[str, set[int]] = {}
        self.hosts_of: dict[tuple[int | None, str, str], set[str]] = {}
        """Exit code, signal and reason of tasks, as srun tells them -> hosts."""
        self.aborted: Seen | None = None
        """srun aborts the step before any task failed; others may say why."""
        self.ended = False
        """The scheduler says that it ended the job, and no task had failed before."""
        self._columns: list[str] = []
        self._widths: list[tuple[int, int]] = []
        self._job: str | None = None
        self._state: tuple[str, Line] | None = None
        self._told: set[tuple[str, str, str]] = set()
        self._failed = self._ending = False
        """A task failed by itself; after that, the end of the step is its consequence."""
        self._ends_of: dict[str, str] = {}
        """Jobs that sacct says were ended from outside, and why."""

    def launcher(self, text: str) -> None:
        """torchrun says that one of its processes failed, or that it was itself told to end before any failed."""
        if "failed (exitcode: " in text:
            self._failed = True
        elif "SIGTERM death signal" in text and not self._failed:
            self._ending = True

    def feed(self, line: Line, text: str) -> Iterator[Seen]:
        """What this line says."""
        if any(words in text for words in _ENDING):
            self._ending = True
        elif _ABORTED in text:
            if not self._ending and not self._failed:
                fields = {"event": "cancelled", "text": short(text)}
                self.aborted = Seen("job_event", fields, [line], key=("cancelled", "srun"))
            self._ending = self.judged = True
        elif any(words in text for words in _FROM_OUTSIDE):
            yield from self._from_outside(line, text)
        elif ": exited abnormally" in text:
            yield from self._abnormal(line, text)
        elif "*** " in text:
            yield from self._cancelled(line, text)
        elif "srun: error: " in text:
            yield from self._srun(line, text)
        elif "oom" in text or "memory limit" in text:
            yield from self._memory(line, text)
        elif self._columns or "JobID" in text:
            yield from self._table(line, text)
        if "=" in text and ("JobId=" in text or "JobState=" in text or self._state is not None):
            yield from self._scontrol(line, text)

    def _cancelled(self, line: Line, text: str) -> Iterator[Seen]:
        m = _CANCELLED.search(text) or _NOT_ENDING.search(text)
        if m is None:
            return
        why = m.groupdict().get("why") or ""
        self.judged = True
        if not why and self._failed:
            self._ending = True
            return
        event = next((event for literal, event in _WHY if literal in why), "cancelled")
        at, _ = parse_time(m["at"])
        fields = {"event": event, "job": m["job"], "text": short(text)}
        self._ending = self.ended = True
        host = None if event == "node_fail" else m["host"]  # the host that prints this is not the one that failed
        yield Seen("job_event", fields, [line], host, at=at, key=(event, m["job"], host))

    def _from_outside(self, line: Line, text: str) -> Iterator[Seen]:
        """Somebody pressed Ctrl-C, or the controller ended the step."""
        self.judged = True
        if not self._ending and not self._failed:
            yield Seen("job_event", {"event": "cancelled", "text": short(text)}, [line], key=("cancelled", "srun"))
        self._ending = True

    def _abnormal(self, line: Line, text: str) -> Iterator[Seen]:
        """Tasks that srun had not told of before it ended the others."""
        m = _ABNORMAL.search(text)
        if m and not self._failed and not self._ending:
            self._failed = self.judged = True
            fields = {"reason": "error", "reporter": "slurm", "text": short(text)}
            yield Seen("process_exit", fields, [line], None, tuple(_numbers(m["tasks"])), key=("srun", "abnormal"))

    def _srun(self, line: Line, text: str) -> Iterator[Seen]:
        node = _NODE.search(text)
        if node:
            fields = {"event": "node_fail", "text": short(text)}
            self.judged = self._failed = True
            yield Seen("job_event", fields, [line], _one_host(node["host"]), key=("node_fail", node["host"]))
            return
        m = _TASKS.search(text.rstrip())
        if m is None:
            return
        word = (m["word"] or "").strip()
        code = int(m["code"]) if m["code"] else None
        fields = exited(code, WORDS.get(word))
        if word in ("Out Of Memory", "OOM Killed"):
            fields["reason"] = "oom"
        if "reason" not in fields:
            return
        self.judged = True
        if self._ending and fields["reason"] != "oom":
            fields["reason"] = "cancelled"
        self._failed = self._failed or fields["reason"] != "cancelled"
        fields |= {"reporter": "slurm", "text": short(text)}
        host = _one_host(m["hosts"])
        tasks = tuple(_numbers(m["tasks"]))
        self.hosts_of.setdefault((code, word, fields["reason"]), set()).update({host} if host else {"", m["hosts"]})
        if host:
            self.tasks_of.setdefault(host, set()).update(tasks)
        yield Seen("process_exit", fields, [line], host, tasks, key=("srun", code, word, fields["reason"]))
        if fields["reason"] == "cancelled" and not self._failed and not self._ending:
            yield Seen("job_event", {"event": "sigterm", "text": short(text)}, [line], key=("sigterm", "srun"))
        if fields["reason"] == "oom":
            yield Seen("job_event", {"event": "oom", "text": short(text)}, [line], host, key=("oom", "srun", host))

    def _memory(self, line: Line, text: str) -> Iterator[Seen]:
        m = _OOM.search(text) or _MEMORY.search(text)
        if m:
            job = m["job"]
            self.judged = self._failed = True
            fields = {"event": "oom", "text": short(text)} | ({"job": job.rstrip(".")} if job else {})
            yield Seen("job_event", fields, [line], key=("oom", job))

    # --- sacct ------------------------------------------------------------------------------------------

    def _table(self, line: Line, text: str) -> Iterator[Seen]:
        if "JobID" in text and ("State" in text or "ExitCode" in text):
            self._columns = [
                c.strip().rstrip("|") for c in text.strip().rstrip("|").split("|" if "|" in text else None)
            ]
            self._widths = [] if "|" in text else [(m.start(), m.end()) for m in re.finditer(r"\S+", text)]
            return
        if _RULE.match(text):
            self._widths = [(m.start(), m.end()) for m in re.finditer(r"-+", text)]
            return
        if not text.strip():
            self._columns = []
            return
        row = self._row(text)
        if row.get("State", "").split(" ", 1)[0] not in (*_STATES, *_FINE):
            row |= _by_form(text)
        job, state = row.get("JobID") or row.get("JobIDRaw") or "", row.get("State") or ""
        if not re.match(r"\d{1,12}", job):
            self._columns = []
            return
        yield from self._ended(line, job, state, row.get("ExitCode") or "", row.get("NodeList"))

    def _row(self, text: str) -> dict[str, str]:
        if self._widths and "|" not in text:
            cells = [text[start:end].strip() for start, end in self._widths]
        else:
            cells = [cell.strip() for cell in text.strip().rstrip("|").split("|")]
        return dict(zip(self._columns, cells, strict=False))

    def _ended(self, line: Line, job: str, state: str, exit_code: str, nodes: str | None) -> Iterator[Seen]:
        word = state.split(" ", 1)[0].upper()
        if word in _FINE:
            self.judged = True
            return
        event, reason = _STATES.get(word, (None, None))
        if reason is None or job.endswith(".extern"):
            return
        self.judged = True
        base = job.split(".", 1)[0]
        if (base, word, exit_code) in self._told:  # the batch step repeats its job
            return
        self._told.add((base, word, exit_code))
        if reason in _ENDED and base == job:
            self._ends_of[base] = reason
        elif reason == "error":
            reason = self._ends_of.get(base, reason)
        host = _one_host(nodes) if nodes else None
        text = short(f"job {job} {state} {exit_code}")
        if event:
            yield Seen(
                "job_event", {"event": event, "job": base, "text": text}, [line], host, key=(event, base, "state")
            )
        code, _, signal = exit_code.partition(":")
        if event == "cancelled" or not code.isdigit():
            return
        number = int(signal) if signal.isdigit() else 0
        fields = exited(int(code) or None, SIGNALS.get(number) if number else None)
        if reason != "error" or "reason" not in fields:
            fields["reason"] = reason
        fields |= {"reporter": "slurm", "text": text}
        yield Seen("process_exit", fields, [line], host, key=("sacct", base, word, exit_code))

    # --- scontrol show job ----------------------------------------------------------------------------------

    def _scontrol(self, line: Line, text: str) -> Iterator[Seen]:
        pairs = {m["key"]: m["value"] for m in _SCONTROL.finditer(text)}
        if "JobId" in pairs:
            self._job, self._state = pairs["JobId"], None
        if "JobState" in pairs:
            self._state = (pairs["JobState"], line)
        if self._state is not None and "ExitCode" in pairs:
            state, where = self._state
            self._state = None
            for seen in self._ended(line, self._job or "0", state, pairs["ExitCode"], None):
                seen.lines = [where] if where.number == line.number else [where, line]
                yield seen


def _by_form(text: str) -> dict[str, str]:
    """Job, state and exit code of a row whose columns do not stand below their headings (edited by hand)."""
    words = text.replace("|", " ").split()
    state = next((word for word in words[1:] if word in _STATES or word in _FINE), None)
    code = next((word for word in words[1:] if _EXIT_CODE.fullmatch(word)), "")
    return {"JobID": words[0], "State": state, "ExitCode": code} if state else {}


def _one_host(text: str) -> str | None:
    """The host, when the text names exactly one."""
    return text if re.fullmatch(r"[A-Za-z][\w.-]{0,63}", text) and text not in ("None", "Unknown") else None


def _numbers(text: str) -> Iterator[int]:
    """`0-3,7` as numbers, at most 16,384 of them."""
    left = 16_384
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            continue
        for number in range(int(first), min(int(last or first), int(first) + left) + 1):
            left -= 1
            if left < 0:
                return
            yield number
