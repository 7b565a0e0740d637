"""Waiting for a stall: messages, silence, and logs that are truncated, replaced or not there yet."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from diagnose.collect import watch
from tests.collect.support import TOP, manifest

ALARMS = [
    "[rank3]:[E1124 09:12:00.123 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(…)",
    "node-a:77:80 [0] src/misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 192.0.2.7<4001> failed",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333",
    "Root Cause (first observed failure):",
    "slurmstepd: error: *** STEP 123.0 ON gpu003 CANCELLED AT 2026-11-24T17:20:00 DUE TO TIME LIMIT ***",
]


def wait_for(log: Path, write, silence: float = 0) -> str:
    thread = threading.Thread(target=write)
    thread.start()
    try:
        return watch.wait([str(log)], silence, lambda text: None, poll_s=0.05)
    finally:
        thread.join()


@pytest.mark.parametrize("alarm", ALARMS)
def test_new_trouble_is_told_and_old_trouble_is_not(tmp_path: Path, alarm: str):
    log = tmp_path / "log"
    log.write_text(f"{alarm}\nstep 1\n")

    def write() -> None:
        with log.open("a") as file:
            for text in ("step 2\n", "step 3 NCCL INFO fine\n", alarm[:30]):
                time.sleep(0.15)
                file.write(text)
                file.flush()
            time.sleep(0.15)
            file.write(alarm[30:] + "\n")

    began = time.monotonic()
    why = wait_for(log, write)
    assert alarm in why and time.monotonic() - began > 0.5


def test_a_log_that_appears_later_is_truncated_or_replaced(tmp_path: Path):
    log = tmp_path / "log"

    def write() -> None:
        time.sleep(0.2)
        log.write_text("a long first line of a log that is soon truncated\n" * 5)
        time.sleep(0.3)
        log.write_text("short\n")
        time.sleep(0.3)
        log.unlink()
        log.write_text(ALARMS[1] + "\n")

    assert "socketStartConnect" in wait_for(log, write)


def test_silence(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("step 1\n")

    def write() -> None:
        for _ in range(4):
            time.sleep(0.3)
            with log.open("a") as file:
                file.write("step\n")

    began = time.monotonic()
    assert "no new line" in wait_for(log, write, silence=1)
    assert time.monotonic() - began > 1.8


def test_the_collection_begins_at_that_moment_and_has_the_log(tmp_path: Path):
    log, out = tmp_path / "train.log", tmp_path / "b"
    log.write_text("step 1\n")
    command = [sys.executable, "-m", "diagnose", "collect", "--quick", "--watch", str(log), "--out", str(out)]
    process = subprocess.Popen([*command, "--include", "logs,time"], cwd=TOP, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    assert process.poll() is None and not out.exists()
    with log.open("a") as file:
        file.write(ALARMS[0] + "\n")
    _, errors = process.communicate(timeout=40)
    assert process.returncode in (0, 3), errors
    assert any(f["command"] == str(log) for f in manifest(out)["files"])
