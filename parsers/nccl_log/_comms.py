"""Communicators and their channels, and what they say about the ranks of processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from diagnose.model import Record

from ._ledger import Place, evidence_of
from ._prefix import Head, Heads, Process

COMM = re.compile(
    r"(?:\[Rank \d{1,7}\] )?(?:(\w{1,60}) )?comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) n[rR]anks (\d{1,7})"
    r"(?: cudaDev (-?\d{1,10}))?(?: nvmlDev (-?\d{1,10}))?(?: busId ([0-9a-f]{1,16}))?",
    re.ASCII,
)
NODES = re.compile(r" nNodes (\d{1,7}) localRanks (\d{1,7})", re.ASCII)
_COMM_ID = re.compile(r"commId (?:0x)?([0-9a-f]{1,16})", re.ASCII)
TIMINGS = re.compile(
    r"Init timings(?: - \w{1,60})?: rank (\d{1,7}) nranks (\d{1,7}) total (\d{1,9}\.\d{1,6})", re.ASCII
)
MAX_COMMS = 40_000
MAX_CHANNEL_KEYS = 200_000
MAX_PAIRS = 4_096
MANY_PROCESSES = 512
"""With more processes than this channels are added up per host."""


class Communicator:
    """A communicator as one process sees it."""

    __slots__ = ("bus_id", "comm_id", "cuda_dev", "head", "local_ranks", "marker", "nodes", "nranks", "nvml_dev",
                 "places", "pointer", "process", "rank", "seconds", "state")  # fmt: skip

    def __init__(self, pointer: str, head: Head) -> None:
        self.pointer = pointer
        self.head = head
        self.process = head.process
        self.comm_id: str | None = None
        self.rank = -1
        self.nranks = 0
        self.cuda_dev: int | None = None
        self.nvml_dev: int | None = None
        self.bus_id: str | None = None
        self.nodes: int | None = None
        self.local_ranks: int | None = None
        self.state = "started"
        self.seconds: float | None = None
        self.marker: str | None = None
        self.places: list[tuple[int, int, str]] = []


class Comms:
    """Everything that depends on communicators."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self.list: list[Communicator] = []
        self.open: dict[tuple[int, str], Communicator] = {}
        self.channels: dict[tuple[Any, tuple[str, ...]], list[Any]] = {}
        self.dropped = 0
        self.marker: str | None = None
        self._marked: dict[Communicator, Place] = {}
        self._world: dict[int, dict[tuple[str, int | None], int]] = {}

    # --- reading ------------------------------------------------------------------------------------

    def line(self, message: str, head: Head, place: Place) -> bool:
        """Take a `comm 0x… rank … nranks …` line; False when it is none."""
        found = COMM.match(message)
        if found is None:
            return False
        tail = message[found.end() :]
        nodes = NODES.match(tail)
        if nodes:
            comm = self.open.get((head.process.number, found.group(2)))
            if comm is not None:
                comm.nodes, comm.local_ranks = int(nodes.group(1)), int(nodes.group(2))
                self.mark(head, "topology exchanged", place)
            return True
        state = self._state(tail)
        if state is None:
            return False
        self._event(found, tail, state, head, place)
        return True

    @staticmethod
    def _state(tail: str) -> str | None:
        if "Init START" in tail:
            return "started"
        if "Init COMPLETE" in tail:
            return "complete"
        if "Abort START" in tail or "Abort COMPLETE" in tail or "Revoke" in tail:
            return "aborted"
        if "Destroy COMPLETE" in tail or "Destroy START" in tail or "Finalize" in tail:
            return "destroyed"
        return None

    def _event(self, found: re.Match[str], tail: str, state: str, head: Head, place: Place) -> None:
        key = (head.process.number, found.group(2))
        comm = self.open.get(key)
        told = _COMM_ID.search(tail)
        comm_id = "0x" + told.group(1) if told else None
        fresh = comm is None or (
            state in ("started", "complete")
            and (comm.state in ("destroyed", "aborted") or (state == "started" and comm.state == "complete"))
        )
        if comm is None or fresh:
            if len(self.list) >= MAX_COMMS:
                self.dropped += 1
                return
            comm = Communicator(found.group(2), head)
            self.list.append(comm)
            self.open[key] = comm
            head.process.comms.append(comm)
        comm.rank, comm.nranks = int(found.group(3)), int(found.group(4))
        comm.comm_id = comm_id or comm.comm_id
        comm.cuda_dev = _small(found.group(5), comm.cuda_dev)
        comm.nvml_dev = _small(found.group(6), comm.nvml_dev)
        comm.bus_id = found.group(7) or comm.bus_id
        if not (comm.state == "aborted" and state == "destroyed"):
            comm.state = state
        if state in ("started", "complete"):
            head.current = comm
        kept = (place.number, place.number, place.text)
        if len(comm.places) < 2:
            comm.places.append(kept)
        else:
            comm.places[1] = kept

    def mark(self, head: Head, marker: str, place: Place) -> None:
        """A progress marker of the init of the thread's current communicator."""
        self.marker = marker
        comm = head.current
        if isinstance(comm, Communicator) and comm.state == "started":
            comm.marker = marker
            self._marked[comm] = place

    def settle_marks(self) -> None:
        """Keep the lines of the last markers, before the text that holds them goes."""
        for comm, place in self._marked.items():
            if comm.state == "started":
                comm.places[1:] = [(place.number, place.number, place.text)]
        self._marked = {}

    def timing(self, message: str, head: Head) -> bool:
        """Take an `Init timings` line; False when it is none."""
        found = TIMINGS.match(message)
        if found is None:
            return False
        rank, nranks = int(found.group(1)), int(found.group(2))
        for comm in reversed(head.process.comms[-64:]):
            if comm.rank == rank and comm.nranks == nranks:
                comm.seconds = float(found.group(3))
                break
        return True

    def channel(self, head: Head, pair_via: tuple[str, ...], place: Place) -> None:
        """Count one channel line: ranks a and b (b is empty for CollNet) and the text after `via`."""
        key = (head.current, pair_via)
        seen = self.channels.get(key)
        if seen is not None:
            seen[0] += 1
        elif len(self.channels) < MAX_CHANNEL_KEYS:
            self.channels[key] = [1, (place.number, place.number, place.text)]
        else:
            self.dropped += 1

    # --- whose rank ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Find out the global rank of every process: its rank in the job's largest communicator."""
        self._world = {}
        largest = max((c.nranks for c in self.list), default=0)
        world = [c for c in self.list if c.nranks == largest]
        ids = {c.comm_id for c in world if c.comm_id}
        if len(ids) > 1 and _disjoint(world):
            world = []
        for comm in world:
            ranks = self._world.setdefault(comm.process.number, {})
            ranks.setdefault(("device", comm.cuda_dev), comm.rank)
            ranks.setdefault(("thread", comm.head.tid), comm.rank)
        tasks: dict[int, set[int]] = {}
        for process in self.heads.processes.values():
            for task in process.tasks:
                tasks.setdefault(task, set()).add(process.number)
        for process in self.heads.processes.values():
            known = self._world.get(process.number)
            if len(process.hints) == 1:
                hint = next(iter(process.hints))
                if known is None or len(set(known.values())) == 1:
                    self._world[process.number] = {("launcher", None): hint}
            elif known is None and len(process.tasks) == 1:
                task = next(iter(process.tasks))
                if len(tasks[task]) == 1:
                    self._world[process.number] = {("launcher", None): task}

    def rank_of(self, head: Head) -> int | None:
        """Global rank of the thread's process, or of the thread where a process holds several ranks."""
        ranks = self._world.get(head.process.number)
        if not ranks:
            return None
        if len(set(ranks.values())) == 1:
            return next(iter(ranks.values()))
        rank = ranks.get(("thread", head.tid))
        return rank if rank is not None or head.dev is None else ranks.get(("device", head.dev))

    def _is_world(self, comm: Communicator) -> bool:
        ranks = self._world.get(comm.process.number)
        return bool(ranks) and comm.nranks == max(c.nranks for c in comm.process.comms) and comm.rank in ranks.values()

    # --- telling ------------------------------------------------------------------------------------

    def records(self, path: str) -> Iterator[tuple[tuple[Any, ...], Record]]:
        """Communicators and transports, with keys."""
        connecting = {id(owner) for owner, _ in self.channels}
        for number, comm in enumerate(self.list):
            yield ("nccl_comm", number), self._comm_record(comm, path, connecting)
        yield from self._transports(path)

    def _comm_record(self, comm: Communicator, path: str, connecting: set[int]) -> Record:
        fields: dict[str, Any] = {"comm": comm.pointer, "rank": comm.rank, "nranks": comm.nranks, "state": comm.state}
        for name in ("comm_id", "cuda_dev", "nvml_dev", "bus_id", "seconds"):
            value = getattr(comm, name)
            if value is not None:
                fields[name] = value
        if comm.state == "started":
            marker = comm.marker
            if id(comm) in connecting and not (marker or "").startswith("Connected"):
                marker = "connecting channels"
            if marker:
                fields["last_marker"] = marker
        if comm.process.pid is not None:
            fields["pid"] = comm.process.pid
        rank = comm.rank if self._is_world(comm) else self.rank_of(comm.head)
        return Record(
            "nccl_comm",
            fields,
            tuple(evidence_of(path, place) for place in comm.places),
            host=comm.process.host,
            rank=rank,
        )

    def _transports(self, path: str) -> Iterator[tuple[tuple[Any, ...], Record]]:
        hosts = self._hosts_of_ranks()
        per_host = len(self.heads.processes) > MANY_PROCESSES
        groups: dict[tuple[Any, ...], list] = {}
        for (owner, (a, b, via)), (count, place) in self.channels.items():
            process: Process = owner.process
            rank = self.rank_of(owner.head if isinstance(owner, Communicator) else owner)
            key = (
                process.host,
                *((None, None) if per_host else (process.number, rank)),
                *_transport(via),
                _intra(owner, a, b, via, hosts),
            )
            group = groups.get(key)
            if group is None:
                groups[key] = [count, {(a, b)} if b else set(), place, process.pid]
            else:
                group[0] += count
                if len(group[1]) < MAX_PAIRS and b:
                    group[1].add((a, b))
        for key, (count, pairs, place, pid) in groups.items():
            host, process, rank, transport, detail, network, gdr, device, intra = key
            fields: dict[str, Any] = {"transport": transport, "detail": detail, "channels": count}
            told = (("network", network), ("gdr", gdr), ("device", device), ("intra_host", intra),
                    ("pairs", len(pairs) or None), ("pid", None if process is None else pid))  # fmt: skip
            fields.update((name, value) for name, value in told if value is not None)
            yield (
                ("nccl_transport", *key),
                Record("nccl_transport", fields, (evidence_of(path, place),), host=host, rank=rank),
            )

    def _hosts_of_ranks(self) -> dict[str, dict[int, str | None]]:
        hosts: dict[str, dict[int, str | None]] = {}
        for comm in self.list:
            if comm.comm_id:
                hosts.setdefault(comm.comm_id, {})[comm.rank] = comm.process.host
        return hosts


