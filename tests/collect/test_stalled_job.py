"""A real stalled job: collect, analyze, and the job goes on as if nothing had happened. `python3 dev.py e2e` runs it.

Needs a Python with torch and py-spy: that of DIAGNOSE_TORCH_PYTHON, else this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("stalled_job.py")
WORLD, SLEEPER = 4, 2
PYTHON = os.environ.get("DIAGNOSE_TORCH_PYTHON", sys.executable)
CANARY = "canary-7Hq2mZ0pXw41"


def has_torch() -> bool:
    return subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, timeout=120).returncode == 0


pytestmark = [pytest.mark.torch, pytest.mark.skipif(not has_torch(), reason=f"{PYTHON} has no torch: dev.py e2e")]


def wait_until(met, what: str, limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < end, f"{what} did not happen within {limit_s} s"
        time.sleep(0.1)


@pytest.fixture(params=["0", "1"], ids=["loader in the rank", "loader in a worker"])
def stalled(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The job, with everyone but the sleeper in the all-reduce, and its folder."""
    folder = tmp_path
    env = {
        **os.environ, "SLEEPER": str(SLEEPER), "WAKE": str(folder / "wake"), "READY": str(folder / "ready"),
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "EXPERIMENT_TOKEN": CANARY, "WORKERS": request.param,
    }  # fmt: skip
    command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD)]
    command += ["--redirects", "3", "--log-dir", str(folder / "logs"), str(JOB)]
    with (folder / "torchrun.out").open("wb") as out:
        job = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: job.poll() is not None or len(list(folder.glob("ready.*"))) == WORLD, "the stall")
        assert job.poll() is None, (folder / "torchrun.out").read_text()
        time.sleep(1.5)
        yield job, folder
    finally:
        (folder / "wake").touch()
        job.wait(60)


def test_names_the_sleeper_its_process_and_its_line_and_harms_nobody(stalled) -> None:
    job, folder = stalled
    bundle = folder / "diagnose-test.tar.gz"
    command = [sys.executable, "-m", "diagnose", "collect", "--out", str(bundle), "--interval", "3s"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode in (0, 3), done.stderr
    assert time.monotonic() - began < 120
    assert done.stdout.strip() == str(bundle)
    assert job.poll() is None, "the job must be alive"

    analysed = subprocess.run(
        [sys.executable, "-m", "diagnose", "analyze", str(bundle), "--format", "json"], capture_output=True, timeout=120
    )
    report = json.loads(analysed.stdout)
    finding = report["findings"][0]
    assert finding["id"] == "stall/rank-blocked-in-host-code"
    assert {"kind": "rank", "name": str(SLEEPER)} in [{k: s[k] for k in ("kind", "name")} for s in finding["subjects"]]
    listing = subprocess.run(["tar", "-xzOf", str(bundle), f"{bundle.name[:-7]}/manifest.json"], capture_output=True)
    manifest = json.loads(listing.stdout)
    assert manifest["job_began"] < manifest["started"]
    pid = next(p["pid"] for p in manifest["processes"] if p.get("rank") == SLEEPER)
    line = next(n for n, text in enumerate(JOB.read_text().splitlines(), 1) if "time.sleep" in text)
    assert f"process {pid}" in finding["summary"]
    assert f"{JOB.name}:{line}" in finding["summary"] or f"{JOB.name}:{line - 1}" in finding["summary"]
    assert "0-1,3 wait" in finding["summary"]
    assert len([p for p in manifest["processes"] if p["role"] == "rank"]) == WORLD
    assert CANARY.encode() not in subprocess.run(["tar", "-xzOf", str(bundle)], capture_output=True).stdout

    (folder / "wake").touch()
    assert job.wait(60) == 0, (folder / "torchrun.out").read_text()
    logs = [path.read_text() for path in sorted((folder / "logs").rglob("stdout.log"))]
    assert len(logs) == WORLD
    assert all("finished" in text for text in logs)
