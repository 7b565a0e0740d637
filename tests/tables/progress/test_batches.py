"""Batches of transfers, dumps of active operations, names that only number, and dumps of two jobs in one folder."""

from __future__ import annotations

import pickle
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
    dumps: dict[str, tuple[list[dict[str, Any]], int]], *, pipe: bool = True, numbered: bool = False
) -> list[Fact]:
    """Facts of dumps: name -> entries and size of the world; names end in the rank."""
    read: list[tuple[Source, list[Record]]] = []
    for name, (entries, world) in dumps.items():
        ranks = str(list(range(world)))
        config = {"0": {"name": "0", "desc": WORLD[1], "ranks": ranks}}
        if pipe:
            config["3"] = {"name": "3", "desc": PIPE[1], "ranks": ranks}
        data = pickle.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}, 2)
        source = Source(name, name, rank=None if numbered else int(name.rpartition("_")[2]))
        read.append((source, list(PARSER.scan_bytes(data, source))))
    return derived(progress, facts.build(read))


def suspects(found: list[Fact]) -> set[Any]:
    return {f.fields["rank"] for f in found if f.kind == "suspect_rank"}


def test_completed_batches_are_not_pending() -> None:
    done = lambda r: batch(1, "completed", f"send {r}->{(r + 1) % 4}", f"recv {r}<-{(r + 3) % 4}", at=1)  # noqa: E731
    late = {r: [*done(r), entry(WORLD, "all_reduce", "completed", seq=1, at=2)] for r in range(4)}
    for r in (0, 1, 3):
        late[r].append(entry(WORLD, "all_reduce", "scheduled", seq=2, at=3))
    assert suspects(judged({f"d_{r}": (e, 4) for r, e in late.items()})) == {2}


def test_a_batch_waits_for_whichever_peer_is_missing() -> None:
    chain = {
        0: batch(2, "scheduled", "send 0->1", "recv 0<-1", at=4),
        1: batch(2, "scheduled", "send 1->0", "recv 1<-0", "send 1->2", at=4),
        2: [entry(WORLD, "all_reduce", "completed", seq=1, at=2)],
    }
    assert suspects(judged({f"d_{r}": (e, 3) for r, e in chain.items()})) == {2}


def test_both_sides_of_a_transfer_but_one_is_elsewhere() -> None:
    """Rank 0 has posted its send after a collective that nobody else has called."""
    calls = [entry(WORLD, "all_reduce", "completed", seq=1, at=1), entry(WORLD, "broadcast", "scheduled", seq=2, at=3)]
    chain = {
        0: [*calls, *batch(2, "scheduled", "send 0->1", at=4)],
        1: [calls[0], *batch(2, "scheduled", "recv 1<-0", at=4)],
    }
    found = judged({f"d_{r}": (e, 2) for r, e in chain.items()})
    assert [f for f in found if f.kind == "wait_cycle"]
    assert not [f for f in found if f.kind == "stall" and f.fields["verdict"] == "all_entered"]


def test_an_idle_rank_among_dumps_of_active_operations() -> None:
    active = {r: [entry(WORLD, "all_reduce", "scheduled", seq=9, at=3)] for r in (0, 1, 3)}
    active[2] = batch(1, "scheduled", "send 2->3", at=1)[:1]  # what is left of a completed batch
    active[2] += batch(2, "scheduled", "send 2->3", at=1)[:1]
    active[2] += [entry(PIPE, "recv 2<-3", "scheduled", p2p=2, at=1)]
    assert suspects(judged({f"d_{r}": (e, 4) for r, e in active.items()})) == {2}


def test_names_that_only_number_the_ranks() -> None:
    made = {r: [entry(WORLD, "all_reduce", "completed", seq=1, at=1)] for r in range(4)}
    for r in (0, 1, 3):
        made[r].append(entry(WORLD, "all_reduce", "scheduled", seq=2, at=3))
    dumps = {f"gpu01/fr-{r}.bin": (e, 4) for r, e in made.items()}
    assert suspects(judged(dumps, pipe=False, numbered=True)) == {2}


def test_of_two_jobs_in_one_folder_the_newer_counts() -> None:
    old = {r: [entry(WORLD, "all_reduce", "scheduled", seq=700, at=1)] for r in range(4, 8)}
    new = {r: [entry(WORLD, "all_reduce", "completed", seq=1, at=9_000)] for r in range(4)}
    for r in (0, 2, 3):
        new[r].append(entry(WORLD, "all_reduce", "scheduled", seq=2, at=9_001))
    dumps = {f"d_{r}": (e, 8) for r, e in old.items()} | {f"d_{r}": (e, 4) for r, e in new.items()}
    found = judged(dumps, pipe=False)
    assert suspects(found) == {1}
    assert len([f for f in found if f.kind == "stall"]) == 1
