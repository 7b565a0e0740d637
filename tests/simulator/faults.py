"""Injects a fault into a job and tells the truth about it.

A fault that does not stop the job, or shows nowhere, is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .execution import Faults, Outcome, execute
from .layout import Layout
from .program import Op, programs, resized

MIN_ENTRIES = 50


@dataclass
class Truth:
    """What really happened. `ranks` are the guilty ones, `host` that of a dead NIC or hung GPU."""

    fault: str
    ranks: set[int] = field(default_factory=set)
    host: str | None = None
    crashed: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)


@dataclass
class Run:
    """A job that ran to where it stopped."""

    layout: Layout
    programs: list[list[Op]]
    outcome: Outcome
    truth: Truth
    later: Outcome | None = None


Maker = Callable[[Random, Layout, list[list[Op]], int, int, Faults], Truth | None]


def _late_rank(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    faults.host_stops[rank] = at
    return Truth("sleep", {rank})


def _late_ranks(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    others = {rank, *(rng.randrange(layout.world) for _ in range(rng.randrange(1, 4)))}
    others = {r for r in others if layout.stage(r) == layout.stage(rank)}
    if len(others) * 3 > layout.world:
        return None
    faults.host_stops.update(dict.fromkeys(others, at))
    return Truth("sleep-several", others)


def _crash(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    faults.host_stops[rank] = faults.gpu_stops[rank] = at
    return Truth("crash", {rank}, crashed={rank})


def _group_of_three(layout: Layout, rank: int, op: Op) -> bool:
    group = layout.of[rank].get(op.dim)
    return not op.transfer and group is not None and len(group.ranks) >= 3


def _skip(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    if not _group_of_three(layout, rank, jobs[rank][at]):
        return None
    jobs[rank] = jobs[rank][:at] + jobs[rank][at + 1 :]
    return Truth("skip", {rank})


def _extra(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    op = jobs[rank][at]
    if not _group_of_three(layout, rank, op):
        return None
    more = rng.choice((op, Op(op.dim, "all_reduce", (7,), (7,), "Long"), Op(op.dim, "broadcast", (64,), (64,), "Long")))
    jobs[rank] = [*jobs[rank][:at], more, *jobs[rank][at:]]
    return Truth("extra", {rank})


def _barrier(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    if layout.world < 3:
        return None
    jobs[0] = [*jobs[0][:at], Op("world", "barrier", (1,), (1,), "Byte", sync=True), *jobs[0][at:]]
    return Truth("rank0-barrier", {0})


def _size(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    op = jobs[rank][at]
    if not _group_of_three(layout, rank, op) or op.uneven:
        return None
    jobs[rank] = [*jobs[rank][:at], resized(op, rng), *jobs[rank][at + 1 :]]
    return Truth("size", {rank})


def _dtype(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    op = jobs[rank][at]
    if not _group_of_three(layout, rank, op) or op.dtype != "Float":
        return None
    wrong = Op(op.dim, op.name, op.in_size, op.out_size, "Half", op.stream, op.sync)
    jobs[rank] = [*jobs[rank][:at], wrong, *jobs[rank][at + 1 :]]
    return Truth("dtype", {rank})


def _order(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    job = jobs[rank]
    if at + 1 >= len(job) or job[at].dim == job[at + 1].dim or job[at].transfer or job[at + 1].transfer:
        return None
    if not (_group_of_three(layout, rank, job[at]) and _group_of_three(layout, rank, job[at + 1])):
        return None
    jobs[rank] = [*job[:at], job[at + 1], job[at], *job[at + 2 :]]
    return Truth("order", {rank})


def _dead_nic(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    if len(layout.hosts) < 2:
        return None
    host = layout.host(rank)
    faults.dead_links[host] = at
    return Truth("dead-nic", host=host)


def _hung_gpu(rng: Random, layout: Layout, jobs: list[list[Op]], rank: int, at: int, faults: Faults) -> Truth | None:
    faults.gpu_stops[rank] = at
    return Truth("hung-gpu", {rank}, host=layout.host(rank))


MAKERS: dict[str, tuple[Maker, float]] = {
    "sleep": (_late_rank, 22), "sleep-several": (_late_ranks, 10), "crash": (_crash, 18), "skip": (_skip, 8),
    "extra": (_extra, 7), "rank0-barrier": (_barrier, 4), "size": (_size, 9), "dtype": (_dtype, 4), "order": (_order, 4),
    "dead-nic": (_dead_nic, 6), "hung-gpu": (_hung_gpu, 8),
}  # fmt: skip


def healthy(rng: Random, layout: Layout, *, calm: bool) -> Run:
    """A job in which nothing is wrong: at a moment while it runs, or waiting for its next step with all done."""
    jobs = programs(layout, rng, _steps(layout, rng))
    if calm:
        return Run(layout, jobs, execute(layout, jobs, Faults()), Truth("healthy"))
    share, order = rng.uniform(0.6, 0.8), rng.randrange(1 << 30)
    outcome = execute(layout, jobs, Faults(), Random(order), share)
    later = execute(layout, jobs, Faults(), Random(order), share + 0.15)
    return Run(layout, jobs, outcome, Truth("healthy"), later)


def broken(rng: Random, layout: Layout, name: str) -> Run | None:
    """A job with one fault of that name; None when it could not be placed."""
    for _ in range(12):
        jobs = programs(layout, rng, _steps(layout, rng))
        rank = rng.randrange(layout.world)
        length = len(jobs[rank])
        at = rng.randrange(max(MIN_ENTRIES, length // 2), max(MIN_ENTRIES + 1, length - 4))
        if at >= length:
            continue
        faults = Faults()
        truth = MAKERS[name][0](rng, layout, jobs, rank, at, faults)
        if truth is None:
            continue
        run = Run(layout, jobs, execute(layout, jobs, faults), truth)
        if _shows(run, faults):
            return run
    return None


def twice(rng: Random, layout: Layout) -> Run | None:
    """Two ranks that are late or dead, each with its own victims."""
    for _ in range(12):
        jobs = programs(layout, rng, _steps(layout, rng))
        a, b = rng.sample(range(layout.world), 2)
        length = min(len(jobs[a]), len(jobs[b]))
        at = rng.randrange(max(MIN_ENTRIES, length // 2), max(MIN_ENTRIES + 1, length - 4))
        if at >= length:
            continue
        faults = Faults({a: at, b: at})
        truth = Truth("two-faults", {a, b})
        if rng.random() < 0.5:
            faults.gpu_stops[b] = at
            truth.crashed = {b}
        run = Run(layout, jobs, execute(layout, jobs, faults), truth)
        if _shows(run, faults) and all(_awaited(run, r) for r in (a, b)):
            return run
    return None


def _steps(layout: Layout, rng: Random) -> int:
    length = min(map(len, programs(layout, rng, 1)))
    return -(-(MIN_ENTRIES + 14) // length) + rng.randrange(2, 4)


def _shows(run: Run, faults: Faults) -> bool:
    """The job stopped, everybody has history, and the guilty are waited for."""
    if all(run.outcome.finished) or min(map(len, run.outcome.calls)) < MIN_ENTRIES:
        return False
    guilty = run.truth.ranks & faults.host_stops.keys()
    return all(_awaited(run, rank) for rank in guilty)


def _awaited(run: Run, rank: int) -> bool:
    """A peer has enqueued, and its stream come to, something that this rank has not enqueued; it waits for nobody."""
    own = {c.key for c in run.outcome.calls[rank]}
    if any(not c.done for c in run.outcome.calls[rank] if c.key):
        return False
    for group in set(run.layout.of[rank].values()):
        for peer in group.ranks:
            for call in run.outcome.calls[peer][-60:]:
                open_here = call.group == group.name and call.arrived and not call.done and call.key not in own
                if open_here and (not call.op.transfer or rank in call.key[1:3]):
                    return True
    return False
