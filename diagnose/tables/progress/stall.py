"""What a stall is, before it becomes facts, and the words for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diagnose.model import Evidence, Fact, FactBase, Value, fold_ranks

PROGRESS_KINDS = ("torch_pg_status", "torch_timeout", "nccl_collective")
"""Observations that tell how far a rank got: they, not its stack or its start, show that it is behind."""
NO_NUMBER = -1
"""Stands for the sequence number of a time-out whose dialect prints none (PyTorch 1.8 and older)."""
_TAKEN_OF_HANGS = frozenset({"python_stack", "ras_comm", "ras_count", "ras_missing"})
_OF_HANGS = frozenset({"xid", "hung_task", "cpu_lockup"})
MAX_SUSPECTS = 40
MAX_GROUPS = 10


@dataclass
class Seen:
    """What one rank reported about one group."""

    rank: int
    timeouts: dict[int, Fact] = field(default_factory=dict)
    enqueued: int | None = None
    completed: int | None = None
    fact: Fact | None = None


@dataclass(frozen=True)
class Stall:
    """A collective that some ranks wait in; every set holds global ranks."""

    group: str | None
    seq: int | None
    op: str | None
    kind: str
    waiting: frozenset[int]
    behind: Mapping[int, int]
    world: int | None
    evidence: tuple[Evidence, ...]
    elapsed_s: float | None = None
    timeout_s: float | None = None
    mismatch: bool = False
    note: str = ""
    certain: bool = True
    done: frozenset[int] = frozenset()
    job_wide: bool = False


def what(op: str | None, seq: int | None, group: str | None) -> str:
    number = "" if seq is None or seq == NO_NUMBER else f" #{seq}"
    named = f" of {group}" if group else " of an unnamed group" if number and group is None else ""
    return (op or "a collective") + number + named


def who(ranks: str) -> str:
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}" if ranks else "another rank"


def placed_ranks(ranks: Iterable[int], rank_host: Mapping[int, str]) -> str:
    """`Rank 9 on node02 and rank 14 on node03`, at the start of a sentence; many ranks are folded."""
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        by_host[rank_host.get(rank, "")].append(rank)
    if len(by_host) > 4:
        everyone = [r for found in by_host.values() for r in found]
        return _sentence(f"{who(fold_ranks(everyone))} on {len(by_host)} hosts")
    parts = [who(fold_ranks(found)) + (f" on {host}" if host else "") for host, found in by_host.items()]
    return _sentence(" and ".join(parts))


def devices(base: FactBase) -> dict[int, dict[str, Value]]:
    """Rank -> pid, gpu and bus_id, as NCCL's start or RAS tells them."""
    found: dict[int, dict[str, Value]] = defaultdict(dict)
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind not in ("nccl_comm", "ras_rank") or not isinstance(rank, int):
            continue
        place = found[rank]
        gpu = o.fields.get("nvml_dev", o.fields.get("cuda_dev"))
        for name, value in (("pid", o.fields.get("pid")), ("gpu", gpu), ("bus_id", o.fields.get("bus_id"))):
            if value is not None:
                place.setdefault(name, value)
    return found


def device_words(place: Mapping[str, Value]) -> str:
    """`GPU 3 (0000:5d:00), process 4242`; '' when nothing is known."""
    gpu = f"GPU {place['gpu']}" + (f" ({place['bus_id']})" if "bus_id" in place else "") if "gpu" in place else ""
    return ", ".join(part for part in (gpu, f"process {place['pid']}" if "pid" in place else "") if part)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def others(stall: Stall, silent: set[int], known: set[int]) -> str:
    """What is known of the ranks that do not wait: silence is named as silence, never as absence.

    `known` are ranks of which these files tell something.
    """
    top = max(stall.waiting | stall.done, default=-1)
    there = (silent if stall.world else set(range(top)) - stall.waiting - set(stall.behind)) & known - stall.done
    talks = f"; {_told(stall.done, 'has completed it', 'have completed it')}" if stall.done else ""
    talks += f"; {_told(there, 'does not say that it waits', 'do not say that they wait')}" if there else ""
    if stall.world:
        quiet = silent - known
        return (_told(quiet, "is", "are") + " silent in these files" if quiet else "no rank is silent") + talks
    gaps = set(range(top)) - stall.waiting - stall.done - set(stall.behind) - known
    if not gaps:
        return f"the size of the group is not known; nothing is said of ranks above {top}{talks}"
    return f"{who(fold_ranks(gaps))}, and any above {top}, are silent in these files{talks}"


