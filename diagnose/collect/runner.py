"""Runs one command so that neither its hanging nor its output can harm the collection or the job.

A command gets a session of its own, no input, a time limit and a cap on its output. At the limit the whole group is
asked to end, then killed. What sits in uninterruptible sleep cannot be killed: it is left behind and said so.
"""

import os
import select
import signal
import subprocess
import time
from typing import IO, Dict, List, Optional, Sequence

EXTRA_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/mellanox/bin")
MAX_STDERR = 16384
TERM_GRACE_S = 0.7
KILL_GRACE_S = 1.5
EOF_GRACE_S = 0.5
"""How long a pipe may stay open after the command itself has ended (something it started still holds it)."""


class Outcome(object):
    """How a command ended. `exit_code` is None when it was killed or abandoned; times in epoch seconds and seconds."""

    __slots__ = ("abandoned", "duration", "error", "exit_code", "size", "start", "stderr", "timed_out", "truncated")

    def __init__(self) -> None:
        self.start = 0.0
        self.duration = 0.0
        self.exit_code: Optional[int] = None
        self.truncated = False
        self.stderr = b""
        self.size = 0
        self.timed_out = False
        self.abandoned: Optional[str] = None
        self.error: Optional[str] = None


def search_path() -> str:
    """PATH with the folders that administrators' tools lie in, which a user's PATH often lacks."""
    parts = [p for p in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(p)]
    return os.pathsep.join(parts + [p for p in EXTRA_PATH if p not in parts])


def find_program(name: str) -> Optional[str]:
    """Absolute path of a program, or None."""
    if os.sep in name:
        return name if os.access(name, os.X_OK) and os.path.isfile(name) else None
    for folder in search_path().split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def child_environment() -> Dict[str, str]:
    """English, plain and without what could load foreign code into the tools or make them page."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_PRELOAD", "PYTHON", "NCCL_", "LC_"))}
    env.update({"LC_ALL": "C", "LANG": "C", "PATH": search_path(), "PAGER": "cat", "SYSTEMD_PAGER": "", "TERM": "dumb"})
    env.pop("LANGUAGE", None)
    return env


class Running(object):
    """Groups that run now, so that an interrupt can end them all."""

    def __init__(self) -> None:
        self._groups: Dict[int, subprocess.Popen] = {}

    def add(self, process: "subprocess.Popen") -> None:
        self._groups[process.pid] = process

    def remove(self, process: "subprocess.Popen") -> None:
        self._groups.pop(process.pid, None)

    def end_all(self) -> None:
        for process in list(self._groups.values()):
            _signal_group(process.pid, signal.SIGTERM)


RUNNING = Running()


def run(argv: Sequence[str], out: IO[bytes], limit_s: float, cap: int, stop: Optional[List[bool]] = None) -> Outcome:
    """Run `argv`, its standard output into `out`. Never raises because of the command; OSError of `out` passes on."""
    outcome = Outcome()
    outcome.start = time.time()
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(),
            cwd="/",
            start_new_session=True,
            close_fds=True,
        )
    except (OSError, ValueError) as error:
        outcome.error = getattr(error, "strerror", None) or str(error)
        return outcome
    RUNNING.add(process)
    try:
        _pump(process, out, began + limit_s, cap, outcome, stop)
    except BaseException:
        _end(process, outcome)
        raise
    finally:
        RUNNING.remove(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        outcome.duration = time.monotonic() - began
    return outcome


def _pump(
    process: "subprocess.Popen",
    out: IO[bytes],
    deadline: float,
    cap: int,
    outcome: Outcome,
    stop: Optional[List[bool]],
) -> None:
    assert process.stdout is not None and process.stderr is not None
    stdout, stderr = process.stdout.fileno(), process.stderr.fileno()
    poll = select.poll()
    for fd in (stdout, stderr):
        poll.register(fd, select.POLLIN | select.POLLHUP | select.POLLERR)
    open_fds = {stdout, stderr}
    errors = bytearray()
    ended_at: Optional[float] = None
    while open_fds:
        now = time.monotonic()
        if ended_at is None and process.poll() is not None:
            ended_at = now
        if ended_at is not None and now > ended_at + EOF_GRACE_S:
            break
        if now >= deadline or (stop and stop[0]):
            outcome.timed_out = True
            break
        for fd, _ in poll.poll(int(max(10, min(200, (deadline - now) * 1000)))):
            piece = os.read(fd, 65536)
            if not piece:
                poll.unregister(fd)
                open_fds.discard(fd)
            elif fd == stderr:
                errors += piece[: max(0, MAX_STDERR - len(errors))]
            elif outcome.size < cap:
                piece = piece[: cap - outcome.size]
                out.write(piece)
                outcome.size += len(piece)
            else:
                outcome.truncated = True
        if outcome.truncated:
            break
    outcome.stderr = bytes(errors)
    if not (outcome.timed_out or outcome.truncated):
        try:
            outcome.exit_code = process.wait(max(0.1, min(deadline - time.monotonic(), 2.0)))
        except subprocess.TimeoutExpired:
            outcome.timed_out = True
    if outcome.timed_out or outcome.truncated or ended_at is not None or process.returncode is None:
        _end(process, outcome)
    if outcome.timed_out:
        outcome.truncated = True


def _end(process: "subprocess.Popen", outcome: Outcome) -> None:
    """End the group: politely (a debugger must let its process go), then by force; what stays is left behind."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        if _gone(process, TERM_GRACE_S):
            _signal_group(process.pid, signal.SIGKILL)
            return
    _signal_group(process.pid, signal.SIGKILL)
    if not _gone(process, KILL_GRACE_S):
        outcome.abandoned = "left behind in state " + _state(process.pid)


def _gone(process: "subprocess.Popen", seconds: float) -> bool:
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        return


def _state(pid: int) -> str:
    """State letter and kernel function of a process, from files that cannot hang."""
    letter, where = "?", ""
    try:
        with open("/proc/%d/stat" % pid, "rb") as handle:
            letter = handle.read(4096).rpartition(b")")[2].split()[0].decode("ascii", "replace")
        with open("/proc/%d/wchan" % pid, "rb") as handle:
            where = handle.read(200).decode("ascii", "replace").strip()
    except (OSError, IndexError):
        pass
    return letter + (" in " + where if where and where != "0" else "")
