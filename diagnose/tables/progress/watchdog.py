"""Stalls that the watchdogs of PyTorch report: the ranks that time out are those that wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from diagnose.model import Fact, FactBase, Value
from diagnose.tables.progress.stall import (
    NO_NUMBER,
    Seen,
    Stall,
    longest,
    some_evidence,
    what,
)


def groups(base: FactBase) -> dict[str | None, dict[int, Seen]]:
    groups: dict[str | None, dict[int, Seen]] = defaultdict(dict)
    for o in base.observations:
        rank = o.fields.get("rank")
        if o.kind not in ("torch_timeout", "torch_pg_status") or not isinstance(rank, int):
            continue
        name = o.fields.get("group")
        seen = groups[str(name) if name is not None else None].setdefault(rank, Seen(rank))
        seen.fact = seen.fact or o
        if o.kind == "torch_timeout":
            seq = o.fields.get("seq")
            seen.timeouts.setdefault(seq if isinstance(seq, int) else NO_NUMBER, o)
        else:
            seen.enqueued = _largest(seen.enqueued, o.fields.get("last_enqueued"))
            seen.completed = _largest(seen.completed, o.fields.get("last_completed"))
    _join_ungrouped(groups)
    return groups


def _join_ungrouped(groups: dict[str | None, dict[int, Seen]]) -> None:
    """Time-outs without a group: one with the signature of a single known group's time-out belongs to that group, and
    so does one that fits the numbers of its rank's only status line."""
    signatures: dict[tuple[Value | None, ...], set[str]] = defaultdict(set)
    for name, ranks in groups.items():
        for fact in (f for seen in ranks.values() for f in seen.timeouts.values() if name is not None):
            signatures[_timeout_signature(fact)].add(str(name))
    for rank, seen in list(groups.get(None, {}).items()):
        for seq, fact in list(seen.timeouts.items()):
            names = signatures.get(_timeout_signature(fact), set())
            if len(names) == 1:
                groups[next(iter(names))].setdefault(rank, Seen(rank, fact=fact)).timeouts.setdefault(seq, fact)
                del seen.timeouts[seq]
        if not seen.timeouts:
            del groups[None][rank]
            continue
        fitting = [
            ranks[rank] for name, ranks in groups.items()
            if name is not None and rank in ranks and (ranks[rank].enqueued or -1) >= max(seen.timeouts, default=0)
            and (ranks[rank].completed or 0) < min(seen.timeouts, default=0)
        ]  # fmt: skip
        if len(fitting) == 1 and seen.timeouts:
            for seq, fact in seen.timeouts.items():
                fitting[0].timeouts.setdefault(seq, fact)
            del groups[None][rank]


def _timeout_signature(fact: Fact) -> tuple[Value | None, ...]:
    return tuple(fact.fields.get(n) for n in ("seq", "op", "numel_in", "numel_out"))


def _largest(a: int | None, b: object) -> int | None:
    return b if isinstance(b, int) and (a is None or b > a) else a


TRANSFERS = ("SEND", "RECV")
"""Operations of two ranks, whose numbers say nothing about the others of the group."""


def watchdog_stalls(base: FactBase, mismatches: list[Fact]) -> Iterator[Stall]:
    """One stall per group with time-outs. A rank that times out in another group waits there and is not behind here."""
    found = groups(base)
    places: dict[int, set[str | None]] = defaultdict(set)
    for name, ranks in found.items():
        for rank, seen in ranks.items():
            if seen.timeouts:
                places[rank].add(name)
    for name, ranks in sorted(found.items(), key=lambda item: item[0] or "~"):
        timed_out = {seq for seen in ranks.values() for seq in seen.timeouts}
        if not timed_out:
            continue
        world = base.world if name is None or "default" in name or name.split("(")[0].strip() in ("0", "PG 0") else None
        if name is None and len({_timeout_signature(f) for s in ranks.values() for f in s.timeouts.values()}) > 1:
            yield _incomparable(ranks, base.world)
            continue
        for seq in _divergences(timed_out, ranks):
            done = {
                r for r, s in ranks.items()
                if name is not None and seq not in s.timeouts and s.completed is not None and s.completed >= seq
            }  # fmt: skip
            waiting = {
                r for r, s in ranks.items()
                if seq in s.timeouts or (name is not None and s.enqueued is not None and s.enqueued >= seq)
            } - done  # fmt: skip
            behind = {
                r: s.enqueued for r, s in ranks.items()
                if name is not None and s.enqueued is not None and s.enqueued < seq and seq not in s.timeouts
                and not places[r] - {name}
            }  # fmt: skip
            facts = [s.timeouts[seq] for s in ranks.values() if seq in s.timeouts]
            if str(facts[0].fields["op"]).upper() in TRANSFERS:
                behind = {}
            laggards = [s.fact for r, s in ranks.items() if r in behind and s.fact]
            yield Stall(
                name, seq, str(facts[0].fields["op"]), "watchdog", frozenset(waiting), behind, world,
                some_evidence([*laggards, *facts]), longest(facts, "elapsed_ms"), longest(facts, "timeout_ms"),
                done=frozenset(done),
                mismatch=any(m.fields.get("seq") == seq and m.fields.get("group") == name for m in mismatches),
            )  # fmt: skip


def _divergences(timed_out: set[int], ranks: Mapping[int, Seen]) -> list[int]:
    """The sequence number worth a stall: the first, unless a later one has far more votes."""
    votes = {seq: sum(seq in s.timeouts for s in ranks.values()) for seq in timed_out}
    first = min(timed_out)
    return [first] if votes[first] * 2 >= max(votes.values()) else [max(votes, key=lambda s: (votes[s], -s))]


def _incomparable(ranks: Mapping[int, Seen], world: int | None) -> Stall:
    """Several collectives without group names as one stall: their numbers cannot be compared."""
    facts = [f for _, seen in sorted(ranks.items()) for f in seen.timeouts.values()]
    stuck = "; ".join(
        f"rank {r}: " + ", ".join(what(str(f.fields["op"]), q, "") for q, f in sorted(seen.timeouts.items())[:4])
        for r, seen in sorted(ranks.items())[:6]
    )  # fmt: skip
    words = f"several collectives of unnamed groups, whose numbers cannot be compared ({stuck})"
    return Stall(
        None, None, words, "watchdog", frozenset(ranks), {}, world, some_evidence(facts), longest(facts, "elapsed_ms"),
        longest(facts, "timeout_ms"),
    )  # fmt: skip
