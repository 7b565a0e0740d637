"""Who got how far: stalled collectives, the ranks they point to, and who is silent.

The rank that logs the time-out is usually a victim, so blame needs the rank with the least progress, a crash, or a
named absence, within one process group. Sequence numbers of different or unknown groups are never compared. Silence in
the files supplied is not proof that a rank was absent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from diagnose.model import Evidence, Fact, FactBase, Value, fold_ranks, unfold_ranks

CRASH_REASONS = ("killed", "crashed", "oom", "error")
VICTIM_CAUSES = ("collective", "network", "keyboard")
"""Causes of exceptions that a rank suffers because of another one (or of the user)."""
NO_NUMBER = -1
"""Stands for the sequence number of a time-out whose dialect prints none (PyTorch 1.8 and older)."""
PROGRESS_KINDS = ("torch_pg_status", "torch_timeout", "nccl_collective")
"""Observations that tell how far a rank got: they, not its stack or its start, show that it is behind."""
UNEVEN = ("ALLTOALL", "SEND", "RECV", "GATHER", "SCATTER", "COALESCED", "UNKNOWN")
"""Operations whose sizes may differ between ranks by design."""
MAX_GROUPS = 10
MAX_SUSPECTS = 40


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


def derive(base: FactBase) -> Iterator[Fact]:
    """stall, suspect_rank, signature_mismatch and log_silence facts."""
    mismatches = [*_torch_mismatches(base), *_checked_mismatches(base)]
    stalls = list(_torch_stalls(base, mismatches))
    coll_stalls, coll_mismatches = _coll_stalls(base, symptoms=bool(stalls) or _has_symptoms(base))
    stalls += coll_stalls
    mismatches += coll_mismatches
    crashes = _crashes(base)
    stalls += _init_stalls(base, crashed=set(crashes))
    if not stalls and crashes and _has_symptoms(base):
        stalls.append(_silent_stall(base, crashes))
    named = _named_absent(base)
    yield from (_placed(base, m) for m in mismatches)
    yield from crashes.values()
    if stalls or named:
        yield from named.values()
    known = _known_ranks(base)
    blamed = set(crashes) | set(named)
    for stall in stalls[:MAX_GROUPS]:
        yield from _stall_facts(base, stall, crashes, named, known, mismatches)
        blamed.update(stall.behind)
    world = max([base.world or 0, *(s.world or 0 for s in stalls)])
    silent = set(range(world)) - known
    if stalls and silent:
        yield Fact("", "log_silence", {
            "ranks": fold_ranks(silent), "count": len(silent), "world": world, "known": len(known),
        })  # fmt: skip


def _stall_facts(
    base: FactBase, stall: Stall, crashes: Mapping[int, Fact], named: Mapping[int, Fact], known: set[int],
    mismatches: list[Fact],
) -> Iterator[Fact]:  # fmt: skip
    everyone = set(range(stall.world)) if stall.world else set()
    behind = set(stall.behind) - set(crashes)
    silent = everyone - set(stall.waiting) - set(stall.behind) - set(crashes) - set(named)
    entered = bool(everyone) and stall.waiting >= everyone
    own_mismatch = any(m.fields.get("group") == stall.group for m in mismatches)
    if crashes:
        verdict = "missing_rank"
    elif own_mismatch or stall.mismatch:
        verdict = "mismatch"
    elif behind or named:
        verdict = "behind_rank"
    elif stall.kind == "init":
        verdict = "init_incomplete"
    else:
        verdict = "all_entered" if entered else "partial_evidence"
    fields: dict[str, Value] = {
        "evidence_kind": stall.kind, "verdict": verdict, "waiting": fold_ranks(stall.waiting),
        "waiting_count": len(stall.waiting), "behind": fold_ranks(behind), "behind_count": len(behind),
        "all_entered": entered,
    }  # fmt: skip
    optional: dict[str, Value | None] = {
        "group": stall.group, "seq": None if stall.seq == NO_NUMBER else stall.seq, "op": stall.op,
        "world": stall.world,
        "elapsed_s": stall.elapsed_s, "timeout_s": stall.timeout_s,
    }  # fmt: skip
    fields.update({k: v for k, v in optional.items() if v is not None})
    if stall.world:
        fields["silent"], fields["silent_count"] = fold_ranks(silent), len(silent)
    fields["others"] = _others(stall, silent)
    fields["what"] = _what(stall.op, stall.seq, stall.group)
    yield Fact("", "stall", fields, stall.evidence)
    for rank in sorted(behind - set(named))[:MAX_SUSPECTS]:
        yield _suspect(base, rank, "behind", stall, stall.behind[rank])
    present = {r for r in silent & known if not _is_waiting(base, r)}
    if stall.waiting and len(present) * 2 <= len(everyone) and verdict == "partial_evidence":
        for rank in sorted(present)[:MAX_SUSPECTS]:
            yield _suspect(base, rank, "absent", stall, None)


def _what(op: str | None, seq: int | None, group: str | None) -> str:
    number = "" if seq is None or seq == NO_NUMBER else f" #{seq}"
    named = f" of {group}" if group else " of an unnamed group" if number and group is None else ""
    return (op or "a collective") + number + named


def _who(ranks: str) -> str:
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}" if ranks else "another rank"


def _others(stall: Stall, silent: set[int]) -> str:
    """What is known of the ranks that do not wait: silence is named as silence, never as absence."""
    if stall.world:
        return f"ranks {fold_ranks(silent)} are silent in these files" if silent else "no rank is silent"
    top = max(stall.waiting, default=-1)
    gaps = set(range(top)) - stall.waiting - set(stall.behind)
    if not gaps:
        return f"the size of the group is not known; nothing is said of ranks above {top}"
    return f"ranks {fold_ranks(gaps)}, and any above {top}, are silent in these files"


def _suspect(base: FactBase, rank: int, reason: str, stall: Stall, reached: int | None) -> Fact:
    own = [o for o in base.observations if o.fields.get("rank") == rank and o.evidence]
    last = next((o for o in reversed(own) if o.kind in PROGRESS_KINDS), own[-1] if own else None)
    fields: dict[str, Value] = {"rank": rank, "reason": reason}
    optional: dict[str, Value | None] = {
        "group": stall.group, "expected_seq": stall.seq, "seq": reached, "host": base.rank_host.get(rank),
        "pid": next((o.fields["pid"] for o in reversed(own) if "pid" in o.fields), None),
        "lag": stall.seq - reached if stall.seq is not None and reached is not None else None,
    }  # fmt: skip
    fields.update({k: v for k, v in optional.items() if v is not None})
    return Fact("", "suspect_rank", fields, last.evidence[:1] if last else ())


def _known_ranks(base: FactBase) -> set[int]:
    return {r for o in base.observations if isinstance(r := o.fields.get("rank"), int)}


def _is_waiting(base: FactBase, rank: int) -> bool:
    return any(
        o.kind in ("torch_timeout", "torch_pg_status") and o.fields.get("rank") == rank for o in base.observations
    )


def _has_symptoms(base: FactBase) -> bool:
    """Somebody complains about others: time-outs, closed connections, aborts, distributed errors."""
    kinds = {"torch_timeout", "torch_error", "torch_heartbeat", "nccl_peer_closed", "torch_barrier", "torch_store"}
    return any(o.kind in kinds for o in base.observations)


# --- PyTorch watchdog -------------------------------------------------------------------------------


def _torch_groups(base: FactBase) -> dict[str | None, dict[int, Seen]]:
    groups: dict[str | None, dict[int, Seen]] = defaultdict(dict)
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind not in ("torch_timeout", "torch_pg_status") or not isinstance(rank, int):
            continue
        name = o.fields.get("group")
        seen = groups[str(name) if name is not None else None].setdefault(rank, Seen(rank))
        seen.fact = seen.fact or o
        if o.kind == "torch_timeout":
            seq = o.fields.get("seq")
            seen.timeouts.setdefault(seq if isinstance(seq, int) else NO_NUMBER, o)
        else:
            seen.enqueued = _largest(seen.enqueued, o.fields.get("last_enqueued"))
            seen.completed = _largest(seen.completed, o.fields.get("last_completed"))
    _join_ungrouped(groups)
    return groups


def _join_ungrouped(groups: dict[str | None, dict[int, Seen]]) -> None:
    """Time-outs without a group: one with the signature of a single known group's time-out belongs to that group, and
    so does one that fits the numbers of its rank's only status line."""
    signatures: dict[tuple[Value | None, ...], set[str]] = defaultdict(set)
    for name, ranks in groups.items():
        for fact in (f for seen in ranks.values() for f in seen.timeouts.values() if name is not None):
            signatures[_timeout_signature(fact)].add(str(name))
    for rank, seen in list(groups.get(None, {}).items()):
        for seq, fact in list(seen.timeouts.items()):
            names = signatures.get(_timeout_signature(fact), set())
            if len(names) == 1:
                groups[next(iter(names))].setdefault(rank, Seen(rank, fact=fact)).timeouts.setdefault(seq, fact)
                del seen.timeouts[seq]
        if not seen.timeouts:
            del groups[None][rank]
            continue
        fitting = [
            ranks[rank] for name, ranks in groups.items()
            if name is not None and rank in ranks and (ranks[rank].enqueued or -1) >= max(seen.timeouts, default=0)
            and (ranks[rank].completed or 0) < min(seen.timeouts, default=0)
        ]  # fmt: skip
        if len(fitting) == 1 and seen.timeouts:
            for seq, fact in seen.timeouts.items():
                fitting[0].timeouts.setdefault(seq, fact)
            del groups[None][rank]


