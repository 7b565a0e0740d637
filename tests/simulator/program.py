"""What each rank calls, step by step: operations of process groups, point-to-point transfers, host synchronisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from .layout import Layout


@dataclass(frozen=True)
class Op:
    """One call. `to`/`source` are stages of a transfer; `sync`: the host waits for all it has enqueued after it."""

    dim: str
    name: str
    in_size: tuple[int, ...]
    out_size: tuple[int, ...]
    dtype: str
    stream: int = 0
    sync: bool = False
    to: int = -1
    source: int = -1
    uneven: bool = False

    @property
    def transfer(self) -> bool:
        """A send or receive."""
        return self.to >= 0 or self.source >= 0

    def key(self) -> tuple[object, ...]:
        """What must agree between ranks."""
        sizes = () if self.uneven else (self.in_size, self.out_size)
        return (self.name, *sizes, self.dtype)


def programs(layout: Layout, rng: Random, steps: int) -> list[list[Op]]:
    """The program of every rank; ranks of one stage share one list."""
    by_stage = [_stage(layout, rng, stage, steps) for stage in range(layout.pp)]
    return [by_stage[layout.stage(rank)] for rank in range(layout.world)]


def _stage(layout: Layout, rng: Random, stage: int, steps: int) -> list[Op]:
    rng = Random(f"{layout.world}/{layout.kind}/{layout.hosts[0]}")  # the same sizes on all stages
    hidden = rng.choice((1024, 2048, 4096, 5120, 8192))
    micro = rng.choice((1, 2, 4)) if layout.pp > 1 else rng.choice((1, 2))
    buckets = [rng.randrange(1, 60) * 65_536 for _ in range(rng.randrange(2, 5))]
    layers = rng.choice((1, 2))
    overlap = rng.random() < 0.4
    blocking = rng.random() < 0.3
    program: list[Op] = []
    for step in range(steps):
        if layout.kind == "ddp":
            program += [Op("world", "all_reduce", (b,), (b,), "Float", 1 if overlap else 0) for b in buckets]
        elif layout.kind == "fsdp":
            for b in buckets:
                program.append(Op("world", "_all_gather_base", (b,), (b * layout.world,), "BFloat16", sync=blocking))
            for b in reversed(buckets):
                program.append(Op("world", "_reduce_scatter_base", (b * layout.world,), (b,), "Float"))
        else:
            program += _megatron(layout, stage, hidden, micro, layers, buckets, overlap, blocking, step)
        program.append(Op("world", "all_reduce", (1,), (1,), "Float", sync=True))
        if step % 4 == 3 and layout.kind == "ddp":
            program.append(Op("world", "barrier", (1,), (1,), "Byte", sync=True))
    return program


def _megatron(
    layout: Layout, stage: int, hidden: int, micro: int, layers: int, buckets: list[int], overlap: bool, blocking: bool,
    step: int,
) -> list[Op]:  # fmt: skip
    ops: list[Op] = []
    shape = (2048, 1, hidden)

    def work() -> None:
        for _ in range(layers):
            if layout.tp > 1:
                ops.append(
                    Op("tp", "_all_gather_base", shape, (2048 * layout.tp, 1, hidden), "BFloat16", sync=blocking)
                )
            if layout.kind == "moe":
                size = (1500 + (step * 37 + stage) % 900, hidden)
                ops.append(Op("ep", "all_to_all", size, size, "BFloat16", uneven=True))
            if layout.tp > 1:
                ops.append(Op("tp", "_reduce_scatter_base", (2048 * layout.tp, 1, hidden), shape, "BFloat16"))

    last = layout.pp - 1
    for _ in range(micro):
        if stage > 0:
            ops.append(Op("pp", "recv", shape, shape, "BFloat16", source=stage - 1))
        work()
        if stage < last:
            ops.append(Op("pp", "send", shape, shape, "BFloat16", to=stage + 1))
    for _ in range(micro):
        if stage < last:
            ops.append(Op("pp", "recv", shape, shape, "BFloat16", source=stage + 1))
        work()
        if stage > 0:
            ops.append(Op("pp", "send", shape, shape, "BFloat16", to=stage - 1))
    if layout.dp > 1:
        ops += [Op("dp", "_reduce_scatter_base", (b * layout.dp,), (b,), "Float", 1 if overlap else 0) for b in buckets]
    if "emb" in {g.dim for g in layout.groups} and stage in (0, last):
        ops.append(Op("emb", "all_reduce", (32_000, hidden), (32_000, hidden), "Float"))
    if layout.dp > 1:
        ops += [Op("dp", "_all_gather_base", (b,), (b * layout.dp,), "BFloat16", 1 if overlap else 0) for b in buckets]
    return ops


def resized(op: Op, rng: Random) -> Op:
    """The same call with another size."""
    factor = rng.choice((2, 3))
    return replace(
        op, in_size=(op.in_size[0] * factor, *op.in_size[1:]), out_size=(op.out_size[0] * factor, *op.out_size[1:])
    )