def positions(stall: Stall) -> str:
    """`rank 3 is at #56; ranks 0-2,4-7 are at #59`: where the ranks of a snapshot are."""
    by_number: dict[int, set[int]] = defaultdict(set)
    for rank, number in stall.behind.items():
        by_number[number].add(rank)
    if stall.seq is not None:
        by_number[stall.seq] |= stall.waiting
    shown = [_told(ranks, f"is at #{n}", f"are at #{n}") for n, ranks in sorted(by_number.items())]
    return "; ".join([*shown[:3], *(["…"] if len(shown) > 4 else []), *shown[3:][-1:]])


def _told(ranks: set[int] | frozenset[int], one: str, many: str) -> str:
    return f"{who(fold_ranks(ranks))} {many if len(ranks) > 1 else one}"


def suffering(stall: Stall, died: bool) -> str:
    """What the ranks that wait suffer, as a sentence without its full stop; of another one that died, or in vain."""
    if not died:
        return _sentence(_told(stall.waiting, "waits in vain", "wait in vain"))
    if not stall.waiting:
        return "The errors of the others follow from this"
    where = f" in {what(stall.op, stall.seq, stall.group)}" if stall.op else ""
    one, many = f"waits for it{where} and is a victim", f"are known to wait for it{where} and are victims"
    return _sentence(_told(stall.waiting, one, many))


def suspect(base: FactBase, rank: int, reason: str, stall: Stall, reached: int | None) -> Fact:
    own = [o for o in base.observations if o.fields.get("rank") == rank and o.evidence]
    last = next((o for o in reversed(own) if o.kind in PROGRESS_KINDS), own[-1] if own else None)
    fields: dict[str, Value] = {"rank": rank, "reason": reason, "who": placed_ranks([rank], base.rank_host)}
    optional: dict[str, Value | None] = {
        "stall": what(stall.op, stall.seq, stall.group), "waiting_count": len(stall.waiting), "group": stall.group,
        "expected_seq": stall.seq, "seq": reached,
        "detail": "nothing shows that it waits" if reached is None else f"its last known operation is #{reached}",
        "host": base.rank_host.get(rank),
        "pid": next((o.fields["pid"] for o in reversed(own) if "pid" in o.fields), None),
        "lag": stall.seq - reached if stall.seq is not None and reached is not None else None,
    }  # fmt: skip
    fields.update({k: v for k, v in optional.items() if v is not None})
    return Fact("", "suspect_rank", fields, last.evidence[:1] if last else ())


def known_ranks(base: FactBase) -> set[int]:
    return {r for o in base.observations if isinstance(r := o.fields.get("rank"), int)}


def waiting_ranks(base: FactBase) -> set[int]:
    """Ranks that report a time-out, of NCCL or gloo, or their position."""
    return {r for o in base.observations if _waits(o) and isinstance(r := o.fields.get("rank"), int)}


def _waits(o: Fact) -> bool:
    if o.kind in ("torch_error", "python_exception"):
        return "imed out waiting" in str(o.fields.get("message", o.fields.get("text", "")))
    return o.kind in ("torch_timeout", "torch_pg_status")


def has_symptoms(base: FactBase) -> bool:
    """Somebody complains about others: time-outs, closed connections, aborts, distributed errors."""
    kinds = {"torch_timeout", "torch_error", "torch_heartbeat", "nccl_peer_closed", "torch_barrier", "torch_store"}
    return any(o.kind in kinds for o in base.observations)


def init_failed(base: FactBase) -> bool:
    """Somebody complains, or could not connect."""
    errors = ("nccl_connect_error", "nccl_error_return")
    return has_symptoms(base) or any(o.kind in errors for o in base.observations)


def hang_signs(base: FactBase) -> bool:
    """Something says that the job hangs or failed: complaints, and what is taken of a job only when it hangs."""
    return init_failed(base) or any(
        o.kind in _TAKEN_OF_HANGS
        or (o.kind == "kernel_event" and o.fields["event"] in _OF_HANGS and not o.get("old"))
        or (o.kind == "job_event" and o.fields["event"] == "time_limit")
        for o in base.observations
    )


def longest(facts: list[Fact], name: str) -> float | None:
    values = [float(v) for f in facts if isinstance(v := f.fields.get(name), int | float)]
    return max(values) / 1e3 if values else None


def some_evidence(facts: Iterable[Fact], limit: int = 6) -> tuple[Evidence, ...]:
    found: dict[Evidence, None] = {}
    for fact in facts:
        for e in fact.evidence[:1]:
            found.setdefault(e)
    return tuple(found)[:limit]


def details(suspects: list[Fact]) -> str:
    """What is known of each suspect; said once where it is the same."""
    texts = list(dict.fromkeys(str(s.fields["detail"]) for s in suspects))
    if len(texts) <= 1:
        return texts[0] if texts else ""
    return "; ".join(f"rank {s.fields['rank']}: {s.fields['detail']}" for s in suspects[:3])
