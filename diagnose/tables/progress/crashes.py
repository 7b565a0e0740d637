"""Ranks that ended by themselves, and ranks that others name as missing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from diagnose.model import Fact, FactBase, Value
from diagnose.tables.progress.stall import (
    MAX_SUSPECTS,
    Stall,
    some_evidence,
)

CRASH_REASONS = ("killed", "crashed", "oom", "error")


VICTIM_SIGNALS = ("SIGABRT", "SIGTERM")
"""How watchdogs and launchers end the victims of a stall; in a log whose start is lost nothing else may tell them. Each
node of a job names a "first failure" of its own, so that word makes nobody guilty."""
VICTIM_CAUSES = ("collective", "network", "keyboard")
"""Causes of exceptions that a rank suffers because of another one (or of the user)."""


def named_absent(base: FactBase) -> dict[int, Fact]:
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


def crashed_ranks(base: FactBase) -> dict[int, Fact]:
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
        if rank in victims or o.fields.get("signal") in VICTIM_SIGNALS:
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


def failed_by_peers(base: FactBase) -> set[int]:
    """Ranks whose own error says that a peer or the network failed them.

    Where somebody waited in vain, those who waited: connections that broke later were broken by them.
    """
    failed, waited = failures(base)
    return waited or failed


def failures(base: FactBase) -> tuple[set[int], set[int]]:
    """Ranks with an error that blames a peer or the network, and those of them that waited until a time limit."""
    failed: set[int] = set()
    waited: set[int] = set()
    for o in base.observations:
        rank = o.fields.get("rank")
        own = o.kind == "torch_error" or (o.kind == "python_exception" and o.fields.get("cause") in VICTIM_CAUSES[:2])
        if isinstance(rank, int) and (own or o.kind == "torch_timeout"):
            failed.add(rank)
            if o.kind == "torch_timeout" or _WAITED.search(_words(o)):
                waited.add(rank)
    return failed, waited


def _words(o: Fact) -> str:
    return f"{o.fields.get('text', '')} {o.fields.get('message', '')}"


def vanished(base: FactBase, silent: set[int]) -> dict[int, Fact]:
    """The one rank that left neither a dump nor an error while peers lost their connections to somebody; else none."""
    closed = [
        o for o in base.observations
        if o.kind == "nccl_peer_closed"
        or (o.kind in ("torch_error", "python_exception") and _CLOSED.search(_words(o)))
    ]  # fmt: skip
    if len(silent) != 1 or not closed:
        return {}
    rank = next(iter(silent))
    fields: dict[str, Value] = {
        "rank": rank, "reason": "exited",
        "detail": "it left no dump and no error, and its peers lost their connections to a process",
    }  # fmt: skip
    if rank in base.rank_host:
        fields["host"] = base.rank_host[rank]
    return {rank: Fact("", "suspect_rank", fields, closed[0].evidence)}


_WAITED = re.compile(r"[Tt]imed? ?out")
_CLOSED = re.compile(r"[Cc]losed by (?:remote )?peer|reset by peer")


def silent_stall(base: FactBase, crashes: Mapping[int, Fact]) -> Stall:
    """Others lost their connections to a crashed rank, and no watchdog spoke."""
    kinds = ("nccl_peer_closed", "torch_error", "torch_store", "torch_heartbeat")
    facts = [o for o in base.observations if o.kind in kinds and o.fields.get("rank") not in crashes]
    waiting = {int(r) for o in facts if isinstance(r := o.fields.get("rank"), int)}
    return Stall(None, None, None, "watchdog", frozenset(waiting), {}, base.world, some_evidence(facts))
