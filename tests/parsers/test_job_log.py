"""Slurm, Kubernetes, mpirun and credential messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import fixture, lines_of, load, of, run

from diagnose.model import Block, Record, Source

PARSER = load("job_log")
SICK = ("sick-slurm.txt", "sick-sacct.txt", "sick-kubernetes.txt", "sick-mpi.txt", "sick-credentials.txt")


def records(name: str) -> list[Record]:
    return run(PARSER, fixture("job_log", name), name)


def test_slurm() -> None:
    found = records("sick-slurm.txt")
    events = [(r.fields["event"], r.fields.get("job"), r.host, r.evidence[0].first) for r in of(found, "job_event")]
    assert events == [
        ("oom", "4711.0", None, 1),
        ("oom", None, "gpu-a03", 2),
        ("time_limit", "4711.0", "gpu-a01", 5),
        ("preempted", "4712", "gpu-a02", 6),
        ("node_fail", "4713", None, 7),
        ("node_fail", None, "gpu-a04", 8),
    ]
    exits = {r.rank: (r.host, r.fields["reason"], r.fields.get("signal")) for r in of(found, "process_exit")}
    assert exits == {
        26: ("gpu-a03", "oom", None),
        24: ("gpu-a03", "killed", "SIGKILL"),
        25: ("gpu-a03", "killed", "SIGKILL"),
        0: (None, "error", None),
        1: (None, "error", None),
    }


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: gpu-a03: task 3: Killed\nsrun: error: gpu-a04: task 4: Killed\n",
        "srun: error: gpu-a03: tasks 3-4: Killed\nfailed (exitcode: 1) local_rank: 4 (pid: 4242) of binary: python\n",
    ],
)
def test_a_task_that_may_be_a_node_is_no_rank(text: str) -> None:
    assert {r.rank for r in of(run(PARSER, text), "process_exit")} == {None}


def test_sacct() -> None:
    found = records("sick-sacct.txt")
    assert [(r.fields["event"], r.fields["job"]) for r in of(found, "job_event")] == [
        ("oom", "4711"),
        ("cancelled", "4712"),
        ("time_limit", "4721"),
    ]
    exits = [(r.fields["reason"], r.fields.get("exit_code"), r.fields.get("signal")) for r in of(found, "process_exit")]
    assert exits == [("error", 1, None), ("oom", None, None), ("killed", None, "SIGKILL"), ("time_limit", None, None)]


def test_kubernetes() -> None:
    found = records("sick-kubernetes.txt")
    pod, row = of(found, "process_exit")
    assert (pod.host, pod.fields["exit_code"], pod.fields["reason"]) == ("gpu-node-07", 137, "oom")
    assert pod.at == 1772625540.0
    assert (pod.evidence[0].first, pod.evidence[0].last) == (9, 13)
    assert (row.host, row.fields["reason"]) == ("gpu-node-02", "oom")
    assert [(r.fields["event"], r.host) for r in of(found, "job_event")] == [
        ("oom", "gpu-node-07"),
        ("evicted", "gpu-node-07"),
        ("oom", "gpu-node-02"),
    ]


def test_yaml_status() -> None:
    text = "  nodeName: gpu-node-09\n      terminated:\n        exitCode: 139\n        reason: Error\n"
    (found,) = run(PARSER, text)
    assert (found.host, found.fields["signal"], found.fields["reason"]) == ("gpu-node-09", "SIGSEGV", "crashed")


def test_a_container_of_which_only_a_child_was_killed() -> None:
    text = "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    0\n"
    exit_, event = run(PARSER, text)
    assert (exit_.fields["reason"], event.fields["event"]) == ("oom", "oom")


def test_a_pod_that_was_placed_later_is_no_news() -> None:
    waiting = "5m  Warning  FailedScheduling  pod/worker-3  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.\n"
    placed = "4m  Normal  Scheduled  pod/worker-3  Successfully assigned default/worker-3 to gpu-node-02\n"
    (found,) = run(PARSER, waiting)
    assert (found.fields["event"], found.host) == ("unschedulable", None)
    assert run(PARSER, waiting + placed) == run(PARSER, placed + waiting) == []


@pytest.mark.parametrize("first", ["task 9: Bus error", "task 9: Exited with exit code 1", "tasks 8-9: Out Of Memory"])
def test_the_end_of_a_step_after_a_failed_task_is_nobodys_wish(first: str) -> None:
    text = f"""srun: error: gpu-a03: {first}
srun: Terminating StepId=4711.0
slurmstepd: error: *** STEP 4711.0 ON gpu-a01 CANCELLED AT 2026-03-04T17:20:00 ***
srun: error: gpu-a01: tasks 0-7: Terminated
srun: error: gpu-a02: tasks 10-17: Killed
"""
    found = run(PARSER, text)
    assert "cancelled" not in {r.fields["event"] for r in of(found, "job_event")}
    assert {r.fields["reason"] for r in of(found, "process_exit") if r.host != "gpu-a03"} == {"cancelled"}


def test_tasks_that_end_after_a_cancel_were_cancelled() -> None:
    text = """slurmstepd: error: *** STEP 4711.0 ON gpu-a01 CANCELLED AT 2026-03-04T17:20:00 ***
