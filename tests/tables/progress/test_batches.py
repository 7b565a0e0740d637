"""Batches of transfers, dumps of active operations, names that only number, and dumps of two jobs in one folder."""

from __future__ import annotations

from tests.tables.progress.made import PIPE, WORLD, batch, entry, judged, suspects


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
    active[2] = []
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


def test_numbers_of_the_status_alone_make_no_dump_an_old_one() -> None:
    """Status counts transfers too, and their numbers differ between the ranks of a pipeline."""
    active = {r: [entry(WORLD, "all_reduce", "scheduled", seq=9, at=3)] for r in (0, 1, 3)}
    status = {"last_started_collective": -1}
    told = {
        r: {"3": status | {"last_enqueued_collective": n, "last_completed_collective": n}}
        for r, n in enumerate((100, 900, 300, 500))
    }
    active[2] = []
    found = judged({f"d_{r}": (e, 4) for r, e in active.items()}, status=told)
    assert suspects(found) == {2}


def test_an_old_dump_of_one_rank_takes_no_newer_ones_with_it() -> None:
    old = [entry(WORLD, "all_reduce", "completed", seq=n, at=n) for n in (900, 901, 902)]
    new = {
        r: [entry(WORLD, "all_reduce", "completed", seq=n, at=40_000 + n) for n in (10, 11, 12)]
        + ([] if r == 2 else [entry(WORLD, "all_reduce", "scheduled", seq=13, at=40_013)])
        for r in range(7)
    }
    dumps = {f"a_{r}": (e, 8) for r, e in new.items()}
    assert suspects(judged(dumps | {"a_7": (old, 8)}, pipe=False)) == {2}
    again = {f"fr-{r}.bin": (e, 8) for r, e in new.items()} | {"before/fr-7.bin": (old, 8), "before/fr-6.bin": (old, 8)}
    assert suspects(judged(again, pipe=False, numbered=True)) == {2}