_NET = re.compile(r"(NET|COLLNET)/([^/\n]{1,40})/(\d{1,4})(?:\(\d{1,7}\))?(\S*)", re.ASCII)


def _transport(via: str) -> tuple[str, str, str | None, bool | None, str | None]:
    """(transport, detail, network, gdr, device) of the text after `via`."""
    found = _NET.match(via)
    if found:
        network = found.group(2)
        rest = found.group(4)
        torn = rest != "" and "/GDRDMA".startswith(rest) and rest != "/GDRDMA"
        return found.group(1), network, network, None if torn else "GDRDMA" in rest, found.group(3)
    if via.startswith("P2P"):
        detail = via[4:]
        return "P2P", "indirect" if detail.startswith("indirect") else detail or "P2P", None, None, None
    if via.startswith("SHM"):
        return "SHM", via[4:] or "SHM", None, None, None
    return "SHM", "direct", None, None, None


def _intra(owner: Any, a: str, b: str, via: str, hosts: dict[str, dict[int, str | None]]) -> bool | None:
    """Whether both ranks sit on one host; None when the log does not tell."""
    if via.startswith(("SHM", "direct")) or (via.startswith("P2P") and "MNNVL" not in via):
        return True
    if not isinstance(owner, Communicator) or not b:
        return None
    if owner.nodes == 1:
        return True
    if owner.local_ranks == 1 or (owner.nodes is not None and owner.nodes == owner.nranks):
        return False
    known = hosts.get(owner.comm_id or "")
    if not known:
        return None
    first, second = known.get(int(a)), known.get(int(b))
    return None if first is None or second is None else first == second


def _disjoint(world: list[Communicator]) -> bool:
    """Whether the largest communicators hold different GPUs, so that none of them is the whole job."""
    seen: dict[tuple[Any, ...], str] = {}
    for comm in world:
        if comm.comm_id is None:
            continue
        gpu = (comm.process.host, comm.bus_id or comm.cuda_dev)
        if seen.setdefault(gpu, comm.comm_id) != comm.comm_id:
            return False
    return True


def _small(text: str | None, known: int | None) -> int | None:
    """A device number, or what was known when the text is none."""
    if text is None:
        return known
    number = int(text)
    return number if 0 <= number <= 255 else known