def _timeout_signature(fact: Fact) -> tuple[Value | None, ...]:
    return tuple(fact.fields.get(n) for n in ("seq", "op", "numel_in", "numel_out"))


def _largest(a: int | None, b: object) -> int | None:
    return b if isinstance(b, int) and (a is None or b > a) else a


def _torch_stalls(base: FactBase, mismatches: list[Fact]) -> Iterator[Stall]:
    for name, ranks in sorted(_torch_groups(base).items(), key=lambda item: item[0] or "~"):
        timed_out = {seq for seen in ranks.values() for seq in seen.timeouts}
        if not timed_out:
            continue
        world = base.world if name is None or "default" in name or name.split("(")[0].strip() in ("0", "PG 0") else None
        if name is None and len({_timeout_signature(f) for s in ranks.values() for f in s.timeouts.values()}) > 1:
            yield _incomparable(ranks, base.world)
            continue
        for seq in _divergences(timed_out, ranks):
            waiting = {
                r for r, s in ranks.items()
                if seq in s.timeouts or (name is not None and s.enqueued is not None and s.enqueued >= seq)
            }  # fmt: skip
            behind = {
                r: s.enqueued for r, s in ranks.items()
                if name is not None and s.enqueued is not None and s.enqueued < seq and seq not in s.timeouts
            }  # fmt: skip
            facts = [s.timeouts[seq] for s in ranks.values() if seq in s.timeouts]
            laggards = [s.fact for r, s in ranks.items() if r in behind and s.fact]
            yield Stall(
                name, seq, str(facts[0].fields["op"]), "watchdog", frozenset(waiting), behind, world,
                _evidence([*laggards, *facts]), _longest(facts, "elapsed_ms"), _longest(facts, "timeout_ms"),
                mismatch=any(m.fields.get("seq") == seq and m.fields.get("group") == name for m in mismatches),
            )  # fmt: skip


