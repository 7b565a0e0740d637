"""Whose silence means something: a log that ends before the time-outs, or among them, tells nothing of its ranks."""

from __future__ import annotations

from collections import defaultdict

from diagnose.model import Fact, FactBase
from diagnose.tables.progress.stall import Stall

_COMPLAINTS = ("torch_timeout", "torch_pg_status", "torch_heartbeat", "torch_error", "torch_desync", "covered")
"""What watchdogs write when ranks time out: lines of these kinds may stop anywhere in the midst of them."""


def outlived(base: FactBase, silent: set[int], stall: Stall) -> set[int]:
    """Those of the silent ranks whose logs go on after the time-outs.

    A log goes on when the rank itself, or something that is no complaint of a watchdog, speaks in it after most other
    ranks of the file have timed out; or, in a file without time-outs, at a later time than theirs. A file of one rank
    beside files of others that timed out was collected with them; so was one in which most ranks timed out, beside one
    in which all did. In time-outs printed in the order of the ranks, only those after the last may be cut off.
    """
    if not silent:
        return set()
    lines: dict[str, list[Fact]] = defaultdict(list)
    for o in base.observations:
        if o.evidence:
            lines[o.evidence[-1].source].append(o)
    named = {s: {r for o in found if isinstance(r := o.fields.get("rank"), int)} for s, found in lines.items()}
    times = [
        t for o in base.observations if o.kind == "torch_timeout" and isinstance(t := o.fields.get("at"), int | float)
    ]
    last = max(times, default=None)
    shown: set[int] = set()
    timed_out = {source for source, found in lines.items() if any(o.kind == "torch_timeout" for o in found)}
    whole = [source for source in timed_out if named[source] <= stall.waiting]
    for source, found in lines.items():
        here = named[source] & silent
        if not here:
            continue
        complaints = [o for o in found if o.kind == "torch_timeout"]
        if complaints:
            shown |= _after(found, complaints, here, named[source], stall) | _passed_over(complaints, here)
            if whole and len(here) * 2 < len(named[source]):
                shown |= here
        elif len(named[source]) == 1 or (last is not None and any(_at(o) >= last for o in found)):
            shown |= here
    return shown


def _after(found: list[Fact], complaints: list[Fact], here: set[int], named: set[int], stall: Stall) -> set[int]:
    first, last = min(map(_line, complaints)), max(map(_line, complaints))
    others = named - here
    most = len(others & stall.waiting) * 2 >= len(others)
    if most and any(_line(o) > last and o.kind not in _COMPLAINTS for o in found):
        return here
    return {r for r in here if any(o.fields.get("rank") == r and _line(o) > first for o in found)}


def _passed_over(complaints: list[Fact], here: set[int]) -> set[int]:
    """Ranks that the time-outs, printed in the order of their ranks, have left out."""
    ranks = [r for o in sorted(complaints, key=_line) if isinstance(r := o.fields.get("rank"), int)]
    ordered = len(set(ranks)) >= 3 and ranks == sorted(ranks)
    return {r for r in here if r < ranks[-1]} if ordered else set()


def _line(o: Fact) -> int:
    return o.evidence[-1].last


def _at(o: Fact) -> float:
    at = o.fields.get("at")
    return float(at) if isinstance(at, int | float) else -1.0
