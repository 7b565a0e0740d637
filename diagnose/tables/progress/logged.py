"""Ranks without a dump of whose progress the logs tell: positions in named groups from watchdog lines."""

from __future__ import annotations

import re

from diagnose.model import Fact, FactBase
from diagnose.tables.progress.recorder import NEVER, Recording, Row

_NAME = re.compile(r"PG (?P<name>\S+)")


def add_logged(found: Recording, base: FactBase) -> None:
    """Adds a row per rank and group; the rank then counts as one with a dump."""
    rows: dict[tuple[str, int], Row] = {}
    transfers = {
        (o.fields.get("rank"), o.fields.get("group")) for o in base.observations
        if o.kind == "torch_timeout" and o.fields.get("op") in ("SEND", "RECV")
    }  # fmt: skip
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind not in ("torch_pg_status", "torch_timeout") or not isinstance(rank, int) or rank in found.dumps:
            continue
        if (rank, o.fields.get("group")) in transfers:
            continue
        m = _NAME.match(str(o.fields.get("group", "")))
        if m is None:
            continue
        key = (m["name"], rank)
        row = rows.get(key)
        if row is None:
            row = rows[key] = Row(rank, o, None, -1, None, NEVER, "", None, {}, None, NEVER, ())
        _take(row, o)
    for (name, rank), row in rows.items():
        groups = [g for g in found.groups if g.name == name and rank in g.members]
        if len(groups) == 1 and row.enqueued is not None:
            groups[0].rows[rank] = row
            found.dumps.setdefault(rank, row.fact)


def _take(row: Row, o: Fact) -> None:
    f = o.fields
    if o.kind == "torch_timeout":
        seq = f.get("seq")
        if isinstance(seq, int):
            row.enqueued = max(seq, row.enqueued if row.enqueued is not None else -1)
            row.pending = seq if row.pending is None else min(seq, row.pending)
            row.op, row.order = str(f.get("op", "")), 0
        return
    enqueued, completed = f.get("last_enqueued"), f.get("last_completed")
    if isinstance(enqueued, int):
        row.enqueued = max(enqueued, row.enqueued if row.enqueued is not None else -1)
    if isinstance(completed, int):
        row.completed = max(completed, row.completed)
    if isinstance(enqueued, int) and isinstance(completed, int) and enqueued > completed and row.pending is None:
        row.pending, row.order = completed + 1, 0
