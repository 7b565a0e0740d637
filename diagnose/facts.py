"""Records -> observations and facts: whose they are, what was covered, and each thing said once.

An *observation* is one record with its host, rank, time and snapshot settled; `tables` computes across them. A *fact*
is what rules see: observations that differ only in process, rank or time are folded into one per host.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from diagnose.ages import with_age
from diagnose.model import (
    MAX_RANK,
    MAX_WORLD,
    UNNAMED_HOST,
    Evidence,
    Fact,
    FactBase,
    Fields,
    Problem,
    Record,
    Source,
    Value,
    fold_ranks,
)
from diagnose.vocabulary import Vocabulary, vocabulary

MAX_EVIDENCE = 5
"""Evidence items kept per folded fact."""

_PERSONAL = ("pid", "rank", "at", "comm", "times")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+\Z|[0-9a-fA-F:]*:[0-9a-fA-F:]*\Z")


def build(read: Sequence[tuple[Source, Sequence[Record]]], extra: Sequence[tuple[str, Fields]] = ()) -> FactBase:
    """Settle identities of all records read, fold them and assert coverage. `extra` are facts of the site file."""
    known = vocabulary()
    names = _HostNames(read)
    processes = _ranks_of_processes(read, names)
    rank_host, world, absurd = _placement(read, names)
    observations: list[Fact] = []
    nameless: set[str] = set()
    problems: list[Problem] = [Problem(f"a job of {n} ranks is not believed", path) for path, n in absurd.items()]
    for source, records in read:
        for record in records:
            if record.kind == "parse_problem":
                problems.append(_problem(source, record))
                continue
            wrong = known.check(record.kind, record.fields)
            if wrong:
                problems.append(Problem(f"a parser broke the vocabulary: {wrong[0]}", source.path))
                continue
            fields = dict(record.fields)
            if record.kind == "nccl_comm" and "rank" in fields:
                fields["comm_rank"] = fields.pop("rank")
            _settle_address(record.kind, fields)
            host = names.of(source, record)
            rank = record.rank if record.rank is not None else _rank_of(fields, source, host, processes)
            rank = rank if rank is not None and 0 <= rank <= MAX_RANK else None
            if host is None and rank is not None:
                host = rank_host.get(rank)
            if host is None and record.kind != "covered" and known.kinds[record.kind].topic not in _JOB_TOPICS:
                host = names.fallback
                nameless.add(f"o{len(observations)}")
            _put(fields, host=host, rank=rank, at=record.at if record.at is not None else source.taken_at)
            if record.count > 1:
                fields["times"] = record.count
            if "snapshot" in known.kinds[record.kind].fields and source.snapshot is not None:
                fields.setdefault("snapshot", source.snapshot)
            observations.append(Fact(f"o{len(observations)}", record.kind, fields, record.evidence))
    observations = _without_strangers(observations, nameless, names.fallback, known)
    observations = _with_gpu_index(_with_neighbour(with_age(observations, read)))
    coverage = list(_coverage(observations, known))
    folded = list(fold(o for o in observations if o.kind not in _NOT_FACTS))
    site = [Fact("", kind, fields) for kind, fields in extra]
    facts = numbered([*folded, *site, *coverage], "f")
    hosts = sorted({str(o.fields["host"]) for o in observations if "host" in o.fields})
    return FactBase(tuple(observations), tuple(facts), tuple(problems), tuple(hosts), rank_host, world)


_NOT_FACTS = frozenset({"covered", "fr_dump", "fr_group", "ras_rank"})
"""Kinds that are not facts one by one: coverage, and the details per rank and group that only `tables` adds up."""

_WORLD_FIELD = {"nccl_comm": "nranks", "fr_dump": "world", "ras_comm": "size"}
"""Fields whose largest value is the size of the job."""

_JOB_TOPICS = frozenset(
    "flight_recorder ras torch_log process_exit train_log switch_counters benchmark_nccl benchmark_ib".split()  # noqa: SIM905
)


def numbered(facts: Iterable[Fact], prefix: str) -> list[Fact]:
    """The facts with ids prefix0, prefix1 … in the order given."""
    return [Fact(f"{prefix}{n}", f.kind, f.fields, f.evidence) for n, f in enumerate(facts)]


def fold(observations: Iterable[Fact]) -> Iterator[Fact]:
    """One fact for observations that differ only in process, rank and time; `ranks`, `times`: who and how often."""
    groups: dict[tuple[str, tuple[tuple[str, Value], ...]], list[Fact]] = defaultdict(list)
    for o in observations:
        identity = tuple(sorted((k, v) for k, v in o.fields.items() if k not in _PERSONAL))
        groups[o.kind, identity].append(o)
    for (kind, identity), members in groups.items():
        fields: dict[str, Value] = dict(identity)
        ranks = {int(m.fields["rank"]) for m in members if isinstance(m.fields.get("rank"), int)}  # type: ignore[arg-type]
        if len(ranks) == 1:
            fields["rank"] = next(iter(ranks))
        if ranks:
            fields["ranks"] = fold_ranks(ranks)
        if len(members) == 1:
            _put(fields, pid=members[0].get("pid"), at=members[0].get("at"), comm=members[0].get("comm"))
        else:
            times = [t for m in members if isinstance(t := m.fields.get("at"), int | float)]
            _put(fields, at=min(times) if times else None)
        total = sum(n if isinstance(n := m.fields.get("times"), int) else 1 for m in members)
        fields["times"] = total
        yield Fact("", kind, fields, _some_evidence(members))


def _some_evidence(members: Sequence[Fact]) -> tuple[Evidence, ...]:
    seen: dict[Evidence, None] = {}
    for member in members:
        for e in member.evidence:
            seen.setdefault(e)
            if len(seen) >= MAX_EVIDENCE:
                return tuple(seen)
    return tuple(seen)


def _put(fields: dict[str, Value], **values: Value | None) -> None:
    for name, value in values.items():
        if value is not None:
            fields[name] = value


def _problem(source: Source, record: Record) -> Problem:
    e = record.evidence[0] if record.evidence else None
    text = str(record.fields.get("text", "unreadable"))
    return Problem(text, source.path, e.first if e else None, e.last if e else None)


# --- identity ---------------------------------------------------------------------------------------


class _HostNames:
    """Joins the names one host goes by: `node7`, `node7.cluster.example`; addresses stay as they are."""

    def __init__(self, read: Sequence[tuple[Source, Sequence[Record]]]) -> None:
        names: set[str] = set()
        for source, records in read:
            names.update(r.host for r in records if r.host)
            if source.host:
                names.add(source.host)
        shorts: dict[str, set[str]] = defaultdict(set)
        for name in names:
            shorts[_short(name)].add(name)
        self._canonical: dict[str, str] = {}
        for short, full in shorts.items():
            dotted = {n for n in full if n != short}
            for name in full:
                self._canonical[name] = short if len(dotted) <= 1 else name
        known = set(self._canonical.values())
        self.fallback = next(iter(known)) if len(known) == 1 else UNNAMED_HOST

    def of(self, source: Source, record: Record) -> str | None:
        """Host of a record: what the content says, else the path or manifest; last, a folder that other content names
        as a host (`node-01`, `worker-0`)."""
        folders = source.path.split("/")[:-1]
        name = record.host or source.host or next((p for p in folders if p in self._canonical), None)
        return self._canonical.get(name, name) if name else None

    def canonical(self, name: str) -> str:
        """The one name used for a host."""
        return self._canonical.get(name, name)


def _short(name: str) -> str:
    return name if _ADDRESS.match(name) else name.split(".", 1)[0]


def _ranks_of_processes(
    read: Sequence[tuple[Source, Sequence[Record]]], names: _HostNames
) -> dict[tuple[str | None, Value], int]:
    """(host, pid) -> global rank, from the largest communicator of each process."""
    best: dict[tuple[str | None, Value], tuple[int, int]] = {}
    for source, records in read:
        for r in records:
            if r.kind != "nccl_comm":
                continue
            pid, size = r.fields.get("pid"), r.fields.get("nranks")
            rank = r.fields.get("comm_rank", r.fields.get("rank"))
            if isinstance(pid, int) and isinstance(rank, int) and isinstance(size, int):
                key = (names.of(source, r), pid)
                best[key] = max(best.get(key, (0, 0)), (size, rank))
    return {key: rank for key, (_, rank) in best.items()}


def _rank_of(
    fields: Mapping[str, Value], source: Source, host: str | None, processes: Mapping[tuple[str | None, Value], int]
) -> int | None:
    own = fields.get("rank")
    if isinstance(own, int):
        return own
    pid = fields.get("pid")
    if pid is not None and (host, pid) in processes:
        return processes[host, pid]
    return source.rank


def _placement(
    read: Sequence[tuple[Source, Sequence[Record]]], names: _HostNames
) -> tuple[dict[int, str], int | None, dict[str, int]]:
    """Global rank -> host, the world size, and path -> a size that is not believed; from the largest communicators and
    from prefixed logs."""
    absurd: dict[str, int] = {}
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    world: int | None = None
    sizes: Counter[int] = Counter()
    for source, records in read:
        for r in records:
            host = names.of(source, r)
            size = r.fields.get(_WORLD_FIELD[r.kind]) if r.kind in _WORLD_FIELD else None
            if isinstance(size, int) and size <= MAX_WORLD:
                sizes[size] += 1
            elif isinstance(size, int):
                absurd.setdefault(source.path, size)
            if r.rank is not None and host and 0 <= r.rank <= MAX_RANK:
                votes[r.rank][host] += 1
    if sizes:
        world = max(sizes)
    return {rank: count.most_common(1)[0][0] for rank, count in sorted(votes.items())}, world, absurd


_ONE_A_HOST: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ip_interface": (("device",), ("mtu", "type", "parent")),
    "gpu": (("index",), ("uuid", "serial", "bus_id")),
    "qos_pfc": (("device",), ("priorities",)),
    "qos_trust": (("device",), ("trust",)),
    "nic_driver": (("device",), ("bus_id",)),
    "rdma_gid": (("device", "port", "index"), ("gid",)),
    "nic_counter": (("device", "name", "ring", "snapshot"), ("value",)),
    "rdma_counter": (("device", "port", "name", "snapshot"), ("value",)),
}
"""Kind -> what tells its things apart on a host, and fields in which one thing of one host has one value."""


def _without_strangers(observations: list[Fact], nameless: set[str], fallback: str, known: Vocabulary) -> list[Fact]:
    """Observations whose host no file tells keep it unknown in topics where they contradict each other.

    They are then of several hosts, and nothing may be concluded from two of them together: the interface of one host is
    no match for another's.
    """
    seen: dict[tuple[str, str], Fact] = {}
    torn: set[str] = set()
    for o in observations:
        if o.kind not in _ONE_A_HOST or o.fields.get("host") != fallback:
            continue
        keys, fixed = _ONE_A_HOST[o.kind]
        if "snapshot" in keys and "snapshot" not in o.fields:
            continue
        thing = repr([o.fields.get(key) for key in keys])
        for name in fixed:
            if name not in o.fields:
                continue
            other = seen.setdefault((f"{o.kind} {name}", thing), o)
            if other.fields[name] != o.fields[name] and (o.id in nameless or other.id in nameless):
                torn.add(known.topic_of(o.kind))
    if not torn:
        return observations
    return [_hostless(o) if o.id in nameless and known.topic_of(o.kind) in torn else o for o in observations]


def _hostless(observation: Fact) -> Fact:
    return replace(observation, fields={k: v for k, v in observation.fields.items() if k != "host"})


# --- joins of names -----------------------------------------------------------------------------------

_GPU_ADDRESSES = {"gpu": "bus_id", "gpu_process": "bus_id", "nccl_comm": "bus_id"}
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?\Z")
_NCCL_PCI = re.compile(r"[0-9a-f]{2,16}\Z")


def pci_address(text: str, function: bool = False) -> str:
    """One spelling of a PCI address, `dddd:bb:dd` in lower case, with `.f` where `function` is wanted and known.

    Reads `00000000:9B:00.0` (nvidia-smi), `0000:9b:00` (NVRM), `9b:00.0` (lspci) and NCCL's hexadecimal number without
    separators, `9b000` (domain, bus and device of two digits each, function of one). Anything else stays as it is.
    """
    low = text.strip().lower()
    m = _PCI.match(low)
    if m:
        domain, bus, device, last = int(m[1] or "0", 16), int(m[2], 16), int(m[3], 16), m[4]
    elif _NCCL_PCI.match(low):
        number = int(low, 16)
        domain, bus, device, last = number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, str(number & 0xF)
    else:
        return text
    return f"{domain:04x}:{bus:02x}:{device:02x}" + (f".{last}" if function and last is not None else "")


def _settle_address(kind: str, fields: dict[str, Value]) -> None:
    """PCI addresses of GPUs lose their function; those of other devices keep it. Evidence stays as it was read."""
    name = _GPU_ADDRESSES.get(kind)
    whole = False
    if kind == "kernel_event" and fields.get("event") == "xid":
        name = "device"
    elif kind == "pcie_link":
        name, whole = "bus_id", fields.get("role") != "gpu"
    value = fields.get(name) if name else None
    if name and isinstance(value, str):
        fields[name] = pci_address(value, whole)


def _with_gpu_index(observations: list[Fact]) -> list[Fact]:
    """Xids name a GPU by its address; `gpu` is its index where nvidia-smi told it for the same host and address."""
    index: dict[tuple[Value | None, Value], set[Value]] = defaultdict(set)
    for o in observations:
        if o.kind == "gpu" and "bus_id" in o.fields and "index" in o.fields:
            index[o.get("host"), o.fields["bus_id"]].add(o.fields["index"])
    if not index:
        return observations
    return [
        Fact(o.id, o.kind, {**o.fields, "gpu": next(iter(found))}, o.evidence)
        if o.kind == "kernel_event" and o.fields.get("event") == "xid" and "gpu" not in o.fields
        and len(found := index.get((o.get("host"), o.fields.get("device", "")), ())) == 1
        else o
        for o in observations
    ]  # fmt: skip


def _with_neighbour(observations: list[Fact]) -> list[Fact]:
    """Switch ports name the host and device behind them where LLDP told it for the same switch and port."""
    behind: dict[tuple[Value, Value], set[tuple[Value, Value]]] = defaultdict(set)
    for o in observations:
        if o.kind == "lldp_neighbour" and "port" in o.fields and "host" in o.fields:
            behind[o.fields["switch"], o.fields["port"]].add((o.fields["host"], o.fields["device"]))
    if not behind:
        return observations
    joined: list[Fact] = []
    for o in observations:
        found = behind.get((o.fields["switch"], o.fields["port"]), ()) if o.kind in _SWITCH_KINDS else ()
        if len(found) == 1:
            ((host, device),) = found
            fields = {"neighbour": host, "neighbour_device": device, **o.fields}
            o = Fact(o.id, o.kind, fields, o.evidence)
        joined.append(o)
    return joined


_SWITCH_KINDS = frozenset({"switch_pfc", "switch_pfc_watchdog"})


# --- coverage ---------------------------------------------------------------------------------------


def _coverage(observations: Sequence[Fact], known: Vocabulary) -> Iterator[Fact]:
    """One `covered` fact per host and topic that something was read of; topics of the whole job have no host."""
    spans: dict[tuple[str | None, str], list[float]] = defaultdict(list)
    for o in observations:
        topic = str(o.fields["topic"]) if o.kind == "covered" else known.topic_of(o.kind)
        host = o.fields.get("host")
        times = spans[str(host) if host is not None else None, topic]
        at = o.fields.get("at")
        if isinstance(at, int | float):
            times.append(float(at))
    for (host, topic), times in sorted(spans.items(), key=lambda item: (item[0][0] or "", item[0][1])):
        fields: dict[str, Value] = {"topic": topic}
        _put(fields, host=host, from_at=min(times) if times else None, to_at=max(times) if times else None)
        yield Fact("", "covered", fields)