srun: error: gpu-a02: tasks 10-17: Killed
"""
    found = run(PARSER, text)
    assert [r.fields["event"] for r in of(found, "job_event")] == ["cancelled"]
    assert {r.fields["reason"] for r in of(found, "process_exit")} == {"cancelled"}


@pytest.mark.parametrize(
    ("mark", "events"),
    [
        ("slurmstepd: error: *** STEP 4711.0 ON gpu-a01 CANCELLED AT 2026-03-04T17:20:00 DUE TO TIME LIMIT ***", 1),
        ("srun: Force Terminated StepId=4711.0", 1),
        ("^Csrun: sending Ctrl-C to StepId=4711.0\nsrun: forcing job termination", 1),
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", 1),
        ("srun: Terminating StepId=4711.0", 0),
        ("srun: launch/slurm: _step_signal: Terminating StepId=4711.0", 0),
        ("W1130 torch/distributed/elastic/agent/server/api.py:741] Received Signals.SIGTERM death signal", 0),
    ],
)
def test_how_tasks_end_after_the_end_of_the_step_is_no_fault(mark: str, events: int) -> None:
    text = f"""{mark}
srun: error: gpu-a01: tasks 0-3: Exited with exit code 1
srun: error: gpu-a02: task 4: Segmentation fault (core dumped)
srun: error: gpu-a02: tasks 5-7: Killed
"""
    found = run(PARSER, text)
    assert {r.fields["reason"] for r in of(found, "process_exit")} == {"cancelled"}
    assert len(of(found, "job_event")) == events


def test_a_launcher_that_is_ended_after_a_failure_is_no_excuse() -> None:
    text = """E1130 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 71)
W1130 torch/distributed/elastic/agent/server/api.py:741] Received Signals.SIGTERM death signal, shutting down workers
srun: error: gpu-a01: task 0: Exited with exit code 1
"""
    assert [r.fields["reason"] for r in of(run(PARSER, text), "process_exit")] == ["error"]


def test_a_process_of_the_script_that_ended_with_its_job() -> None:
    killed = "/var/spool/slurmd/job4711/slurm_script: line 41: 31337 Killed                  python train.py\n"
    cancelled = "slurmstepd: error: *** JOB 4711 ON gpu-a01 CANCELLED AT 2026-03-04T17:20:00 ***\n"
    failed = "srun: error: gpu-a01: task 3: Exited with exit code 1\n"
    for text, reason in (
        (killed, "killed"),
        (killed + cancelled, "cancelled"),
        (failed + killed + cancelled, "killed"),
    ):
        exits = of(run(PARSER, text), "process_exit")
        assert [r.fields["reason"] for r in exits if r.fields["reporter"] == "shell"] == [reason]


def test_a_container_that_failed_its_liveness_probe() -> None:
    text = "3m  Normal  Killing  pod/trainer-1  Container trainer failed liveness probe, will be restarted\n"
    assert [r.fields["event"] for r in run(PARSER, text)] == ["unhealthy"]
    assert run(PARSER, "3m  Normal  Killing  pod/trainer-1  Stopping container trainer\n") == []


def test_tasks_that_somebody_terminated() -> None:
    said = "srun: error: gpu-a01: tasks 0-2: Terminated\nsrun: error: gpu-a01: task 3: Exited with exit code 143\n"
    found = run(PARSER, said)
    assert {r.fields["reason"] for r in of(found, "process_exit")} == {"cancelled"}
    assert [r.fields["event"] for r in of(found, "job_event")] == ["sigterm"]


def test_a_task_that_ended_before_srun_ended_the_others() -> None:
    text = """srun: First task exited 60s ago
srun: StepId=4711.0 tasks 1-7: running
srun: StepId=4711.0 task 0: exited abnormally
srun: Terminating StepId=4711.0
srun: error: gpu-a01: tasks 1-7: Killed
"""
    exits = of(run(PARSER, text), "process_exit")
    assert {(r.rank, r.fields["reason"]) for r in exits} == {(0, "error"), *((n, "cancelled") for n in range(1, 8))}


def test_tasks_of_several_hosts_that_ended_alike_are_counted() -> None:
    text = "srun: error: gpu-a01: tasks 0-3: Killed\nsrun: error: gpu-a02: tasks 4-7: Killed\n"
    assert {r.fields.get("hosts") for r in of(run(PARSER, text), "process_exit")} == {2}
    (alone,) = run(PARSER, "srun: error: gpu-a01: task 3: Killed\n")
    assert "hosts" not in alone.fields


def test_a_step_of_a_job_that_sacct_calls_cancelled() -> None:
    text = """JobID|State|ExitCode|NodeList
