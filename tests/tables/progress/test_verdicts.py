"""Verdicts on simulated jobs, each fault in the forms in which it is met, and on RAS status."""

from __future__ import annotations

from random import Random

import pytest

from diagnose import facts, packs
from diagnose.model import Evidence, Fact, FactBase, Record, Source, unfold_ranks
from diagnose.tables import progress
from tests.simulator import dumps, faults, layout
from tests.tables.support import base, derived

PARSER = packs.load_file(packs.builtin("parsers") / "flight_recorder" / "__init__.py")
STYLE = dumps.Style("2.10", False, 2000, False, "trace_{rank}", False, "pickle")


def job(
    fault: str, seed: int, kinds: tuple[str, ...], style: dumps.Style = STYLE
) -> tuple[faults.Run, dict[int, bytes]]:
    """A run with that fault, and its dumps."""
    rng = Random(seed)
    while True:
        made = layout.draw(rng, 8, 40)
        if made.kind not in kinds:
            continue
        run = faults.twice(rng, made) if fault == "two-faults" else faults.broken(rng, made, fault)
        if run:
            clock = dumps.Clock(rng, made, 0.0)
            alive = [r for r in range(made.world) if r not in run.truth.crashed]
            return run, {r: dumps.dump(run, r, style, clock, 600_000) for r in alive}


def known(files: dict[int, bytes], *more: tuple[Source, list[Record]], names: dict[int, int] | None = None) -> FactBase:
    """The fact base of dumps; `names` gives files another rank in their name."""
    read: list[tuple[Source, list[Record]]] = [*more]
    for rank, data in files.items():
        source = Source(f"s{rank}", f"trace_{rank}", rank=(names or {}).get(rank, rank))
        read.append((source, list(PARSER.scan_bytes(data, source))))
    return facts.build(read)


def guilty(found: list[Fact]) -> set[int]:
    suspects = {int(str(f.fields["rank"])) for f in found if f.kind == "suspect_rank"}
    for f in found:
        if f.kind in ("signature_mismatch", "wait_cycle"):
            suspects |= set(unfold_ranks(str(f.fields["odd_ranks"])))
    return suspects


ALL = ("ddp", "fsdp", "megatron", "moe")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "fault", ["sleep", "sleep-several", "size", "dtype", "skip", "extra", "order", "rank0-barrier"]
)
def test_the_fault_is_found(fault: str, seed: int) -> None:
    kinds = ("megatron", "moe") if fault == "order" else ALL
    run, files = job(fault, seed, kinds)
    found = derived(progress, known(files))
    assert guilty(found) == run.truth.ranks, [(f.kind, f.fields) for f in found]


def test_victims_are_counted_and_the_groups_named() -> None:
    run, files = job("sleep", 1, ("megatron",))
    (stall,) = derived(progress, known(files), "stall")
    assert stall.fields["verdict"] == "behind_rank"
    assert stall.fields["victims_count"] == run.layout.world - 1
    assert "of process group " in str(stall.fields["what"])


def test_the_content_places_a_dump_before_its_name() -> None:
    run, files = job("sleep", 2, ("megatron",))
    late = min(run.truth.ranks)
    other = next(r for r in files if r != late and len(run.layout.of[r]) > 1)
    found = derived(progress, known(files, names={late: other, other: late}))
    assert guilty(found) == run.truth.ranks


def test_a_copy_of_a_dump_changes_nothing() -> None:
    run, files = job("sleep", 3, ("ddp",))
    source = Source("copy", "copy/trace_0", rank=0)
    twin = (source, list(PARSER.scan_bytes(files[0], source)))
    assert guilty(derived(progress, known(files, twin))) == run.truth.ranks


def test_a_dump_of_an_earlier_failure_is_left_out() -> None:
    run, files = job("sleep", 4, ("ddp",))
    waiting = next(r for r in files if r not in run.truth.ranks)
    old = dumps.Clock(Random(1), run.layout, 0.0)
    old.base -= 90_000 * 100
    files[waiting] = dumps.dump(run, waiting, STYLE, old, 600_000)
    assert guilty(derived(progress, known(files))) == run.truth.ranks


