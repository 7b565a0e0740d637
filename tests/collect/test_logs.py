"""Which log files and dumps are copied, how much of them, and what a dead file system does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnose.collect import logs, runner
from diagnose.collect.discover import Found, Process
from diagnose.collect.options import BadOption, _moment, _span, host_name


def process(pid: int, rank: int | None, **more) -> Process:
    raw = {
        "pid": pid, "ppid": 1, "comm": "python", "state": "S", "threads": 3, "start_ticks": 1, "exe": "/usr/bin/python",
        "cmdline": ["python", "train.py"], "env": {}, "all_env": {}, "libraries": [], "devices": [], "rank": rank,
        "local_rank": rank, "world": 4, "cgroup": "0::/", "ns": {}, "cwd": "/", "stdout": "", "stderr": "",
        "open_logs": [],
    }  # fmt: skip
    return Process({**raw, **more})


def found(*processes: Process) -> Found:
    made = Found()
    made.processes = list(processes)
    return made


def test_patterns_of_nccl_are_filled_in_with_what_the_process_sees():
    rank = process(
        4711, 3, env={"NCCL_DEBUG_FILE": "/logs/nccl.%h.%p.log", "HOSTNAME": "node-a.example"}, nspid=[4711, 87]
    )
    wanted, _ = logs.find_logs(found(rank))
    assert {w.shown for w in wanted} == {"/logs/nccl.node-a.87.log", "/logs/nccl.node-a.example.87.log"}


def test_pipes_and_terminals_are_named_not_read():
    wanted, missing = logs.find_logs(found(process(1, 0, stdout="pipe:[77]", stderr="/dev/pts/3")))
    assert wanted == []
    assert [why for _, why in missing] == [
        "goes to a pipe, which cannot be read again", "goes to the terminal /dev/pts/3, which cannot be read again",
    ]  # fmt: skip


def test_a_shared_file_belongs_to_no_single_rank(tmp_path: Path):
    log = tmp_path / "slurm-77.out"
    log.write_text("text\n")
    wanted = [logs.Wanted(str(log), str(log), "log", rank, 100 + rank) for rank in (0, 1)]
    there, missing = logs.probe(wanted)
    assert missing == [] and len(there) == 1 and there[0].rank is None
    (take,), _ = logs.takes(there, 4 << 20, 0)
    assert take.path == "logs/slurm-77" and take.command == str(log)


def test_whole_when_small_else_head_and_tail(tmp_path: Path):
    log = tmp_path / "rank.log"
    log.write_bytes(b"".join(b"%08d\n" % n for n in range(400_000)))
    there, _ = logs.probe([logs.Wanted(str(log), str(log), "log", 2, 1)])
    head, tail = logs.takes(there, 1 << 20, 0)[0]
    assert head.argv == ["head", "-c", str(512 << 10), str(log)] and tail.argv[:2] == ["tail", "-c"]
    assert head.cap + tail.cap == 1 << 20
    assert logs.takes(there, 8 << 20, 0)[0][0].argv[:2] == ["head", "-c"]


def test_old_empty_and_odd_files(tmp_path: Path):
    for name in ("old", "empty", "new"):
        (tmp_path / name).write_text("" if name == "empty" else "x")
    os.utime(tmp_path / "old", (1000, 1000))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    there, _ = logs.probe([logs.Wanted(str(p), str(p), "log", None, None) for p in sorted(tmp_path.iterdir())])
    takes, missing = logs.takes(there, 4 << 20, 5000)
    assert [t.path for t in takes] == ["logs/new"]
    assert missing == [(str(tmp_path / "old"), "not written to in the time asked for")]


def test_a_file_system_that_does_not_answer_is_named_and_the_others_read(tmp_path: Path, monkeypatch):
    (tmp_path / "a.log").write_text("x")
    monkeypatch.setattr(logs, "_mounts", lambda: [("/mnt/dead", "nfs4"), (str(tmp_path), "ext4"), ("/", "ext4")])

    def run(argv, out, limit, cap):
        if any("/mnt/dead" in a for a in argv):
            outcome = runner.Outcome()
            outcome.timed_out = True
            return outcome
        return runner.run(argv, out, limit, cap)

    wanted = [logs.Wanted(p, p, "log", None, None) for p in ("/mnt/dead/x.log", str(tmp_path / "a.log"))]
    there, missing = logs.probe(wanted, run)
    assert [w.shown for w in there] == [str(tmp_path / "a.log")]
    assert missing == [("/mnt/dead/x.log", "the file system at /mnt/dead did not answer within 4 s")]


def test_dumps_by_setting_and_by_default():
    env = {"TORCH_FR_DUMP_TEMP_FILE": "/dumps/fr_", "HOME": "/home/alice"}
    paths = [w.shown for w in logs.find_dumps(found(process(1, 7, env=env)))]
    assert paths[0] == "/dumps/fr_7"
    assert "/tmp/nccl_trace_rank_7" in paths and "/home/alice/.cache/torch/comm_lib_trace_rank_7" in paths


def test_files_that_slurm_names():
    text = "   WorkDir=/w\n   StdErr=/w/out with blank.txt\n   StdIn=/dev/null\n   StdOut=/w/slurm-7.out\n"
    assert [w.shown for w in logs.slurm_logs(text)] == ["/w/out with blank.txt", "/w/slurm-7.out"]


def test_spans_times_and_host_names():
    assert (_span("x", "90s"), _span("x", "10m"), _span("x", "1.5h")) == (90, 600, 5400)
    assert _moment("2026-11-24T09:12:00Z") == 1795511520
    for text in ("soon", "10 parsecs", ""):
        with pytest.raises(BadOption):
            _span("x", text)
    assert host_name("node-a/../../etc") == "node-a-..-..-etc"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others may not read such files anyway")
def test_root_copies_no_foreign_file_that_a_variable_names(tmp_path: Path):
    (tmp_path / "private").write_text("of root")
    rank = process(1, 0, env={"NCCL_DEBUG_FILE": str(tmp_path / "private")}, uid=65534)
    there, missing = logs.probe(logs.find_logs(found(rank))[0])
    assert there == [] and "another user" in missing[0][1]
    os.chown(tmp_path / "private", 65534, 65534)
    there, missing = logs.probe(logs.find_logs(found(rank))[0])
    assert len(there) == 1 and missing == []
