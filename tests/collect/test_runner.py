"""One command: ends at its limits, takes its children with it, and never blocks the caller."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

from diagnose.collect import runner


def run(*argv: str, limit: float = 10, cap: int = 1 << 20) -> tuple[runner.Outcome, bytes]:
    out = io.BytesIO()
    return runner.run(argv, out, limit, cap), out.getvalue()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_output_errors_and_code_are_kept_apart():
    outcome, data = run("/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    assert (data, outcome.stderr, outcome.exit_code, outcome.truncated) == (b"out\n", b"err\n", 3, False)


def test_at_its_limit_the_whole_group_is_killed():
    began = time.monotonic()
    outcome, data = run("/bin/sh", "-c", "trap '' TERM; sleep 300 & echo $!; wait; sleep 300", limit=0.5)
    assert outcome.timed_out and outcome.exit_code is None and outcome.truncated
    assert time.monotonic() - began < 6
    time.sleep(0.2)
    assert not alive(int(data))


def test_more_output_than_the_cap_ends_the_command():
    outcome, data = run("/bin/sh", "-c", "yes", cap=1000)
    assert len(data) == 1000 and outcome.truncated and not outcome.timed_out


def test_a_child_that_keeps_the_pipe_does_not_hold_us():
    began = time.monotonic()
    outcome, data = run("/bin/sh", "-c", "setsid sleep 20 & echo done")
    assert data == b"done\n" and outcome.exit_code == 0
    assert time.monotonic() - began < 5


def test_what_cannot_be_started_says_why(tmp_path: Path):
    assert run(str(tmp_path / "missing"))[0].error == "No such file or directory"
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    assert run(str(tmp_path / "text"))[0].error


def test_no_input_and_a_plain_environment(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/nowhere.so")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    _, data = run("/bin/sh", "-c", "cat; env")
    text = data.decode()
    assert "LD_PRELOAD" not in text and "LC_ALL=C\n" in text and "/usr/sbin" in text


def test_a_stopped_command_is_ended_too():
    outcome, _ = run("/bin/sh", "-c", "kill -STOP $$", limit=0.5)
    assert outcome.timed_out and outcome.abandoned is None


def test_what_does_not_die_is_left_behind_and_named(monkeypatch):
    """Uninterruptible sleep cannot be had at will: signals that have no effect stand for it."""
    sent = []
    monkeypatch.setattr(runner, "_signal_group", lambda group, number: sent.append((group, number)))
    monkeypatch.setattr(runner, "KILL_GRACE_S", 0.2)
    monkeypatch.setattr(runner, "TERM_GRACE_S", 0.1)
    began = time.monotonic()
    outcome, _ = run("/bin/sleep", "30", limit=0.3)
    assert time.monotonic() - began < 3
    assert outcome.abandoned is not None and outcome.abandoned.startswith("left behind in state S")
    assert [number for _, number in sent] == [signal.SIGTERM, signal.SIGKILL]
    os.kill(sent[0][0], signal.SIGKILL)
