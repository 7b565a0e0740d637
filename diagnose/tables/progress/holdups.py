"""Ends of the wait-for graph as facts: the operation held up, the ranks that hold it up, rings, and what stays open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.model import Fact, FactBase, Value, fold_ranks
from diagnose.tables.progress.order import against_the_order, alone_in_ring, miscounted, out_of_order
from diagnose.tables.progress.recorder import Group, Recording, Row, symptom_age
from diagnose.tables.progress.stall import (
    MAX_GROUPS,
    MAX_SUSPECTS,
    details,
    device_words,
    devices,
    longest,
    placed_ranks,
    some_evidence,
    what,
    who,
)
from diagnose.tables.progress.waits import End, Operation

CLEAR_LAG, CLEAR_AGE_S = 10, 5.0
"""A distance, and an age of the operation, beyond which a snapshot of a running job is unlikely where everybody waits
for one rank (chosen by us): hosts run ahead of their GPUs by tens of operations, but not for seconds."""
FEW = 1 / 3
"""Share of the ranks that may hold up the others where dumps alone tell of it (chosen by us)."""
MAX_RING = 4
"""Rings of more ranks name nobody, unless somebody's order differs from all others."""

GPU_FIRST = "look at the GPU that is late (Xid, clocks, a kernel that does not end) and at its process"


@dataclass
class Verdict:
    """Facts, and what the rest of the analysis needs of them."""

    facts: list[Fact] = field(default_factory=list)
    guilty: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    decided: bool = False
    known: set[int] = field(default_factory=set)
    vanished: dict[int, Fact] = field(default_factory=dict)


