"""Runs the programs until nothing moves: hosts enqueue, streams work in order, a collective needs all its members."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random

from .layout import Layout
from .program import Op

NEVER = 1 << 60


@dataclass
class Faults:
    """What stops: hosts before an operation (by index), GPUs at an operation, links of a host from an operation on."""

    host_stops: dict[int, int] = field(default_factory=dict)
    gpu_stops: dict[int, int] = field(default_factory=dict)
    dead_links: dict[str, int] = field(default_factory=dict)


@dataclass
class Call:
    """One operation as one rank has enqueued it. `number` counts within the group, `pair` within the pair."""

    op: Op
    index: int
    group: str
    number: int
    key: tuple[object, ...]
    arrived: bool = False
    done: bool = False


@dataclass
class Outcome:
    """Where everybody stopped: the calls of each rank, in the order enqueued."""

    calls: list[list[Call]]
    finished: list[bool]


def execute(
    layout: Layout, programs: list[list[Op]], faults: Faults, rng: Random | None = None, share: float = 1.0
) -> Outcome:
    """To the end, or to where nothing moves any more. With a `share` of the work done: a moment of the running job,
    whose ranks move in an order drawn from `rng`."""
    return _Machine(layout, programs, faults, rng, share).run()


class _Machine:
    def __init__(
        self, layout: Layout, programs: list[list[Op]], faults: Faults, rng: Random | None, share: float
    ) -> None:
        self.layout, self.programs, self.faults = layout, programs, faults
        self.rng = rng
        self.left = int(sum(map(len, programs)) * share) if share < 1 else NEVER
        world = layout.world
        self.calls: list[list[Call]] = [[] for _ in range(world)]
        self.queues: list[list[deque[Call]]] = [[deque(), deque()] for _ in range(world)]
        self.open: list[int] = [0] * world
        self.waiting: list[bool] = [False] * world
        self.numbers: list[dict[object, int]] = [defaultdict(int) for _ in range(world)]
        self.present: dict[tuple[object, ...], dict[int, Call]] = defaultdict(dict)
        self.work: deque[int] = deque(range(world))
        self.queued = [True] * world

    def run(self) -> Outcome:
        while self.work and self.left > 0:
            if self.rng is not None:
                self.work.rotate(self.rng.randrange(min(8, len(self.work))))
            rank = self.work.popleft()
            self.queued[rank] = False
            self._enqueue(rank)
            for queue in self.queues[rank]:
                self._arrive(rank, queue)
        finished = [len(c) == len(p) and not o for c, p, o in zip(self.calls, self.programs, self.open, strict=True)]
        return Outcome(self.calls, finished)

    def _enqueue(self, rank: int) -> None:
        program, calls = self.programs[rank], self.calls[rank]
        stop = self.faults.host_stops.get(rank, NEVER)
        if self.waiting[rank]:
            if self.open[rank]:
                return
            self.waiting[rank] = False
        while len(calls) < len(program) and len(calls) < stop:
            op = program[len(calls)]
            group = self.layout.of[rank].get(op.dim)
            if group is None:
                calls.append(Call(op, len(calls), "", 0, (), True, True))
                continue
            if op.transfer:
                block = self.layout.tp * self.layout.dp
                peer = rank % block + (op.to if op.to >= 0 else op.source) * block
                a, b = (rank, peer) if op.to >= 0 else (peer, rank)
                self.numbers[rank][group.name, "p2p"] += 1
                self.numbers[rank][group.name, a, b] += 1
                number = self.numbers[rank][group.name, "p2p"]
                key: tuple[object, ...] = (group.name, a, b, self.numbers[rank][group.name, a, b])
            else:
                self.numbers[rank][group.name] += 1
                number = self.numbers[rank][group.name]
                key = (group.name, number)
            call = Call(op, len(calls), group.name, number, key)
            calls.append(call)
            self.queues[rank][op.stream].append(call)
            self.open[rank] += 1
            if op.sync:
                self.waiting[rank] = True
                return

    def _arrive(self, rank: int, queue: deque[Call]) -> None:
        if not queue or queue[0].arrived or queue[0].index >= self.faults.gpu_stops.get(rank, NEVER):
            return
        call = queue[0]
        call.arrived = True
        here = self.present[call.key]
        here[rank] = call
        if call.op.transfer:
            members: tuple[int, ...] = (int(str(call.key[1])), int(str(call.key[2])))
        else:
            members = self.layout.of[rank][call.op.dim].ranks
        if len(here) < len(members) or self._blocked(members, here):
            return
        for member in members:
            done = here[member]
            done.done = True
            self.left -= 1
            self.queues[member][done.op.stream].popleft()
            self.open[member] -= 1
            if not self.queued[member]:
                self.queued[member] = True
                self.work.append(member)

    def _blocked(self, members: tuple[int, ...], here: dict[int, Call]) -> bool:
        first = here[members[0]].op
        if not first.transfer and any(c.op.key() != first.key() for c in here.values()):
            return True
        if self.faults.dead_links:
            hosts = {self.layout.host(m) for m in members}
            if len(hosts) > 1:
                return any(
                    c.index >= self.faults.dead_links.get(self.layout.host(m), NEVER) for m, c in here.items()
                )  # fmt: skip
        return False
