"""Whose silence means something: a log that ends before the time-outs, or among them, tells nothing of its ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from diagnose.model import Fact, FactBase
from diagnose.tables.progress.jobwide import FEW
from diagnose.tables.progress.stall import Stall, devices

_COMPLAINTS = ("torch_timeout", "torch_pg_status", "torch_heartbeat", "torch_error", "torch_desync", "covered")
"""What watchdogs write when ranks time out: lines of these kinds may stop anywhere in the midst of them."""
_ENDINGS = ("job_event", "launcher_stop")
"""What launchers and schedulers write when they end a job, whatever its ranks were about to say."""
SOON_S = 10.0
"""Whom the launcher ends so soon after the first time-out may have had no time to report its own (chosen by us)."""


def outlived(base: FactBase, silent: set[int], stall: Stall) -> set[int]:
    """Those of the silent ranks whose logs go on after the time-outs.

    A log goes on when the rank itself, or something that is no complaint of a watchdog, speaks in it after most other
    ranks of the file have timed out; or, in a file without time-outs, at a later time than theirs. A file of one rank
    beside files of others that timed out was collected with them; so was one in which most ranks timed out, beside one
    in which all did. In time-outs printed in the order of the ranks, only those after the last may be cut off. Of a job
    whose groups are not known, a rank that speaks after others have timed out may work on in another group. Whom the
    launcher ended at that moment could not tell.
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
    working: set[int] = set()
    timed_out = {source for source, found in lines.items() if any(o.kind == "torch_timeout" for o in found)}
    whole = [source for source in timed_out if named[source] <= stall.waiting]
    for source, found in lines.items():
        here = named[source] & silent
        if not here:
            continue
        complaints = [o for o in found if o.kind == "torch_timeout"]
        if complaints:
            shown |= _passed_over(complaints, here)
            if stall.job_wide:
                working |= _works_on(found, complaints)
            else:
                shown |= _after(found, complaints, here, named[source], stall)
            if whole and len(here) * 2 < len(named[source]):
                shown |= here
        elif len(named[source]) == 1 or (
            not stall.job_wide and last is not None and any(_at(o) >= last for o in found)
        ):
            shown |= here
    return shown - working - _stopped(base, lines, named, min(times, default=None))


def _after(found: list[Fact], complaints: list[Fact], here: set[int], named: set[int], stall: Stall) -> set[int]:
    first, last = min(map(_line, complaints)), max(map(_line, complaints))
    others = named - here
    most = len(others & stall.waiting) * 2 >= len(others)
    if most and any(_line(o) > last and o.kind not in (*_COMPLAINTS, *_ENDINGS) for o in found):
        return here
    return {r for r in here if any(o.fields.get("rank") == r and _line(o) > first for o in found)}


def _works_on(found: list[Fact], complaints: list[Fact]) -> set[int]:
    """Ranks that say something else than a complaint after the first time-out of their file."""
    first = min(map(_line, complaints))
    later = (o for o in found if _line(o) > first and o.kind not in _COMPLAINTS)
    return {r for o in later if isinstance(r := o.fields.get("rank"), int)}


def _stopped(
    base: FactBase, lines: Mapping[str, list[Fact]], named: Mapping[str, set[int]], first: float | None
) -> set[int]:
    """Ranks that a launcher ended before or about when the first time-out was reported; all of its file where it tells
    processes of which no rank is known."""
    pids = {place.get("pid"): rank for rank, place in devices(base).items()}
    ended: set[int] = set()
    for source, found in lines.items():
        stops = [o for o in found if o.kind == "launcher_stop"]
        soon = [o for o in stops if first is None or _at(o) < 0 or _at(o) <= first + SOON_S]
        ranks = [pids.get(o.fields["pid"]) for o in soon]
        ended |= named[source] if None in ranks else {r for r in ranks if r is not None}
    return ended


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


def beside_a_crash(base: FactBase, present: set[int], stall: Stall, crashes: Mapping[int, Fact]) -> set[int]:
    """Of ranks whose silence means something those that the end of another rank does not explain: a launcher ends the
    other processes of a host together, and here others of the rank's own host live on and time out."""
    if not crashes or not stall.world or (len(present) + len(crashes)) * FEW > stall.world:
        return set()
    alive: dict[str, int] = defaultdict(int)
    for rank in stall.waiting:
        alive[base.rank_host.get(rank, "")] += 1
    return {r for r in present - crashes.keys() if (host := base.rank_host.get(r)) and alive[host]}