def test_a_cut_dump_is_no_evidence_of_being_behind() -> None:
    run, files = job("sleep", 5, ("fsdp",))
    waiting = next(r for r in files if r not in run.truth.ranks)
    files[waiting] = files[waiting][: len(files[waiting]) // 2]
    assert guilty(derived(progress, known(files))) == run.truth.ranks


def test_the_only_rank_without_a_dump_is_likely_when_all_others_wait_for_it() -> None:
    run, files = job("sleep", 6, ("ddp",))
    (late,) = run.truth.ranks
    del files[late]
    found = derived(progress, known(files))
    (stall,) = [f for f in found if f.kind == "stall"]
    assert (stall.fields["verdict"], stall.fields["silent"]) == ("partial_evidence", str(late))
    assert [(f.fields["rank"], f.fields["reason"]) for f in found if f.kind == "suspect_rank"] == [(late, "unknown")]
    del files[next(r for r in files if r != late)]
    assert not guilty(derived(progress, known(files)))


def test_a_gpu_that_does_not_start_what_others_have_started() -> None:
    style = dumps.Style("2.10", True, 2000, False, "trace_{rank}", False, "pickle")
    run, files = job("hung-gpu", 7, ("ddp", "fsdp"), style)
    assert guilty(derived(progress, known(files))) == run.truth.ranks


def test_a_healthy_job_is_left_alone() -> None:
    for seed in range(6):
        rng = Random(seed)
        made = layout.draw(rng, 8, 40)
        run = faults.healthy(rng, made, calm=seed % 2 == 0)
        clock = dumps.Clock(rng, made, 60.0)
        files = {r: dumps.dump(run, r, STYLE, clock, 600_000) for r in range(made.world)}
        log = Source("log", "train.log")
        told = [Record("nccl_version", {"version": "2.27.5"}, (Evidence("train.log", 1, 1, "NCCL version 2.27.5"),))]
        assert not guilty(derived(progress, known(files, (log, told))))


def counts(
    count: int, number: int, ranks: str = "", snapshot: int = 0, op: str = "AllReduce"
) -> tuple[str, dict[str, object]]:
    fields: dict[str, object] = {
        "comm_id": "0xab", "op": "AllReduce", "count": count, "number": number, "size": 16, "snapshot": snapshot,
    }  # fmt: skip
    return "ras_count", fields | ({"ranks": ranks} if ranks else {})


def test_ras_lists_the_minority_which_is_ahead() -> None:
    found = derived(progress, base(counts(640, 14), counts(641, 2, "12-13")))  # type: ignore[arg-type]
    (stall,) = [f for f in found if f.kind == "stall"]
    assert (stall.fields["verdict"], stall.fields["waiting"]) == ("snapshot", "12-13")
    assert not guilty(found)
    assert "14 ranks are at 640" in str(stall.fields["others"])


def test_the_same_ras_numbers_twice_are_a_stall() -> None:
    copied = [counts(n, k, r, s) for s in (0, 1) for n, k, r in ((641, 15, ""), (640, 1, "9"))]
    both = [(k, f | {"at": 100.0 + 30 * f["snapshot"]}) for k, f in copied]  # type: ignore[operator]
    found = derived(progress, base(*both))  # type: ignore[arg-type]
    assert guilty(found) == {9}
    assert not guilty(derived(progress, base(*copied)))  # type: ignore[arg-type]
    moving = [*both[:2], counts(700, 15, "", 1), counts(699, 1, "9", 1)]
    assert not guilty(derived(progress, base(*moving)))  # type: ignore[arg-type]


def test_a_dead_process_whose_rank_ras_does_not_tell() -> None:
    dead = {"state": "dead", "node": "node04", "pid": 4711, "gpu": "3", "snapshot": 0}
    found = derived(
        progress, base(("ras_missing", {"state": "dead", "number": 1, "snapshot": 0}), ("ras_missing", dead))
    )
    (suspect,) = (f for f in found if f.kind == "suspect_rank")
    assert (suspect.fields["reason"], suspect.fields["host"], suspect.fields["pid"]) == ("exited", "node04", 4711)
    assert "rank" not in suspect.fields
    assert [f.fields["verdict"] for f in found if f.kind == "stall"] == ["missing_rank"]


def test_ranks_and_sizes_that_cannot_be_do_not_end_the_analysis() -> None:
    absurd = {"count": 100, "number": 2, "ranks": "-7--1,x", "size": 10**15, "comm_id": "0xab", "snapshot": 0}
    found = derived(
        progress, base(("ras_count", absurd), ("ras_count", absurd | {"count": 40, "ranks": "3", "number": 1}))
    )
    assert guilty(found) <= {3}


def test_a_difference_that_the_former_snapshot_did_not_list_is_no_stall() -> None:
    status = (
        "ras_comm",
        {"comm_id": "0xab", "size": 16, "ranks": 16, "errors": "OK", "status": "RUNNING", "snapshot": 0},
    )
    later = [counts(641, 15, "", 1), counts(600, 1, "9", 1)]
    assert guilty(derived(progress, base(*later))) == {9}  # type: ignore[arg-type]
    assert not guilty(derived(progress, base(status, *later)))  # type: ignore[arg-type]
    once_a_step = [(k, f | {"op": "Broadcast", "snapshot": s}) for s in (0, 1) for k, f in later]
    assert guilty(derived(progress, base(*once_a_step))) == {9}  # type: ignore[arg-type]
    assert not guilty(derived(progress, base(status, *once_a_step, *later)))  # type: ignore[arg-type]


def test_one_call_more_in_a_pair_does_not_tell_whose_it_is() -> None:
    pair = [
        (k, dict(f) | {"comm_id": "0xcd", "size": 2, "at": 100.0 + 30 * s})
        for s in (0, 1) for k, f in (counts(97, 1, "1", s), counts(96, 1, "0", s))
    ]  # fmt: skip
    whole = {"comm_id": "0xab", "size": 16, "ranks": 16, "errors": "OK", "status": "RUNNING"}
    job = [("ras_comm", whole | {"snapshot": s, "at": 100.0 + 30 * s}) for s in (0, 1)]
    found = derived(progress, base(*pair, *job))  # type: ignore[arg-type]
    assert not guilty(found)
    assert [f.fields["verdict"] for f in found if f.kind == "stall"] == ["partial_evidence"]


def test_ras_numbers_that_are_equal_and_stand_still() -> None:
    first, second = ((k, f | {"at": 100.0 + 30 * f["snapshot"]}) for k, f in (counts(640, 16), counts(640, 16, "", 1)))  # type: ignore[operator]
    (stall,) = derived(progress, base(first, second))  # type: ignore[arg-type]
    assert (stall.fields["verdict"], stall.fields["elapsed_s"], stall.fields["waiting_count"]) == (
        "standstill",
        30.0,
        0,
    )
    again = (second[0], second[1] | {"count": 655})
    assert [f.kind for f in derived(progress, base(first, again))] == ["ras_progress"]  # type: ignore[arg-type]
    soon = (second[0], second[1] | {"at": 103.0})
    assert not derived(progress, base(first, soon))  # type: ignore[arg-type]


def test_a_dead_process_of_ras_is_the_missing_rank() -> None:
    dead = (
        "ras_missing",
        {"state": "dead", "comm_id": "0xab", "comm_rank": 5, "pid": 71, "node": "crane-04", "size": 16},
    )
    found = derived(progress, base(counts(80, 15), dead))  # type: ignore[arg-type]
    (suspect,) = [f for f in found if f.kind == "suspect_rank"]
    assert (suspect.fields["rank"], suspect.fields["reason"], suspect.fields["host"]) == (5, "exited", "crane-04")
    assert any(f.kind == "stall" and f.fields["verdict"] == "missing_rank" for f in found)


def test_ras_that_says_ok_while_pytorch_times_out() -> None:
    status = (
        "ras_comm",
        {"comm_id": "0xab", "size": 16, "ranks": 16, "errors": "OK", "status": "RUNNING", "snapshot": 0},
    )
    late = [
        ("torch_timeout", {"rank": r, "seq": 7, "op": "ALLREDUCE", "group": "PG 0 (default_pg)",
                           "numel_in": 4, "numel_out": 4, "timeout_ms": 600_000.0, "elapsed_ms": 600_050.0})
        for r in (0, 1, 2)
    ]  # fmt: skip
    found = derived(progress, base(status, counts(80, 16, "0-15"), *late))  # type: ignore[arg-type]
    (stall,) = [f for f in found if f.kind == "stall"]
    assert stall.fields["verdict"] == "all_entered"
    assert "none is missing" in str(stall.fields["others"])


def test_inspector_records_support_a_complaint_and_prove_nothing_alone() -> None:
    done = [
        ("inspector_progress", {"comm_id": "0xab", "comm_rank": r, "size": 16, "op": "AllReduce", "seq": 70 - (r == 9)})
        for r in range(16)
    ]  # fmt: skip
    assert not guilty(derived(progress, base(*done)))  # type: ignore[arg-type]
    error = ("torch_error", {"type": "DistBackendError", "text": "NCCL communicator was aborted", "rank": 3})
    assert guilty(derived(progress, base(*done, error))) == {9}  # type: ignore[arg-type]


def test_call_lines_alone_are_a_snapshot() -> None:
    call = {"comm_id": "0xa", "op": "AllReduce", "nranks": 8}
    lines = [("nccl_collective", call | {"rank": r, "op_count": 56 if r == 3 else 59}) for r in range(8)]
    (stall,) = derived(progress, base(*lines))  # type: ignore[arg-type]
    assert (stall.fields["verdict"], stall.fields["others"]) == (
        "snapshot", "rank 3 is at #56; ranks 0-2,4-7 are at #59",
    )  # fmt: skip
    stack = ("python_stack", {"rank": 3, "where": "dataloader"})
    assert guilty(derived(progress, base(*lines, stack))) == {3}  # type: ignore[arg-type]


def test_call_lines_of_several_communicators() -> None:
    """Rank 1 stopped; rank 0 waits for it in one communicator and is therefore behind in the other."""
    told = {"0xa": {0: 41, 1: 40, 2: 41}, "0xb": {0: 17, 3: 18, 4: 18}}
    lines = [
        ("nccl_collective", {"rank": r, "comm_id": c, "op": "AllReduce", "op_count": n, "elements": 64, "datatype": "7",
                             "nranks": 3, "comm_rank": r, "root": 0})
        for c, ranks in told.items() for r, n in ranks.items()
    ]  # fmt: skip
    error = ("torch_error", {"type": "DistBackendError", "text": "NCCL communicator was aborted", "rank": 3})
    assert guilty(derived(progress, base(*lines, error))) == {1}  # type: ignore[arg-type]


def test_a_size_that_a_torn_line_lacks_is_unknown_not_different() -> None:
    whole = {"group": "PG 0", "seq": 101, "op": "ALLREDUCE", "numel_in": 1024, "numel_out": 1024, "timeout_ms": 6e5}
    torn = {"group": "PG 0", "seq": 101, "op": "ALLREDUCE", "rank": 7}
    ranks: list[tuple[str, dict[str, object]]] = [("torch_timeout", whole | {"rank": r}) for r in range(7)]
    found = derived(progress, base(*ranks, ("torch_timeout", torn)))  # type: ignore[arg-type]
    assert not [f for f in found if f.kind == "signature_mismatch"]
    other = derived(progress, base(*ranks, ("torch_timeout", torn | {"op": "BROADCAST"})))  # type: ignore[arg-type]
    assert [f.fields["odd_ranks"] for f in other if f.kind == "signature_mismatch"] == ["7"]


def test_silence_after_the_end_of_a_log_names_nobody() -> None:
    steps = [("train_step", {"rank": r, "steps": 3, "median_s": 0.8}) for r in range(8)]
    storm = [
        ("torch_timeout", {"group": "PG 0", "seq": 101, "op": "ALLREDUCE", "rank": r, "timeout_ms": 6e5})
        for r in range(7)
    ]
    hosts = dict.fromkeys(range(8), "node01")
    cut = base(*steps, *storm, ranks=hosts)  # type: ignore[arg-type]
    assert not guilty(derived(progress, cut))
    on = base(*steps, *storm, ("train_step", {"rank": 7, "steps": 4, "median_s": 0.8}), ranks=hosts)  # type: ignore[arg-type]
    assert guilty(derived(progress, on)) == {7}


def test_a_rank_that_the_time_outs_of_its_file_pass_over_is_silent() -> None:
    steps = [("train_step", {"rank": r, "steps": 3, "median_s": 0.8}) for r in range(8)]
    storm = [
        ("torch_timeout", {"group": "PG 0", "seq": 101, "op": "ALLREDUCE", "rank": r, "timeout_ms": 6e5})
        for r in (0, 1, 2, 4, 5, 6, 7)
    ]
    hosts = dict.fromkeys(range(8), "node01")
    assert guilty(derived(progress, base(*steps, *storm, ranks=hosts))) == {3}  # type: ignore[arg-type]
    mixed = [storm[n] for n in (4, 0, 6, 2, 1, 5, 3)]
    assert not guilty(derived(progress, base(*steps, *mixed, ranks=hosts)))  # type: ignore[arg-type]


def test_a_rank_whose_last_call_is_torn_is_not_late() -> None:
    def call(rank: int, count: int, **more: int) -> tuple[str, dict[str, object]]:
        return "nccl_collective", {"comm_id": "0xab", "rank": rank, "op": "AllReduce", "op_count": count} | more

    rest = [call(r, 39) for r in range(7)]
    waits = ("torch_timeout", {"seq": 101, "op": "ALLREDUCE", "rank": 0})
    assert guilty(derived(progress, base(*rest, call(7, 38), waits))) == {7}  # type: ignore[arg-type]
    assert not guilty(derived(progress, base(*rest, call(7, 38, torn=1), waits)))  # type: ignore[arg-type]
    assert guilty(derived(progress, base(*rest, call(7, 36, torn=1), waits))) == {7}  # type: ignore[arg-type]
