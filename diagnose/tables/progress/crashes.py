"""Ranks that ended by themselves, and ranks that others name as missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagnose.model import UNNAMED_HOST, Fact, FactBase, Value
from diagnose.tables.progress.stall import MAX_SUSPECTS, Stall, has_symptoms, some_evidence

CUT = "unknown"
"""Type of an exception whose traceback is cut off."""
CRASH_REASONS = ("killed", "crashed", "oom", "error")
CLEARLY_BEFORE_S = 60.0
"""A process that ended so long before the first time-out was not ended by it (chosen by us)."""
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
    """rank -> suspect_rank for ranks whose process ended badly by itself (not because of a collective).

    Exceptions and signals first. An exit code alone says nothing of who was first, so it names a rank only where it is
    the only one. So does an abort, since watchdogs abort their victims. SIGKILL on several hosts came from outside.
    """
    found: dict[int, Fact] = {}
    for o in base.observations:
        rank = o.fields.get("rank")
        own = o.kind == "python_exception" and o.fields.get("cause") not in VICTIM_CAUSES
        if own and isinstance(rank, int) and o.fields["type"] != CUT:
            found.setdefault(rank, _crash(base, o, "exception", _raised(o)))
    exits = _exits(base)
    for o in _by_themselves(base, [o for o in exits if isinstance(o.fields.get("rank"), int)], bool(found)):
        found.setdefault(int(str(o.fields["rank"])), _ended(base, o))
    return dict(sorted(found.items())[:MAX_SUSPECTS])


def cut_exceptions(base: FactBase) -> Iterator[Fact]:
    """Ranks of whose traceback only the beginning is there: whose fault it was stood at its end."""
    seen: set[int] = set()
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind == "python_exception" and o.fields["type"] == CUT and isinstance(rank, int) and rank not in seen:
            seen.add(rank)
            yield _crash(base, o, "first_error", "it raised an exception whose text is cut off")


def nameless_crash(base: FactBase) -> Fact | None:
    """The only process of the job that ended by itself, where nobody tells its rank.

    A signal or lack of memory ended it, or an exception is the last thing that a log of its own says: other exceptions
    may have been caught, and an exit code alone tells nothing.
    """
    if any("rank" in o.fields and o.fields.get("reason") in CRASH_REASONS for o in _exits(base)):
        return None
    ended = [
        o for o in _exits(base)
        if o.fields.get("reason") in CRASH_REASONS[:3] and o.fields.get("signal") not in VICTIM_SIGNALS
        and "hosts" not in o.fields and ("pid" in o.fields or "host" in o.fields)
    ]  # fmt: skip
    raised = _last_words(base)
    if any(len({o.fields[name] for o in ended if name in o.fields}) > 1 for name in ("host", "pid", "local_rank")):
        return None
    if not ended:
        return _crash(base, raised[0], "exception", _raised(raised[0])) if len(raised) == 1 else None
    return _ended(base, max(ended, key=lambda o: ("pid" in o.fields, "host" in o.fields)))


def _last_words(base: FactBase) -> list[Fact]:
    """Exceptions of processes without a rank after which their log says nothing more."""
    ends: dict[str, int] = {}
    for o in base.observations:
        for e in o.evidence if o.kind not in ("process_exit", "python_exception") else ():
            ends[e.source] = max(e.last, ends.get(e.source, 0))
    own = [
        o for o in base.observations
        if o.kind == "python_exception" and "rank" not in o.fields and o.fields["type"] != CUT and o.evidence
        and o.fields.get("cause") not in VICTIM_CAUSES
    ]  # fmt: skip
    return [o for o in own if o.evidence[-1].last >= ends.get(o.evidence[-1].source, 0)]


def _exits(base: FactBase) -> list[Fact]:
    """Ends of processes; where a launcher says which was the first on its host, only those."""
    exits = [o for o in base.observations if o.kind == "process_exit"]
    return [o for o in exits if o.fields.get("first_failure")] or exits


def _by_themselves(base: FactBase, exits: list[Fact], named: bool) -> Iterator[Fact]:
    """Ends that name their rank. `named`: exceptions name some already."""
    complaints = [
        o for o in base.observations
        if o.kind in ("torch_timeout", "torch_error")
        or (o.kind == "python_exception" and o.fields.get("cause") in VICTIM_CAUSES)
    ]  # fmt: skip
    victims = {o.fields.get("rank") for o in complaints}
    bad = [o for o in exits if o.fields.get("reason") in CRASH_REASONS and o.fields["rank"] not in victims]
    signalled = [
        o for o in bad
        if o.fields["reason"] != "error" and o.fields.get("signal") not in VICTIM_SIGNALS and "hosts" not in o.fields
    ]  # fmt: skip
    killed = [o for o in signalled if o.fields.get("signal") == "SIGKILL" and o.fields["reason"] == "killed"]
    if len({o.fields.get("host") for o in killed}) > 1:
        signalled = [o for o in signalled if o not in killed or _lacked_memory(base, o)]
    yield from signalled
    if named or signalled:
        return
    aborted = [o for o in bad if o.fields.get("signal") == "SIGABRT"]
    early = [o for o in aborted if _before(o, complaints)]
    if early or not has_symptoms(base):
        yield from _alone(early or aborted)
    if not aborted:
        yield from _alone([o for o in bad if o.fields["reason"] == "error" and "hosts" not in o.fields])


def _alone(exits: list[Fact]) -> list[Fact]:
    return exits[:1] if len({o.fields["rank"] for o in exits}) == 1 else []


def _before(o: Fact, complaints: list[Fact]) -> bool:
    """Whether a process had ended clearly before the first complaint, so that no watchdog ended it."""
    at, first = o.fields.get("at"), [t for c in complaints if isinstance(t := c.fields.get("at"), int | float)]
    return isinstance(at, int | float) and len(first) == len(complaints) > 0 and at < min(first) - CLEARLY_BEFORE_S


def _lacked_memory(base: FactBase, o: Fact) -> bool:
    """Whether the kernel of its host killed for lack of memory during the job."""
    return "host" in o.fields and any(
        k.kind == "kernel_event" and k.fields["event"] == "oom_kill" and not k.fields.get("old")
        and k.fields.get("host") == o.fields["host"] and k.fields.get("pid", o.fields.get("pid")) == o.fields.get("pid")
        for k in base.observations
    )  # fmt: skip


def _raised(o: Fact) -> str:
    where = f" at {o.fields['file']}:{o.fields['line']}" if {"file", "line"} <= o.fields.keys() else ""
    return f"{o.fields['type']}: {o.fields.get('message', '')}"[:200] + where


def _ended(base: FactBase, o: Fact) -> Fact:
    if o.fields.get("reason") == "oom":
        return _crash(base, o, "oom", "its process was killed for lack of host memory")
    code = o.fields.get("exit_code")
    how = o.fields.get("signal") or (f"exit code {code}" if code is not None else "an error")
    return _crash(base, o, "crashed", f"its process ended with {how}")


def _crash(base: FactBase, o: Fact, reason: str, detail: str) -> Fact:
    rank = o.fields.get("rank")
    fields: dict[str, Value] = {"reason": reason, "detail": detail}
    host = o.fields.get("host") or (base.rank_host.get(rank) if isinstance(rank, int) else None)
    if host is not None:
        fields["host"] = host
    for name in ("rank", "pid", "signal"):
        if name in o.fields:
            fields[name] = o.fields[name]
    return introduced(Fact("", "suspect_rank", fields, o.evidence))


def introduced(suspect: Fact) -> Fact:
    """The suspect with `who`: its rank and host in words, or what else is known of the process."""
    rank, host, pid = (suspect.fields.get(name) for name in ("rank", "host", "pid"))
    place = f" on {host}" if host not in (None, UNNAMED_HOST) else ""
    who = f"Rank {rank}{place}" if rank is not None else f"A process of the job{place}"
    if rank is None and pid is not None:
        who += f" (pid {pid})"
    return replace(suspect, fields={"who": who, **suspect.fields})


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
