"""Stalls that Python stacks alone show: two dumps of every rank, some seconds apart, in which nothing moves.

One dump proves nothing: in a healthy job too, somebody is in a collective and somebody in the data loader. A rank is
behind when its main thread sits at the same line, outside of collectives, in every dump, while more ranks than are
behind sit in collectives in every dump. Where logs tell sequence numbers, those decide and the stacks only support.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from diagnose.model import Evidence, Fact, FactBase, Value, fold_ranks
from diagnose.tables.progress.stall import placed_ranks

MAX_SUSPECTS = 40
WAITING = ("collective", "cuda")
"""Where the main thread of a rank is that waits for others: in the call, or for the GPU that runs it."""
_FRAME = re.compile(r"(?P<function>[^()]{1,200}) \((?P<file>[^():]{1,300}):(?P<line>\d{1,9})\)")
_PLUMBING = re.compile(
    r"(?:selectors|threading|queue|socket|ssl|subprocess|popen_\w+)\.py|(?:multiprocessing|concurrent|asyncio|torch)/|<"
)
"""Files of Python and PyTorch, in which everybody waits; the caller is what tells ranks apart."""
TOLD_OTHERWISE = frozenset({"torch_timeout", "torch_pg_status", "torch_desync", "torch_barrier", "fr_group"})
"""Kinds that tell how far ranks got: with one of them, stacks are not asked."""


def derive(base: FactBase) -> Iterator[Fact]:
    """One `stall` with the ranks that wait and those behind, and a `suspect_rank` for each of the latter."""
    if any(o.kind in TOLD_OTHERWISE for o in base.observations):
        return
    processes = _main_threads(base)
    stacks = {rank: dumps[0] for rank, dumps in processes.items()}
    waiting = {rank: dumps for rank, dumps in stacks.items() if all(o.fields["where"] in WAITING for o in dumps)}
    behind = {
        rank: dumps for rank, dumps in stacks.items()
        if rank not in waiting and len({_place(o) for o in dumps}) == 1
        and not any(o.fields["where"] in WAITING for o in dumps)
    }  # fmt: skip
    in_call = [o for dumps in waiting.values() for o in dumps if o.fields["where"] == "collective"]
    if not behind or not in_call or len(waiting) <= len(behind):
        return
    op = Counter(str(o.fields.get("function", "a collective")) for o in in_call).most_common(1)[0][0]
    world = base.world if base.world and base.world >= len(stacks) else len(stacks)
    silent = set(range(world)) - set(stacks)
    last = {rank: dumps[-1] for rank, dumps in {**behind, **waiting}.items()}
    hosts = {rank: str(o.fields["host"]) for rank, o in last.items() if "host" in o.fields}
    call = f"{op} (by the stacks)"
    details = {rank: _detail(processes[rank]) for rank in sorted(behind)}
    evidence: list[Evidence] = [last[r].evidence[0] for r in (*sorted(behind), *sorted(waiting)) if last[r].evidence]
    yield Fact("", "stall", {
        "evidence_kind": "stacks", "verdict": "behind_rank", "op": op, "what": call,
        "who": placed_ranks(behind, hosts), "detail": "; ".join(list(details.values())[:4]),
        "waiting": fold_ranks(waiting), "waiting_count": len(waiting),
        "behind": fold_ranks(behind), "behind_count": len(behind), "world": world, "all_entered": False,
        "silent": fold_ranks(silent), "silent_count": len(silent),
        "others": f"of ranks {fold_ranks(silent)} there are no stacks" if silent else "no rank is silent",
    }, tuple(evidence[:6]))  # fmt: skip
    for rank in sorted(behind)[:MAX_SUSPECTS]:
        fields: dict[str, Value] = {
            "rank": rank, "reason": "behind", "who": placed_ranks([rank], hosts), "stall": call,
            "waiting_count": len(waiting), "detail": details[rank],
        }  # fmt: skip
        fields.update({name: last[rank].fields[name] for name in ("host", "pid") if name in last[rank].fields})
        yield Fact("", "suspect_rank", fields, tuple(e for o in behind[rank] for e in o.evidence[:1]))


def _main_threads(base: FactBase) -> dict[int, list[list[Fact]]]:
    """Rank -> for each of its processes the main thread in every dump, where there are at least two; the rank's own
    process first (collections name the files of its workers so that they come later).
    """
    found: dict[tuple[int, Value | None], dict[tuple[str, Value | None], Fact]] = defaultdict(dict)
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind != "python_stack" or not o.fields.get("main") or not isinstance(rank, int) or not o.evidence:
            continue
        found[rank, o.fields.get("pid")].setdefault((o.evidence[0].source, o.fields.get("at")), o)
    by_rank: dict[int, list[list[Fact]]] = defaultdict(list)
    for (rank, _), dumps in found.items():
        if len(dumps) > 1:
            by_rank[rank].append(list(dumps.values()))
    return by_rank


def _place(o: Fact) -> tuple[Value | None, ...]:
    return tuple(o.fields.get(name) for name in ("function", "file", "line"))


def _detail(processes: list[list[Fact]]) -> str:
    """Where the rank's process sits, who called it, and where workers sit that do more than wait for work."""
    own, last = processes[0], processes[0][-1]
    pid = last.fields.get("pid")
    process = f"its process {pid}" if pid is not None else "its process"
    function, file, line = _place(last)
    text = f"in {len(own)} dumps {process} sits in {function} at {file}:{line}"
    caller = _own_frame(last)
    if caller is not None and _PLUMBING.match(str(file)):
        text += f", called from {caller}"
    for dumps in processes[1:]:
        busy = _own_frame(dumps[-1])
        if busy is not None and len({_place(o) for o in dumps}) == 1:
            return f"{text}; its worker {dumps[-1].fields.get('pid')} sits in {busy}"
    return text


def _own_frame(o: Fact) -> str | None:
    """The innermost frame that is neither Python's nor PyTorch's own, as `function at file:line`."""
    for frame in str(o.fields.get("frames", "")).split(" < "):
        found = _FRAME.fullmatch(frame)
        if found is None:
            continue
        if found["function"] == "_worker_loop":
            return None
        if not _PLUMBING.match(found["file"]) and found["file"].endswith(".py"):
            return f"{found['function']} at {found['file']}:{found['line']}"
    return None
