"""systemd-cgtop: batch output without header, interactive captures with one, `--raw`, `--cpu=time`.

Format: systemd 219 to 258; since 254 paths have no leading slash (`user.slice/user-1008.slice`), here they get one.
Rows are read from the right (paths hold spaces); `-` is unknown, never 0. The first
iteration has no rates, so the groups are those of the last iteration that has any. `cpu_share` is the share of all
CPUs where the text also tells their number (lscpu), else the share of what the root group used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence

KIND = "cgtop"
TOPICS = ("cgroup_usage",)

MAX_GROUPS = 2_000

_HEADER = re.compile(
    r"^\s{0,4}(?:Control Group|CGroup|Path)\s.{0,400}?\b(?:Tasks|Procs?\+?)\s+.{0,10}(?:%CPU|CPU Time)", re.M
)
_SIZE = re.compile(r"-|\d{1,20}(?:\.\d{1,3})?[BKMGTPE]?")
_TIME_PART = re.compile(r"\d{1,12}(?:\.\d{1,9})?(?:us|ms|s|min|h|d|w|month|y)")
_PERCENT = re.compile(r"\d{1,9}\.\d")
_KNOWN_GROUP = re.compile(r"^/(?:system\.slice|init\.scope|user\.slice|machine\.slice|kubepods|docker|slurm|$|\s)")
_RELATIVE = re.compile(r"[\w@:.\\-]{1,255}\.(?:slice|scope|service|mount|socket|swap)(?=[/\s])")
_CPUS = re.compile(r"^\s{0,4}CPU\(s\):\s{1,60}(\d{1,5})\s*$")
_JOB = re.compile(r"/(?:slurm|slurmstepd\.scope|job_\d+|step_|pbspro|htcondor)(?:/|\b|_)")
_FACTORS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}


@dataclass(slots=True)
class _Row:
    path: str
    line: Line
    tasks: int | None
    cpu: float | None
    cpu_time: bool
    memory: float | None
    read: float | None
    written: float | None


@dataclass(slots=True)
class _Iteration:
    rows: dict[str, _Row] = field(default_factory=dict[str, _Row])

    @property
    def has_rates(self) -> bool:
        return any(r.cpu is not None or r.read is not None or r.written is not None for r in self.rows.values())


def sniff(head: str, name: str) -> float:
    """Sure on the header, or on rows of well-known groups."""
    if "Control Group" in head or "CGroup" in head or "%CPU" in head:
        m = _HEADER.search(head)
        if m:
            return 0.9
    rows = known = 0
    for text in head[:400_000].split("\n"):
        row = _row(Line(1, text)) if text[:1] in "/ " or ".slice" in text or ".scope" in text else None
        if row is not None:
            rows += 1
            known += _KNOWN_GROUP.match(row.path) is not None
            if known >= 2:
                return 0.9
    return 0.6 if rows and known else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """The groups of the last iteration with rates, and what accounting left out."""
    iterations: list[_Iteration] = []
    count = 0
    cpus: int | None = None
    fresh = True
    seen_cpu = seen_memory = seen_time = False
    first: Line | None = None
    cut: Line | None = None
    for line in lines:
        text = line.text
        m = _CPUS.match(text)
        if m:
            cpus = int(m.group(1))
        row = _row(line)
        if row is None and cut is not None and _SIZE.fullmatch(text.strip()):
            row = _row(Line(cut.number, f"{cut.text} {text.strip()}"))  # a column too wide pushes the last one down
        cut = line if row is None and _path(text) else None
        if row is None:
            fresh = fresh or cut is None
            continue
        if fresh or row.path in iterations[-1].rows:
            iterations = [*iterations[-2:], _Iteration()]
            count += 1
            fresh = False
        first = first or line
        if len(iterations[-1].rows) < MAX_GROUPS:
            iterations[-1].rows[row.path] = row
        seen_cpu = seen_cpu or row.cpu is not None
        seen_time = seen_time or row.cpu_time
        seen_memory = seen_memory or (row.memory is not None and row.path != "/")
    if first is None:
        return
    chosen = _choose(iterations)
    yield from (_record(r, chosen, cpus, count, source) for r in chosen.rows.values())
    accounting: dict[str, object] = {"cpu": seen_cpu, "memory": seen_memory, "iterations": count}
    if not seen_cpu:
        single = count == 1 and seen_memory
        accounting["reason"] = "cpu_time" if seen_time else "single_iteration" if single else "accounting_off"
    yield Record("cgroup_accounting", cast(Fields, accounting), (evidence(source, first),))


def _choose(iterations: list[_Iteration]) -> _Iteration:
    """The last iteration with rates; one that was cut short gives way to the one before."""
    rated = [i for i in iterations if i.has_rates] or iterations
    if len(rated) > 1 and len(rated[-1].rows) * 2 < len(rated[-2].rows):
        return rated[-2]
    return rated[-1]


def _path(text: str) -> str | None:
    """The line with the leading slash of its group, or None when it starts with no group."""
    text = text.strip()
    if not text or len(text) > 5_000:
        return None
    return text if text[0] == "/" else f"/{text}" if _RELATIVE.match(text) else None


def _row(line: Line) -> _Row | None:
    text = _path(line.text)
    if text is None:
        return None
    parts = text.rsplit(None, 3)
    if len(parts) != 4 or not all(_SIZE.fullmatch(p) for p in parts[1:]):
        return None
    rest, cpu, cpu_time = _cpu(parts[0])
    head = rest.rsplit(None, 1)
    if len(head) != 2 or not (head[1] == "-" or (head[1].isdecimal() and len(head[1]) < 10)):
        return None
    return _Row(
        head[0].rstrip(), line, None if head[1] == "-" else int(head[1]), cpu, cpu_time,
        _size(parts[1]), _size(parts[2]), _size(parts[3]),
    )  # fmt: skip


def _cpu(text: str) -> tuple[str, float | None, bool]:
    """What stands before the CPU column, the percentage, and whether the column is a time instead."""
    rest = text
    taken = 0
    while True:
        parts = rest.rsplit(None, 1)
        if len(parts) != 2:
            break
        if taken == 0 and parts[1] == "-":
            return parts[0], None, False
        if taken == 0 and _PERCENT.fullmatch(parts[1]):
            return parts[0], float(parts[1]), False
        if taken == 0 and parts[1].isdecimal():
            return parts[0], None, True
        if taken > 8 or not _TIME_PART.fullmatch(parts[1]):
            break
        rest, taken = parts[0], taken + 1
    return rest if taken else "", None, taken > 0


def _size(text: str) -> float | None:
    if text == "-":
        return None
    factor = _FACTORS.get(text[-1])
    return float(text[:-1]) * factor if factor else float(text)


def _is_job(path: str) -> bool | None:
    """True for groups that a batch system makes, False for services, None where either is possible."""
    if _JOB.search(path):
        return True
    if path == "/init.scope" or (path.startswith("/system.slice/") and "docker" not in path and "cri-" not in path):
        return False
    return None


def _record(row: _Row, iteration: _Iteration, cpus: int | None, count: int, source: Source) -> Record:
    root = iteration.rows.get("/")
    share: float | None = None
    basis: str | None = None
    if row.cpu is not None and cpus:
        share, basis = row.cpu / (100 * cpus), "cpus"
    elif row.cpu is not None and row.path != "/" and root is not None and root.cpu:
        share, basis = min(1.0, row.cpu / root.cpu), "root"
    fields = drop_none(
        path=row.path, tasks=row.tasks, cpu_pct=row.cpu, cpu_share=None if share is None else round(share, 6),
        cpu_share_basis=basis, memory_bytes=None if row.memory is None else int(row.memory), input_bps=row.read,
        output_bps=row.written, iterations=count, job=_is_job(row.path),
    )  # fmt: skip
    return Record("cgroup_usage", cast(Fields, fields), (evidence(source, row.line),))
