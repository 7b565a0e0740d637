"""Exit messages of mpirun (Open MPI 3 to 5, MPICH and Intel hydra) and of shells."""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.model import Line

from ._seen import SIGNALS, WORDS, Seen, exited, short

GATES = (
    "noticed that process rank", "exited with non-zero status", "Process name: [", "MPI_ABORT was invoked",
    "RUNNING AT", "BAD TERMINATION", "lost communication with a remote daemon", ": line ", "Killed", "received SIGTERM",
    "eceived SIGTERM", "nterruption notice", "] Signal: ",
)  # fmt: skip

_NOTICED = re.compile(  # PRRTE breaks the line before "signal"
    r"(?:mpirun|mpiexec|prterun|orterun) noticed that process rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,9}) on node "
    r"(?P<host>\S{1,64}) exited on(?: signal (?P<signal>\d{1,2}))?"
)
_NUMBER = re.compile(r"signal (?P<signal>\d{1,2})\b")
_SIGNALLED = re.compile(
    r"\[(?P<host>[A-Za-z][\w.-]{0,63}):(?P<pid>\d{1,9})\] Signal: [A-Z][A-Za-z ]{2,40} \((?P<signal>\d{1,2})\)"
)
_NAME = re.compile(r"Process name: \[(?:\[\d{1,9},\d{1,6}\],|[\w.-]{1,80}@\d{1,6},)(?P<rank>\d{1,7})\]")
_CODE = re.compile(r"Exit code: +(?P<code>\d{1,5})")
_ABORT = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,7}) in communicator")
_ERRORCODE = re.compile(r"errorcode (?P<code>-?\d{1,9})")
_HYDRA = re.compile(r"=\s+(?:RANK (?P<rank>\d{1,7}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<host>\S{1,64})")
_HYDRA_END = re.compile(r"=\s+(?:EXIT CODE: (?P<code>\d{1,5})|KILLED BY SIGNAL: (?P<signal>\d{1,2}))")
_LOST = re.compile(r"lost communication with a remote daemon")
_REMOTE = re.compile(r"Remote daemon: \S{1,60} on node (?P<host>\S{1,64})")
_SHELL = re.compile(
    r"(?:^|\S: )line \d{1,6}:\s{1,4}(?P<pid>\d{1,9}) "
    r"(?P<word>Killed|Segmentation fault|Aborted|Bus error|Terminated|Illegal instruction)\b"
)
_ALONE = re.compile(r"\s*(?P<word>Killed|Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?\s*$")
_SIGTERM = re.compile(r"(?<!\w)(?:[Rr]eceived|[Cc]aught) (?:signal )?SIGTERM\b(?! death)")
_SPOT = re.compile(r"[Ss]pot (?:[Ii]nstance )?[Ii]nterruption [Nn]otice")

_REACH = 8


def _signal(number: str) -> str:
    return SIGNALS.get(int(number), f"signal {number}")


class Mpi:
    """Reads line by line; remembers the head of a message that goes on."""

    def __init__(self) -> None:
        self._open: tuple[str, dict[str, str | None], list[Line]] | None = None

    def feed(self, line: Line, text: str) -> Iterator[Seen]:
        """What this line says, or completes."""
        if self._open is not None:
            if line.number - self._open[2][0].number > _REACH:
                self._open = None
            else:
                yield from self._rest(line, text)
        m = _SIGNALLED.search(text)
        if m:
            yield self._exit(None, _signal(m["signal"]), None, m["pid"], m["host"], [line], text)
            return
        m = _NOTICED.search(text)
        if m and m["signal"] is None:
            self._open = ("noticed", m.groupdict(), [line])
            return
        if m:
            yield self._exit(None, _signal(m["signal"]), int(m["rank"]), m["pid"], m["host"], [line], text)
            return
        for kind, pattern in (("name", _NAME), ("abort", _ABORT), ("hydra", _HYDRA), ("lost", _LOST)):
            m = pattern.search(text)
            if m:
                self._open = (kind, m.groupdict(), [line])
                if kind == "abort":
                    yield from self._rest(line, text)
                return
        m = _SHELL.search(text) or _ALONE.match(text)
        if m:
            fields = exited(None, WORDS[m["word"]]) | {"reporter": "shell", "text": short(text)}
            pid = m.groupdict().get("pid")
            if pid:
                fields["pid"] = int(pid)
            yield Seen("process_exit", fields, [line], key=("shell", pid, m["word"]))
        elif _SIGTERM.search(text):
            yield Seen("job_event", {"event": "sigterm", "text": short(text)}, [line], key=("sigterm",))
        elif _SPOT.search(text):
            yield Seen("job_event", {"event": "preempted", "text": short(text)}, [line], key=("preempted", "spot"))

    def _rest(self, line: Line, text: str) -> Iterator[Seen]:
        assert self._open is not None
        kind, head, lines = self._open
        both = lines if lines[-1].number == line.number else [*lines, line]
        said_rank = head.get("rank")
        rank = int(said_rank) if said_rank else None
        if kind == "lost":
            m = _REMOTE.search(text)
            if m:
                self._open = None
                fields = {"event": "node_fail", "text": "mpirun lost communication with a remote daemon"}
                yield Seen("job_event", fields, both, m["host"], key=("node_fail", m["host"]))
            return
        m = {"name": _CODE, "abort": _ERRORCODE, "hydra": _HYDRA_END, "noticed": _NUMBER}[kind].search(text)
        if m is None:
            if line.number == lines[-1].number + 1:
                lines.append(line)
            return
        self._open = None
        signal = m.groupdict().get("signal")
        code = int(m["code"]) if m.groupdict().get("code") else None
        if kind == "hydra" and signal is None and code in SIGNALS:  # MPICH prints the signal as exit code
            signal, code = str(code), None
        name = _signal(signal) if signal else None
        if code == 0:
            return
        said = " ".join(one.text.strip() for one in both)
        yield self._exit(code, name, rank, head.get("pid"), head.get("host"), both, said)

    def _exit(
        self, code: int | None, signal: str | None, rank: int | None, pid: str | None, host: str | None,
        lines: list[Line], text: str,
    ) -> Seen:  # fmt: skip
        fields = exited(code, signal) | {"reporter": "mpi", "text": short(text)}
        if pid and int(pid):
            fields["pid"] = int(pid)
        ranks = (rank,) if rank is not None else ()
        return Seen("process_exit", fields, lines, host, ranks, key=("mpi", code, signal))
