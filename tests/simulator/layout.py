"""Ranks, hosts and process groups of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class ProcessGroup:
    """One group; `name` is what all ranks call it, `dim` its dimension (world, dp, tp, pp, ep)."""

    name: str
    desc: str
    dim: str
    ranks: tuple[int, ...]


@dataclass
class Layout:
    """A job: `of[rank][dim]` is the rank's group of a dimension (absent where it would have one member)."""

    kind: str
    world: int
    tp: int
    pp: int
    dp: int
    per_host: int
    hosts: list[str]
    groups: list[ProcessGroup] = field(default_factory=list)
    of: list[dict[str, ProcessGroup]] = field(default_factory=list)

    def host(self, rank: int) -> str:
        """Host name of a rank."""
        return self.hosts[rank // self.per_host]

    def stage(self, rank: int) -> int:
        """Pipeline stage."""
        return rank // (self.tp * self.dp)


DESCS = {"dp": "DATA_PARALLEL_GROUP", "tp": "TENSOR_MODEL_PARALLEL_GROUP", "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
         "ep": "EXPERT_MODEL_PARALLEL_GROUP", "emb": "EMBEDDING_GROUP"}  # fmt: skip


def draw(rng: Random, smallest: int = 8, largest: int = 4096) -> Layout:
    """A layout whose size is log-uniform."""
    wanted = math.exp(rng.uniform(math.log(smallest), math.log(largest)))
    kind = rng.choice(("ddp", "fsdp", "megatron", "megatron", "moe"))
    tp = pp = 1
    if kind in ("megatron", "moe"):
        tp = rng.choice([t for t in (1, 2, 4, 8) if t <= wanted / 2])
        pp = rng.choice([p for p in (1, 2, 4, 8) if tp * p <= wanted / 2])
    dp = max(2, round(wanted / (tp * pp)))
    if kind == "moe":
        dp += dp % 2
    world = tp * pp * dp
    per_host = 8 if world >= 8 else world
    prefix = rng.choice(("gpu", "node", "trn", "hx", "dgxa"))
    first = rng.randrange(1, 400)
    hosts = [f"{prefix}{first + n:04d}" for n in range(-(-world // per_host))]
    layout = Layout(kind, world, tp, pp, dp, per_host, hosts)
    _make_groups(layout, rng)
    return layout


def _make_groups(layout: Layout, rng: Random) -> None:
    tp, dp, pp, world = layout.tp, layout.dp, layout.pp, layout.world
    layout.of = [{} for _ in range(world)]
    named = 0

    def add(dim: str, desc: str, ranks: list[int]) -> None:
        nonlocal named
        group = ProcessGroup(str(named), desc, dim, tuple(ranks))
        named += 1
        layout.groups.append(group)
        if len(ranks) > 1:
            for rank in ranks:
                layout.of[rank][dim] = group

    add("world", "default_pg", list(range(world)))
    if layout.kind in ("ddp", "fsdp"):
        return
    block = tp * dp
    for stage in range(pp):
        for t in range(tp):
            add("dp", DESCS["dp"], [stage * block + d * tp + t for d in range(dp)])
    for stage in range(pp):
        for d in range(dp):
            add("tp", DESCS["tp"], [stage * block + d * tp + t for t in range(tp)])
    for n in range(block):
        add("pp", DESCS["pp"], [stage * block + n for stage in range(pp)])
    if pp > 1 and rng.random() < 0.5:
        for n in range(block):
            add("emb", DESCS["emb"], [n, (pp - 1) * block + n])
    if layout.kind == "moe":
        for stage in range(pp):
            for first in range(0, dp, 2):
                for t in range(tp):
                    add("ep", DESCS["ep"], [stage * block + d * tp + t for d in (first, first + 1)])
