"""What RAS tells: who has launched how much, who is gone, and what two snapshots say together.

RAS counts operations launched by the hosts, not finished by the GPUs. It lists the smaller set of ranks, which may be
the one ahead. One snapshot with a small difference is normal progress; the same numbers twice are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diagnose.model import MAX_WORLD, Fact, FactBase, Value, fold_ranks, unfold_ranks
from diagnose.tables.progress.ras_moments import Moment, moment, without_copies
from diagnose.tables.progress.ras_places import Places, gone_processes, gone_ranks
from diagnose.tables.progress.ras_unanswered import unanswered
from diagnose.tables.progress.stall import MAX_SUSPECTS, details, placed_ranks, some_evidence, what

SNAPSHOT_LAG = 10
"""A difference of fewer operations in one snapshot may be progress (chosen by us: RAS gathers within a second)."""

STANDSTILL_S = 10.0
"""Between two snapshots so far apart a training job launches something, unless all its hosts are busy (NCCL RAS guide:
tens of seconds)."""
MAX_SHOWN = 3


@dataclass(slots=True)
class Counts:
    """Operation counts of one communicator and operation at one moment: count -> observations."""

    at: Moment
    groups: dict[int, list[Fact]] = field(default_factory=dict)

    def same_as(self, other: Counts) -> bool:
        """The same numbers for as many ranks."""
        return {c: _number(f) for c, f in self.groups.items()} == {c: _number(f) for c, f in other.groups.items()}


@dataclass
class RasVerdict:
    """Facts, ranks that are gone, dead processes whose ranks are not told, and whether every rank of the job is known
    to have launched all."""

    facts: list[Fact] = field(default_factory=list)
    gone: dict[int, Fact] = field(default_factory=dict)
    dead: Fact | None = None
    all_launched: Fact | None = None
    guilty: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Difference:
    """One communicator whose ranks have launched different numbers of one operation; ranks are its own."""

    comm: str
    op: str
    size: int
    counts: Counts
    ahead: set[int]
    behind: dict[int, int]
    numbers: dict[int, int]
    frozen: bool
    moving: bool
    appeared: bool

    @property
    def lag(self) -> int:
        return max(self.numbers) - min(self.numbers)

    @property
    def lonely(self) -> bool:
        """Few ranks are ahead of all others, which are at one number."""
        return self.numbers[max(self.numbers)] * 4 <= sum(self.numbers.values()) and len(self.numbers) == 2

    @property
    def group(self) -> str:
        return f"communicator {self.comm}" if self.comm else "a communicator"


def ras_verdict(base: FactBase, *, symptoms: bool) -> RasVerdict:
    """The verdict on all RAS output; empty without any."""
    verdict = RasVerdict()
    seen = [o for o in base.observations if o.kind in ("ras_comm", "ras_count", "ras_missing", "ras_rank", "ras_event")]
    if not seen:
        return verdict
    places = Places(base, seen)
    verdict.gone, verdict.dead = gone_ranks(seen, places), gone_processes(seen, places)
    verdict.facts += unanswered(seen, places)
    seen = without_copies(seen)
    verdict.facts += _progress(_series(seen))
    differences = _differences(_series(seen), len({moment(o) for o in seen if o.kind in ("ras_comm", "ras_count")}))
    if differences:
        _Judge(places, verdict, symptoms, _largest(seen)).differences(differences)
    elif not verdict.gone and verdict.dead is None:
        verdict.all_launched = _equal(seen)
        if not symptoms:
            verdict.facts += _standstill(_series(seen))
    return verdict


def _number(facts: list[Fact]) -> int:
    return sum(n for f in facts if isinstance(n := f.fields.get("number"), int))


def _largest(seen: list[Fact]) -> int:
    """Size of the largest communicator."""
    return max((n for o in seen if isinstance(n := o.fields.get("size"), int)), default=0)


def _series(seen: list[Fact]) -> dict[tuple[str, str], list[Counts]]:
    """(communicator, operation) -> its counts, oldest first."""
    found: dict[tuple[str, str], dict[Moment, Counts]] = defaultdict(dict)
    for o in seen:
        if o.kind == "ras_count":
            key = (str(o.fields.get("comm_id", "")), str(o.fields.get("op", "")))
            counts = found[key].setdefault(moment(o), Counts(moment(o)))
            counts.groups.setdefault(int(o.fields["count"]), []).append(o)  # type: ignore[arg-type]
    return {key: [moments[m] for m in sorted(moments)] for key, moments in found.items()}


def _differences(series: dict[tuple[str, str], list[Counts]], snapshots: int) -> list[_Difference]:
    """All, the largest distances in the largest communicators first.

    As text, RAS lists only communicators whose ranks differ: one that is missing from a snapshot was equal there.
    """
    found: list[_Difference] = []
    for (comm, op), moments in sorted(series.items()):
        last = moments[-1]
        if len(last.groups) < 2:
            continue
        facts = [f for group in last.groups.values() for f in group]
        size = next((n for f in facts if isinstance(n := f.fields.get("size"), int)), 0)
        ranks = _ranks(last.groups, size)
        top = max(last.groups)
        frozen = any(m.at != last.at and m.same_as(last) for m in moments[:-1])
        found.append(_Difference(
            comm, op, size, last, set(ranks.get(top, ())), {r: c for c, some in ranks.items() if c < top for r in some},
            {c: _number(some) for c, some in last.groups.items()}, frozen, len(moments) > 1 and not frozen,
            snapshots > len(moments),
        ))  # fmt: skip
    return sorted(found, key=lambda d: (-d.size, -d.lag, d.comm, d.op))


def _standstill(series: dict[tuple[str, str], list[Counts]]) -> list[Fact]:
    """All ranks have launched the same, and nothing since the snapshot before: data, GPUs, or all hosts stand still."""
    if not series or any(len(moments) < 2 for moments in series.values()):
        return []
    span = min(moments[-1].at[0] - moments[-2].at[0] for moments in series.values())
    if span < STANDSTILL_S or not all(moments[-1].same_as(moments[-2]) for moments in series.values()):
        return []
    (comm, op), moments = max(series.items(), key=lambda item: (_number(_all(item[1][-1])), item[0]))
    facts = _all(moments[-1])
    ranks, count = _number(facts), max(moments[-1].groups)
    fields: dict[str, Value] = {
        "evidence_kind": "ras", "verdict": "standstill", "group": f"communicator {comm}", "op": op, "seq": count,
        "waiting": "", "waiting_count": 0, "behind": "", "behind_count": 0, "all_entered": True, "world": ranks,
        "what": what(op, count, f"communicator {comm}"), "elapsed_s": span, "certain": False,
        "others": f"all {ranks} ranks have launched it",
    }  # fmt: skip
    return [Fact("", "stall", fields, some_evidence([*_all(moments[-2])[:1], *facts[:1]]))]


def _progress(series: dict[tuple[str, str], list[Counts]]) -> list[Fact]:
    """The first communicator and operation of which the last two answers tell different counts: hosts launch."""
    for (comm, op), moments in sorted(series.items()):
        if len(moments) > 1 and not moments[-1].same_as(moments[-2]):
            group = f"communicator {comm}" if comm else "a communicator"
            fields: dict[str, Value] = {"group": group, "op": op, "seq": max(moments[-1].groups)}
            return [Fact("", "ras_progress", fields, some_evidence([*_all(moments[-2])[:1], *_all(moments[-1])[:1]]))]
    return []


def _all(counts: Counts) -> list[Fact]:
    return [f for some in counts.groups.values() for f in some]


class _Judge:
    """Who is behind and waits for nobody."""

    def __init__(self, places: Places, verdict: RasVerdict, symptoms: bool, largest: int) -> None:
        self._places, self._verdict, self._symptoms, self._largest = places, verdict, symptoms, largest
        self._moved = -1

    def differences(self, found: list[_Difference]) -> None:
        self._moved = max((d.size for d in found if d.moving or d.appeared), default=-1)
        certain = [d for d in found if self._certain(d)]
        if not certain:
            for d in found[:MAX_SHOWN]:
                self._verdict.facts.append(_stall(d, "snapshot", certain=False))
            return
        if self._verdict.gone or self._verdict.dead:
            self._verdict.facts.append(_stall(certain[0], "missing_rank"))
            return
        if len(certain) == 1 and certain[0].size == 2 < self._largest and certain[0].lag == 1:
            # one call too many of the one looks like one that the other left out or has not come to
            self._verdict.facts.append(_stall(certain[0], "partial_evidence"))
            return
        guilty, lead = self._behind(certain)
        if guilty and lead:
            self._name(lead, guilty, "behind_rank")
            return
        alone = next((d for d in certain if d.lonely and self._globals(d, d.ahead)), None)
        if alone is not None and len(certain) == 1:
            self._name(alone, self._globals(alone, alone.ahead), "ahead")
            return
        self._verdict.facts.append(_stall(certain[0], "partial_evidence"))

    def _certain(self, d: _Difference) -> bool:
        """Not where a communicator as large has moved between the snapshots: operations that come once a step stay."""
        if d.moving:
            return False
        same = (d.frozen or d.lag >= SNAPSHOT_LAG) and self._moved < d.size
        return same or self._symptoms or bool(self._verdict.gone or self._verdict.dead)

    def _globals(self, d: _Difference, ranks: Iterable[int]) -> set[int]:
        """Global ranks; empty when one of them is not known."""
        known = [self._places.global_rank(d.comm, r, d.size) for r in ranks]
        return {r for r in known if r is not None} if None not in known else set()

    def _behind(self, certain: list[_Difference]) -> tuple[set[int], _Difference | None]:
        """Ranks that are behind somewhere and ahead of nobody anywhere: those behind in most communicators."""
        waiting = {r for d in certain for r in self._globals(d, d.ahead)}
        behind: dict[int, set[str]] = defaultdict(set)
        for d in certain:
            if not d.lonely:
                for rank in self._globals(d, d.behind) - waiting:
                    behind[rank].add(d.comm)
        if not behind:
            return set(), None
        most = max(map(len, behind.values()))
        chosen = {r for r, comms in behind.items() if len(comms) == most}
        common = set.intersection(*(behind[r] for r in chosen))
        lead = next((d for d in certain if d.comm in common and not d.lonely), None)
        return (chosen, lead) if lead is not None and (most > 1 or len(behind) == len(chosen)) else (set(), None)

    def _name(self, d: _Difference, ranks: set[int], verdict: str) -> None:
        ahead = verdict == "ahead"
        local = {self._places.global_rank(d.comm, r, d.size): n for r, n in d.behind.items()}
        top = max(d.numbers)
        reached = {r: top if ahead else local.get(r) for r in sorted(ranks)[:MAX_SUSPECTS]}
        suspects = [self._suspect(d, rank, number, ahead=ahead) for rank, number in reached.items()]
        fact = _stall(d, verdict)
        words: dict[str, Value] = {"who": placed_ranks(ranks, self._places.rank_host), "detail": details(suspects)}
        if ahead:
            words["leaders"] = fold_ranks(ranks)
        self._verdict.facts += [Fact("", "stall", {**fact.fields, **words}, fact.evidence), *suspects]
        self._verdict.guilty |= ranks

    def _suspect(self, d: _Difference, rank: int, reached: int | None, *, ahead: bool) -> Fact:
        top = max(d.numbers)
        fields: dict[str, Value] = {
            "rank": rank, "reason": "ahead" if ahead else "behind", "stall": what(d.op or "collective", top, d.group),
            "group": d.group, "expected_seq": top, "waiting_count": d.numbers[top], "victims_count": d.numbers[top],
            "who": placed_ranks([rank], self._places.rank_host), "detail": "it has launched less than its peers",
        }  # fmt: skip
        if reached is not None:
            still = " in both snapshots" if d.frozen else ""
            fields |= {"seq": reached, "detail": f"it has launched up to operation {reached}{still}"}
            if not ahead:
                fields["lag"] = top - reached
        if rank in self._places.rank_host:
            fields["host"] = self._places.rank_host[rank]
        return Fact("", "suspect_rank", fields)


def _stall(d: _Difference, verdict: str, *, certain: bool = True) -> Fact:
    top, low = max(d.numbers), min(d.numbers)
    ranks = _ranks(d.counts.groups, d.size)
    words = "; ".join(
        _standing(c, d.counts.groups[c], ranks.get(c), top, low) for c in sorted(d.numbers, reverse=True)
    )  # fmt: skip
    name = d.op or "collective"
    fields: dict[str, Value] = {
        "evidence_kind": "ras", "verdict": verdict, "group": d.group, "op": name, "seq": top,
        "waiting": fold_ranks(d.ahead), "waiting_count": d.numbers[top], "behind": fold_ranks(d.behind),
        "behind_count": sum(n for c, n in d.numbers.items() if c < top), "what": what(name, top, d.group),
        "certain": certain, "world": d.size or sum(d.numbers.values()), "all_entered": False, "others": words,
        "victims_count": d.numbers[top],
    }  # fmt: skip
    return Fact("", "stall", fields, some_evidence(f for found in d.counts.groups.values() for f in found))


def _standing(count: int, facts: list[Fact], ranks: set[int] | None, top: int, low: int) -> str:
    """`ranks 12-13 on node04 are ahead at 641`; many ranks are only counted."""
    number = _number(facts)
    listed = any(f.fields.get("ranks") for f in facts) and ranks is not None and number <= 40
    whom = (
        f"{'rank' if number == 1 else 'ranks'} {fold_ranks(ranks or ())}{_nodes(facts)}"
        if listed
        else f"{number} ranks"
    )
    where = "ahead at " if count == top else "at " if count > low else "last, at " if top - low > 1 else "at "
    return f"{whom} {'is' if number == 1 else 'are'} {where}{count}"


def _ranks(groups: Mapping[int, list[Fact]], size: int) -> dict[int, set[int]]:
    """Count -> ranks; the one set that RAS does not list is the rest of the communicator."""
    found: dict[int, set[int]] = {}
    for count, facts in groups.items():
        listed = {r for f in facts for r in unfold_ranks(str(f.fields.get("ranks", "")))}
        if len(listed) == _number(facts):
            found[count] = listed
    unlisted = [c for c in groups if c not in found]
    if len(unlisted) == 1 and 0 < size <= MAX_WORLD:
        known = {r for listed in found.values() for r in listed}
        if size - sum(r < size for r in known) == _number(groups[unlisted[0]]):
            found[unlisted[0]] = set(range(size)) - known
    return found


def _nodes(facts: list[Fact]) -> str:
    nodes = sorted({n for f in facts for n in str(f.fields.get("hosts", "")).split(",") if n})
    return f" on {', '.join(nodes[:4])}" if 0 < len(nodes) <= 4 else ""


def _equal(seen: list[Fact]) -> Fact | None:
    """The status of the largest communicator when every rank of it answered and none differs: nobody is missing."""
    comms = [o for o in seen if o.kind == "ras_comm" and isinstance(o.fields.get("size"), int)]
    largest = _largest(comms)
    whole = [
        o for o in comms
        if o.fields["size"] == largest and o.fields.get("errors") == "OK" and o.fields.get("status") == "RUNNING"
    ]  # fmt: skip
    return whole[-1] if whole else None
