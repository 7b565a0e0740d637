"""Which global rank a process is that RAS names, and which ranks RAS says are gone."""

from __future__ import annotations

from diagnose.model import Fact, FactBase, Value
from diagnose.tables.progress.stall import placed_ranks, some_evidence


class Places:
    """Where ranks run, and which global rank a process is."""

    def __init__(self, base: FactBase, seen: list[Fact]) -> None:
        self.rank_host = dict(base.rank_host)
        self._world = base.world
        self._processes: dict[tuple[str, int, str], int] = {}
        sizes = [n for o in seen if isinstance(n := o.fields.get("size"), int)]
        self.largest = max(sizes, default=0)
        listed = [
            o for o in seen if o.kind in ("ras_rank", "ras_missing") and isinstance(o.fields.get("comm_rank"), int)
        ]
        for o in listed:
            if self.global_(o.fields.get("size")) and self._host(o):
                rank = int(str(o.fields["comm_rank"]))
                self.rank_host.setdefault(rank, self._host(o))
                self._processes[self.process(o)] = rank
        self._local: dict[tuple[str, int], int] = {}
        for o in listed:
            known = self.rank_of(o)
            if known is not None and "comm_id" in o.fields:
                self._local[str(o.fields["comm_id"]), int(str(o.fields["comm_rank"]))] = known

    def global_(self, size: object) -> bool:
        """Ranks of a communicator of this size are those of the job."""
        return isinstance(size, int) and size == max(self.largest, self._world or 0)

    @staticmethod
    def _host(o: Fact) -> str:
        return str(o.fields.get("node") or o.fields.get("host") or "")

    def process(self, o: Fact) -> tuple[str, int, str]:
        """Host, pid (-1 where not told) and GPU."""
        pid = o.fields.get("pid")
        return self._host(o), pid if isinstance(pid, int) else -1, str(o.fields.get("gpu", ""))

    def global_rank(self, comm: str, rank: int, size: int) -> int | None:
        """The global rank of a rank of a communicator."""
        return rank if self.global_(size) else self._local.get((comm, rank))

    def rank_of(self, o: Fact) -> int | None:
        """The global rank of a process or communicator rank."""
        rank = o.fields.get("comm_rank")
        if isinstance(rank, int) and self.global_(o.fields.get("size")):
            return rank
        told = o.fields.get("rank")
        if isinstance(told, int):
            return told
        known = self._processes.get(self.process(o))
        if known is not None:
            return known
        host, pid, _ = self.process(o)
        same = {r for (h, p, _), r in self._processes.items() if (h, p) == (host, pid)}
        return same.pop() if len(same) == 1 else None


def gone_processes(seen: list[Fact], places: Places) -> Fact | None:
    """Processes that RAS calls dead without a word on their ranks, as one suspect."""
    dead = [o for o in seen if _dead(o) and places.rank_of(o) is None]
    if not dead or any(_dead(o) and places.rank_of(o) is not None and "pid" not in o.fields for o in seen):
        return None
    named = {places.process(o)[:2]: o for o in dead if isinstance(o.fields.get("pid"), int)}
    if not named and any(_dead(o) and places.rank_of(o) is not None for o in seen):
        return None
    words = [f"pid {pid}{f' on {host}' if host else ''}" for host, pid in sorted(named)]
    number = max(len(named), *(n if isinstance(n := o.fields.get("number"), int) and not named else 0 for o in dead))
    whom = "A process of the job" if number <= 1 else f"{number} processes of the job"
    listed = f" ({', '.join(words[:4])}{', …' if len(words) > 4 else ''})" if words else ""
    its = "its rank" if number <= 1 else "their ranks"
    fields: dict[str, Value] = {
        "reason": "exited", "who": f"{whom}{listed}",
        "detail": f"RAS considers {'it' if number <= 1 else 'them'} dead (unreachable) and does not tell {its}",
    }  # fmt: skip
    if len(named) == 1:
        host, pid = next(iter(named))
        fields |= {"host": host, "pid": pid} if host else {"pid": pid}
    return Fact("", "suspect_rank", fields, some_evidence([*named.values(), *dead], 4))


def _dead(o: Fact) -> bool:
    return (o.kind == "ras_missing" and o.fields.get("state") == "dead") or (
        o.kind == "ras_event" and o.fields.get("event") in ("PEER_DEAD", "PEER_TIMEOUT_DEAD")
    )


def gone_ranks(seen: list[Fact], places: Places) -> dict[int, Fact]:
    """Ranks that RAS calls dead, or of which it has no data, as suspects."""
    gone: dict[int, Fact] = {}
    for o in seen:
        if o.kind != "ras_missing" and not _dead(o):
            continue
        state = "dead" if _dead(o) else str(o.fields["state"])
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
        old = gone.get(rank)
        if old is None or (old.fields["reason"] == "absent" and state == "dead"):
            gone[rank] = Fact("", "suspect_rank", fields, o.evidence)
    return gone
