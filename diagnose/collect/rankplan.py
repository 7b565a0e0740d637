"""What is taken of the processes of a job: states, kernel and Python stacks, twice; limits and native stacks once."""

import os
import re
import sys
from typing import List, Optional, Sequence, Tuple

from . import devices, runner
from .discover import Found, Process
from .options import Options
from .takes import MIB, Missing, Take, grep, twice

MAX_WORKERS = 32
_WAITS = re.compile(rb"_try_get_data|_get_data \(torch/utils/data")
_PROCESS = re.compile(rb"^Process (\d+): ", re.MULTILINE)


def ranks(options: Options, found: Found, missing: List[Missing]) -> List[Take]:
    """State, kernel and Python stacks of each rank in both snapshots; limits and native stacks once."""
    made: List[Take] = []
    spy, why = py_spy(options, found)
    if spy is None and found.ranks:
        missing.append(("py-spy dump of %d ranks" % len(found.ranks), why))
    for p in found.processes:
        if p.role == "rank":
            made += _rank(p, spy, options)
        elif p.role == "launcher":
            made += twice(
                grep(
                    "proc/%s.%s" % (p.role, p.label), _states(p.pid), "proc", "/proc/%d/{status,stat,wchan}" % p.pid, 5
                )
            )
    workers = [p for p in found.processes if p.role == "worker"][:256]
    if workers:
        files = [f for p in workers for f in _states(p.pid)]
        made += twice(
            grep(
                "proc/workers",
                files,
                "proc",
                "/proc/{%s}/{status,stat,wchan}" % ",".join(str(p.pid) for p in workers[:8]),
                8,
            )
        )
    if os.geteuid() != 0 and found.ranks:
        missing.append(("/proc/PID/stack, lspci -vvv capabilities, dmesg on most systems", "needs root"))
    return made


def _states(pid: int) -> List[str]:
    return ["/proc/%d/%s" % (pid, n) for n in ("status", "stat", "wchan", "stack", "syscall", "schedstat")]


def _rank(p: Process, spy: Optional[str], options: Options) -> List[Take]:
    label = p.label
    files = _states(p.pid) + ["/proc/%d/%s" % (p.pid, n) for n in ("io", "oom_score", "oom_score_adj")]
    both = grep("proc/state." + label, files, "proc", "/proc/%d/{status,stat,wchan,stack,syscall,io}" % p.pid, 5)
    threads = [t for t in devices.names("/proc/%d/task" % p.pid) if t.isdigit()][:400]
    of_threads = ["/proc/%d/task/%s/%s" % (p.pid, t, n) for t in threads for n in ("comm", "stat", "wchan")]
    if len(threads) <= 100:
        of_threads += ["/proc/%d/task/%s/stack" % (p.pid, t) for t in threads]
    both += grep("proc/threads." + label, of_threads, "proc", "/proc/%d/task/*/{comm,stat,wchan,stack}" % p.pid, 5)
    if spy:
        for take in both:
            take.extra["rank"] = p.rank
        both.append(
            Take(
                "stacks/py-spy." + label,
                [spy, "dump", "--nonblocking", "--pid", str(p.pid)],
                "stacks",
                12,
                2 * MIB,
                rank=p.rank,
                pid=p.pid,
            )
        )
    made = twice(both)
    made.append(Take("proc/limits." + label, ["cat", "/proc/%d/limits" % p.pid], "files", 5))
    if options.gdb:
        argv = ["gdb", "-nx", "-batch", "-p", str(p.pid), "-ex", "set pagination off", "-ex", "thread apply all bt 60"]
        made.append(Take("stacks/gdb." + label, argv, "gdb", 45, 4 * MIB, rank=p.rank, pid=p.pid))
    return made


def worker_stacks(options: Options, found: Found, stacks: Sequence[bytes]) -> List[Take]:
    """Stacks of the loader workers of ranks that wait for them, as the ranks' own stacks tell; twice."""
    spy, _ = py_spy(options, found)
    waiting = {int(m.group(1)) for text in stacks if _WAITS.search(text) for m in _PROCESS.finditer(text)}
    made = []
    for p in [p for p in found.processes if p.role == "worker" and p.ppid in waiting][:MAX_WORKERS]:
        argv = [spy or "py-spy", "dump", "--nonblocking", "--pid", str(p.pid)]
        made.append(Take("stacks/worker-py-spy." + p.label, argv, "workers", 12, MIB, rank=p.rank, pid=p.pid))
    return twice(made) if spy else []


def py_spy(options: Options, found: Found) -> Tuple[Optional[str], str]:
    """The py-spy to run: the one named, on PATH, beside this Python, or beside a rank's; root runs no one else's."""
    if options.py_spy:
        return os.path.abspath(options.py_spy), ""
    places = [runner.find_program("py-spy"), os.path.join(os.path.dirname(sys.executable or "/x"), "py-spy")]
    for p in found.ranks:
        words = [w for w in p.cmdline[:1] if w.startswith("/")] + [p.exe]
        places += [os.path.join(os.path.dirname(w), "py-spy") for w in words if not p.foreign("mnt", found.own_ns)]
    why = "not installed: pip install py-spy, or --py-spy PATH"
    for place in places:
        if not place or not os.path.isfile(place) or not os.access(place, os.X_OK):
            continue
        if os.geteuid() == 0 and os.stat(place).st_uid != 0:
            why = "%s belongs to another user, and root does not run it; --py-spy PATH names one to trust" % place
            continue
        return os.path.abspath(place), ""
    return None, why