def _divergences(timed_out: set[int], ranks: Mapping[int, Seen]) -> list[int]:
    """The sequence number worth a stall: the first, unless a later one has far more votes."""
    votes = {seq: sum(seq in s.timeouts for s in ranks.values()) for seq in timed_out}
    first = min(timed_out)
    return [first] if votes[first] * 2 >= max(votes.values()) else [max(votes, key=lambda s: (votes[s], -s))]


def _incomparable(ranks: Mapping[int, Seen], world: int | None) -> Stall:
    """Several collectives without group names as one stall: their numbers cannot be compared."""
    facts = [f for _, seen in sorted(ranks.items()) for f in seen.timeouts.values()]
    stuck = "; ".join(
        f"rank {r}: " + ", ".join(_what(str(f.fields["op"]), q, "") for q, f in sorted(seen.timeouts.items())[:4])
        for r, seen in sorted(ranks.items())[:6]
    )  # fmt: skip
    what = f"several collectives of unnamed groups, whose numbers cannot be compared ({stuck})"
    return Stall(
        None, None, what, "watchdog", frozenset(ranks), {}, world, _evidence(facts), _longest(facts, "elapsed_ms"),
        _longest(facts, "timeout_ms"),
    )  # fmt: skip


def _longest(facts: list[Fact], name: str) -> float | None:
    values = [float(v) for f in facts if isinstance(v := f.fields.get(name), int | float)]
    return max(values) / 1e3 if values else None


