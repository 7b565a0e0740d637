"""Finds the training processes of this host: which are ranks, launchers and helpers, and what belongs to them.

Reading /proc/PID/maps, environ or cmdline waits for a lock that a process stuck in a driver holds. So a child process
reads them; when it is silent for too long it is killed, the process it was at is named, and another child goes on.
"""

import json
import os
import select
import signal
import time
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import proc

SILENCE_LIMIT_S = 2.0
TOTAL_LIMIT_S = 15.0
MAX_PROCESSES = 200_000
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "deepspeed",
    "mpirun",
    "srun",
)


JOB_NAMES = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")


class Process(object):
    """A process of the job. `role`: rank, launcher or worker (data loader and the like, a child of a rank)."""

    def __init__(self, raw: Dict[str, Any]) -> None:
        self.pid = int(raw["pid"])
        self.ppid = int(raw["ppid"])
        self.comm = str(raw["comm"])
        self.state = str(raw["state"])
        self.threads = int(raw["threads"])
        self.start_ticks = int(raw["start_ticks"])
        self.uid = int(raw.get("uid", -1))
        self.nspid: List[int] = list(raw.get("nspid", []))
        self.exe = str(raw["exe"])
        self.cmdline: List[str] = list(raw["cmdline"])
        self.env: Dict[str, str] = dict(raw["env"])
        self.all_env: Dict[str, str] = dict(raw["all_env"])
        self.libraries: List[str] = list(raw["libraries"])
        self.devices: List[str] = list(raw["devices"])
        self.rank: Optional[int] = raw["rank"]
        self.local_rank: Optional[int] = raw["local_rank"]
        self.world: Optional[int] = raw["world"]
        self.cgroup = str(raw["cgroup"])
        self.ns: Dict[str, str] = dict(raw["ns"])
        self.cwd = str(raw["cwd"])
        self.stdout = str(raw["stdout"])
        self.stderr = str(raw["stderr"])
        self.open_logs = [(str(n), str(t)) for n, t in raw["open_logs"]]
        self.role = "rank"
        self.age = proc.age(self.start_ticks)

    @property
    def label(self) -> str:
        """`rank3.pid4711`, or `pid4711` where the rank is not known: part of file names."""
        return ("rank%d." % self.rank if self.rank is not None else "") + "pid%d" % self.pid

    def foreign(self, kind: str, own: Dict[str, str]) -> bool:
        """Whether it lives in another namespace (pid, mnt, net) than this program."""
        return bool(self.ns.get(kind)) and self.ns[kind] != own.get(kind)

    @property
    def job(self) -> Tuple[str, ...]:
        """What tells its job from other jobs on this host."""
        return tuple(self.env.get(name, "") for name in JOB_NAMES)

    def container(self) -> str:
        """Id of its container as the control group tells it, or empty."""
        for word in self.cgroup.replace("\n", "/").replace("-", "/").replace(".", "/").replace(":", "/").split("/"):
            if len(word) in (64, 32) and all(c in "0123456789abcdef" for c in word):
                return word
        return ""


class Found(object):
    """All processes of interest, and what could not be looked at."""

    def __init__(self) -> None:
        self.processes: List[Process] = []
        self.unreadable: List[Tuple[int, str]] = []
        self.others: List[Process] = []
        self.own_ns: Dict[str, str] = {}

    @property
    def age(self) -> Optional[float]:
        """Seconds since the first rank or launcher of the job started here; None where there is none."""
        ages = [p.age for p in self.processes if p.role in ("rank", "launcher")]
        return max(ages) if ages else None

    @property
    def ranks(self) -> List[Process]:
        """The ranks, in order."""
        return [p for p in self.processes if p.role == "rank"]


def find(only: Iterable[int] = ()) -> Found:
    """Look at every process (or at `only`)."""
    wanted = sorted(set(only))
    found = Found()
    found.own_ns = {kind: proc.link("/proc/self/ns/" + kind) for kind in ("pid", "mnt", "net", "uts")}
    pids = wanted or sorted(int(n) for n in os.listdir("/proc") if n.isdigit())[:MAX_PROCESSES]
    mine = _ancestors(os.getpid())
    deadline = time.monotonic() + TOTAL_LIMIT_S
    raws: List[Dict[str, Any]] = []
    rest = [p for p in pids if p not in mine]
    while rest and time.monotonic() < deadline:
        seen, stuck, rest = _one_child(rest, deadline)
        raws += seen
        if stuck is not None:
            state = (proc.stat(stuck) or {}).get("state", "?")
            found.unreadable.append(
                (stuck, "its memory could not be read within %g s (state %s)" % (SILENCE_LIMIT_S, state))
            )
    for pid in rest:
        found.unreadable.append((pid, "not looked at: time was up"))
    found.processes = [Process(raw) for raw in raws]
    _roles(found.processes, set(wanted))
    if not wanted:
        found.processes, found.others = _one_job(found.processes)
    found.processes.sort(key=lambda p: (p.rank is None, p.rank or 0, p.pid))
    for pid in wanted:
        if pid not in [p.pid for p in found.processes] and pid not in [p for p, _ in found.unreadable]:
            found.unreadable.append((pid, "no such process, or nothing of a training job"))
    return found