class Judge:
    """Turns ends into facts."""

    def __init__(
        self,
        base: FactBase,
        found: Recording,
        crashes: Mapping[int, Fact],
        verdict: Verdict,
        *,
        certain: bool,
        alone: bool,
    ) -> None:
        self._base, self._found, self._crashes, self._verdict = base, found, crashes, verdict
        self._sole: set[int] = set()
        self._certain, self._opens, self._one_end = certain, alone, False
        self._alone = alone and not found.moved
        self._tops = {
            id(g): max((r.enqueued for r in g.rows.values() if r.enqueued is not None), default=-1)
            for g in found.groups
        }  # fmt: skip
        self._devices = devices(base)
        timeouts = [o for o in base.observations if o.kind == "torch_timeout"]
        self._elapsed, self._limit = longest(timeouts, "elapsed_ms"), longest(timeouts, "timeout_ms")

    def ends(self, all_ends: Sequence[End]) -> None:
        """Facts of all ends: guilty ranks first; stuck operations only where nobody is guilty."""
        guilty = [e for e in all_ends if e.kind in ("behind", "own_gpu")]
        leads = {id(max(e.operations, key=lambda o: len(o.waiting), default=None)) for e in guilty}
        self._one_end = len(leads) == 1 and len(guilty) == len(all_ends)
        self._guilty(guilty)
        for end in all_ends:
            if end.kind == "ring":
                self._ring(end)
        open_ends = [e for e in all_ends if e.kind in ("unknown", "stuck")]
        decided = bool(self._verdict.guilty) or any(e.kind == "ring" for e in all_ends)
        self._sole = _sole_unknown(open_ends) if not decided else set[int]()
        for end in open_ends[:MAX_GROUPS]:
            sure = self._certain or (self._opens and len(self._verdict.waiting) * 2 >= len(self._found.dumps))
            if sure and end.operations and (not decided or self._crashed(end)):
                self._open(end)

    def _guilty(self, found: Sequence[End]) -> None:
        by_operation: dict[int, list[End]] = defaultdict(list)
        operations: dict[int, Operation] = {}
        for end in found:
            lead = max(
                end.operations, key=lambda o: (len(o.waiting), -(min((r.at or 0) for r in o.rows))), default=None
            )
            if lead is not None:
                operations[id(lead)] = lead
                by_operation[id(lead)].append(end)
        ordered = sorted(by_operation.items(), key=lambda item: -max(e.victims for e in item[1]))
        for key, several in ordered[:MAX_GROUPS]:
            self._held_up(operations[key], several)

    def _held_up(self, operation: Operation, several: Sequence[End]) -> None:
        """One operation, and the ranks that it waits for."""
        named = {r for e in several for r in e.ranks}
        own_gpu = {r for e in several if e.kind == "own_gpu" for r in e.ranks}
        lag = max((self._lag(r) for r in sorted(named)[:MAX_SUSPECTS]), default=0)
        members = len(list(operation.group.everyone()))
        known = members - len(operation.unknown)
        lonely = len(operation.waiting) * 4 <= known and (len(named) + len(operation.waiting)) * 4 >= 3 * known
        leaders = operation.waiting if lonely and known >= 4 and not own_gpu else set[int]()
        certain = self._certain or self._looks_stalled(lag, len(leaders or named), max(members, self._found.world))
        victims = max(e.victims for e in several)
        crashed = named & self._crashes.keys() if not leaders else set[int]()
        verdict = "missing_rank" if crashed else "ahead" if leaders else "behind_rank" if certain else "snapshot"
        stall = what(operation.op, None if operation.peer_to_peer else operation.seq, operation.group.label)
        guilty = leaders or named
        suspects = [
            self._suspect(rank, "ahead" if leaders else "behind", operation, stall, victims, rank in own_gpu)
            for rank in sorted(guilty)[:MAX_SUSPECTS]
        ]  # fmt: skip
        fields = self._stall(operation, verdict, named, victims, certain, leaders)
        fields |= {
            "who": placed_ranks(guilty, self._base.rank_host),
            "detail": details(suspects) + self._left_out(),
            **self._place(guilty),
            **({"look": GPU_FIRST} if own_gpu and own_gpu >= guilty else {}),
        }
        self._verdict.facts.append(self._fact(operation, fields, named))
        missing = len(operation.unknown)
        coverage: dict[str, Value] = {"stall": stall, "dumps": members - missing, "missing": missing}
        self._verdict.facts.append(Fact("", "dump_coverage", coverage))
        if certain:
            self._verdict.guilty |= guilty
            self._verdict.facts += [s for s in suspects if s.fields["rank"] not in self._crashes]

    def _left_out(self) -> str:
        count = self._found.foreign
        one = "1 dump of another job or attempt was left out"
        many = f"{count} dumps of another job or attempt were left out"
        return f" ({one if count == 1 else many})" if count else ""

    def _looks_stalled(self, lag: int, count: int, world: int) -> bool:
        """No time-out was reported. Dumps alone are usually written at one, when at least half of the ranks wait, and
        `count` ranks, few of the `world`, hold them up. Beside logs without any they may be a snapshot of a running
        job, unless everybody waits for the same and the distance is large."""
        if self._alone:
            return (count <= world * FEW or lag >= 2) and len(self._verdict.waiting) * 2 >= len(self._found.dumps)
        return self._one_end and lag >= CLEAR_LAG and symptom_age(self._found) >= CLEAR_AGE_S

    def _lag(self, rank: int) -> int:
        """Largest distance to the leader of any group."""
        own = ((g, g.rows[rank].enqueued) for g in self._found.groups if rank in g.rows)
        return max((self._tops[id(g)] - n for g, n in own if n is not None), default=0)

    def _ring(self, end: End) -> None:
        operations = sorted(end.operations, key=lambda o: (-len(o.waiting), o.group.name))
        ranks = set(end.ranks)
        holders = [o.waiting & ranks for o in operations]
        strange = out_of_order(self._found)
        odd = strange & ranks or alone_in_ring(operations, ranks) or strange
        odd = odd or miscounted(self._found, operations, ranks)
        odd = odd or against_the_order(self._found, operations) & ranks
        if not odd and len(ranks) >= 3 and len(holders) == 2:
            minor, unknown = min(holders, key=len), set().union(*(o.unknown for o in operations))
            odd = minor if len(minor | unknown) * 3 <= len(ranks) else set()
        if not odd and len(ranks) <= MAX_RING:
            odd = ranks
        links = [
            f"{who(fold_ranks(o.waiting & ranks))} in {what(o.op, o.seq, o.group.label)}"
            f" for {who(fold_ranks(set(o.blockers()) & ranks))}"
            for o in operations[:6]
        ]  # fmt: skip
        fields: dict[str, Value] = {
            "ranks": fold_ranks(ranks), "count": len(ranks), "chain": "; ".join(links),
            "groups": ", ".join(sorted({o.group.label for o in operations})[:6]), "odd_ranks": fold_ranks(odd),
            "what": " and ".join(what(o.op, o.seq, o.group.label) for o in operations[:3]),
        }  # fmt: skip
        if odd and odd != ranks:
            fields["odd_who"] = placed_ranks(odd, self._base.rank_host)
        facts = [o.rows[0].fact for o in operations if o.rows]
        self._verdict.facts.append(Fact("", "wait_cycle", fields, some_evidence(facts)))
        self._verdict.guilty |= odd

    def _crashed(self, end: End) -> bool:
        return any(o.unknown & self._crashes.keys() for o in end.operations)

    def _open(self, end: End) -> None:
        operation = end.operations[0]
        idle = _not_started(operation) if not self._crashed(end) else set[int]()
        if idle and not operation.behind:
            self._idle_gpus(operation, idle, end.victims)
            return
        if self._crashed(end):
            verdict = "missing_rank"
        else:
            verdict = "partial_evidence" if operation.unknown else "all_entered"
        fields = self._stall(operation, verdict, set(), end.victims, self._certain, set())
        self._verdict.facts.append(self._fact(operation, fields, set()))
        alone = self._found.dumps.keys() | operation.unknown >= set(range(self._found.world))
        doubtful = bool(operation.unknown & self._found.left or self._found.unplaced or self._found.foreign)
        sole = _only_unknown(operation) or (operation.unknown and operation.unknown == self._sole)
        if verdict == "partial_evidence" and alone and not doubtful and sole:
            victims, called = end.victims, len(operation.waiting | operation.elsewhere)
            words = f"it alone left no dump; the other {called} members have all called it"
            if called == 1:
                words = "it alone left no dump; whatever the others wait for, they wait for it"
            for rank in sorted(operation.unknown):
                suspect = self._suspect(rank, "unknown", operation, str(fields["what"]), victims, False)
                fields_ = {**suspect.fields, "detail": words}
                self._verdict.facts.append(Fact("", suspect.kind, fields_, suspect.evidence))

    def _idle_gpus(self, o: Operation, idle: set[int], victims: int) -> None:
        """All ranks have enqueued it and most GPUs have started it: those that have not hold it up."""
        fields = self._stall(o, "behind_rank", idle, victims, True, set())
        stall = str(fields["what"])
        suspects = [self._suspect(rank, "behind", o, stall, victims, False) for rank in sorted(idle)[:MAX_SUSPECTS]]
        words = f"its host has enqueued it, but its GPU has not started it, as {len(o.rows) - len(idle)} others have"
        suspects = [Fact("", s.kind, {**s.fields, "detail": words}, s.evidence) for s in suspects]
        fields |= {"who": placed_ranks(idle, self._base.rank_host), "detail": words, "behind": fold_ranks(idle)}
        fields |= {"look": GPU_FIRST, **self._place(idle)}
        self._verdict.facts += [self._fact(o, fields, idle), *suspects]
        self._verdict.guilty |= idle

    def _stall(
        self, o: Operation, verdict: str, named: set[int], victims: int, certain: bool, leaders: set[int]
    ) -> dict[str, Value]:
        members = list(o.group.everyone())
        behind = set(o.behind) if not leaders else set[int]()
        started = [r for r in o.rows if r.fact.fields.get("pending_state") == "started"]
        not_started = _not_started(o)
        waiting = o.waiting | o.elsewhere
        if waiting <= named:  # who holds it up is the only one left in it: the others wait in what comes later
            waiting = self._verdict.waiting - named or waiting
        fields: dict[str, Value] = {
            "evidence_kind": "flight_recorder", "verdict": verdict, "group": o.group.label, "op": o.op,
            "waiting": fold_ranks(waiting), "waiting_count": len(waiting),
            "behind": fold_ranks(behind or named - leaders), "behind_count": len(behind or named),
            "silent": fold_ranks(o.unknown), "silent_count": len(o.unknown),
            "world": len(members), "all_entered": not o.behind and not o.unknown, "victims_count": victims,
            "dumps": len(self._found.dumps), "dumps_missing": len(o.unknown), "started_count": len(started),
            "what": what(o.op, o.seq if not o.peer_to_peer else None, o.group.label), "certain": certain,
            "others": _others(o, verdict, self._found),
        }  # fmt: skip
        site = next((s for r in o.rows if (s := r.fact.fields.get("pending_site"))), None)
        optional: dict[str, Value | None] = {
            "seq": o.seq, "elapsed_s": self._elapsed, "timeout_s": self._limit, "call_site": site,
            "not_started": fold_ranks(not_started) or None, "leaders": fold_ranks(leaders) or None,
        }  # fmt: skip
        fields.update({k: v for k, v in optional.items() if v is not None})
        return fields

    def _fact(self, o: Operation, fields: dict[str, Value], named: set[int]) -> Fact:
        shown = [*self._facts_of(sorted(named or o.behind)[:3], o.group), *(r.fact for r in o.rows[:2])]
        return Fact("", "stall", fields, some_evidence(shown))

    def _facts_of(self, ranks: Sequence[int], group: Group) -> Iterator[Fact]:
        for rank in ranks:
            row = group.rows.get(rank)
            if row is not None:
                yield row.fact
            elif rank in self._found.dumps:
                yield self._found.dumps[rank]

    def _suspect(self, rank: int, reason: str, o: Operation, stall: str, victims: int, own_gpu: bool) -> Fact:
        row: Row | None = o.group.rows.get(rank)
        reached = row.enqueued if row is not None and not o.peer_to_peer else None
        fields: dict[str, Value] = {
            "rank": rank, "reason": reason, "group": o.group.label, "stall": stall, "waiting_count": len(o.waiting),
            "victims_count": victims, "who": placed_ranks([rank], self._base.rank_host),
            "detail": self._detail(rank, reason, o, reached, own_gpu),
        }  # fmt: skip
        host = self._base.rank_host.get(rank)
        lag = o.seq - reached if reason == "behind" and o.seq is not None and reached is not None else None
        optional: dict[str, Value | None] = {
            "seq": reached, "expected_seq": o.seq, "lag": lag if lag and lag > 0 else None, "host": host,
            "desc": o.group.desc or None,
        }  # fmt: skip
        fields.update({k: v for k, v in optional.items() if v is not None})
        fields |= self._devices.get(rank, {})
        return Fact("", "suspect_rank", fields, some_evidence(self._facts_of([rank], o.group)))

    def _place(self, ranks: set[int]) -> dict[str, Value]:
        words = device_words(self._devices.get(min(ranks), {})) if len(ranks) == 1 else ""
        return {"place": words} if words else {}

    def _detail(self, rank: int, reason: str, o: Operation, reached: int | None, own_gpu: bool) -> str:
        if reason == "ahead":
            return "it is alone in this call, which the others have not made"
        if own_gpu:
            first = _first_pending(self._found, rank)
            return f"its GPU has not finished {first}, which its peers have finished" if first else "its GPU stopped"
        if reached is not None and o.seq is not None and reached >= 0:
            last = f"the last collective it enqueued there is #{reached}"
        else:
            last = "its dump shows no trace of it"
        idle = "" if _first_pending(self._found, rank) else "; all that it enqueued is complete"
        return last + idle


