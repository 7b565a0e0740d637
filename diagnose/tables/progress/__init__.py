"""Who got how far: stalled collectives, the ranks they point to, and who is silent.

The rank that logs the time-out is usually a victim, so blame needs the rank with the least progress, a crash, or a
named absence, within one process group. Sequence numbers of different or unknown groups are never compared. Silence in
the files supplied is not proof that a rank was absent. Flight-recorder dumps decide where there are any; logs, call
lines and RAS elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagnose.model import MAX_WORLD, Fact, FactBase, Value, fold_ranks
from diagnose.tables.progress.calls import coll_stalls, init_stalls, inspector_stalls
from diagnose.tables.progress.crashes import (
    crashed_ranks,
    cut_exceptions,
    failed_by_peers,
    introduced,
    named_absent,
    nameless_crash,
    silent_stall,
    vanished,
)
from diagnose.tables.progress.jobwide import job_wide
from diagnose.tables.progress.mismatches import checked_mismatches, placed, watchdog_mismatches
from diagnose.tables.progress.ras import RasVerdict, ras_verdict
from diagnose.tables.progress.recorded import recorded
from diagnose.tables.progress.silence import beside_a_crash, outlived
from diagnose.tables.progress.stall import (
    MAX_GROUPS,
    MAX_SUSPECTS,
    NO_NUMBER,
    Stall,
    details,
    device_words,
    devices,
    has_symptoms,
    init_failed,
    known_ranks,
    others,
    placed_ranks,
    positions,
    suffering,
    suspect,
    waiting_ranks,
    what,
)
from diagnose.tables.progress.watchdog import watchdog_stalls


def derive(base: FactBase) -> Iterator[Fact]:
    """stall, suspect_rank, signature_mismatch, wait_cycle, dump_coverage and log_silence facts."""
    symptoms = has_symptoms(base)
    ras = ras_verdict(base, symptoms=symptoms)
    crashes = {r: f for r, f in ras.gone.items() if f.fields["reason"] == "exited"} | crashed_ranks(base)
    recorder = recorded(base, crashes, symptoms=symptoms)
    crashes |= recorder.vanished
    if not crashes and not recorder.known and base.world and failed_by_peers(base):
        crashes |= vanished(base, set(range(base.world)) - known_ranks(base))
    if recorder.guilty:
        crashes = {
            r: c for r, c in crashes.items()
            if c.fields["reason"] != "crashed" or r in recorder.guilty or r not in recorder.waiting
        }  # fmt: skip
    yield from recorder.facts
    decided = bool(recorder.facts)
    mismatches = list(checked_mismatches(base))
    stalls: list[Stall] = []
    if not decided:
        yield from ras.facts
        mismatches = [*watchdog_mismatches(base), *mismatches]
        stalls, different = _logged_stalls(base, crashes, mismatches, symptoms, ras)
        stalls = [s if (s.world or 0) <= MAX_WORLD else replace(s, world=None) for s in stalls]
        mismatches += different
        whole = job_wide(stalls, base.world, crashes) if not mismatches else None
        idle = known_ranks(base) - waiting_ranks(base) - crashes.keys()
        if whole is not None and outlived(base, idle - whole.waiting, whole):
            stalls = [whole]
    named = {r: f for r, f in ras.gone.items() if f.fields["reason"] == "absent"} | named_absent(base)
    named = {r: f for r, f in named.items() if r not in recorder.guilty and r not in crashes}
    yield from (placed(base, m) for m in mismatches)
    lost = [introduced(c) for c in crashes.values()]
    if ras.dead is not None and not any(ras.dead.fields.get("pid", -1) == c.fields.get("pid") for c in lost):
        lost.append(ras.dead)
    if stalls and not lost and not named and not any(s.behind for s in stalls):
        lost = [crash] if (crash := nameless_crash(base)) else []
    yield from lost
    if not lost and not stalls and not decided:
        yield from cut_exceptions(base)
    if stalls or named:
        yield from named.values()
    known = known_ranks(base)
    idle = known - waiting_ranks(base)
    for stall in stalls[:MAX_GROUPS]:
        yield from stall_facts(base, stall, crashes, named, idle, mismatches, died=bool(lost))
    world = max([base.world or 0, *(s.world or 0 for s in stalls)])
    silent = set(range(world)) - known
    if (stalls or decided) and silent:
        yield Fact("", "log_silence", {
            "ranks": fold_ranks(silent), "count": len(silent), "world": world, "known": len(known),
        })  # fmt: skip


def _logged_stalls(
    base: FactBase, crashes: Mapping[int, Fact], mismatches: list[Fact], symptoms: bool, ras: RasVerdict
) -> tuple[list[Stall], list[Fact]]:
    """Stalls that the logs show, where RAS has not named the ranks already; and mismatches of call lines."""
    if ras.guilty:
        return [], []
    stalls = list(watchdog_stalls(base, mismatches))
    found, different = coll_stalls(base, symptoms=bool(stalls) or symptoms)
    stalls += found
    if symptoms and not any(s.behind for s in stalls):
        stalls += inspector_stalls(base)
    stalls += init_stalls(base, crashed=set(crashes))
    if not stalls and (ras.dead is not None or (crashes and (symptoms or ras.gone))):
        stalls.append(silent_stall(base, crashes))
    if ras.all_launched is not None:
        stalls = [_all_launched(s, ras.all_launched) if s.kind == "watchdog" and not s.behind else s for s in stalls]
    return stalls, different


def _all_launched(stall: Stall, status: Fact) -> Stall:
    """RAS has an answer from every rank, and their counts agree: nobody is missing from this collective."""
    size = status.fields.get("size")
    everyone = frozenset(range(size)) if isinstance(size, int) and size <= MAX_WORLD else stall.waiting
    words = f"RAS reports all {len(everyone)} ranks alive with equal numbers of launched operations: none is missing"
    return replace(
        stall, waiting=everyone, world=len(everyone), note=words, evidence=(*stall.evidence[:4], *status.evidence[:1])
    )


def stall_facts(
    base: FactBase, stall: Stall, crashes: Mapping[int, Fact], named: Mapping[int, Fact], idle: set[int],
    mismatches: list[Fact], *, died: bool,
) -> Iterator[Fact]:  # fmt: skip
    """A stall with what is known of the ranks in it. `died`: a process is known to have ended, `crashes`: its rank."""
    everyone = set(range(stall.world)) if stall.world else set()
    behind = set(stall.behind) - set(crashes)
    silent = everyone - set(stall.waiting) - set(stall.behind) - set(crashes) - set(named) - stall.done
    entered = bool(everyone) and stall.waiting | stall.done >= everyone
    own_mismatch = any(m.fields.get("group") == stall.group for m in mismatches)
    if died:
        verdict = "missing_rank"
    elif own_mismatch or stall.mismatch:
        verdict = "mismatch"
    elif not stall.certain:
        verdict = "snapshot"
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
    if stall.kind == "init":
        fields["complaints"] = init_failed(base)
    if stall.world:
        fields["silent"], fields["silent_count"] = fold_ranks(silent), len(silent)
    fields |= {
        "others": stall.note or others(stall, silent, known_ranks(base)),
        "what": what(stall.op, stall.seq, stall.group),
        "certain": verdict != "snapshot",
    }
    if died or stall.waiting:
        fields["effect"] = suffering(stall, died)
    if verdict == "snapshot":
        yield Fact("", "stall", fields | {"others": positions(stall)}, stall.evidence)
        return
    guilty = [suspect(base, rank, "behind", stall, stall.behind[rank]) for rank in sorted(behind - set(named))]
    present = outlived(base, silent & idle, stall)
    if died:
        present = beside_a_crash(base, present, stall, crashes)
    if died and present:  # a second fault beside the crash
        yield Fact("", "stall", fields, stall.evidence)
        fields = {**fields, "verdict": "behind_rank", "effect": suffering(stall, False)}
    if stall.waiting and len(present) * 2 <= len(everyone) and (died or verdict == "partial_evidence"):
        guilty += [suspect(base, rank, "absent", stall, None) for rank in sorted(present)]
    guilty = guilty[:MAX_SUSPECTS]
    if guilty or named:
        ranks = [*(int(str(s.fields["rank"])) for s in guilty), *(named if not guilty else ())]
        fields |= {"who": placed_ranks(ranks, base.rank_host), "detail": details(guilty) or "the others name it"}
        place = device_words(devices(base).get(ranks[0], {})) if len(ranks) == 1 else ""
        if place:
            fields["place"] = place
    yield Fact("", "stall", fields, stall.evidence)
    yield from guilty
