"""Runs links on ClusterShell: its event loop, fan-out and time limits. One link is one local command, such as ssh.

ClusterShell hands lines of text over and keeps an unfinished line without bound, so each client here counts what it
reads. Children get a session of their own: Ctrl-C at the terminal is for this program, which lets the far ends close
their bundles first.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import NodeSet
from ClusterShell.Task import Task, task_self
from ClusterShell.Worker.EngineClient import E_READ, E_WRITE, EngineClientEOF, set_nonblock_flag
from ClusterShell.Worker.Exec import ExecClient, ExecWorker
from ClusterShell.Worker.Ssh import SshClient, WorkerSsh

from diagnose.fleet.visit import MAX_ARCHIVE, MAX_SAID, Visit, printable

MARK = b"dg1 "
MAX_LINE = 256 << 10
MAX_ERRORS = 4 << 20
MANY_LINES, MEAN_LINE = 20_000, 200
"""A link may say so many lines, and more when they are so long on average: each costs ClusterShell about 15 µs."""
CLOSE_S = 25.0
"""After an interrupt, how long the far ends may take to close their bundles and send them."""
LINGER_S = 3.0
"""How long a link may stay open after all its hosts are over."""
TICK_S = 0.25
RETRY_S = 2.0
BEFORE = "interrupted before it was its turn"
_BUSY = ("kex_exchange_identification", "Connection reset by", "Connection closed by", "ssh_exchange_identification")
"""What ssh says when the other side, or a jump host, has too many connections at once."""


@dataclass(eq=False)
class Link:
    """One local command that leads to `visits`. `argv` is the command; empty means ssh to `address` running `command`.

    `limit_s` bounds all of it. `fallback` makes other links for hosts that it could not reach.
    """

    visits: tuple[Visit, ...]
    stdin: bytes
    limit_s: float
    argv: Sequence[str] = ()
    address: str = ""
    command: str = ""
    by_name: dict[str, Visit] = field(default_factory=dict[str, Visit])
    """Far ends that share this link tell their names; empty for one host."""
    fallback: Callable[[list[Visit]], list[Link]] | None = None
    env: Mapping[str, str] | None = None
    attempt: int = 1
    errors: list[str] = field(default_factory=list[str])
    """The last lines of its standard error."""

    def error_line(self, line: bytes) -> None:
        """One line of standard error."""
        text = printable(line.decode("utf-8", "replace"))
        if text:
            self.errors = [*self.errors[1 - MAX_SAID :], text]

    def visit_of(self, name: str) -> Visit | None:
        """Whose line it is."""
        return self.by_name.get(name) if self.by_name else self.visits[0]


@dataclass(frozen=True, slots=True)
class Ssh:
    """How ssh is called: program with options, user, seconds to connect."""

    path: str = "ssh"
    options: str = ""
    user: str = ""
    connect_s: int = 15


class Stop:
    """Interrupts: the first one asks the far ends to close what they have, the second one ends the links."""

    def __init__(self) -> None:
        self.count = 0
        self.since = 0.0

    def ask(self, *_: object) -> None:
        """Also a signal handler."""
        self.count += 1
        self.since = self.since or time.monotonic()


def run(
    links: Sequence[Link],
    new_spool: Callable[[Visit], Any],
    over: Callable[[Visit], None],
    tick: Callable[[], None],
    stop: Stop,
    *,
    fanout: int,
    ssh: Ssh,
) -> None:
    """Run all links. `over` is called once for each host when nothing more is awaited from it, `tick` now and then."""
    logging.getLogger("ClusterShell").setLevel(logging.ERROR)
    task: Task = task_self()
    for key in ("stdout_msgtree", "stderr_msgtree"):
        task.set_default(key, False)
    settings = {
        "fanout": fanout, "connect_timeout": ssh.connect_s, "ssh_path": ssh.path, "ssh_options": ssh.options,
        "ssh_user": ssh.user or None,
    }  # fmt: skip
    for key, value in settings.items():
        task.set_info(key, value)
    running = _Running(task, new_spool, over, tick, stop)
    for link in links:
        running.schedule(link)
    task.timer(fire=TICK_S, interval=TICK_S, handler=running, autoclose=True)
    task.resume()
    for link in links:
        for visit in link.visits:
            if not visit.over:
                visit.finish(BEFORE)
                over(visit)


class _Running(EventHandler):
    """All links of one run; also the handler of the timer."""

    def __init__(self, task: Task, new_spool: Callable[[Visit], Any], over: Any, tick: Any, stop: Stop) -> None:
        self.task, self.new_spool, self.over, self.tick, self.stop = task, new_spool, over, tick, stop
        self.open: dict[_Handler, None] = {}
        self.asked = False

    def schedule(self, link: Link) -> None:
        """Open a link as soon as the fan-out lets it."""
        handler = _Handler(self, link)
        self.open[handler] = None
        handler.schedule(self.task)

    def ev_timer(self, timer: Any) -> None:
        """Notice interrupts, and links that stay open though their hosts are over."""
        self.tick()
        now = time.monotonic()
        if self.stop.count and not self.asked:
            self.asked = True
            for handler in list(self.open):
                handler.ask_to_close()
        ended = self.stop.count > 1 or (self.asked and now > self.stop.since + CLOSE_S)
        for handler in list(self.open):
            if ended or (handler.idle_since and now > handler.idle_since + LINGER_S):
                handler.end()


class _Handler(EventHandler):
    """One link."""

    def __init__(self, running: _Running, link: Link) -> None:
        self.running, self.link = running, link
        self.started = False
        self.idle_since = 0.0
        self.code: int | None = None
        worker_class = _LocalWorker if link.argv else _SshWorker
        key = NodeSet.fromlist([link.address or link.visits[0].folder], resolver=None)
        self.worker = worker_class(key, handler=self, timeout=link.limit_s, command=link.command or "-", stderr=True)
        self.worker.argv = list(link.argv)
        self.worker.env = link.env
        self.worker.cap = 2 * MAX_ARCHIVE * len(link.visits)

    def schedule(self, task: Task) -> None:
        task.schedule(self.worker)
        self.worker.write(self.link.stdin)

    def ask_to_close(self) -> None:
        """The far ends see the end of their input. A link that is not open yet stays closed."""
        if self.started:
            self.worker.set_write_eof()
        else:
            self.end()

    def end(self) -> None:
        """Close the link at once."""
        self.running.open.pop(self, None)
        self.worker.abort()
        self._closed("interrupted" if self.started else BEFORE)

    def ev_pickup(self, worker: Any, node: str) -> None:
        self.started = True
        for visit in self.link.visits:
            if not visit.over:
                visit.start(self.running.new_spool(visit))

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        if sname != worker.SNAME_STDOUT:
            self.link.error_line(msg)
            return
        if not msg.startswith(MARK):
            return
        parts = msg[len(MARK) :].split(b" ", 2)
        visit = self.link.visit_of(parts[0].decode("utf-8", "replace")) if len(parts) == 3 else None
        if visit is None or visit.over:
            return
        visit.line(parts[1].decode("ascii", "replace"), parts[2], time.time())
        if visit.over:
            self.running.over(visit)
            if all(v.over for v in self.link.visits):
                self.idle_since = time.monotonic()

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        self.code = rc

    def ev_close(self, worker: Any, timedout: bool) -> None:
        if self not in self.running.open:
            return
        del self.running.open[self]
        self._closed(f"no answer within {self.link.limit_s:g} s" if timedout else "")

    def _closed(self, reason: str) -> None:
        left = [v for v in self.link.visits if not v.over]
        unreached = [v for v in left if not v.hello]
        if unreached and not reason and not self.running.stop.count and self._try_again(unreached):
            left = [v for v in left if v.hello]
        for visit in left:
            visit.finish(reason or _why(self.link, visit, self.code))
            self.running.over(visit)

    def _try_again(self, unreached: list[Visit]) -> bool:
        link = self.link
        if link.fallback is not None:
            others = link.fallback(unreached)
        elif link.attempt == 1 and any(text in line for line in link.errors for text in _BUSY):
            others = [Link(link.visits, link.stdin, link.limit_s, link.argv, link.address, link.command, attempt=2)]
        else:
            return False
        if not others:
            return False
        for visit in unreached:
            visit.again()
        _Later(self.running, others)
        return True


class _Later(EventHandler):
    """Opens links after a moment."""

    def __init__(self, running: _Running, links: list[Link]) -> None:
        self.running, self.links = running, links
        running.task.timer(fire=RETRY_S, handler=self)

    def ev_timer(self, timer: Any) -> None:
        for link in self.links:
            if self.running.stop.count:
                for visit in link.visits:
                    visit.finish("interrupted")
                    self.running.over(visit)
            else:
                self.running.schedule(link)


def _why(link: Link, visit: Visit, code: int | None) -> str:
    """Why a link ended before its host had said everything."""
    named = [line for line in link.errors if visit.name in line] if len(link.visits) > 1 else []
    said = (named or link.errors or [""])[-1]
    if visit.hello:
        return "the connection was lost" + (f": {said}" if said else "")
    return said or f"no answer (exit code {code})"


class _Client:
    """What both kinds of clients do differently from ClusterShell's: own sessions, and bounds on what they read."""

    streams: Any
    worker: Any
    popen: Any
    _received = 0
    _lines = 0

    def _exec_nonblock(self, commandlist: Any, shell: bool = False, env: Any = None) -> Any:
        ends = [os.pipe() for _ in range(3)]
        (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = ends
        try:
            process = subprocess.Popen(
                commandlist,
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=theirs_err,
                start_new_session=True,
                env=self.worker.env,
            )
        except OSError:
            for descriptor in (ours_in, ours_out, ours_err):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (theirs_in, theirs_out, theirs_err):
                os.close(descriptor)
        for descriptor in (ours_in, ours_out, ours_err):
            set_nonblock_flag(descriptor)
        names = self.worker
        self.streams.set_stream(names.SNAME_STDERR, ours_err, E_READ)
        self.streams.set_stream(names.SNAME_STDOUT, ours_out, E_READ)
        self.streams.set_stream(names.SNAME_STDIN, ours_in, E_WRITE, retain=False)
        return process

    def _read(self, sname: str, size: int = 65536) -> bytes:
        piece: bytes = super()._read(sname, size)  # type: ignore[misc]
        self._received += len(piece)
        self._lines += piece.count(b"\n")
        cap = self.worker.cap if sname == self.worker.SNAME_STDOUT else MAX_ERRORS
        short = self._lines > MANY_LINES + self._received // MEAN_LINE
        if self._received > cap or short or len(self.streams[sname].rbuf) > MAX_LINE:
            self._kill()
            raise EngineClientEOF
        return piece

    def _kill(self) -> None:
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except OSError:
            return


class _SshClient(_Client, SshClient):
    pass


class _LocalClient(_Client, ExecClient):
    def _build_cmd(self) -> Any:
        return self.worker.argv, None


class _SshWorker(WorkerSsh):
    SHELL_CLASS = _SshClient
    argv: list[str]
    env: Mapping[str, str] | None
    cap: int


class _LocalWorker(ExecWorker):
    SHELL_CLASS = _LocalClient
    argv: list[str]
    env: Mapping[str, str] | None
    cap: int
