"""What flight-recorder dumps show: stalls, the ranks that hold them up, mismatched calls, rings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from diagnose.model import Fact, FactBase, Value, fold_ranks
from diagnose.tables.progress.crashes import failures, named_absent, vanished
from diagnose.tables.progress.divergence import Divergence, codes_at, divergence, texts_of
from diagnose.tables.progress.holdups import Judge, Verdict
from diagnose.tables.progress.logged import add_logged
from diagnose.tables.progress.nameless import nameless_stall
from diagnose.tables.progress.order import against_the_order
from diagnose.tables.progress.recorder import Group, Recording, recording, symptom_age
from diagnose.tables.progress.stall import MAX_GROUPS, known_ranks, some_evidence, what, who
from diagnose.tables.progress.waits import End, Operation, ends

LONG_PENDING_S = 30.0
"""An operation pending for so long when its dump was taken is no snapshot of normal progress (chosen by us)."""

LOG_KINDS = frozenset({"torch_pg_status", "torch_debug", "torch_backend", "nccl_version", "nccl_comm", "train_step"})
"""Observations that show that the job's logs were supplied, so that their silence about time-outs counts."""


def recorded(base: FactBase, crashes: Mapping[int, Fact], *, symptoms: bool) -> Verdict:
    """The verdict on all dumps; empty without dumps."""
    found = recording(base)
    verdict = Verdict(known=set(found.dumps))
    if not found.dumps:
        alone = found.unplaced and not any(o.kind in LOG_KINDS for o in base.observations)
        if alone and (nameless := nameless_stall(base)) is not None:
            verdict.facts.append(nameless)
        return verdict
    add_logged(found, base)
    certain = symptoms or symptom_age(found) >= LONG_PENDING_S or _given_up(found)
    alone = not found.running and not any(o.kind in LOG_KINDS for o in base.observations)
    all_ends = ends(found)
    verdict.waiting = {r for g in found.groups for r, row in g.rows.items() if row.pending is not None or row.peers}
    mismatched = _mismatches(found, all_ends, verdict)
    failed, waited = failures(base)
    last = max(*found.dumps, *known_ranks(base), (base.world or 0) - 1, found.world - 1)
    silent = set(range(last + 1)) - found.dumps.keys() - failed
    left = [
        _past_failed(e, failed - verdict.waiting, waited or failed, silent)
        for e in all_ends
        if not _explained(e, mismatched)
    ]
    if failed and not crashes and not mismatched and all(e.kind == "unknown" for e in left):
        verdict.vanished = vanished(base, silent)
    judge = Judge(base, found, {**crashes, **verdict.vanished}, verdict, certain=certain, alone=alone)
    judge.ends(left)
    if failed and not verdict.facts and not crashes and not named_absent(base):
        verdict.facts.append(_failed_in_vain(base, failed, silent, crashed=bool(verdict.vanished)))
    verdict.decided = bool(verdict.guilty) or any(f.kind == "wait_cycle" for f in verdict.facts)
    return verdict


def _given_up(found: Recording) -> bool:
    return any(r.fact.fields.get("pending_retired") is True for g in found.groups for r in g.rows.values())


def _failed_in_vain(base: FactBase, failed: set[int], silent: set[int], *, crashed: bool) -> Fact:
    """Ranks failed because of a peer, but no dump shows an operation that is not finished."""
    errors = [o for o in base.observations if o.fields.get("rank") in failed]
    fields: dict[str, Value] = {
        "evidence_kind": "flight_recorder", "verdict": "missing_rank" if crashed else "partial_evidence",
        "waiting": fold_ranks(failed),
        "waiting_count": len(failed), "behind": "", "behind_count": 0, "silent": fold_ranks(silent),
        "silent_count": len(silent), "all_entered": False, "certain": True, "what": what(None, None, ""),
        "others": f"{who(fold_ranks(silent))} left no dump" if silent else "no rank is silent",
    }  # fmt: skip
    return Fact("", "stall", fields, some_evidence(errors))


def _past_failed(end: End, failed: set[int], victims: set[int], silent: set[int]) -> End:
    """A rank that failed because of a peer called nothing more and is not to blame: look at the silent ones.

    Neither is one whose operation nobody but such ranks has finished: PyTorch counts a failed operation as finished.
    `failed` holds those that wait in nothing else: who does has gone on from it.
    """
    if end.kind == "own_gpu":
        if not all(_finishers(o) <= failed for o in end.operations):
            return end
    elif end.kind != "behind" or not set(end.ranks) <= victims:
        return end
    for operation in end.operations:
        for rank in end.ranks:
            operation.behind.pop(rank, None)
        operation.unknown |= silent
    return End("unknown", (), end.operations, end.victims)


def _finishers(operation: Operation) -> set[int]:
    """Ranks whose dump says that it is complete."""
    seq = operation.seq
    rows = operation.group.rows.items()
    return {
        r for r, row in rows if seq is not None and row.completed >= seq and (row.pending is None or row.pending > seq)
    }


