"""Who got how far: stalled collectives, the ranks they point to, and who is silent.

The rank that logs the time-out is usually a victim, so blame needs the rank with the least progress, a crash, or a
named absence, within one process group. Sequence numbers of different or unknown groups are never compared. Silence in
the files supplied is not proof that a rank was absent. Flight-recorder dumps decide where there are any; logs, call
lines and RAS elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from diagnose.model import Fact, FactBase, Value, fold_ranks
from diagnose.tables.progress.calls import coll_stalls, init_stalls
from diagnose.tables.progress.crashes import crashed_ranks, named_absent, silent_stall
from diagnose.tables.progress.mismatches import checked_mismatches, placed, watchdog_mismatches
from diagnose.tables.progress.recorded import recorded
from diagnose.tables.progress.stall import (
    MAX_GROUPS,
    MAX_SUSPECTS,
    NO_NUMBER,
    Stall,
    details,
    has_symptoms,
    known_ranks,
    others,
    placed_ranks,
    suspect,
    waiting_ranks,
    what,
)
from diagnose.tables.progress.watchdog import watchdog_stalls


def derive(base: FactBase) -> Iterator[Fact]:
    """stall, suspect_rank, signature_mismatch, wait_cycle and log_silence facts."""
    symptoms = has_symptoms(base)
    crashes = crashed_ranks(base)
    recorder = recorded(base, crashes, symptoms=symptoms)
    if recorder.guilty:
        crashes = {
            r: c for r, c in crashes.items()
            if c.fields["reason"] != "crashed" or r in recorder.guilty or r not in recorder.waiting
        }  # fmt: skip
    yield from recorder.facts
    mismatches = [] if recorder.guilty else watchdog_mismatches(base)
    mismatches = [*mismatches, *checked_mismatches(base)]
    stalls: list[Stall] = []
    if not any(f.kind == "stall" for f in recorder.facts) and not recorder.guilty:
        stalls += watchdog_stalls(base, mismatches)
        found, different = coll_stalls(base, symptoms=bool(stalls) or symptoms)
        stalls += found
        mismatches += different
        stalls += init_stalls(base, crashed=set(crashes))
        if not stalls and crashes and symptoms:
            stalls.append(silent_stall(base, crashes))
    named = {r: f for r, f in named_absent(base).items() if r not in recorder.guilty}
    yield from (placed(base, m) for m in mismatches)
    yield from crashes.values()
    if stalls or named:
        yield from named.values()
    known = known_ranks(base)
    timed_out = waiting_ranks(base)
    for stall in stalls[:MAX_GROUPS]:
        yield from stall_facts(base, stall, crashes, named, known - timed_out, mismatches)
    world = max([base.world or 0, *(s.world or 0 for s in stalls)])
    silent = set(range(world)) - known
    if (stalls or recorder.facts) and silent:
        yield Fact("", "log_silence", {
            "ranks": fold_ranks(silent), "count": len(silent), "world": world, "known": len(known),
        })  # fmt: skip


def stall_facts(
    base: FactBase, stall: Stall, crashes: Mapping[int, Fact], named: Mapping[int, Fact], idle: set[int],
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
    fields |= {"others": others(stall, silent), "what": what(stall.op, stall.seq, stall.group), "certain": True}
    guilty = [suspect(base, rank, "behind", stall, stall.behind[rank]) for rank in sorted(behind - set(named))]
    present = silent & idle
    if stall.waiting and len(present) * 2 <= len(everyone) and verdict == "partial_evidence":
        guilty += [suspect(base, rank, "absent", stall, None) for rank in sorted(present)]
    guilty = guilty[:MAX_SUSPECTS]
    if guilty or named:
        ranks = [*(int(str(s.fields["rank"])) for s in guilty), *(named if not guilty else ())]
        fields |= {"who": placed_ranks(ranks, base.rank_host), "detail": details(guilty) or "the others name it"}
    yield Fact("", "stall", fields, stall.evidence)
    yield from guilty
