"""Whether NCCL's RAS service may be asked, and the takes that ask it.

Asking is refused while initialisation may be unfinished and for releases in which a question has crashed the job.
"""

import os
import pkgutil
import re
import sys
from typing import Callable, List, Optional, Sequence, Tuple

from . import runner
from .discover import Found, Process
from .takes import MIB, Missing, Take
from .writer import Buffer

PORT = 28028
YOUNG_S = 180.0
"""A job younger than this may still be initialising."""

# First and last release of each range, and the public report of a crash (github.com/NVIDIA/nccl/issues/N).
KNOWN_CRASHES = (
    ((2, 24, 0), (2, 27, 3), "1669, 1718, 1762"),
    ((2, 27, 7), (2, 27, 7), "1996"),
    ((2, 29, 0), (2, 29, 7), "2346"),
)
JSON_FROM = (2, 28, 7)
RAS_FROM = (2, 24, 0)
_IN_NAME = re.compile(r"libnccl\.so\.(\d+)\.(\d+)\.(\d+)")
_IN_TEXT = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)")
_DIST = re.compile(r"nvidia_nccl_cu\d+-(\d+)\.(\d+)\.(\d+)")
_INITIALISING = re.compile(
    rb"init_process_group|_new_process_group_helper|\bnew_group \(|ncclCommInit|_store_based_barrier|rendezvous \("
)
Version = Tuple[int, int, int]


def version_of(p: Process, run: "Callable[..., runner.Outcome]" = runner.run) -> Optional[Version]:
    """Release of the libnccl that a process has mapped: by its name, its wheel, or the text inside it."""
    for path in [x for x in p.libraries if "libnccl" in os.path.basename(x)]:
        match = _IN_NAME.search(path)
        if match:
            return _three(match.groups())
        packages = path.split("/nvidia/nccl/")[0]
        for name in _names("/proc/%d/root%s" % (p.pid, packages)) if packages != path else []:
            match = _DIST.match(name)
            if match:
                return _three(match.groups())
        out = Buffer()
        place = "/proc/%d/root%s" % (p.pid, path)
        argv = [runner.find_program("grep") or "grep", "-a", "-o", "-m", "1", "NCCL version [0-9.]*", place]
        run(argv, out, 8.0, 4096)
        found = _IN_TEXT.search(out.getvalue())
        if found:
            return _three([g.decode("ascii") for g in found.groups()])
    return None


def _three(groups: Sequence[str]) -> Version:
    return int(groups[0]), int(groups[1]), int(groups[2])


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def objection(version: Optional[Version], age_s: float, stacks: Sequence[bytes], texts: Sequence[bytes]) -> str:
    """Why RAS must not be asked; empty when nothing speaks against it. `stacks` and `texts` are what was collected."""
    if version is None:
        return "the release of NCCL is not known"
    if version < RAS_FROM:
        return "NCCL %d.%d.%d has no RAS" % version
    for first, last, issues in KNOWN_CRASHES:
        if first <= version <= last:
            return "NCCL %d.%d.%d can crash when it is asked (NCCL issues %s)" % (version + (issues,))
    if age_s < YOUNG_S:
        return "the job is younger than %d s: its initialisation may be unfinished" % YOUNG_S
    if any(_INITIALISING.search(stack) for stack in stacks):
        return "a rank is still initialising"
    started = sum(t.count(b"Init START") for t in texts)
    if started > sum(t.count(b"Init COMPLETE") for t in texts):
        return "initialisation is unfinished by the logs"
    return ""


def plan(
    found: Found, forced: bool, stacks: Sequence[bytes], texts: Sequence[bytes]
) -> Tuple[List[Take], List[Missing]]:
    """Takes for every RAS service of this host's ranks (one for each network namespace and address)."""
    made: List[Take] = []
    missing: List[Missing] = []
    seen: set = set()
    for p in found.ranks:
        if not any("libnccl" in os.path.basename(x) for x in p.libraries):
            continue
        host, port = _address(p.env.get("NCCL_RAS_ADDR", ""))
        where = (p.ns.get("net"), host, port)
        if where in seen:
            continue
        seen.add(where)
        if p.env.get("NCCL_RAS_ENABLE") == "0":
            missing.append(("NCCL RAS", "switched off by NCCL_RAS_ENABLE=0"))
            continue
        version = version_of(p)
        why = objection(version, p.age, stacks, texts)
        if why and not (forced and (version is None or version >= RAS_FROM)):
            missing.append(
                ("NCCL RAS at %s:%d" % (host, port), why + ("" if "has no RAS" in why else "; --ras asks all the same"))
            )
            continue
        enter = ["nsenter", "-t", str(p.pid), "-n", "--"] if p.foreign("net", found.own_ns) else []
        number = "" if len(seen) == 1 else ".%d" % len(seen)
        for form in ("text", "json") if version is None or version >= JSON_FROM else ("text",):
            argv = enter + [sys.executable or "python3", "-I", "-S", "-c", _source(), host, str(port), form, "8"]
            shown = "ncclras -h %s -p %d -v -f %s" % (host, port, form)
            made.append(
                Take(
                    "ras/ncclras-%s%s" % (form, number),
                    argv,
                    "ras",
                    12,
                    16 * MIB,
                    shown,
                    suffix=".json" if form == "json" else ".txt",
                )
            )
    return made, missing


def _source() -> str:
    package = __name__.rpartition(".")[0]
    return (pkgutil.get_data(package, "ras.py") or b"").decode("utf-8")


def _address(text: str) -> Tuple[str, int]:
    """Host and port of NCCL_RAS_ADDR (`host:port`, `[v6]:port`); the default is localhost:28028."""
    host, _, port = text.rpartition(":")
    if port.isdigit() and host:
        return host.strip("[]"), int(port)
    return "localhost", PORT
