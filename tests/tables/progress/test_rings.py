"""Rings: whose call left out, added or made alone closes them; and dumps of a job that runs."""

from __future__ import annotations

from typing import Any

from diagnose.model import Evidence, Fact, Record
from tests.tables.progress.made import WORLD, entry, judged, suspects

DATA: tuple[str, str] = ("5", "DATA_PARALLEL_GROUP")
PAIRS = [(str(10 + n), "TENSOR_MODEL_PARALLEL_GROUP") for n in range(4)]
GROUPS = {DATA: range(8)} | {name: (2 * n, 2 * n + 1) for n, name in enumerate(PAIRS)}


def done(group: tuple[str, str], seq: int, at: int) -> dict[str, Any]:
    return entry(group, "all_reduce", "completed", seq=seq, at=at)


def open_(group: tuple[str, str], seq: int, at: int) -> dict[str, Any]:
    return entry(group, "all_reduce", "scheduled", seq=seq, at=at)


def odd(made: dict[int, list[dict[str, Any]]]) -> tuple[str, list[Fact]]:
    found = judged({f"d_{r}": (e, 8) for r, e in made.items()}, pipe=False, groups=GROUPS)
    (ring,) = [f for f in found if f.kind == "wait_cycle"]
    return str(ring.fields["odd_ranks"]), found


def test_a_rank_alone_in_a_barrier() -> None:
    made = {r: [done(WORLD, 1, 1), done(PAIRS[r // 2], 4, 2), done(DATA, 2, 3)] for r in range(8)}
    made[0].append(open_(WORLD, 2, 4))
    made[1].append(open_(PAIRS[0], 5, 4))
    for r in range(2, 8):
        made[r] += [done(PAIRS[r // 2], 5, 4), open_(DATA, 3, 5)]
    assert odd(made)[0] == "0"


def test_a_call_left_out_where_hosts_run_ahead() -> None:
    made = {r: [done(DATA, 2, 1), done(PAIRS[r // 2], 4, 2)] for r in range(8)}
    made[0] += [open_(PAIRS[0], 5, 3), open_(DATA, 3, 4)]
    made[1] += [open_(DATA, 3, 4)]
    for r in range(2, 8):
        made[r] += [done(PAIRS[r // 2], 5, 3), open_(DATA, 3, 4)]
    assert odd(made)[0] == "1"


def test_a_call_too_many_where_hosts_run_ahead() -> None:
    made = {r: [done(DATA, 2, 1), done(PAIRS[r // 2], 5, 2)] for r in range(8)}
    made[1] += [open_(PAIRS[0], 6, 3)]
    for r in range(8):
        made[r] += [open_(DATA, 3, 4)]
    assert odd(made)[0] == "1"


def test_dumps_taken_while_the_job_ran_blame_nobody() -> None:
    made = {r: [done(DATA, n, n) for n in range(1, 60)] for r in range(8)}
    made[6] = made[6][:20]
    made[5][-1] = open_(DATA, 59, 59)
    for r in (0, 1, 2, 3, 4, 7):
        made[r].append(open_(DATA, 60, 60))
    found = judged({f"d_{r}": (e, 8) for r, e in made.items()}, pipe=False, groups={DATA: range(8)})
    assert not suspects(found)


def test_dumps_alone_are_no_stall_while_most_ranks_wait_for_nothing() -> None:
    made = {r: [done(DATA, 2, 1), done(PAIRS[r // 2], 4, 2)] for r in range(8)}
    made[0].append(open_(PAIRS[0], 5, 3))
    groups = {DATA: range(8), PAIRS[0]: (0, 1)}
    assert not suspects(judged({f"d_{r}": (made[r], 8) for r in made}, pipe=False, groups=groups))
    for r in range(2, 8):
        made[r].append(open_(DATA, 3, 3))
    assert suspects(judged({f"d_{r}": (made[r], 8) for r in made}, pipe=False, groups=groups)) == {1}


def test_a_gpu_that_has_not_finished_what_ranks_finished_that_timed_out_elsewhere() -> None:
    """A failed operation counts as finished, but who waits in another one has gone on from it."""
    made = {r: [done(DATA, 2, 1), done(PAIRS[r // 2], 4, 2), open_(DATA, 3, 3)] for r in range(8)}
    made[1][1:2] = [open_(PAIRS[0], 4, 2)]
    late = [
        Record("torch_timeout", {"rank": r, "op": "ALLREDUCE", "seq": 3, "group": "PG 5", "timeout_ms": 600_000.0,
                                 "elapsed_ms": 600_001.0}, (Evidence("log", r + 1, r + 1, "timed out"),), rank=r)
        for r in range(8)
    ]  # fmt: skip
    found = judged({f"d_{r}": (made[r], 8) for r in made}, pipe=False, groups=GROUPS, told=late)
    assert suspects(found) == {1}
    (stall,) = [f for f in found if f.kind == "stall"]
    assert stall.fields["waiting"] == "0,2-7"


def test_operations_that_have_just_completed_tell_of_a_job_that_runs() -> None:
    made = {r: [done(DATA, n, n) for n in range(1, 6)] for r in range(8)}
    for r in range(8):
        if r != 3:
            made[r].append(open_(DATA, 6, 6))
    groups = {DATA: range(8)}
    assert suspects(judged({f"d_{r}": (made[r], 8) for r in made}, pipe=False, groups=groups)) == {3}
    for r in range(8):
        made[r][4]["retired"] = False
    assert not suspects(judged({f"d_{r}": (made[r], 8) for r in made}, pipe=False, groups=groups))


def behind_by_one(*, retired: int, apart: int = 1, fresh_ranks: int = 8) -> list[Fact]:
    """Rank 3 of 8 lacks operation 6; of the first five `retired` are, `apart` times 10 ms after each other."""
    made = {r: [done(DATA, n, n * apart) for n in range(1, 6)] for r in range(8)}
    for r in range(8):
        for young in made[r][retired:] if r < fresh_ranks else []:
            young["retired"] = False
        if r != 3:
            made[r].append(open_(DATA, 6, 6 * apart))
    return judged({f"d_{r}": (made[r], 8) for r in made}, pipe=False, groups={DATA: range(8)})


def test_where_most_has_just_completed_the_job_runs() -> None:
    assert not suspects(behind_by_one(retired=1))
    assert not suspects(behind_by_one(retired=0))
    assert not suspects(behind_by_one(retired=4, fresh_ranks=2))
    assert suspects(behind_by_one(retired=4, fresh_ranks=1)) == {3}


def test_without_a_watchdog_nothing_is_retired() -> None:
    assert suspects(behind_by_one(retired=0, apart=200)) == {3}


def test_dumps_of_active_operations_alone_name_several_late_ranks() -> None:
    """Some writers leave out what is complete, also at a time-out."""

    def late(ranks: set[int]) -> set[Any]:
        made = {r: [] if r in ranks else [open_(DATA, 6, 6)] for r in range(16)}
        return suspects(judged({f"d_{r}": (made[r], 16) for r in made}, pipe=False, groups={DATA: range(16)}))

    assert late({3}) == {3}
    assert late({0, 5, 6, 9}) == {0, 5, 6, 9}
