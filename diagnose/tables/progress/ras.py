"""What RAS tells: who has launched how much, who is gone, and what two snapshots say together.

RAS counts operations launched by the hosts, not finished by the GPUs. It lists the smaller set of ranks, which may be
the one ahead. One snapshot with a small difference is normal progress; the same numbers twice are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnose.model import Fact, FactBase, Value, fold_ranks, unfold_ranks
from diagnose.tables.progress.stall import MAX_GROUPS, MAX_SUSPECTS, details, placed_ranks, some_evidence, what

SNAPSHOT_LAG = 10
"""A difference of fewer operations in one snapshot may be progress (chosen by us: RAS gathers within a second)."""

_Moment = tuple[float, str, int]  # time, source, snapshot within it


@dataclass(slots=True)
class Counts:
    """Operation counts of one communicator and operation at one moment: count -> observations."""

    at: _Moment
    groups: dict[int, list[Fact]] = field(default_factory=dict)

    def same_as(self, other: Counts) -> bool:
        """The same numbers for as many ranks."""
        return {c: _number(f) for c, f in self.groups.items()} == {c: _number(f) for c, f in other.groups.items()}


@dataclass
class RasVerdict:
    """Facts, ranks that are gone, and whether every rank of the job is known to have launched all."""

    facts: list[Fact] = field(default_factory=list)
    gone: dict[int, Fact] = field(default_factory=dict)
    all_launched: Fact | None = None
    guilty: set[int] = field(default_factory=set)


def ras_verdict(base: FactBase, *, symptoms: bool) -> RasVerdict:
    """The verdict on all RAS output; empty without any."""
    verdict = RasVerdict()
    seen = [o for o in base.observations if o.kind in ("ras_comm", "ras_count", "ras_missing", "ras_rank", "ras_event")]
    if not seen:
        return verdict
    places = _Places(base, seen)
    _gone(seen, places, verdict)
    series = _series(seen)
    largest = max((n for o in seen if isinstance(n := o.fields.get("size"), int)), default=0)
    found: list[tuple[int, str, str, list[Counts]]] = []
    for (comm, op), moments in sorted(series.items()):
        counts = moments[-1].groups
        if len(counts) > 1:
            found.append((max(counts) - min(counts), comm, op, moments))
    found.sort(key=lambda item: (-item[0], item[1], item[2]))
    for _, comm, op, moments in found[:MAX_GROUPS]:
        _difference(comm, op, moments, places, verdict, symptoms=symptoms, largest=largest)
    if not found and not verdict.gone:
        _equal(seen, series, largest, verdict)
    return verdict


def _number(facts: list[Fact]) -> int:
    return sum(n for f in facts if isinstance(n := f.fields.get("number"), int))


def _moment(o: Fact) -> _Moment:
    at, snapshot = o.fields.get("at"), o.fields.get("snapshot")
    return (
        float(at) if isinstance(at, int | float) else 0.0,
        o.evidence[0].source,
        int(snapshot) if isinstance(snapshot, int) else 0,
    )


def _series(seen: list[Fact]) -> dict[tuple[str, str], list[Counts]]:
    """(communicator, operation) -> its counts, oldest first."""
    found: dict[tuple[str, str], dict[_Moment, Counts]] = defaultdict(dict)
    for o in seen:
        if o.kind == "ras_count":
            key = (str(o.fields.get("comm_id", "")), str(o.fields.get("op", "")))
            counts = found[key].setdefault(_moment(o), Counts(_moment(o)))
            counts.groups.setdefault(int(o.fields["count"]), []).append(o)  # type: ignore[arg-type]
    return {key: [moments[m] for m in sorted(moments)] for key, moments in found.items()}


class _Places:
    """Where ranks run, and which global rank a process is."""

    def __init__(self, base: FactBase, seen: list[Fact]) -> None:
        self.rank_host = dict(base.rank_host)
        self._world = base.world
        self._processes: dict[tuple[str, int, str], int] = {}
        sizes = [n for o in seen if isinstance(n := o.fields.get("size"), int)]
        self.largest = max(sizes, default=0)
        for o in seen:
            rank, size = o.fields.get("comm_rank"), o.fields.get("size")
            if (
                o.kind in ("ras_rank", "ras_missing")
                and isinstance(rank, int)
                and size == self.largest
                and self.global_(size)
            ):
                host = self._host(o)
                if host:
                    self.rank_host.setdefault(rank, host)
                    self._processes[self._process(o)] = rank

    def global_(self, size: object) -> bool:
        """Ranks of a communicator of this size are those of the job."""
        return isinstance(size, int) and size == max(self.largest, self._world or 0)

    @staticmethod
    def _host(o: Fact) -> str:
        return str(o.fields.get("node") or o.fields.get("host") or "")

    def _process(self, o: Fact) -> tuple[str, int, str]:
        pid = o.fields.get("pid")
        return self._host(o), pid if isinstance(pid, int) else -1, str(o.fields.get("gpu", ""))

    def rank_of(self, o: Fact) -> int | None:
        """The global rank of a process or communicator rank."""
        rank = o.fields.get("comm_rank")
        if isinstance(rank, int) and self.global_(o.fields.get("size")):
            return rank
        known = self._processes.get(self._process(o))
        if known is not None:
            return known
        host, pid, _ = self._process(o)
        same = {r for (h, p, _), r in self._processes.items() if (h, p) == (host, pid)}
        return same.pop() if len(same) == 1 else None


def _gone(seen: list[Fact], places: _Places, verdict: RasVerdict) -> None:
    """Ranks that RAS calls dead, or of which it has no data."""
    for o in seen:
        dead = o.kind == "ras_event" and o.fields.get("event") in ("PEER_DEAD", "PEER_TIMEOUT_DEAD")
        if o.kind != "ras_missing" and not dead:
            continue
        state = "dead" if dead else str(o.fields["state"])
        rank = places.rank_of(o)
        if rank is None:
            continue
        words = {
            "dead": "RAS considers its process dead (unreachable)", "unresponsive": "its process does not answer RAS",
        }.get(state, "RAS has no data from it")  # fmt: skip
        fields: dict[str, Value] = {
            "rank": rank, "reason": "exited" if state == "dead" else "absent", "detail": words,
        }  # fmt: skip
        host, pid = str(o.fields.get("node") or o.fields.get("host") or ""), o.fields.get("pid")
        if host:
            fields["host"] = host
        if isinstance(pid, int):
            fields["pid"] = pid
        fields["who"] = placed_ranks([rank], {rank: host} if host else {})
        old = verdict.gone.get(rank)
        if old is None or (old.fields["reason"] == "absent" and state == "dead"):
            verdict.gone[rank] = Fact("", "suspect_rank", fields, o.evidence)


def _difference(
    comm: str, op: str, moments: list[Counts], places: _Places, verdict: RasVerdict, *, symptoms: bool, largest: int
) -> None:
    """Ranks of one communicator that have launched different numbers of operations."""
    last = moments[-1]
    facts = [f for found in last.groups.values() for f in found]
    size = next((n for f in facts if isinstance(n := f.fields.get("size"), int)), 0)
    ranks = _ranks(last.groups, size)
    top, low = max(last.groups), min(last.groups)
    frozen = len(moments) > 1 and any(m.at != last.at and m.same_as(last) for m in moments[:-1])
    moving = len(moments) > 1 and not frozen
    numbers = {count: _number(found) for count, found in last.groups.items()}
    ahead = {r for count, found in ranks.items() if count == top for r in found}
    behind = {r: count for count, found in ranks.items() if count < top for r in found}
    certain = not moving and (frozen or symptoms or bool(verdict.gone) or top - low >= SNAPSHOT_LAG)
    group = f"communicator {comm}" if comm else "a communicator"
    in_words = "; ".join(_standing(c, last.groups[c], ranks.get(c), top, low) for c in sorted(numbers, reverse=True))
    seq, name = top, op or "collective"
    lonely = numbers[top] * 4 <= sum(numbers.values()) and len(numbers) == 2
    verdict_name = (
        "snapshot" if not certain else "missing_rank" if verdict.gone else "ahead" if lonely else "behind_rank"
    )
    stall = what(name, seq, group)
    fields: dict[str, Value] = {
        "evidence_kind": "ras", "verdict": verdict_name, "group": group, "op": name, "seq": seq,
        "waiting": fold_ranks(ahead), "waiting_count": numbers[top], "behind": fold_ranks(behind),
        "behind_count": sum(n for c, n in numbers.items() if c < top), "what": stall, "certain": certain,
        "world": size or sum(numbers.values()), "all_entered": False, "others": in_words,
        "victims_count": numbers[top],
    }  # fmt: skip
    if lonely:
        fields["leaders"] = fold_ranks(ahead)
    is_global = places.global_(size) or size == largest == 0
    guilty = dict.fromkeys(ahead, top) if lonely else behind
    suspects: list[Fact] = []
    if certain and not verdict.gone:
        for rank, reached in sorted(guilty.items())[:MAX_SUSPECTS]:
            suspects.append(_suspect(rank, reached, stall, seq, group, places, is_global, lonely, numbers[top], frozen))
        fields |= {"who": _who(guilty, places, is_global, group), "detail": details(suspects)}
        if is_global:
            verdict.guilty |= guilty.keys()
    verdict.facts.append(Fact("", "stall", fields, some_evidence(facts)))
    verdict.facts += suspects


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
    if len(unlisted) == 1 and size:
        rest = set(range(size)) - {r for listed in found.values() for r in listed}
        if len(rest) == _number(groups[unlisted[0]]):
            found[unlisted[0]] = rest
    return found


def _nodes(facts: list[Fact]) -> str:
    nodes = sorted({n for f in facts for n in str(f.fields.get("hosts", "")).split(",") if n})
    return f" on {', '.join(nodes[:4])}" if 0 < len(nodes) <= 4 else ""


def _who(ranks: Mapping[int, int], places: _Places, is_global: bool, group: str) -> str:
    if is_global:
        return placed_ranks(ranks, places.rank_host)
    return f"{placed_ranks(ranks, {})} of {group} (numbered within it)"


def _suspect(
    rank: int, reached: int, stall: str, seq: int, group: str, places: _Places, is_global: bool, ahead: bool,
    waiting: int, frozen: bool,
) -> Fact:  # fmt: skip
    still = " in both snapshots" if frozen else ""
    fields: dict[str, Value] = {
        "reason": "ahead" if ahead else "behind", "stall": stall, "group": group, "seq": reached, "expected_seq": seq,
        "waiting_count": waiting, "victims_count": waiting,
        "detail": f"it has launched up to operation {reached}{still}",
    }  # fmt: skip
    if not ahead:
        fields["lag"] = seq - reached
    if is_global:
        fields |= {"rank": rank, "who": placed_ranks([rank], places.rank_host)}
        if rank in places.rank_host:
            fields["host"] = places.rank_host[rank]
    return Fact("", "suspect_rank", fields)


def _equal(seen: list[Fact], series: dict[tuple[str, str], list[Counts]], largest: int, verdict: RasVerdict) -> None:
    """Every rank of the largest communicator answered and none differs: nobody is missing."""
    whole = [
        o for o in seen if o.kind == "ras_comm" and o.fields.get("size") == largest and o.fields.get("errors") == "OK"
        and o.fields.get("status") == "RUNNING"
    ]  # fmt: skip
    if whole:
        verdict.all_launched = whole[-1]
