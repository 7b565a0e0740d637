"""Dumps of a real PyTorch job of which one innocent rank's files are lost: the guilty one is named, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose import bundle, facts, intake, packs
from diagnose.model import Fact, unfold_ranks
from diagnose.tables import progress
from tests.tables.support import base, derived

DUMPS = Path(__file__).parents[3] / "fixtures" / "dumps"
PARSERS = packs.load_parsers()
GUILTY = {"sleep": 2, "exit": 2, "mismatch": 1, "skip": 3, "barrier": 0}


def found_in(paths: list[Path]) -> list[Fact]:
    with bundle.open_bundle(sorted(map(str, paths)), PARSERS) as opened:
        read, _ = intake.parse_all([s for s in opened.sources if s.kinds], PARSERS, jobs=1)
    return derived(progress, facts.build(read))


def named(found: list[Fact]) -> set[int]:
    ranks = {int(str(f.fields["rank"])) for f in found if f.kind == "suspect_rank"}
    for fact in found:
        if fact.kind in ("signature_mismatch", "wait_cycle"):
            ranks |= set(unfold_ranks(str(fact.fields["odd_ranks"])))
    return ranks


@pytest.mark.parametrize("logs_too", [False, True], ids=["dump lost", "dump and log lost"])
@pytest.mark.parametrize(("fault", "lost"), [(f, r) for f in GUILTY for r in range(4) if r != GUILTY[f]])
def test_a_lost_dump_of_an_innocent_rank(fault: str, lost: int, logs_too: bool) -> None:
    gone = {f"trace_rank_{lost}", f"trace_rank_{lost}.json", *([f"rank{lost}.log"] if logs_too else [])}
    found = found_in([p for p in (DUMPS / f"gloo-{fault}").iterdir() if p.name not in gone])
    told = [(f.kind, f.fields) for f in found]
    assert not named(found) - {GUILTY[fault]}, told
    two_are_silent = fault == "exit" and logs_too
    partner_is_silent = fault == "skip" and lost == 2
    if two_are_silent or partner_is_silent:
        return
    assert named(found) == {GUILTY[fault]}, told


def test_a_failed_operation_is_not_complete() -> None:
    """A rank whose connection broke counts the operation as finished; the one still in it does not hold it up."""
    found = found_in(
        [DUMPS / "gloo-exit" / name for name in ("trace_rank_0.json", "rank0.log", "rank1.log", "rank3.log")]
    )
    assert named(found) <= {2}


def report(rank: int, other: int, op: str, op_other: str, seq: int = 6) -> tuple[str, dict[str, object]]:
    return "torch_mismatch", {
        "source_check": "fingerprint", "rank": rank, "rank_other": other, "seq": seq, "op": op, "shape": "[8]",
        "dtype": "Float", "seq_other": seq, "op_other": op_other, "shape_other": "[8]", "dtype_other": "Float",
        "differs": "op",
    }  # fmt: skip


def test_reports_of_one_mismatch_are_one_and_the_minority_is_odd() -> None:
    reports = [report(0, 1, "ALLREDUCE", "BROADCAST"), report(1, 0, "BROADCAST", "ALLREDUCE")]
    reports += [report(r, 1, "ALLREDUCE", "BROADCAST") for r in (2, 3)]
    (one,) = derived(progress, base(*reports), "signature_mismatch")  # type: ignore[arg-type]
    assert (one.fields["odd_ranks"], one.fields["a_ranks"], one.fields["b_ranks"]) == ("1", "0,2-3", "1")


def test_two_reports_alone_name_both_and_other_groups_stay_apart() -> None:
    reports = [report(0, 1, "ALLREDUCE", "BROADCAST"), report(4, 5, "ALLGATHER", "BARRIER")]
    found = derived(progress, base(*reports), "signature_mismatch")  # type: ignore[arg-type]
    assert [f.fields["odd_ranks"] for f in found] == ["0-1", "4-5"]