def _first_pending(found: Recording, rank: int) -> str:
    best: tuple[int, str] | None = None
    for group in found.groups:
        row = group.rows.get(rank)
        if row is not None and row.pending is not None and (best is None or row.order < best[0]):
            best = (row.order, what(row.op, row.pending, group.label))
    return best[1] if best else ""


def _only_unknown(o: Operation) -> bool:
    """Of one member nothing is known, and all others (at least two) have called the operation and wait in it."""
    called = len(o.waiting | o.elsewhere)
    return len(o.unknown) == 1 and called >= 2 and called == len(list(o.group.everyone())) - 1


def _sole_unknown(open_ends: Sequence[End]) -> set[int]:
    """The one rank without a dump that every open operation waits for, where at least two ranks wait."""
    operations = [o for end in open_ends for o in end.operations]
    unknown = set[int]().union(*(o.unknown for o in operations))
    waiting = set[int]().union(*(o.waiting for o in operations))
    everywhere = all(end.kind == "unknown" for end in open_ends) and all(o.unknown for o in operations)
    return unknown if len(unknown) == 1 and len(waiting) > 1 and everywhere else set()


def _not_started(o: Operation) -> set[int]:
    """The few ranks whose GPU has not started what the others' have; empty where starts are not recorded."""
    told = "p2p_state" if o.peer_to_peer else "pending_state"
    states = {r.rank: r.fact.fields.get(told) for r in o.rows if told in r.fact.fields}
    idle = {rank for rank, state in states.items() if state != "started"}
    return idle if len(idle) * 2 <= len(states) and len(idle) < len(states) else set()


