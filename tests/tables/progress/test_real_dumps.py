"""Dumps and logs of a real PyTorch job (Gloo, four ranks) with each fault: the right rank, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.model import unfold_ranks
from diagnose.run import Options, analyse

FIXTURES = Path(__file__).parents[3] / "fixtures"

FAULTS = {
    "sleep": ("stall/rank-blocked-in-host-code", {2}),
    "exit": ("stall/missing-rank-crashed", {2}),
    "mismatch": ("stall/collective-mismatch", {1}),
    "skip": ("stall/multi-comm-order", {3}),
    "barrier": ("stall/collective-mismatch", {0}),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("with_logs", [True, False])
def test_who_is_named(fault: str, with_logs: bool) -> None:
    folder = FIXTURES / "dumps" / f"gloo-{fault}"
    paths = [str(p) for p in folder.iterdir() if with_logs or "trace" in p.name]
    found = analyse(sorted(paths), Options(site=FIXTURES / "site" / "none.toml"))
    rule, ranks = FAULTS[fault]
    named = {r for f in found.findings if f.severity != "info" and f.id != "stall/undetermined"
             for s in f.subjects if s.kind == "rank" for r in unfold_ranks(s.name)}  # fmt: skip
    if fault == "exit" and not with_logs:  # a dump does not tell that a peer's connection broke
        assert not named - {2, 3}
        return
    assert found.findings[0].id == rule, [f.id for f in found.findings]
    assert ranks <= named
    if fault != "mismatch" or not with_logs:  # PyTorch's own check names rank 0 beside it
        assert named == ranks
