"""What scheduler, platform and launcher say about the job: Slurm, Kubernetes, mpirun, shells; refused credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Block, Digest, Line, Record, Source
from diagnose.parsing import evidence, unprefix

from . import _credentials, _kubernetes, _mpi, _slurm
from ._seen import Seen

KIND = "job_log"
TOPICS = ("process_exit",)
READS_PREFIXES = True

GATES = _slurm.GATES + _kubernetes.GATES + _mpi.GATES + _credentials.GATES

_SURE = re.compile(
    r"slurmstepd: |srun: (?:error: |Job step|Terminating|Force Terminated|forcing job|sending Ctrl-C)"
    r"|JobState=|^\s*JobID[ |]|oom[_-]kill event|OOMKilled|^ {4,8}Exit Code:"
    r"|noticed that process rank|detected that one or more processes exited"
    r"|MPI_ABORT was invoked|BAD TERMINATION OF ONE"
    r"|[Rr]ewound credential|[Ee]xpired credential(?!s)|[Cc]lock skew too great|clock difference against peer"
    r"|certificate is not yet valid|is not yet valid: current time|^NAME\s{1,80}READY\s{1,20}STATUS"
    r"|^\s*(?:\S{1,40}\s+)?(?:Warning|Normal)\s+(?:Evicted|Preempted|OOMKilling|SystemOOM|NodeNotReady|TaintManager"
    r"|FailedScheduling|UnexpectedAdmissionError)"
    r"|failed liveness probe|\[[\w.-]{1,64}:\d{1,9}\] Signal: [A-Z]|exitCode: \d|^srun: .{1,2000}: exited abnormally",
    re.MULTILINE,
)
_LIKELY = re.compile(
    r"line \d{1,6}:\s+\d{1,9} (?:Killed|Segmentation|Aborted|Bus)|^(?:Killed|Bus error|Segmentation fault)"
    r"|[Rr]eceived SIGTERM",
    re.MULTILINE,
)
_BIG = 4 << 20


def sniff(head: str, name: str) -> float:
    """0.9 for output of Slurm, kubectl or mpirun; 0.5 for a killed process, or a log too big to see its end."""
    if any(gate in head for gate in GATES):
        if _SURE.search(head):
            return 0.9
        if _LIKELY.search(head):
            return 0.5
    if len(head) >= _BIG and ("[rank" in head or "NCCL INFO" in head or "iteration" in head or "step" in head):
        return 0.5
    return 0.0


def scan(blocks: Iterable[Block], source: Source) -> Iterator[Record | Digest]:
    """One digest. Blocks without any of the literals are passed over unread."""
    job = _Job(source)
    for block in blocks:
        if not any(gate in block.text for gate in GATES):
            continue
        number = block.first - 1
        for text in block.text.split("\n"):
            number += 1
            job.read(Line(number, text))
    yield job.finish()


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """As `scan`, for lines."""
    job = _Job(source)
    for line in lines:
        job.read(line)
    yield job.finish()


class _Job:
    """One pass over a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.digest = Digest(KIND)
        self.slurm = _slurm.Slurm()
        self.kubernetes = _kubernetes.Kubernetes()
        self.mpi = _mpi.Mpi()
        self.torchrun = False
        self._tasks: list[Seen] = []
        self._shell: list[tuple[Seen, float | None]] = []

    def read(self, line: Line) -> None:
        """Take in one line."""
        prefix = unprefix(line.text) if line.text[:1] in "[(0123456789" else None
        text = prefix.text if prefix else line.text
        at = prefix.at if prefix else line.at
        if "local_rank: " in text or "torchrun" in text or "torch/distributed/elastic" in text:
            self.torchrun = True
            self.slurm.launcher(text)
        for seen in self.slurm.feed(line, text):
            if len(seen.ranks) > 0:
                self._tasks.append(seen)
            else:
                self._add(seen, at)
        for reader in (self.kubernetes.feed, self.mpi.feed, _credentials.credentials):
            for seen in reader(line, text):
                if seen.fields.get("reporter") == "shell":
                    self._shell.append((seen, at))
                else:
                    self._add(seen, at)

    def finish(self) -> Digest:
        """The digest. Task numbers of srun are ranks where a host has several and no torchrun stands between."""
        for seen in self.kubernetes.close():
            self._add(seen, None)
        if self.slurm.aborted and not any(kind == "job_event" for kind, *_ in self.digest.tallies):
            self._add(self.slurm.aborted, None)
        for seen, at in self._shell:
            if self.slurm.ended and seen.fields["reason"] == "killed":
                seen.fields["reason"] = "cancelled"
            self._add(seen, at)
        ranked = not self.torchrun and any(len(tasks) > 1 for tasks in self.slurm.tasks_of.values())
        for seen in self._tasks:
            hosts = self.slurm.hosts_of.get(seen.key[1:], ())
            if len(hosts) > 1:
                seen.fields["hosts"] = len(hosts)
            if not ranked:
                seen.key = (*seen.key, *seen.ranks[:1])
                seen.ranks = ()
            self._add(seen, None)
        if not self.digest.tallies and (self.slurm.judged or self.kubernetes.judged):
            self.digest.add(("covered", "process_exit"), Record("covered", {"topic": "process_exit"}))
        return self.digest

    def _add(self, seen: Seen, at: float | None) -> None:
        shown = evidence(self.source, *seen.lines)
        when = seen.at if seen.at is not None else at
        for rank in seen.ranks or (None,):
            record = Record(seen.kind, seen.fields, (shown,), when, seen.host, rank)
            self.digest.add((seen.kind, *seen.key, seen.host, rank), record)