def _evidence(facts: Iterable[Fact], limit: int = 6) -> tuple[Evidence, ...]:
    found: dict[Evidence, None] = {}
    for fact in facts:
        for e in fact.evidence[:1]:
            found.setdefault(e)
    return tuple(found)[:limit]


def _torch_mismatches(base: FactBase) -> Iterator[Fact]:
    """Time-outs of one known group at one number with different operations or sizes."""
    for name, ranks in _torch_groups(base).items():
        if name is None:
            continue
        by_seq: dict[int, dict[tuple[Value | None, ...], dict[int, Fact]]] = defaultdict(lambda: defaultdict(dict))
        for rank, seen in ranks.items():
            for seq, fact in seen.timeouts.items():
                op = fact.fields["op"]
                sizes = () if str(op).upper().startswith(UNEVEN) else ("numel_in", "numel_out")
                signature = (op, *(fact.fields.get(n) for n in sizes), *(None,) * (2 - len(sizes)))
                by_seq[seq][signature][rank] = fact
        for seq, signatures in sorted(by_seq.items()):
            if len(signatures) > 1:
                yield _mismatch(name, seq, signatures, ("op", "elements", "elements"))
                break


def _placed(base: FactBase, mismatch: Fact) -> Fact:
    """The mismatch with the host of the odd ranks, where all of them run on one."""
    hosts = {base.rank_host.get(rank) for rank in unfold_ranks(str(mismatch.fields.get("odd_ranks", "")))}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    return replace(mismatch, fields={**mismatch.fields, "host": host}) if host else mismatch


Signature = tuple[Value | None, ...]


def _mismatch(
    group: str | None, seq: int, signatures: Mapping[Signature, Mapping[int, Fact]], names: tuple[str, ...]
) -> Fact:
    (a, a_ranks), (b, b_ranks) = sorted(signatures.items(), key=lambda i: (-len(i[1]), min(i[1])))[:2]
    differs = next((n for n, x, y in zip(names, a, b, strict=True) if x != y), "op")
    fields: dict[str, Value] = {
        "seq": seq, "differs": differs, "a": _signature(a), "a_ranks": fold_ranks(a_ranks), "b": _signature(b),
        "b_ranks": fold_ranks(b_ranks), "a_who": _who(fold_ranks(a_ranks)), "b_who": _who(fold_ranks(b_ranks)),
        "odd_ranks": fold_ranks(b_ranks if len(b_ranks) < len(a_ranks) else {**a_ranks, **b_ranks}),
        "what": _what("collective", seq, group),
    }  # fmt: skip
    if group is not None:
        fields["group"] = group
    return Fact("", "signature_mismatch", fields, _evidence([*b_ranks.values(), *a_ranks.values()]))


def _signature(parts: tuple[Value | None, ...]) -> str:
    return " ".join(str(p) for p in parts if p is not None)


def _checked_mismatches(base: FactBase) -> Iterator[Fact]:
    """What PyTorch's own checks (fingerprints, desync report) found, as one signature mismatch."""
    for o in base.observations:
        if o.kind != "torch_mismatch":
            continue
        rank, other, f = o.fields.get("rank"), o.fields.get("rank_other"), o.fields
        a = _signature((f.get("op"), f.get("shape"), f.get("dtype")))
        b = _signature((f.get("op_other"), f.get("shape_other"), f.get("dtype_other")))
        if f.get("differs") == "seq":
            a, b = f"{a} #{f.get('seq', '?')}", f"{b} #{f.get('seq_other', '?')}"
        fields: dict[str, Value] = {
            "seq": f.get("seq", 0), "differs": str(f["differs"]), "a": a, "b": b,
            "a_ranks": "" if rank is None else str(rank), "b_ranks": "" if other is None else str(other),
            "what": _what("collective", seq if isinstance(seq := f.get("seq"), int) else None, None),
        }  # fmt: skip
        fields["a_who"], fields["b_who"] = _who(str(fields["a_ranks"])), _who(str(fields["b_ranks"]))
        fields["odd_ranks"] = fold_ranks({r for r in (rank, other) if isinstance(r, int)})
        yield Fact("", "signature_mismatch", fields, o.evidence)