_Odd = tuple[Group, Divergence, set[int]]

# --- mismatches -------------------------------------------------------------------------------------


def _mismatches(
    found: Recording, all_ends: Sequence[End], verdict: Verdict
) -> list[tuple[Group, Divergence, set[int]]]:
    """Groups whose ranks called different things at an incomplete number; the earliest for each set of odd ranks."""
    rows: list[tuple[float, Group, Divergence, set[int]]] = []
    blamed = {r for e in all_ends for r in e.ranks}
    for group in found.groups:
        if len(group.rows) < 2 or all(r.pending is None for r in group.rows.values()):
            continue
        d = divergence(group.rows)
        if d is None:
            continue
        sides = list(d.codes.values())
        odd = {r for side in sides[1:] for r in side}
        if len(odd) >= len(sides[0]):
            odd = _odd_by_siblings(found, group, d) or _odd_by_order(found, all_ends, d)
            if not odd and sum(map(len, sides)) >= len(list(group.everyone())):
                odd = {r for side in sides for r in side}
        pendings = (group.rows[r].pending for side in sides for r in side)
        open_ = any(p is not None and p <= d.seq for p in pendings)
        if open_ or odd & blamed:
            at = min((r.at for r in group.rows.values() if r.at is not None), default=0.0)
            rows.append((at, group, d, odd))
    rows.sort(key=lambda row: (row[0], len(row[3]), row[1].name))
    kept: list[_Odd] = []
    for _, group, d, odd in rows:
        if any(odd & o for _, _, o in kept):
            continue
        kept.append((group, d, odd))
        if len(kept) <= MAX_GROUPS:
            verdict.facts.append(_mismatch_fact(found, group, d, odd))
            verdict.guilty |= odd
    return [(g, d, o) for _, g, d, o in rows]


def _odd_by_siblings(found: Recording, group: Group, d: Divergence) -> set[int]:
    """Of two equal sides, the one that calls something else than other groups of this description do."""
    votes: Counter[int] = Counter()
    for other in found.groups:
        if other is not group and other.kind == group.kind and len(other.members) == len(group.members):
            votes.update(codes_at(other.rows, d.seq))
    right = [code for code in d.codes if votes[code]]
    return {r for code, ranks in d.codes.items() if code not in right for r in ranks} if len(right) == 1 else set()


def _odd_by_order(found: Recording, all_ends: Sequence[End], d: Divergence) -> set[int]:
    """Of two equal sides, the one that calls this and what others wait in in another order than most ranks do."""
    strange = against_the_order(found, [o for e in all_ends for o in e.operations], times=2)
    sides = [set(ranks) for ranks in d.codes.values() if strange & set(ranks)]
    return sides[0] if len(sides) == 1 and sides[0] <= strange else set()


def _mismatch_fact(found: Recording, group: Group, d: Divergence, odd: set[int]) -> Fact:
    texts = texts_of([str(found.dumps[r].fields.get("signatures", "")) for r in sorted(group.rows) if r in found.dumps])
    (a_code, a_ranks), (b_code, b_ranks) = list(d.codes.items())[:2]
    a, b = texts.get(a_code, "another call"), texts.get(b_code, "another call")
    pattern = {"skipped": "; they go on one call early, as after a skipped call",
               "extra": "; they go on one call late, as after an extra call"}.get(d.pattern, "")  # fmt: skip
    fields: dict[str, Value] = {
        "group": group.label, "seq": d.seq, "differs": _differs(a, b), "a": a, "a_ranks": fold_ranks(a_ranks),
        "b": b + pattern, "b_ranks": fold_ranks(b_ranks), "a_who": who(fold_ranks(a_ranks)),
        "b_who": who(fold_ranks(b_ranks)),
        "odd_ranks": fold_ranks(odd), "what": what("collective", d.seq, group.label),
        "pattern": d.pattern, "certain": True,
    }  # fmt: skip
    site = next((s for r in b_ranks if (s := group.rows[r].fact.fields.get("pending_site"))), None)
    if site:
        fields["call_site"] = site
    evidence = [group.rows[r].fact for r in (*b_ranks[:2], *a_ranks[:1])]
    return Fact("", "signature_mismatch", fields, some_evidence(evidence))


def _differs(a: str, b: str) -> str:
    x, y = a.split(" "), b.split(" ")
    if x[0] != y[0]:
        return "op"
    return "datatype" if x[-1] != y[-1] and x[:-1] == y[:-1] else "shape"


def _explained(end: End, mismatched: Sequence[_Odd]) -> bool:
    """An end inside a group whose calls no longer pair up follows from that."""
    for group, d, odd in mismatched:
        if end.ranks and set(end.ranks) <= odd | set(group.everyone()):
            return True
        if any(o.group is group and (o.seq or 0) >= d.seq for o in end.operations):
            return True
    return False
