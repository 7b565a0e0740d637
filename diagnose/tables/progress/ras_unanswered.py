"""Processes and ranks that gave RAS no data in its last answer and are not known to be dead."""

from __future__ import annotations

from collections import defaultdict

from diagnose.model import Fact, Value
from diagnose.tables.progress.ras_moments import moment
from diagnose.tables.progress.ras_places import Places
from diagnose.tables.progress.stall import some_evidence

MAX_NAMED = 4
_SILENT = ("incomplete", "unresponsive")


def unanswered(seen: list[Fact], places: Places) -> list[Fact]:
    """One suspect per host (and one for those that are only counted) with reason `no_answer`; a rank of a smaller
    communicator is no rank of the job, so processes are named by host, process id and GPU."""
    answers = [o for o in seen if o.kind in ("ras_comm", "ras_count", "ras_missing")]
    if not answers:
        return []
    last = max(map(moment, answers))
    answers = [o for o in answers if moment(o) == last]
    silent = [o for o in answers if o.kind == "ras_missing" and o.fields.get("state") in _SILENT]
    dead = {places.process(o)[:2] for o in seen if o.kind == "ras_missing" and o.fields.get("state") == "dead"}
    by_host: dict[str, dict[int, Fact]] = defaultdict(dict)
    for o in silent:
        host, pid, _ = places.process(o)
        if pid >= 0 and (host, pid) not in dead:
            known = by_host[host].get(pid)
            if known is None or ("gpu" in o.fields and "gpu" not in known.fields):
                by_host[host][pid] = o
    if by_host:
        return [_suspect(host, found) for host, found in sorted(by_host.items())]
    marked = [o for o in answers if o.kind == "ras_comm" and "INCOMPLETE" in str(o.fields.get("errors", ""))]
    if dead or not (silent or marked):
        return []
    number = max((n for o in silent if isinstance(n := o.fields.get("number"), int)), default=0)
    whom = f"{number} processes or ranks of the job" if number > 1 else "A process of the job"
    fields: dict[str, Value] = {
        "reason": "no_answer", "who": whom,
        "detail": "RAS marks a communicator INCOMPLETE and does not tell whose data",
    }  # fmt: skip
    return [Fact("", "suspect_rank", fields, some_evidence([*silent, *marked]))]


def _suspect(host: str, found: dict[int, Fact]) -> Fact:
    words = []
    for pid in sorted(found)[:MAX_NAMED]:
        gpu = str(found[pid].fields.get("gpu", ""))
        words.append(f"{pid}{f' (GPU {gpu})' if gpu else ''}")
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    where = f" on {host}" if host else ""
    name = "Process" if len(found) == 1 else "Processes"
    ranks = sorted(
        {r for o in found.values() if isinstance(r := o.fields.get("comm_rank"), int) and "comm_id" in o.fields}
    )
    detail = "RAS has no data of its communicators" if len(found) == 1 else "RAS has no data of their communicators"
    if len(found) == 1 and ranks:
        o = next(iter(found.values()))
        detail += f" (it is rank {ranks[0]} of communicator {o.fields['comm_id']})"
    fields: dict[str, Value] = {
        "reason": "no_answer", "who": f"{name} {', '.join(words)}{more}{where}", "detail": detail,
    }  # fmt: skip
    if host:
        fields["host"] = host
    if len(found) == 1:
        fields["pid"] = next(iter(found))
    return Fact("", "suspect_rank", fields, some_evidence(found.values()))
