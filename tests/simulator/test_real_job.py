"""Real PyTorch jobs, one for each fault: the command line names the right rank and the right reason, and nobody else.

`python3 dev.py e2e` runs it. Needs a Python with torch: that of DIAGNOSE_TORCH_PYTHON, else this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from diagnose.model import unfold_ranks

JOB = Path(__file__).with_name("real_job.py")
NO_SITE = Path(__file__).parents[2] / "fixtures" / "site" / "none.toml"
PYTHON = os.environ.get("DIAGNOSE_TORCH_PYTHON", sys.executable)
WORLD = 4
CAUSES = {
    "sleep": (2, "stall/rank-blocked-in-host-code", "#7"),
    "exit": (2, "stall/missing-rank-crashed", "Rank 2 died"),
    "mismatch": (1, "stall/collective-mismatch", "broadcast [8] Float"),
    "skip": (3, "stall/multi-comm-order", "rank 3 in all_reduce #8"),
    "barrier": (0, "stall/collective-mismatch", "barrier"),
    "detail-mismatch": (1, "stall/collective-mismatch", "BROADCAST [8] Float on rank 1"),
    "detail-missing": (1, "init/barrier-not-reached", "rank 1"),
}
"""Fault -> the guilty rank, the rule, and words of its answer."""
OPEN = {("skip", "without the dump of rank 2")}
"""Where only the partner of the guilty rank could tell: nothing is concluded."""

pytestmark = pytest.mark.torch


def bundles(folder: Path, fault: str) -> Iterator[tuple[str, list[Path]]]:
    """What may be left of a job: dumps of one form, of both, and all without one innocent rank's dumps."""
    files = sorted(p for p in (folder / fault).iterdir() if not p.name.startswith("."))
    yield "pickles", [p for p in files if p.suffix != ".json"]
    yield "JSON", [p for p in files if "trace" not in p.name or p.suffix == ".json"]
    yield "both", files
    for rank in set(range(WORLD)) - {CAUSES[fault][0]}:
        yield f"without the dump of rank {rank}", [p for p in files if not p.name.startswith(f"trace_rank_{rank}")]


def analysed(files: list[Path]) -> dict[str, Any]:
    command = [sys.executable, "-m", "diagnose", "analyze", *map(str, files), "--format", "json", "--jobs", "1"]
    done = subprocess.run([*command, "--site", str(NO_SITE)], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1, 2), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """The reports on every bundle of every job."""
    folder = tmp_path_factory.mktemp("jobs")
    done = subprocess.run([PYTHON, str(JOB), str(folder)], capture_output=True, text=True, timeout=120)
    if "No module named 'torch'" in done.stderr:
        pytest.skip(f"{PYTHON} has no torch: dev.py e2e")
    assert done.returncode == 0, done.stderr
    wanted = {(fault, name): files for fault in CAUSES for name, files in bundles(folder, fault)}
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(wanted, pool.map(analysed, wanted.values()), strict=True))


def blamed(report: dict[str, Any]) -> set[int]:
    """Ranks named by findings that claim a cause."""
    return {
        rank for f in report["findings"] if f["severity"] != "info" and f["id"] != "stall/undetermined"
        for s in f["subjects"] if s["kind"] == "rank" for rank in unfold_ranks(s["name"])
    }  # fmt: skip


@pytest.mark.parametrize("fault", CAUSES)
def test_the_guilty_rank_and_the_reason_come_first(fault: str, reports: dict[tuple[str, str], dict[str, Any]]) -> None:
    rank, rule, words = CAUSES[fault]
    of_fault = {name: report for (of, name), report in reports.items() if of == fault}
    assert len(of_fault) == 3 + WORLD - 1
    for name, report in of_fault.items():
        first = report["findings"][0]
        told = (name, [(f["id"], f["subjects"], f["summary"]) for f in report["findings"]])
        assert not blamed(report) - {rank}, told
        if (fault, name) in OPEN and first["id"] == "stall/undetermined":
            continue
        assert first["id"] == rule, told
        assert words in first["summary"], told
        assert rule.startswith("init/") or blamed(report) == {rank}, told


def test_every_file_is_read(reports: dict[tuple[str, str], dict[str, Any]]) -> None:
    for report in reports.values():
        assert not report["problems"]
        assert all(s["status"] == "parsed" for s in report["sources"] if "trace" in s["path"])
