"""Dumps that are damaged, of another moment, or of another job: nobody is blamed for them, and nobody is silenced."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.model import Fact
from tests.tables.progress.made import WORLD, entry, judged, suspects

Entries = list[dict[str, Any]]


def job(late: int | None = None, *, done: int = 20, at: int = 0) -> dict[int, Entries]:
    """Eight ranks in the operation after `done`, but for one that is two behind."""
    made = {}
    for r in range(8):
        n = done - 1 if r == late else done
        made[r] = [entry(WORLD, "all_reduce", "completed", seq=s, at=at + s) for s in range(1, n + 1)]
        if r != late:
            made[r].append(entry(WORLD, "all_reduce", "scheduled", seq=n + 1, at=at + n + 1))
    return made


def found_in(made: dict[int, Entries], **more: Any) -> list[Fact]:
    return judged({f"d_{r}": (e, 8) for r, e in made.items()} | more.pop("further", {}), pipe=False, **more)


def others(found: list[Fact]) -> str:
    (stall,) = [f for f in found if f.kind == "stall"]
    return str(stall.fields["others"])


def test_a_rank_that_left_no_dump_at_all_is_suspected() -> None:
    made = job()
    del made[5]
    assert suspects(found_in(made)) == {5}


@pytest.mark.parametrize("shift", [-9_000_000, -30_000])
def test_a_dump_of_another_moment_or_clock_is_no_missing_dump(shift: int) -> None:
    made = job()
    made[5] = job(done=12, at=shift)[5]
    found = found_in(made)
    assert not suspects(found)
    assert "rank 5 left a dump of another moment" in others(found)


def test_an_unreadable_last_entry_is_no_missing_dump_and_no_late_rank() -> None:
    made = job()
    made[5][-1] = {}
    found = found_in(made)
    assert not suspects(found)
    assert "rank 5 left a dump that is cut off or damaged at its end" in others(found)
    made = job(late=3)
    made[5][-1] = {}
    assert suspects(found_in(made)) == {3}


def test_a_rank_whose_status_tells_of_the_lost_last_entry_is_not_late() -> None:
    told = {"last_enqueued_collective": 21, "last_started_collective": -1, "last_completed_collective": 20}
    made = job(late=3)
    del made[5][-1]
    assert suspects(found_in(made, status={5: {"0": told}})) == {3}


def test_a_left_over_entry_before_completed_ones_is_not_pending() -> None:
    for late in (3, None):
        made = job(late=late)
        made[5][9] |= {"state": "scheduled", "retired": False}
        assert suspects(found_in(made)) == ({late} - {None})


def test_a_dump_that_cannot_be_read_is_no_missing_dump() -> None:
    made = job()
    del made[5]
    found = found_in(made, unread=("d_5",))
    assert not suspects(found)
    assert "rank 5 left a dump that cannot be read" in others(found)
    assert suspects(found_in(job(late=3), unread=("x/d_3",))) == {3}


def test_of_one_rank_whose_numbers_jump_nothing_is_known() -> None:
    made = job()
    made[5][9]["collective_seq_id"] = 1_000
    found = found_in(made)
    assert not suspects(found)
    assert "rank 5 left a dump whose numbers most others contradict" in others(found)
    made = job(late=3)
    made[5][9]["collective_seq_id"] = 1_000
    assert suspects(found_in(made)) == {3}


def test_a_status_without_entries_and_without_sense() -> None:
    made = job(late=3)
    made[5] = []
    status = {"0": {f"last_{n}_collective": 10**9 for n in ("enqueued", "started", "completed")}}
    assert suspects(found_in(made, status={5: status})) == {3}


def test_one_impossible_dump_does_not_silence_the_others() -> None:
    made = job()
    made[5] = job(done=8)[5]
    found = found_in(made)
    assert not suspects(found)
    assert [f.fields["verdict"] for f in found if f.kind == "stall"] == ["partial_evidence"]


def test_of_two_dumps_of_one_rank_the_possible_one_counts() -> None:
    older = [entry(WORLD, "all_reduce", "completed", seq=s, at=s + 300) for s in range(1, 11)]
    found = found_in(job(late=3), further={"b/d_5": (older, 8)})
    assert suspects(found) == {3}
    assert "rank 5 left two different dumps, of which the one that fits the others counts" in others(found)


def test_a_group_that_damage_tore_in_two() -> None:
    made = job(late=3)
    made[0][6]["pg_id"] = 77
    assert suspects(found_in(made)) == {3}


def test_of_two_jobs_in_two_folders_the_one_that_stands_still() -> None:
    sound = job(done=40, at=3_000)
    further = {f"sound/d_{r}": (entries[:-1], 8) for r, entries in sound.items()}
    found = found_in(job(late=3), further=further)
    assert suspects(found) == {3}
    assert "8 dumps stem from another job or attempt, which was left out" in others(found)
    (stall,) = [f for f in found if f.kind == "stall"]
    assert str(stall.fields["detail"]).endswith("(8 dumps of another job or attempt were left out)")


def test_a_ring_without_the_dump_of_one_of_its_ranks_names_nobody() -> None:
    groups = {("1", "tp"): range(4), ("2", "tp"): range(2, 6), ("3", "tp"): (4, 5, 0, 1)}
    a, b, c = groups
    waits = {0: (a, c), 1: (a, c), 2: (b, a), 3: (b, a), 4: (c, b)}
    made = {
        r: [entry(g, "all_reduce", "completed", seq=4, at=n) for n, g in enumerate(both)]
        + [entry(both[0], "all_reduce", "scheduled", seq=5, at=9)]
        for r, both in waits.items()
    }
    found = judged({f"d_{r}": (e, 6) for r, e in made.items()}, pipe=False, groups=groups)
    (ring,) = [f for f in found if f.kind == "wait_cycle"]
    assert ring.fields["odd_ranks"] == ""


def test_dumps_that_do_not_tell_their_ranks() -> None:
    dumps = {f"dump-{'abcdefgh'[r]}": (e, 8) for r, e in job(late=3).items()}
    found = judged(dumps, pipe=False, numbered=True)
    assert not suspects(found)
    (stall,) = [f for f in found if f.kind == "stall"]
    assert stall.fields["verdict"] == "partial_evidence"
    assert stall.fields["effect"] == "7 of 8 dumps wait in vain"
    assert "none of the 8 dumps tells its rank" in str(stall.fields["others"])
    assert "dump-d is at #19" in str(stall.fields["others"])
    sound = {name: (e[:19], 8) for name, (e, _) in dumps.items()}
    assert not [f for f in judged(sound, pipe=False, numbered=True) if f.kind == "stall"]
