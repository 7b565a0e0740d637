"""The table of progress: per stalled collective the ranks that are alike, odd ones first, at the numbers around it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from diagnose.model import Fact, FactBase, fold_ranks, unfold_ranks
from diagnose.tables.progress.recorder import Group, Recording, Row, recording

MAX_TABLES = 12
BEFORE, AFTER = 3, 8
"""Numbers shown around the one that does not complete."""


def progress_table(base: FactBase, facts: Sequence[Fact]) -> dict[str, Any]:
    """Groups with rows of ranks, and the ranks of every host as far as known; empty when nothing stalls."""
    suspects = [f for f in facts if f.kind == "suspect_rank"]
    stalls = [f for f in facts if f.kind in ("stall", "signature_mismatch") and f.fields.get("verdict") != "standstill"]
    recorded = any(f.fields.get("evidence_kind") == "flight_recorder" or "pattern" in f.fields for f in stalls)
    dumps = recording(base) if recorded else Recording()
    groups: list[dict[str, Any]] = []
    for stall in stalls[:MAX_TABLES]:
        group = next((g for g in dumps.groups if g.label == stall.fields.get("group")), None)
        if group is not None and isinstance(stall.fields.get("seq"), int):
            groups.append(_over_time(base, stall, group, dumps, suspects))
        elif stall.kind == "stall":
            groups.append(_at_one(base, stall, suspects))
    return {"groups": groups, "hosts": _hosts(base, groups)} if groups else {}


def _hosts(base: FactBase, groups: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Host -> its ranks among those shown, folded."""
    shown = {rank for group in groups for row in group["rows"] for rank in unfold_ranks(str(row["ranks"]))}
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(shown & base.rank_host.keys()):
        ranks[base.rank_host[rank]].append(rank)
    return {host: fold_ranks(found) for host, found in ranks.items()}


def _over_time(base: FactBase, stall: Fact, group: Group, dumps: Recording, suspects: Sequence[Fact]) -> dict[str, Any]:
    """States of all members at the numbers around the stalled one."""
    seq = int(str(stall.fields["seq"]))
    top = max((r.enqueued for r in group.rows.values() if r.enqueued is not None), default=seq)
    seqs = list(range(max(1, seq - BEFORE), min(top, seq + AFTER) + 1)) or [seq]
    odd = {int(str(s.fields["rank"])) for s in suspects if isinstance(s.fields.get("rank"), int)}
    odd |= set(unfold_ranks(str(stall.fields.get("odd_ranks", ""))))
    failed = {int(str(s.fields["rank"])) for s in suspects if s.fields.get("reason") in _ENDED and "rank" in s.fields}
    alike: dict[tuple[bool, tuple[str, ...]], list[int]] = defaultdict(list)
    for rank in group.everyone():
        row = group.rows.get(rank)
        states = tuple(_state(row, s) if row else "unknown" for s in seqs)
        if rank in failed:
            states = tuple("failed" if s >= seq and t != "done" else t for s, t in zip(seqs, states, strict=True))
        alike[rank in odd, states].append(rank)
    rows = [
        {"ranks": fold_ranks(ranks), "host": host_of(base, ranks), "states": list(states), "odd": strange,
         "note": _note(states[seqs.index(seq)] if seq in seqs else "unknown", strange)}
        for (strange, states), ranks in sorted(alike.items(), key=lambda i: (not i[0][0], len(i[1]), i[1][0]))
    ]  # fmt: skip
    return {"group": group.label, "op": stall.fields.get("op") or "", "seqs": seqs, "rows": rows[:200]}


def _state(row: Row, seq: int) -> str:
    if row.enqueued is None or seq > row.enqueued:
        return "absent"
    return "done" if row.pending is None or seq < row.pending else "waiting"


def _note(state: str, odd: bool) -> str:
    if odd:
        return {"absent": "never entered it", "waiting": "differs from the others", "failed": "its process ended"}.get(
            state, "holds it up"
        )
    return {"unknown": "no dump", "absent": "not there either", "waiting": "waits in it"}.get(state, "")


def _at_one(base: FactBase, stall: Fact, suspects: Sequence[Fact]) -> dict[str, Any]:
    """States at the one number that logs or RAS tell of."""
    seq = stall.fields.get("seq")
    snapshot = stall.fields.get("verdict") in ("snapshot", "ahead")
    kinds = (
        ("behind", "absent", "not yet there" if snapshot else "never entered it"),
        ("silent", "unknown", "nothing known in these files"), ("waiting", "waiting", "waits in it"),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for field, state, note in kinds:
        text = str(stall.fields.get(field, ""))
        if text:
            rows.append({
                "ranks": text, "host": _host_of(base, text), "states": [state], "note": note,
                "odd": field == "behind" and not snapshot,
            })  # fmt: skip
    rows = [*_ended(base, stall, suspects, rows), *rows]
    group = str(stall.fields.get("group", "unnamed group"))
    return {
        "group": group,
        "op": stall.fields.get("op", ""),
        "seqs": [seq if isinstance(seq, int) else 0],
        "rows": rows,
    }


_ENDED = ("crashed", "exception", "exited", "oom")
_BY_RANGE = ("watchdog", "coll_log", "init")
"""Kinds of evidence of which the group is all ranks from 0 to world - 1."""


def _ended(
    base: FactBase, stall: Fact, suspects: Sequence[Fact], rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of the group's ranks whose process ended: `stall` counts them neither as silent nor as behind."""
    shown = {rank for row in rows for rank in unfold_ranks(str(row["ranks"]))}
    world = stall.fields.get("world")
    by_range = stall.fields.get("evidence_kind") in _BY_RANGE and "silent" in stall.fields
    notes: dict[str, list[int]] = defaultdict(list)
    for suspect in suspects:
        rank, reason = suspect.fields.get("rank"), suspect.fields.get("reason")
        if not isinstance(rank, int) or rank in shown or reason not in _ENDED:
            continue
        named = suspect.fields.get("group", stall.fields.get("group")) == stall.fields.get("group")
        if named and by_range and isinstance(world, int) and rank < world and max(shown, default=0) < world:
            notes[str(suspect.fields.get("detail") or reason)].append(rank)
    return [
        {"ranks": fold_ranks(ranks), "host": _host_of(base, fold_ranks(ranks)), "states": ["failed"], "note": note,
         "odd": True}
        for note, ranks in sorted(notes.items(), key=lambda item: min(item[1]))
    ]  # fmt: skip


def _host_of(base: FactBase, ranks: str) -> str:
    return host_of(base, unfold_ranks(ranks))


def host_of(base: FactBase, ranks: Sequence[int]) -> str:
    """The one host of these ranks, or how many there are."""
    hosts = sorted({base.rank_host[r] for r in ranks[:4096] if r in base.rank_host})
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts" if hosts else ""