def _ancestors(pid: int) -> Set[int]:
    chain: Set[int] = set()
    while pid > 1 and pid not in chain:
        chain.add(pid)
        pid = (proc.stat(pid) or {}).get("ppid", 0)
    return chain


def _one_child(pids: List[int], deadline: float) -> Tuple[List[Dict[str, Any]], Optional[int], List[int]]:
    """Look at `pids` in a child: what it told, the process it got stuck at, and the ones not looked at."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(pids, writer)
    os.close(writer)
    done: List[Dict[str, Any]] = []
    at: Optional[int] = None
    buffer: bytes = b""
    ended = False
    while not ended:
        ready = select.select([reader], [], [], SILENCE_LIMIT_S)[0]
        if not ready or time.monotonic() > deadline:
            break
        piece = os.read(reader, 1 << 16)
        ended = not piece
        lines = (buffer + piece).split(b"\n")
        buffer = lines.pop()
        for line in lines:
            item = json.loads(line.decode("ascii"))
            if isinstance(item, int):
                at = item
            else:
                done.append(item)
    os.close(reader)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _reap(child)
    if at is None:
        return done, None if ended else pids[0], [] if ended else pids[1:]
    if ended and at == pids[-1]:
        return done, None, []
    return done, None if ended else at, pids[pids.index(at) + 1 :]


def _child(pids: List[int], writer: int) -> None:
    """Body of the child; never returns. It tells each process before it touches it."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for pid in pids:
            os.write(writer, b"%d\n" % pid)
            found = proc.inspect(pid)
            if found is not None:
                data = json.dumps(found).encode("ascii") + b"\n"
                while data:
                    data = data[os.write(writer, data) :]
        code = 0
    finally:
        os._exit(code)


def _reap(child: int) -> None:
    """Wait for the child for a moment; one that cannot be killed is left behind."""
    for _ in range(20):
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
        except OSError:
            return
        time.sleep(0.02)


def _roles(processes: List[Process], named: Set[int]) -> None:
    """Tell ranks from their launchers (which have some of the same variables) and their workers (which have all)."""
    by_pid = {p.pid: p for p in processes}
    for p in processes:
        parent = by_pid.get(p.ppid)
        if parent is not None and parent.rank is not None and _same_place(p, parent):
            p.role = "worker"
        elif parent is not None and p.rank is None and parent.role != "launcher" and not _launches(parent):
            p.role = "worker"
    for p in processes:
        if p.pid in named:
            p.role = "rank"
        elif p.role == "rank" and (_launches(p) or _parents_ranks(p, processes)):
            p.role = "launcher"


def _same_place(child: Process, parent: Process) -> bool:
    """Whether two processes have the same rank by the same variables: then the child was forked by the rank."""
    if child.rank != parent.rank or _launches(parent):
        return False
    return child.env.get("RANK") == parent.env.get("RANK") and child.local_rank == parent.local_rank


def _launches(p: Process) -> bool:
    words = [os.path.basename(w) for w in p.cmdline[:6]]
    return "LOCAL_RANK" not in p.env and any(w in LAUNCHERS for w in words)


def _parents_ranks(p: Process, processes: List[Process]) -> bool:
    """Whether it started processes with a rank of their own."""
    return any(c.ppid == p.pid and c.role == "rank" and c.rank is not None and not _same_place(c, p) for c in processes)


def _one_job(processes: List[Process]) -> Tuple[List[Process], List[Process]]:
    """The job with the most ranks here (the newest of equals), and the processes of others.

    Where ranks are known, processes without one belong to it only when they have NCCL or RCCL mapped.
    """
    jobs: Dict[Tuple[str, ...], List[Process]] = {}
    for p in processes:
        if p.role == "rank" and p.rank is not None:
            jobs.setdefault(p.job, []).append(p)
    if not jobs:
        return processes, []
    chosen = max(jobs, key=lambda job: (len(jobs[job]), max(p.start_ticks for p in jobs[job])))
    pids = {p.pid for p in jobs[chosen]}
    parents = {p.ppid for p in jobs[chosen]}
    kept, others = [], []
    for p in processes:
        nccl = any("libnccl" in name or "librccl" in name for name in p.libraries)
        ours = p.pid in pids or p.pid in parents or p.ppid in pids or (p.rank is None and nccl and p.role == "rank")
        (kept if ours else others).append(p)
    return kept, others
