"""Communicators whose ranks stopped at different calls, from call lines of NCCL's log, and those that never came up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagnose.model import Fact, FactBase, Value
from diagnose.tables.progress.mismatches import mismatch_fact
from diagnose.tables.progress.stall import (
    Stall,
    hang_signs,
    some_evidence,
)


def coll_stalls(base: FactBase, *, symptoms: bool) -> tuple[list[Stall], list[Fact]]:
    """Communicators whose ranks stopped at different calls, or at one call with different arguments.

    Hosts call ahead of their GPUs, and logs are buffered: where nothing else says that the job hangs, a difference is a
    snapshot.
    """
    calls: dict[str, dict[int, list[Fact]]] = defaultdict(lambda: defaultdict(list))
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind == "nccl_collective" and "comm_id" in o.fields and isinstance(rank, int):
            calls[str(o.fields["comm_id"])][rank].append(o)
    stalls: list[Stall] = []
    mismatches: list[Fact] = []
    for comm, ranks in sorted(calls.items()):
        last = {r: max(found, key=lambda o: int(o.fields["op_count"])) for r, found in ranks.items()}  # type: ignore[arg-type]
        counts = {r: int(o.fields["op_count"]) for r, o in last.items()}  # type: ignore[arg-type]
        top = max(counts.values())
        waiting = frozenset(r for r, n in counts.items() if n == top)
        behind = {r: n for r, n in counts.items() if n < top}
        torn = {r for r, n in behind.items() if top - n <= _torn(last[r])}
        behind = {r: n for r, n in behind.items() if r not in torn}
        lag = top - min([top, *behind.values()])
        size = next((int(o.fields["nranks"]) for o in last.values() if isinstance(o.fields.get("nranks"), int)), None)  # type: ignore[arg-type]
        mismatch = _coll_mismatch(comm, ranks)
        if mismatch:
            mismatches.append(mismatch)
        if not mismatch and (not behind or len(behind) > len(waiting) or not (lag >= 2 or symptoms)):
            continue
        facts = [*(last[r] for r in sorted(behind)), *(last[r] for r in sorted(waiting))]
        op = str(last[min(waiting)].fields["op"])
        world = size if size == base.world else None
        stalls.append(
            Stall(
                f"comm {comm}",
                top,
                op,
                "coll_log",
                waiting,
                behind,
                world,
                some_evidence(facts),
                mismatch=bool(mismatch),
                certain=symptoms or bool(mismatch) or hang_signs(base),
            )
        )
    return _without_victims(stalls), mismatches


def _torn(call: Fact) -> int:
    """How many calls may have followed that cannot be read."""
    return n if isinstance(n := call.fields.get("torn"), int) else 0


def _without_victims(stalls: list[Stall]) -> list[Stall]:
    """A rank that waits in one communicator is behind in another because of that; stalls of such ranks alone go."""
    waiting = {r for s in stalls if s.behind for r in s.waiting}
    kept = [
        replace(s, behind={r: n for r, n in s.behind.items() if r not in waiting}) if s.behind else s for s in stalls
    ]  # fmt: skip
    guilty = [s for s in kept if s.behind or s.mismatch]
    return guilty or stalls


def _coll_mismatch(comm: str, ranks: Mapping[int, list[Fact]]) -> Fact | None:
    by_count: dict[int, dict[tuple[Value | None, ...], dict[int, Fact]]] = defaultdict(lambda: defaultdict(dict))
    for rank, found in ranks.items():
        for o in found:
            if o.fields["op"] in ("Send", "Recv", "AlltoAll", "Gather", "Scatter"):
                continue
            signature = tuple(o.fields.get(n) for n in ("op", "elements", "datatype", "root"))
            by_count[int(o.fields["op_count"])][signature][rank] = o  # type: ignore[arg-type]
    for count, signatures in sorted(by_count.items()):
        if len(signatures) > 1:
            return mismatch_fact(f"comm {comm}", count, signatures, ("op", "elements", "datatype", "root"))
    return None


def init_stalls(base: FactBase, crashed: set[int]) -> Iterator[Stall]:
    """Communicators that some ranks started and none completed, where something else says that the job hangs or died.

    Without that word the log may be cut, or the job may have started a second ago.
    """
    if not crashed and not hang_signs(base):
        return
    comms: dict[str, dict[str, dict[int, Fact]]] = defaultdict(lambda: defaultdict(dict))
    for o in base.observations:
        rank = o.fields.get("comm_rank")
        if o.kind == "nccl_comm" and "comm_id" in o.fields and isinstance(rank, int):
            comms[str(o.fields["comm_id"])][str(o.fields["state"])][rank] = o
    for comm, states in sorted(comms.items()):
        started, complete = states.get("started", {}), states.get("complete", {})
        waiting = started.keys() - complete.keys()
        if not waiting or complete or states.get("aborted") or states.get("destroyed"):
            continue
        facts = [started[r] for r in sorted(waiting)]
        size = int(facts[0].fields["nranks"])  # type: ignore[arg-type]
        if size == len(waiting) and not crashed:
            continue
        world = size if size == base.world else None
        yield Stall(
            f"comm {comm}", None, "communicator init", "init", frozenset(waiting), {}, world, some_evidence(facts)
        )


def inspector_stalls(base: FactBase) -> list[Stall]:
    """Communicators of all ranks in which few ranks have completed less than the others.

    Only for jobs that complain: a difference alone may be a matter of when the records were written.
    """
    comms: dict[str, dict[int, Fact]] = defaultdict(dict)
    for o in base.observations:
        if o.kind == "inspector_progress":
            ranks = comms[str(o.fields["comm_id"])]
            rank = int(o.fields["comm_rank"])  # type: ignore[arg-type]
            if rank not in ranks or int(o.fields["seq"]) > int(ranks[rank].fields["seq"]):  # type: ignore[arg-type]
                ranks[rank] = o
    stalls: list[Stall] = []
    for comm, ranks in sorted(comms.items()):
        numbers = {r: int(o.fields["seq"]) for r, o in ranks.items()}  # type: ignore[arg-type]
        top = max(numbers.values())
        behind = {r: n for r, n in numbers.items() if n < top}
        size = next((int(o.fields["size"]) for o in ranks.values() if "size" in o.fields), None)  # type: ignore[arg-type]
        if not behind or len(behind) * 4 > len(numbers) or size is None or (base.world or size) != size:
            continue
        shown = [ranks[r] for r in (*sorted(behind)[:3], *sorted(numbers.keys() - behind.keys())[:2])]
        op = str(shown[-1].fields.get("op", ""))
        waiting = frozenset(numbers.keys() - behind.keys())
        stalls.append(Stall(f"comm {comm}", top, op, "inspector", waiting, behind, size, some_evidence(shown)))
    return stalls