4711|TIMEOUT|0:0|gpu-a[01-02]
4711.batch|CANCELLED|0:15|gpu-a01
4711.0|FAILED|1:0|gpu-a[01-02]
"""
    assert {r.fields["reason"] for r in of(run(PARSER, text), "process_exit")} == {"time_limit"}


def test_a_row_of_sacct_that_was_edited() -> None:
    text = """JobID           JobName  Partition      State ExitCode
------------ ---------- ---------- ---------- --------
4711.0  python3.12      debug     1 OUT_OF_ME+    0:125
"""
    assert [r.fields.get("reason") for r in of(run(PARSER, text), "process_exit")] == ["oom"]


def test_mpirun() -> None:
    found = of(records("sick-mpi.txt"), "process_exit")
    said = [(r.rank, r.host, r.fields.get("exit_code"), r.fields.get("signal"), r.fields["reporter"]) for r in found]
    assert said == [
        (6, None, 3, None, "mpi"),
        (9, "gpu-a07", None, "SIGSEGV", "mpi"),
        (3, None, 5, None, "mpi"),
        (None, "gpu-a08", None, "SIGKILL", "mpi"),
        (None, None, None, "SIGKILL", "shell"),
    ]
    assert [r.host for r in of(records("sick-mpi.txt"), "job_event")] == ["gpu-a02"]


def test_a_line_of_prterun_that_goes_on_below() -> None:
    text = """prterun noticed that process rank 9 with PID 11235 on node gpu-a07 exited on
signal 11 (Segmentation fault).
"""
    (found,) = run(PARSER, text)
    assert (found.rank, found.host, found.fields["signal"]) == (9, "gpu-a07", "SIGSEGV")
    assert (found.evidence[0].first, found.evidence[0].last) == (1, 2)


def test_the_backtrace_of_open_mpi_without_mpirun() -> None:
    text = "[gpu-a07:11235] *** Process received signal ***\n[gpu-a07:11235] Signal: Segmentation fault (11)\n"
    assert PARSER.sniff(text, "x") == 0.9
    (found,) = run(PARSER, text)
    assert (found.host, found.fields["pid"], found.fields["signal"]) == ("gpu-a07", 11235, "SIGSEGV")


def test_credentials() -> None:
    found = of(records("sick-credentials.txt"), "auth_clock_error")
    assert [(r.fields["system"], r.host, r.evidence[0].first) for r in found] == [
        ("munge", "gpu-a07", 1),
        ("kerberos", None, 2),
        ("tls", None, 4),
        ("etcd", None, 5),
    ]


def test_expired_credentials_of_a_cloud_are_no_munge() -> None:
    assert run(PARSER, "botocore: the request was signed with expired credentials; Terminated in 3 s\n") == []


def test_normal_endings_only_cover_the_topic() -> None:
    assert [(r.kind, r.fields) for r in records("healthy.txt")] == [("covered", {"topic": "process_exit"})]


def test_dirty() -> None:
    found = records("dirty.txt")
    mpi = next(r for r in found if r.fields.get("reporter") == "mpi")
    assert (mpi.rank, mpi.count, mpi.fields["pid"], mpi.fields["reason"]) == (9, 2, 812, "killed")
    assert {r.fields["event"] for r in of(found, "job_event")} == {"time_limit", "oom"}


def test_truncated() -> None:
    assert [(r.kind, r.host) for r in records("truncated.txt")] == [("process_exit", "gpu-a03")]


@pytest.mark.parametrize("name", SICK)
def test_blocks_give_what_lines_give(name: str) -> None:
    lines = lines_of(fixture("job_log", name))
    source = Source("x", "x")
    whole = next(iter(PARSER.scan([Block(1, "\n".join(line.text for line in lines))], source)))
    assert list(next(iter(PARSER.parse(iter(lines), source))).records()) == list(whole.records())


def test_foreign_text_yields_nothing() -> None:
    text = "State: Active\nPhysical state: LinkUp\nName: x\nReason: none\nstep 4 loss 2.1\nError: no such device\n"
    assert PARSER.sniff(text, "x.txt") == 0
    assert run(PARSER, text) == []


@pytest.mark.parametrize("name", [*SICK, "healthy.txt", "dirty.txt", "truncated.txt"])
def test_sniff(name: str) -> None:
    assert PARSER.sniff(fixture("job_log", name), "x.txt") >= 0.5


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.integers(0, 1500), st.sampled_from(SICK), st.integers(0, 200))
def test_any_text_conforms(noise: str, at: int, name: str, cut: int) -> None:
    text = fixture("job_log", name)
    run(PARSER, noise)
    run(PARSER, text[:at] + noise + text[at + cut :])


def test_expired_launch_credential_of_slurm() -> None:
    text = "srun: error: Task launch for StepId=812.0 failed on node node06: Job credential expired\n" * 2
    (found,) = of(run(PARSER, text), "auth_clock_error")
    assert (found.fields["system"], found.host) == ("slurm", "node06")