def _named_absent(base: FactBase) -> dict[int, Fact]:
    """Ranks that a monitored barrier or a desync report names as missing."""
    found: dict[int, Fact] = {}
    for o in base.observations:
        if o.kind == "torch_barrier":
            text = str(o.fields["missing"])
        elif o.kind == "torch_desync" and o.fields.get("state") == "missing":
            text = str(o.fields.get("ranks", ""))
        else:
            continue
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            for rank in range(int(first), min(int(last or first), int(first) + MAX_SUSPECTS) + 1):
                fields: dict[str, Value] = {
                    "rank": rank,
                    "reason": "absent",
                    "detail": "named as missing by the others",
                }
                if rank in base.rank_host:
                    fields["host"] = base.rank_host[rank]
                found.setdefault(rank, Fact("", "suspect_rank", fields, o.evidence))
    return found


# --- NCCL collective call lines ---------------------------------------------------------------------


def _coll_stalls(base: FactBase, *, symptoms: bool) -> tuple[list[Stall], list[Fact]]:
    """Communicators whose ranks stopped at different calls, or at one call with different arguments."""
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
        lag = top - min(counts.values())
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
                f"comm {comm}", top, op, "coll_log", waiting, behind, world, _evidence(facts), mismatch=bool(mismatch)
            )
        )
    return stalls, mismatches


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
            return _mismatch(f"comm {comm}", count, signatures, ("op", "elements", "datatype", "root"))
    return None


# --- initialisation ---------------------------------------------------------------------------------


def _init_stalls(base: FactBase, crashed: set[int]) -> Iterator[Stall]:
    """Communicators that some ranks started and none completed, where the log shows that init failed or hangs."""
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
        yield Stall(f"comm {comm}", None, "communicator init", "init", frozenset(waiting), {}, world, _evidence(facts))


# --- crashes ----------------------------------------------------------------------------------------


def _crashes(base: FactBase) -> dict[int, Fact]:
    """rank -> suspect_rank for ranks whose process ended badly by itself (not because of a collective)."""
    found: dict[int, Fact] = {}
    first_failures = [o for o in base.observations if o.kind == "process_exit" and o.fields.get("first_failure")]
    exits = first_failures or [o for o in base.observations if o.kind == "process_exit"]
    victims = {
        o.fields["rank"] for o in base.observations
        if o.kind == "python_exception" and o.fields.get("cause") in VICTIM_CAUSES and "rank" in o.fields
    }  # fmt: skip
    complaints = ("torch_timeout", "torch_error")
    victims |= {o.fields["rank"] for o in base.observations if o.kind in complaints and "rank" in o.fields}
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind == "python_exception" and isinstance(rank, int) and o.fields.get("cause") not in VICTIM_CAUSES:
            where = f" at {o.fields['file']}:{o.fields['line']}" if {"file", "line"} <= o.fields.keys() else ""
            detail = f"{o.fields['type']}: {o.fields.get('message', '')}"[:200] + where
            found.setdefault(rank, _crash(base, o, rank, "exception", detail))
    for o in exits:
        rank = o.fields.get("rank")
        if not isinstance(rank, int) or rank in found or o.fields.get("reason") not in CRASH_REASONS:
            continue
        if rank in victims or (o.fields.get("signal") in ("SIGABRT", "SIGTERM") and not first_failures):
            continue
        code = o.fields.get("signal") or f"exit code {o.fields.get('exit_code', '?')}"
        reason = "oom" if o.fields.get("reason") == "oom" else "crashed"
        found[rank] = _crash(base, o, rank, reason, f"its process ended with {code}")
    return dict(sorted(found.items())[:MAX_SUSPECTS])


def _crash(base: FactBase, o: Fact, rank: int, reason: str, detail: str) -> Fact:
    fields: dict[str, Value] = {"rank": rank, "reason": reason, "detail": detail}
    host = o.fields.get("host") or base.rank_host.get(rank)
    if host is not None:
        fields["host"] = host
    if "pid" in o.fields:
        fields["pid"] = o.fields["pid"]
    return Fact("", "suspect_rank", fields, o.evidence)


def _silent_stall(base: FactBase, crashes: Mapping[int, Fact]) -> Stall:
    """Others lost their connections to a crashed rank, and no watchdog spoke."""
    kinds = ("nccl_peer_closed", "torch_error", "torch_store", "torch_heartbeat")
    facts = [o for o in base.observations if o.kind in kinds and o.fields.get("rank") not in crashes]
    waiting = {int(r) for o in facts if isinstance(r := o.fields.get("rank"), int)}
    return Stall(None, None, None, "watchdog", frozenset(waiting), {}, base.world, _evidence(facts))
