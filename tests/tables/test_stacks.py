"""Stalls by stacks: two dumps of every rank in which nothing moves, and everything that must stay quiet."""

from __future__ import annotations

from diagnose.model import Evidence, Fact, FactBase
from diagnose.tables import stacks


def dump(rank: int, number: int, where: str, function: str, line: int, **more: object) -> Fact:
    fields = {
        "rank": rank, "pid": 700 + rank, "host": "node04", "main": True, "where": where, "function": function,
        "file": "train.py", "line": line, "at": 1000.0 + 15 * number, **more,
    }  # fmt: skip
    return Fact("", "python_stack", fields, (Evidence(f"py-spy.rank{rank}.t{number}.txt", 4, 9, "Thread"),))


def derived(*observations: Fact) -> list[Fact]:
    return list(stacks.derive(FactBase(observations, (), (), ("node04",), {}, None)))


def stalled() -> list[Fact]:
    waiting = [dump(r, n, "collective", "all_reduce", 88) for r in (0, 1, 3) for n in (0, 1)]
    return [*waiting, *(dump(2, n, "dataloader", "__getitem__", 21) for n in (0, 1))]


def test_the_rank_outside_of_the_collective_is_behind_and_the_others_wait():
    stall, late = derived(*stalled())
    assert (stall.kind, late.kind) == ("stall", "suspect_rank")
    assert stall.fields["verdict"] == "behind_rank" and stall.fields["evidence_kind"] == "stacks"
    assert (stall.fields["waiting"], stall.fields["behind"], stall.fields["op"]) == ("0-1,3", "2", "all_reduce")
    assert late.fields["rank"] == 2 and late.fields["pid"] == 702 and late.fields["host"] == "node04"
    assert "__getitem__ at train.py:21" in str(late.fields["detail"])
    assert late.fields["stall"] == stall.fields["what"]
    assert [e.source for e in late.evidence] == ["py-spy.rank2.t0.txt", "py-spy.rank2.t1.txt"]


def test_one_dump_proves_nothing():
    assert derived(*(o for o in stalled() if o.fields["at"] == 1000.0)) == []


def test_a_rank_that_moves_is_not_behind():
    moving = [o for o in stalled() if o.fields["rank"] != 2]
    assert derived(*moving, dump(2, 0, "dataloader", "__getitem__", 21), dump(2, 1, "other", "forward", 40)) == []
    assert (
        derived(*moving, dump(2, 0, "dataloader", "__getitem__", 21), dump(2, 1, "collective", "all_reduce", 88)) == []
    )


def test_many_in_their_loaders_is_slow_input_not_a_stall():
    few = [dump(0, n, "collective", "all_reduce", 88) for n in (0, 1)]
    assert derived(*few, *(dump(r, n, "dataloader", "__getitem__", 21) for r in (1, 2, 3) for n in (0, 1))) == []


def test_other_threads_do_not_count():
    threads = [dump(0, n, "dataloader", "_pin_memory_loop", 9, main=False) for n in (0, 1)]
    waiting = [dump(r, n, "collective", "all_reduce", 88) for r in (0, 1, 2) for n in (0, 1)]
    assert derived(*threads, *waiting) == []


def test_sequence_numbers_decide_where_there_are_some():
    told = Fact("", "torch_timeout", {"seq": 41, "op": "ALLREDUCE", "rank": 0})
    assert derived(told, *stalled()) == []


def test_plumbing_names_its_caller_and_the_worker_that_is_busy():
    frames = "select (selectors.py:415) < poll (multiprocessing/connection.py:257) < __next__ (torch/utils/data/dataloader.py:725) < main (train.py:41)"  # noqa: E501
    busy = "read (shards.py:12) < __getitem__ (train.py:21) < _worker_loop (torch/utils/data/_utils/worker.py:349)"
    idle = "select (selectors.py:415) < get (multiprocessing/queues.py:113) < _worker_loop (torch/utils/data/_utils/worker.py:331)"  # noqa: E501
    others = [o for o in stalled() if o.fields["rank"] != 2]
    own = [dump(2, n, "dataloader", "select", 415, file="selectors.py", frames=frames) for n in (0, 1)]
    workers = [
        dump(2, n, "dataloader", name, 9, pid=pid, frames=text)
        for pid, name, text in ((801, "select", idle), (802, "read", busy)) for n in (0, 1)
    ]  # fmt: skip
    _, late = derived(*others, *own, *workers)
    assert late.fields["pid"] == 702
    assert late.fields["detail"] == (
        "in 2 dumps its process 702 sits in select at selectors.py:415, called from main at train.py:41;"
        " its worker 802 sits in read at shards.py:12"
    )
