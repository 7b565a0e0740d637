"""The job's log files and flight-recorder dumps: where they are, and takes that copy them. Never opens them itself.

A file may lie on a file system that does not answer, so sizes are asked for by a child, one for each file system.
"""

import os
import re
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from . import proc, runner
from .discover import Found, Process
from .takes import KIB, MIB, Missing, Take, safe_name, shell_line
from .writer import Buffer

HEAD_BYTES = 512 * KIB
PROBE_LIMIT_S = 4.0
MAX_LOGS = 200
NETWORK = (
    "nfs",
    "nfs4",
    "lustre",
    "beegfs",
    "gpfs",
    "ceph",
    "cifs",
    "smb3",
    "9p",
    "glusterfs",
    "afs",
    "wekafs",
    "panfs",
    "orangefs",
    "pvfs2",
)
_SLURM_FILES = re.compile(r"\b(?:StdOut|StdErr)=(/[^\r\n]+)")


class Wanted(object):
    """A file to copy. `place` is how it is reached from here, `shown` its name for its owner. Where only a variable of
    a process names it, it must belong to that process's user (`owner`): root copies nobody else's files for a user.
    """

    def __init__(self, place: str, shown: str, kind: str, rank: Optional[int], pid: Optional[int]) -> None:
        self.place = place
        self.shown = shown
        self.kind = kind
        self.rank = rank
        self.pid = pid
        self.owner: Optional[int] = None
        self.size = -1
        self.modified = 0.0
        self.identity = ""


def find_logs(found: Found, given: Sequence[str] = ()) -> Tuple[List[Wanted], List[Missing]]:
    """Log files of the ranks and launchers: standard output, open logs, NCCL_DEBUG_FILE, container logs, named ones."""
    wanted: List[Wanted] = []
    missing: List[Missing] = []
    for p in found.processes:
        if p.role == "worker":
            continue
        rank = p.rank if p.role == "rank" else None
        for number, target in [("1", p.stdout), ("2", p.stderr)] + (p.open_logs if p.role == "rank" else []):
            what = {"1": "stdout", "2": "stderr"}.get(number, "descriptor " + number)
            if target.startswith("/") and not target.startswith("/dev/"):
                wanted.append(Wanted("/proc/%d/fd/%s" % (p.pid, number), target, "log", rank, p.pid))
            elif number in ("1", "2") and target and not target.startswith("/dev/null"):
                missing.append(
                    ("%s of %s" % (what, p.label), "goes to %s, which cannot be read again" % _kind_of(target))
                )
        for path in _debug_files(p):
            wanted.append(Wanted(_seen_from_here(found, p, path), path, "log", rank, p.pid))
            wanted[-1].owner = p.uid
        for path in _container_logs(p):
            wanted.append(Wanted(path, path, "log", None, None))
    wanted += [Wanted(os.path.abspath(path), path, "log", None, None) for path in given]
    return wanted[: MAX_LOGS * 3], missing


def slurm_logs(text: str) -> List[Wanted]:
    """The files that `scontrol show job` names."""
    return [Wanted(path.strip(), path.strip(), "log", None, None) for path in sorted(set(_SLURM_FILES.findall(text)))]


def find_dumps(found: Found) -> List[Wanted]:
    """Where the flight recorder of each rank would write: settings first, then the defaults of torch 2.2 to 2.14."""
    wanted = []
    for p in found.ranks:
        if p.rank is None:
            continue
        home = p.env.get("HOME", "/root" if p.uid == 0 else "")
        cache = p.env.get("XDG_CACHE_HOME") or (home + "/.cache" if home else "")
        prefixes = [p.env.get("TORCH_FR_DUMP_TEMP_FILE", ""), p.env.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "")]
        prefixes += ["/tmp/nccl_trace_rank_"]
        if cache:
            prefixes += [cache + "/torch/comm_lib_trace_rank_", cache + "/torch/nccl_trace_rank_"]
        for prefix in [x for x in prefixes if x.startswith("/")]:
            path = prefix + str(p.rank)
            wanted.append(Wanted(_seen_from_here(found, p, path), path, "flight_recorder", p.rank, p.pid))
            wanted[-1].owner = p.uid
    return wanted


def probe(
    wanted: Sequence[Wanted], run: "Callable[..., runner.Outcome]" = runner.run
) -> Tuple[List[Wanted], List[Missing]]:
    """Ask for size and time of each; those that exist, each file once, and those whose file system did not answer."""
    there: List[Wanted] = []
    missing: List[Missing] = []
    groups: Dict[str, List[Wanted]] = {}
    mounts = _mounts()
    for w in wanted:
        groups.setdefault(_mount_of(w, mounts), []).append(w)
    for mount, group in sorted(groups.items()):
        out = Buffer()
        argv = [runner.find_program("stat") or "stat", "-L", "-c", "%s %Y %D:%i %u %F|%n"] + [w.place for w in group]
        outcome = run(argv, out, PROBE_LIMIT_S, MIB)
        answers: Dict[str, List[str]] = {}
        for line in out.getvalue().decode("utf-8", "surrogateescape").splitlines():
            facts, _, name = line.partition("|")
            answers[name] = facts.split(" ", 4)
        for w in group:
            answer = answers.get(w.place)
            if answer is not None and answer[4].startswith("regular"):
                if os.geteuid() == 0 and w.owner is not None and w.owner >= 0 and int(answer[3]) != w.owner:
                    missing.append((w.shown, "named by a process of another user than its owner: not copied by root"))
                    continue
                w.size, w.modified, w.identity = int(answer[0]), float(answer[1]), answer[2]
                there.append(w)
            elif answer is None and outcome.timed_out:
                missing.append((w.shown, "the file system at %s did not answer within %g s" % (mount, PROBE_LIMIT_S)))
    return _once(there), missing


