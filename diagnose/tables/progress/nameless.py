"""Dumps none of which tells its rank: how many of them wait in the same operation, and which do not."""

from __future__ import annotations

from collections import Counter, defaultdict

from diagnose.model import Fact, FactBase, Value
from diagnose.tables.progress.recorder import group_label
from diagnose.tables.progress.stall import some_evidence, what

SHOWN = 4


def nameless_stall(base: FactBase) -> Fact | None:
    """The operation that most of the files wait in; None for one file, or when most wait in nothing."""
    files = sorted({o.evidence[0].source for o in base.observations if o.kind == "fr_dump"})
    rows: dict[tuple[str, str], dict[str, Fact]] = defaultdict(dict)
    for o in base.observations:
        if o.kind == "fr_group":
            rows[str(o.fields["group"]), str(o.fields.get("members", ""))].setdefault(o.evidence[0].source, o)
    votes = Counter(
        (group, seq) for group, told in rows.items() for o in told.values()
        if isinstance(seq := o.fields.get("pending_seq"), int)
    )  # fmt: skip
    if len(files) < 2 or not votes:
        return None
    (group, seq), count = votes.most_common(1)[0]
    if count * 2 <= len(files):
        return None
    told = rows[group]
    waiting = [o for o in told.values() if o.fields.get("pending_seq") == seq]
    behind = [
        f"{source} is at #{n}" for source, o in sorted(told.items())
        if isinstance(n := o.fields.get("enqueued"), int) and n < seq
    ]  # fmt: skip
    first = waiting[0].fields
    label = group_label(group[0], str(first.get("desc", "")))
    op = str(first.get("pending_op", ""))
    more = f" and {len(behind) - SHOWN} more" if len(behind) > SHOWN else ""
    others = [", ".join(behind[:SHOWN]) + more] if behind else []
    others.append(f"none of the {len(files)} dumps tells its rank: collect them under the names that PyTorch gave them")
    late = [told[source] for source in sorted(told) if told[source] not in waiting]
    fields: dict[str, Value] = {
        "evidence_kind": "flight_recorder", "verdict": "partial_evidence", "group": label, "seq": seq, "op": op,
        "waiting_count": count, "behind_count": len(behind), "all_entered": False, "certain": False,
        "dumps": len(files), "what": what(op, seq, label), "others": "; ".join(others),
        "effect": f"{count} of {len(files)} dumps wait in vain",
    }  # fmt: skip
    return Fact("", "stall", fields, some_evidence([*late[:2], *waiting[:2]]))
