"""Logs alone: who is silent where the others time out, in several groups, in several files, and beside a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diagnose.model import Evidence, Fact, FactBase
from diagnose.tables import progress
from tests.tables.progress.made import entry, judged
from tests.tables.support import Given, base, derived

PER_HOST = 8
CRASH: Given = ("python_exception", {"rank": 9, "type": "IndexError", "message": "out of range", "cause": "bug"})


def step(rank: int) -> Given:
    return "train_step", {"rank": rank, "steps": 3, "median_s": 0.8}


def late(rank: int, group: str = "PG 0 (default_pg)", seq: int = 101) -> Given:
    fields: dict[str, Any] = {"rank": rank, "group": group, "seq": seq, "op": "ALLREDUCE", "timeout_ms": 6e5}
    return "torch_timeout", fields


def job(world: int, *given: Given) -> FactBase:
    """Hosts of eight ranks, each with a log of its own in which every rank has said something before."""
    hosts = {r: f"node{r // PER_HOST:02d}" for r in range(world)}
    made = base(*map(step, range(world)), *given, ranks=hosts)
    return replace(made, observations=tuple(map(_in_its_log, made.observations)))


def _in_its_log(fact: Fact) -> Fact:
    rank, line = int(str(fact.fields["rank"])), fact.evidence[0].first
    return replace(fact, evidence=(Evidence(f"node{rank // PER_HOST:02d}.log", line, line, f"line {line}"),))


def suspects(known: FactBase) -> dict[int, str]:
    found = derived(progress, known, "suspect_rank")
    return {int(str(f.fields["rank"])): str(f.fields["reason"]) for f in found}


def in_groups(world: int, *silent: int) -> list[Given]:
    """Pairs of ranks wait for each other, each pair in a group of its own."""
    return [late(r, f"PG {r // 2 + 1} (tp)", 40 + r // 2) for r in range(world) if r not in silent]


def test_the_only_rank_that_waits_in_no_group_is_the_late_one() -> None:
    known = job(16, *in_groups(16, 5))
    assert suspects(known) == {5: "absent"}
    (stall,) = derived(progress, known, "stall")
    assert stall.fields["waiting"] == "0-4,6-15"
    assert "5 more" in str(stall.fields["what"])


def test_many_silent_ranks_are_no_late_ones() -> None:
    assert not suspects(job(16, *in_groups(16, 1, 5, 9, 13)))


def test_groups_whose_job_is_of_unknown_size_name_nobody() -> None:
    known = replace(job(16, *in_groups(16, 5)), world=None)
    assert not suspects(known)


def test_one_lacking_at_the_end_of_every_log() -> None:
    """The storms are in the order of the ranks and end one rank early in every log: something has cut them all."""
    assert not suspects(job(16, *(late(r) for r in range(16) if r not in (7, 15))))


def test_a_silent_rank_beside_a_crash() -> None:
    known = job(16, *(late(r) for r in range(16) if r not in (2, 9)), CRASH)
    assert suspects(known) == {9: "exception", 2: "absent"}
    verdicts = [f.fields["verdict"] for f in derived(progress, known, "stall")]
    assert verdicts == ["missing_rank", "behind_rank"]


def test_the_launcher_ended_the_neighbours_of_a_crash() -> None:
    ended = job(64, *(late(r) for r in range(64) if r // PER_HOST != 1), CRASH)
    assert suspects(ended) == {9: "exception"}
    alone = job(17, *(late(r) for r in range(16) if r != 9), CRASH)  # rank 16 is the only one of its host
    assert suspects(alone) == {9: "exception"}


def test_one_dump_is_lacking_and_several_groups_wait_for_it() -> None:
    groups = {("5", "tp"): (0, 1), ("6", "ep"): (1, 2), ("7", "tp"): (2, 3)}
    dumps = {
        "_dump_0": ([entry(("0", "default_pg"), "all_reduce", "completed", seq=1, at=1),
                     entry(("5", "tp"), "all_reduce", "scheduled", seq=4, at=2)], 4),
        "_dump_2": ([entry(("0", "default_pg"), "all_reduce", "completed", seq=1, at=1),
                     entry(("6", "ep"), "all_reduce", "scheduled", seq=9, at=2)], 4),
        "_dump_3": ([entry(("0", "default_pg"), "all_reduce", "completed", seq=1, at=1),
                     entry(("7", "tp"), "all_reduce", "scheduled", seq=2, at=2)], 4),
    }  # fmt: skip
    found = judged(dumps, pipe=False, groups=groups)
    named = {f.fields["rank"] for f in found if f.kind == "suspect_rank" and f.fields["reason"] == "unknown"}
    assert named == {1}


def closed(rank: int, at: float) -> Given:
    return "launcher_stop", {"pid": 4000 + rank, "signal": "SIGTERM", "rank": rank, "at": at}


def test_ranks_that_the_launcher_ended_could_not_tell() -> None:
    """In both logs the time-outs pass over one rank, which torchrun ended a moment, or minutes, after the first."""
    storm = [(late(r)[0], {**late(r)[1], "at": 1000.0 + r / 10}) for r in range(16) if r not in (3, 11)]
    starts: list[Given] = [
        ("nccl_comm", {"comm_id": "0xa", "comm_rank": r, "rank": r, "nranks": 16, "state": "complete", "pid": 4000 + r})
        for r in range(16)
    ]
    assert set(suspects(job(16, *starts, *storm))) == {3, 11}
    assert not suspects(job(16, *starts, *storm, closed(3, 1000.9), closed(11, 1001.0)))
    assert set(suspects(job(16, *starts, *storm, closed(3, 1090.0), closed(11, 1001.0)))) == {3}


def test_ranks_that_work_on_wait_for_nobody() -> None:
    """Ranks 14 and 15 train on, in a group of their own, after the others have timed out."""
    storm = in_groups(14)
    assert set(suspects(job(16, *storm, late(14, "PG 8 (tp)")))) == {15}
    assert not suspects(job(16, *storm, step(14), step(15)))


def test_a_rank_that_gloo_tells_to_wait_is_not_the_late_one() -> None:
    gloo: Given = (
        "python_exception",
        {"rank": 5, "type": "RuntimeError", "message": "Timed out waiting 1800000ms for recv", "cause": "collective"},
    )
    assert not suspects(job(16, *in_groups(16, 5), gloo))