def takes(wanted: Sequence[Wanted], cap: int, since: float) -> Tuple[List[Take], List[Missing]]:
    """Copies: whole when small, else head and tail. Files not written to since `since` (epoch s) are left out."""
    made: List[Take] = []
    missing: List[Missing] = []
    used = set()
    for w in sorted(wanted, key=lambda w: (w.kind, w.rank is None, w.rank or 0, w.shown)):
        if w.size == 0:
            continue
        if w.modified < since and w.kind == "log":
            missing.append((w.shown, "not written to in the time asked for"))
            continue
        if len(used) >= MAX_LOGS:
            missing.append((w.shown, "more than %d log files" % MAX_LOGS))
            continue
        name = _name(w)
        while name in used:
            name += "_"
        used.add(name)
        more = {"copied": w.shown, "modified": w.modified, "whole_bytes": w.size}
        if w.pid is not None:
            more["pid"] = w.pid
        if w.kind == "flight_recorder":
            made.append(Take(name, ["cat", w.place], "dumps", 20, 256 * MIB, w.shown, binary=True, suffix="", **more))
        elif w.size <= cap:
            made.append(Take(name, ["head", "-c", str(cap), w.place], "logs", 20, cap, w.shown, **more))
        else:
            tail = cap - HEAD_BYTES
            for part, argv, size in (
                ("head", ["head", "-c", str(HEAD_BYTES)], HEAD_BYTES),
                ("tail", ["tail", "-c", str(tail)], tail),
            ):
                command = "%s: %s of %d bytes" % (w.shown, shell_line(argv), w.size)
                made.append(Take(name + "." + part, argv + [w.place], "logs", 20, size, command, part=part, **more))
    return made, missing


# --- where --------------------------------------------------------------------------------------------


def _debug_files(p: Process) -> List[str]:
    """What NCCL_DEBUG_FILE names for this process: %h is the host, %p the process id as it sees itself."""
    pattern = p.env.get("NCCL_DEBUG_FILE", "")
    if not pattern.startswith("/") and pattern:
        pattern = os.path.join(p.cwd or "/", pattern)
    if not pattern:
        return []
    pid = p.nspid[-1] if p.nspid else p.pid
    host = p.env.get("HOSTNAME") or os.uname()[1]
    return [pattern.replace("%p", str(pid)).replace("%h", h).replace("%%", "%") for h in {host, host.split(".")[0]}]


def _container_logs(p: Process) -> List[str]:
    name = p.container()
    if not name:
        return []
    try:
        found = ["/var/log/containers/" + n for n in os.listdir("/var/log/containers") if name in n]
    except OSError:
        found = []
    return found + ["/var/lib/docker/containers/%s/%s-json.log" % (name, name)]


def _seen_from_here(found: Found, p: Process, path: str) -> str:
    return "/proc/%d/root%s" % (p.pid, path) if p.foreign("mnt", found.own_ns) else path


def _kind_of(target: str) -> str:
    if target.startswith("/dev/"):
        return "the terminal " + target
    return {"pipe": "a pipe", "socket": "a socket"}.get(target.split(":")[0], target)


def _mounts() -> List[Tuple[str, str]]:
    """(mount point, type), longest first."""
    found = []
    for line in proc.text(proc.read("/proc/self/mountinfo")).splitlines():
        left, _, right = line.partition(" - ")
        if right and len(left.split()) > 4:
            found.append((left.split()[4], right.split()[0]))
    return sorted(found, key=lambda m: -len(m[0]))


def _mount_of(w: Wanted, mounts: Sequence[Tuple[str, str]]) -> str:
    """The network or FUSE mount that a file lies on, by its name; `/` for local ones."""
    path = w.shown if w.shown.startswith("/") else w.place
    for point, kind in mounts:
        if point != "/" and (path == point or path.startswith(point.rstrip("/") + "/")):
            return point if kind in NETWORK or kind.startswith("fuse") else "/"
    return "/"


def _once(there: Sequence[Wanted]) -> List[Wanted]:
    """Each file once; one that several ranks write to belongs to no single rank."""
    found: Dict[str, Wanted] = {}
    for w in there:
        first = found.setdefault(w.identity, w)
        if first is not w and first.rank != w.rank:
            first.rank = None
            first.pid = None
    return list(found.values())


def _name(w: Wanted) -> str:
    base = safe_name(re.sub(r"(?<![A-Za-z])[Tt](\d{1,3})(?=[._-]|$)", r"T_\1", os.path.basename(w.shown)))
    if w.kind == "flight_recorder":
        return "flight_recorder/" + base
    stem = re.sub(r"\.(?:txt|log|out|err)$", "", base)
    rank = "" if w.rank is None or re.search(r"rank", stem) else "rank%d." % w.rank
    return "logs/" + rank + stem
