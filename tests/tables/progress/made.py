"""Dumps made by hand: entries, batches, and the facts that follow from some dumps."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from diagnose import facts, packs
from diagnose.model import Fact, Record, Source
from diagnose.tables import progress
from tests.tables.support import derived

PARSER = packs.load_file(packs.builtin("parsers") / "flight_recorder" / "__init__.py")
PIPE = ("3", "PIPELINE_MODEL_PARALLEL_GROUP")
WORLD = ("0", "default_pg")
AT = 1_780_000_000_000_000_000


def entry(group: tuple[str, str], name: str, state: str, *, seq: int = 0, p2p: int = 0, at: int = 0) -> dict[str, Any]:
    sizes = [] if name == "coalesced" else [[64]]
    return {
        "record_id": at, "pg_id": int(group[0]), "process_group": group, "collective_seq_id": seq, "p2p_seq_id": p2p,
        "op_id": at, "profiling_name": f"nccl:{name}", "time_created_ns": AT + at * 10**7, "input_sizes": sizes,
        "input_dtypes": ["Half"] * len(sizes), "output_sizes": sizes, "output_dtypes": ["Half"] * len(sizes),
        "state": state, "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": p2p > 0,
    }  # fmt: skip


def batch(number: int, state: str, *names: str, at: int) -> list[dict[str, Any]]:
    """Its transfers, which never complete for the recorder, and its end."""
    parts = [entry(PIPE, name, "scheduled", p2p=number, at=at) for name in names]
    return [*parts, entry(PIPE, "coalesced", state, p2p=number, at=at)]


def judged(
    dumps: dict[str, tuple[list[dict[str, Any]], int]],
    *,
    pipe: bool = True,
    numbered: bool = False,
    groups: Mapping[tuple[str, str], Sequence[int]] | None = None,
    status: Mapping[int, Mapping[str, Any]] | None = None,
    told: Sequence[Record] = (),
    unread: Sequence[str] = (),
) -> list[Fact]:
    """Facts of dumps: name -> entries and size of the world; names end in the rank; `groups` are further ones, each
    in the dumps of its members; `told` is what a log says; `unread` are files that cannot be read."""
    read: list[tuple[Source, list[Record]]] = [(Source("log", "log"), list(told))] if told else []
    for name, (entries, world) in dumps.items():
        ranks = str(list(range(world)))
        config = {"0": {"name": "0", "desc": WORLD[1], "ranks": ranks}}
        if pipe:
            config["3"] = {"name": "3", "desc": PIPE[1], "ranks": ranks}
        own = ((group, members) for group, members in (groups or {}).items() if _rank(name) in members)
        for (number, desc), members in own:
            config[number] = {"name": number, "desc": desc, "ranks": str(list(members))}
        data = pickle.dumps(
            {
                "version": "2.10",
                "pg_config": config,
                "pg_status": (status or {}).get(_rank(name), {}),
                "entries": entries,
            },
            2,
        )
        source = Source(name, name, rank=None if numbered else _rank(name))
        read.append((source, list(PARSER.scan_bytes(data, source))))
    for source in (Source(name, name, rank=_rank(name)) for name in unread):
        read.append((source, list(PARSER.unread(source))))
    return derived(progress, facts.build(read))


def suspects(found: list[Fact]) -> set[Any]:
    return {f.fields["rank"] for f in found if f.kind == "suspect_rank"}


def _rank(name: str) -> int:
    return int(name.rpartition("_")[2]) if "_" in name else -1
