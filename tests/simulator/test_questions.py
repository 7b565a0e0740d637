"""What a report asks for that cannot tell: devices where everybody has come, dumps where some are lacking."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parents[1])]

from diagnose.model import Finding  # noqa: E402
from diagnose.run import Options, analyse  # noqa: E402
from simulator import dumps  # noqa: E402
from simulator.faults import Run, broken  # noqa: E402
from simulator.layout import draw  # noqa: E402

SITE = Path(__file__).parents[2] / "fixtures" / "site" / "none.toml"
STYLE = dumps.Style("2.10", False, 2000, False, "nccl_trace_rank_{rank}", False, "pickle")


def open_question(run: Run, folder: Path, without: set[int]) -> Finding:
    """The finding that says that these dumps cannot tell."""
    clock = dumps.Clock(Random(1), run.layout, 0.0)
    for rank in set(range(run.layout.world)) - without:
        path = folder / STYLE.name.format(rank=rank)
        path.write_bytes(dumps.dump(run, rank, STYLE, clock, 600_000))
    findings = analyse([str(folder)], Options(site=SITE, jobs=1)).findings
    return next(f for f in findings if f.id == "stall/undetermined")


def incident(fault: str) -> Run:
    rng = Random(7)
    while True:
        layout = draw(rng, 16, 32)
        run = broken(rng, layout, fault) if layout.kind == "ddp" and len(layout.hosts) > 1 else None
        if run is not None:
            return run


def test_all_have_come_so_the_devices_decide(tmp_path: Path) -> None:
    finding = open_question(incident("dead-nic"), tmp_path, set())
    first = str(finding.remediation[0].command)
    assert all(word in first for word in ("dmesg", "nvidia-smi", "hw_counters"))
    assert not any("nccl_trace_rank" in str(step.command) for step in finding.remediation)


def test_dumps_are_lacking_so_they_decide(tmp_path: Path) -> None:
    run = incident("sleep")
    late = next(iter(run.truth.ranks))
    other = next(r for r in range(run.layout.world) if r != late)
    finding = open_question(run, tmp_path, {late, other})
    assert "nccl_trace_rank" in str(finding.remediation[0].command)
    assert not any("dmesg" in str(step.command) for step in finding.remediation)