def _others(o: Operation, verdict: str, found: Recording) -> str:
    """Whose dumps are missing, and which were left out and why."""
    if verdict == "snapshot":
        behind = f", {who(fold_ranks(o.behind))} not yet" if o.behind else ""
        unknown = f"; {who(fold_ranks(o.unknown))} left no dump" if o.unknown else ""
        where = "it" if o.seq is None else f"#{o.seq}"
        return f"{who(fold_ranks(o.waiting))} {'are' if len(o.waiting) > 1 else 'is'} in {where}{behind}{unknown}"
    words = [
        f"{who(fold_ranks(ranks))} {text}" for ranks, text in (
            (o.unknown - found.left, "left no dump"),
            (found.stale, "left a dump of another moment, or of a clock that is off"),
            (found.cut, "left a dump that is cut off or damaged at its end"),
            (found.unread, "left a dump that cannot be read"),
            (found.impossible, "left a dump whose numbers most others contradict"),
            (found.contested, "left two different dumps, of which the newer counts"),
            (found.exchanged, "left two different dumps, of which the one that fits the others counts"),
        ) if ranks
    ]  # fmt: skip
    if found.foreign:
        one, many = "1 dump stems", f"{found.foreign} dumps stem"
        words.append(f"{one if found.foreign == 1 else many} from another job or attempt, which was left out")
    if found.unplaced:
        one, many = "1 dump does not tell its rank", f"{found.unplaced} dumps do not tell their ranks"
        words.append(one if found.unplaced == 1 else many)
    return "; ".join(words) or "no rank is silent"
