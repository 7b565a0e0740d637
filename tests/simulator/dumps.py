"""Flight-recorder dumps of a stopped job, as PyTorch writes them: pickle (protocol 2) or JSON, several versions."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from random import Random
from typing import Any

from .faults import Run
from .layout import Layout


@dataclass(frozen=True)
class Style:
    """How the dumps of a job are written. `timing`: start events are recorded; `ring`: entries kept."""

    version: str
    timing: bool
    ring: int
    only_active: bool
    name: str
    frames: bool
    form: str


NAMES = ("nccl_trace_rank_{rank}", "comm_lib_trace_rank_{rank}", "_dump_{rank}", "fr/rank{rank}.pickle")


def style(rng: Random) -> Style:
    """A style for a whole job."""
    version = rng.choice(("2.4", "2.9", "2.10", "2.10"))
    return Style(
        version, rng.random() < 0.4, rng.choice((2000, 2000, 200, 64)), rng.random() < 0.1, rng.choice(NAMES),
        rng.random() < 0.5, "json" if rng.random() < 0.15 else "pickle",
    )  # fmt: skip


SITES = (
    ("forward", "/opt/train/model.py", 214),
    ("train_step", "/opt/train/loop.py", 88),
    ("main", "/opt/train/train.py", 41),
)


class Clock:
    """When things happened: each rank enqueues an operation a few ms after the last; hosts' clocks differ."""

    def __init__(self, rng: Random, layout: Layout, skew_s: float) -> None:
        self.base = 1_780_000_000 + rng.randrange(8_000_000)
        self._offsets = {h: rng.uniform(-skew_s, skew_s) for h in layout.hosts}
        self._layout = layout

    def at(self, rank: int, index: int) -> float:
        """Epoch seconds on the host of the rank."""
        return self.base + index * 0.004 + rank * 1e-5 % 0.003 + self._offsets[self._layout.host(rank)]


def dump(run: Run, rank: int, how: Style, clock: Clock, timeout_ms: int) -> bytes:
    """The file of one rank."""
    layout = run.layout
    mine = sorted(layout.of[rank].values(), key=lambda g: int(g.name))
    ids = {g.name: n for n, g in enumerate(mine)}
    by_name = {g.name: g for g in mine}
    seen = [c for c in run.outcome.calls[rank] if c.key]
    collective: dict[str, int] = {}
    transfers: dict[str, int] = {}
    status = {n: [-1, -1, -1] for n in ids.values()}
    entries: list[dict[str, Any]] = []
    base = 170_000
    for n, call in enumerate(seen):
        group = by_name[call.group]
        counter = transfers if call.op.transfer else collective
        counter[call.group] = call.number
        state = "completed" if call.done else "started" if how.timing and call.arrived else "scheduled"
        told = status[ids[call.group]]
        told[0] = call.number
        if state != "scheduled" and how.timing:
            told[1] = call.number
        if call.done:
            told[2] = max(told[2], call.number)
        if n < len(seen) - how.ring or (how.only_active and call.done):
            continue
        created = int(clock.at(rank, call.index) * 1e9)
        name = call.op.name
        if call.op.transfer:
            a, b = (group.ranks.index(int(str(p))) for p in call.key[1:3])
            name = f"send {a}->{b}" if call.op.to >= 0 else f"recv {b}<-{a}"
        elif name == "barrier":
            name = "all_reduce_barrier"
        entry: dict[str, Any] = {
            "record_id": base + n, "pg_id": ids[call.group], "process_group": (group.name, group.desc),
            "collective_seq_id": collective.get(call.group, 0), "p2p_seq_id": transfers.get(call.group, 0),
            "op_id": collective.get(call.group, 0) + transfers.get(call.group, 0), "profiling_name": f"nccl:{name}",
            "time_created_ns": created, "input_sizes": [list(call.op.in_size)], "input_dtypes": [call.op.dtype],
            "output_sizes": [list(call.op.out_size)], "output_dtypes": [call.op.dtype], "state": state,
            "time_discovered_started_ns": created + 900_000 if state != "scheduled" and how.timing else None,
            "time_discovered_completed_ns": created + 2_000_000 if call.done else None, "retired": call.done,
            "timeout_ms": timeout_ms, "is_p2p": call.op.transfer,
        }  # fmt: skip
        if how.version != "2.4":
            entry |= {"thread_id": "139842776893184", "thread_name": "python3"}
        if how.frames:
            entry["frames"] = [{"name": s, "filename": f, "line": line} for s, f, line in SITES]
        entries.append(entry)
    content: dict[str, Any] = {
        "version": how.version,
        "pg_config": {g.name: {"name": g.name, "desc": g.desc, "ranks": _ranks_text(g.ranks)} for g in mine},
        "pg_status": {
            str(n): dict(zip(("last_enqueued_collective", "last_started_collective", "last_completed_collective"), t, strict=True))
            for n, t in status.items()
        },
        "entries": entries,
    }  # fmt: skip
    if how.version == "2.10":
        content["comm_lib_version"] = "2.27.5"
    if how.form == "json":
        return _json(content)
    return pickle.dumps(content, protocol=2)


def _json(content: dict[str, Any]) -> bytes:
    for entry in content["entries"]:
        entry.pop("frames", None)
        entry["process_group"] = list(entry["process_group"])
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[name] = entry[name] or 0
    content["pg_status"] = {k: {n: str(v) for n, v in s.items()} for k, s in content["pg_status"].items()}
    if not content["entries"]:
        del content["entries"]
    return json.dumps(content).encode()


_texts: dict[tuple[int, ...], str] = {}


def _ranks_text(ranks: tuple[int, ...]) -> str:
    if len(_texts) > 20_000:
        _texts.clear()
    return _texts.setdefault(ranks, "[" + ", ".join(map(str, ranks)) + "]")
