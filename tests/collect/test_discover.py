"""Which processes are ranks, which launch them, which help them; and what hangs does not hang the search."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.collect import discover, proc
from tests.collect.support import RANK, fake_rank


@pytest.fixture
def kept() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def roles(found: discover.Found, *pids: int) -> list[tuple[str, int | None]]:
    by_pid = {p.pid: p for p in (*found.processes, *found.others)}
    return [(by_pid[pid].role, by_pid[pid].rank) if pid in by_pid else ("none", None) for pid in pids]


def test_ranks_are_found_with_rank_world_and_library(tmp_path: Path, kept):
    for rank in (0, 1, 2):
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "node04",
            "MASTER_PORT": "29400",
        }
        kept.append(fake_rank(tmp_path, **env))
    found = discover.find()
    ours = [p for p in found.ranks if p.pid in {k.pid for k in kept}]
    assert [(p.rank, p.local_rank, p.world) for p in ours] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert ours[0].libraries == [str(tmp_path / "libnccl.so.2.21.5")]
    assert ours[2].label == f"rank2.pid{kept[2].pid}"


@pytest.mark.parametrize("name", ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_ranks_of_other_launchers(tmp_path: Path, kept, name: str):
    kept.append(fake_rank(tmp_path, "librccl.so.1", **{name: "5", "MASTER_PORT": "29401"}))
    assert roles(discover.find([kept[0].pid]), kept[0].pid) == [("rank", 5)]


def test_launcher_and_workers_are_told_from_the_rank(tmp_path: Path, kept):
    """A launcher under Slurm has a rank of its own; data-loader workers have all variables of theirs."""
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 4096)
    worker = RANK
    rank = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {worker!r}, sys.argv[1]])\n" + RANK
    launch = (
        "import os, subprocess, sys\nenv = dict(os.environ, RANK='1', LOCAL_RANK='1', WORLD_SIZE='2')\n"
        f"subprocess.Popen([sys.executable, '-c', {rank!r}, sys.argv[1]], env=env)\n" + RANK
    )
    env = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "77", "PATH": "/usr/bin:/bin"}
    top = subprocess.Popen([sys.executable, "-c", launch, str(library)], env=env, stdout=subprocess.PIPE)
    kept.append(top)
    assert top.stdout is not None
    assert [top.stdout.readline() for _ in range(3)] == [b"up\n"] * 3
    try:
        found = discover.find()
        ours = sorted((p for p in found.processes if p.env.get("SLURM_JOB_ID") == "77"), key=lambda p: p.pid)
        assert [(p.role, p.rank) for p in ours] == [("launcher", 0), ("rank", 1), ("worker", 1)]
        assert [p.pid for p in found.ranks] == [ours[1].pid]
    finally:
        for p in ours[1:]:
            subprocess.run(["kill", "-9", str(p.pid)], check=False)


def test_the_larger_job_is_chosen_and_the_other_named(tmp_path: Path, kept):
    for rank in (0, 1):
        kept.append(fake_rank(tmp_path, RANK=str(rank), MASTER_ADDR="node04", MASTER_PORT="29500"))
    kept.append(fake_rank(tmp_path, RANK="0", MASTER_ADDR="node04", MASTER_PORT="29501"))
    found = discover.find()
    assert {k.pid for k in kept[:2]} <= {p.pid for p in found.ranks}
    assert kept[2].pid in {p.pid for p in found.others}


def test_named_processes_only(tmp_path: Path, kept):
    kept += [fake_rank(tmp_path, RANK="0"), fake_rank(tmp_path, RANK="1")]
    found = discover.find([kept[1].pid, 999_999_999])
    assert [p.pid for p in found.ranks] == [kept[1].pid]
    assert found.unreadable == [(999_999_999, "no such process, or nothing of a training job")]


def test_a_process_whose_memory_cannot_be_read_is_named_and_the_rest_found(tmp_path: Path, kept, monkeypatch):
    kept += [fake_rank(tmp_path, RANK="0"), fake_rank(tmp_path, RANK="1"), fake_rank(tmp_path, RANK="2")]
    pids = sorted(k.pid for k in kept)
    real = proc.libraries
    monkeypatch.setattr(proc, "libraries", lambda pid: time.sleep(60) if pid == pids[1] else real(pid))
    monkeypatch.setattr(discover, "SILENCE_LIMIT_S", 0.5)
    began = time.monotonic()
    found = discover.find(pids)
    assert time.monotonic() - began < 5
    assert sorted(p.pid for p in found.ranks) == [pids[0], pids[2]]
    assert [(pid, why.split(" (")[0]) for pid, why in found.unreadable] == [
        (pids[1], "its memory could not be read within 0.5 s")
    ]


def test_secret_variables_are_not_among_those_kept(tmp_path: Path, kept):
    kept.append(fake_rank(tmp_path, RANK="0", WANDB_API_KEY="x" * 40, NCCL_DEBUG="INFO", MY_HOME_GROWN="1"))
    (rank,) = discover.find([kept[0].pid]).ranks
    assert rank.env["NCCL_DEBUG"] == "INFO"
    assert "WANDB_API_KEY" not in rank.env and "MY_HOME_GROWN" not in rank.env
