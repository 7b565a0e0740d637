"""PyTorch messages: watchdog dialects, dirty records, exceptions, launcher reports."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import fixture, lines_of, load, of, run

from diagnose.model import Block, Digest, Record, Source

PARSER = load("torch_log")

TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL"
FOREIGN = """\
driver: mlx5_core
     tx_pause: 0
step 4 loss 2.1
node01:411:502 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
ERROR: something failed
"""


def records(text: str, **told: object) -> list[Record]:
    return run(PARSER, text, "train.log", **told)


def only(text: str, kind: str) -> Record:
    (found,) = of(records(text), kind)
    return found


@pytest.mark.parametrize(
    ("line", "rank", "fields"),
    [
        (
            f"[E ProcessGroupNCCL.cpp:325] [Rank 2] {TIMEOUT}(OpType=BROADCAST, Timeout(ms)=1800000)"
            " ran for 1804112 milliseconds before timing out.",
            2,
            {"op": "BROADCAST", "timeout_ms": 1800000.0, "elapsed_ms": 1804112.0},
        ),
        (
            f"[E ProcessGroupNCCL.cpp:458] [Rank 7] {TIMEOUT}(SeqNum=640, OpType=ALLREDUCE, Timeout(ms)=1800000)"
            " ran for 1825251 milliseconds before timing out.",
            7,
            {"seq": 640, "op": "ALLREDUCE", "timeout_ms": 1800000.0, "elapsed_ms": 1825251.0},
        ),
        (
            f"[E ProcessGroupNCCL.cpp:828] [Rank 1] {TIMEOUT}(SeqNum=77, OpType=ALLREDUCE, TensorShape=[4, 2],"
            " Timeout(ms)=1800000) ran for 1801002 milliseconds before timing out.",
            1,
            {"seq": 77, "op": "ALLREDUCE", "timeout_ms": 1800000.0, "elapsed_ms": 1801002.0},
        ),
        (
            f"[rank11]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] [Rank 3] {TIMEOUT}(SeqNum=9, OpType=SEND,"
            " NumelIn=16, NumelOut=16, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
            11,
            {"seq": 9, "op": "SEND", "numel_in": 16, "numel_out": 16, "timeout_ms": 600000.0, "elapsed_ms": 600012.0},
        ),
    ],
)
def test_every_dialect_of_the_watchdog(line: str, rank: int, fields: dict[str, object]) -> None:
    found = only(line, "torch_timeout")
    assert found.rank == rank
    assert dict(found.fields) == fields


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            "[PG 1 Rank 3] Timeout at NCCL work: 15, last enqueued NCCL work: 17, last completed NCCL work: 14.",
            {"group": "PG 1", "work_seq": 15, "last_enqueued": 17, "last_completed": 14},
        ),
        (
            "[PG 4 (dp) Rank 3] Exception (either an error or timeout) detected by watchdog at work: 15,"
            " last enqueued NCCL work: 17, last completed NCCL work: 14.",
            {"group": "PG 4 (dp)", "work_seq": 15, "last_enqueued": 17, "last_completed": 14},
        ),
        (
            "[PG ID 2 PG GUID 17(tp) Rank 3]  failure detected by watchdog at work sequence id: 15 PG status:"
            " last enqueued work: 17, last completed work: -1",
            {"group": "PG 17 (tp)", "work_seq": 15, "last_enqueued": 17, "last_completed": -1},
        ),
        (
            "[PG 0 Rank 3] Timeout at NCCL work: 5, last enqueued NCCL work: 18446744073709551615,"
            " last completed NCCL work: 3452013982.",
            {"group": "PG 0", "work_seq": 5},
        ),
    ],
)
def test_every_dialect_of_the_status(message: str, fields: dict[str, object]) -> None:
    found = only(f"[rank3]:[E512 21:14:10.100000000 ProcessGroupNCCL.cpp:1664] {message}", "torch_pg_status")
    assert (found.rank, dict(found.fields)) == (3, fields)


def test_the_rank_of_a_subgroup_is_no_global_rank() -> None:
    text = "[E ProcessGroupNCCL.cpp:9] [PG ID 2 PG GUID 17(tp) Rank 1] last enqueued work: 3, last completed work: 2"
    assert only(text, "torch_pg_status").rank is None


def test_an_editor_number_is_no_rank() -> None:
    line = f"[80646] [rank0]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank 0] {TIMEOUT}(SeqNum=1, OpType=ALLREDUCE,"
    assert only(line, "torch_timeout").rank == 0


def test_sick() -> None:
    found = records(fixture("torch_log", "sick.txt"))
    timeout = of(found, "torch_timeout")
    assert [(r.rank, r.fields["seq"], r.fields["group"], r.count) for r in timeout] == [(3, 4711, "PG 17 (fsdp)", 1)]
    assert timeout[0].evidence[0].first == 2
    assert timeout[0].at is not None
    assert [(r.rank, r.fields["event"], r.fields.get("from_rank")) for r in of(found, "torch_heartbeat")] == [
        (5, "dump_signal", 3),
        (6, "watchdog_stuck", None),
        (6, "gil_held", None),
        (6, "heartbeat_abort", None),
    ]
    causes = {
        r.rank: (r.fields["type"], r.fields["cause"]) for r in of(found, "python_exception") if r.rank is not None
    }
    assert causes == {
        0: ("RuntimeError", "collective"),
        1: ("DistBackendError", "collective"),
        2: ("RuntimeError", "io"),
        4: ("FileNotFoundError", "io"),
        7: ("OutOfMemoryError", "gpu_oom"),
        9: ("RuntimeError", "collective"),
        13: ("AssertionError", "assertion"),
    }
    chained = next(r for r in of(found, "python_exception") if r.rank == 2)
    assert chained.fields["chained_from"] == "OSError: [Errno 5] Input/output error"
    assert (chained.fields["line"], chained.fields["function"]) == (55, "next_batch")
    worker = next(r for r in of(found, "python_exception") if r.rank == 4)
    assert (worker.fields["file"], worker.fields["line"]) == ("/srv/job/data.py", 31)
    nccl = next(r for r in of(found, "torch_error") if r.rank == 1)
    assert nccl.fields["nccl_result"] == "ncclSystemError"
    assert str(nccl.fields["last_error"]).startswith("socketStartConnect: Connect to 198.51.100.9")
    mismatch = of(found, "torch_mismatch")[0]
    assert (mismatch.rank, mismatch.fields["rank_other"], mismatch.fields["differs"]) == (9, 8, "seq")
    assert of(found, "torch_barrier")[0].fields == {"missing": "3,5", "waited_ms": 30000.0}
    states = {(r.fields["state"], r.fields["ranks"], r.fields.get("seq")) for r in of(found, "torch_desync")}
    assert {("timed_out", "10", 5), ("joined", "11-12", 5), ("missing", "13", 5)} <= states
    assert [r.fields["event"] for r in of(found, "torch_store")] == ["connect_failed", "clients_missing", "broken"]


def test_failure_report_of_torchrun() -> None:
    first, second = sorted(
        of(records(fixture("torch_log", "sick.txt")), "process_exit"),
        key=lambda r: r.rank if r.rank is not None else -1,
    )
    assert (first.rank, first.host, first.fields["exit_code"], first.fields["signal"]) == (12, "node-b", -9, "SIGKILL")
    assert (first.fields["reason"], first.fields["first_failure"]) == ("killed", True)
    assert (first.evidence[0].first, first.evidence[0].last) == (86, 92)
    assert (second.rank, second.fields["reason"], "first_failure" in second.fields) == (13, "error", False)


def test_a_report_without_its_heading() -> None:
    text = "  rank      : 12 (local_rank: 4)\n  exitcode  : -11 (pid: 904)\n  error_file: <N/A>\n"
    found = only(text, "process_exit")
    assert (found.rank, found.fields["signal"], found.fields["reason"]) == (12, "SIGSEGV", "crashed")
    assert "first_failure" not in found.fields


def test_healthy_says_only_settings_and_backend() -> None:
    found = records(fixture("torch_log", "healthy.txt"))
    assert {r.kind for r in found} == {"torch_debug", "torch_backend"}
    values = {r.fields["name"]: r.fields["value"] for r in of(found, "torch_debug")}
    assert values["TIMEOUT(ms)"] == "1200000"


def test_a_quiet_log_covers_the_topic() -> None:
    text = "[rank0]:[W304 19:40:07.5 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called\n"
    assert [(r.kind, r.fields) for r in records(text)] == [("covered", {"topic": "torch_log"})]


def test_dirty() -> None:
    found = records(fixture("torch_log", "dirty.txt"))
    timeouts = {r.rank: r for r in of(found, "torch_timeout")}
    assert sorted(rank for rank in timeouts if rank is not None) == [1, 2, 3, 4, 5, 6, 9, 13, 14]
    assert timeouts[3].count == 2
    assert "seq" not in timeouts[2].fields
    assert {r: (t.evidence[0].first, t.evidence[0].last) for r, t in timeouts.items() if r in (6, 9)} == {
        6: (6, 8),
        9: (13, 16),
    }
    assert timeouts[9].fields["elapsed_ms"] == 900091.0
    assert {rank: t.fields["group"] for rank, t in timeouts.items() if "group" in t.fields} == {6: "PG 5 (dp)"}
    status = {r.rank: r.fields for r in of(found, "torch_pg_status")}
    assert status[12]["group"] == "PG 9 (tp)"
    assert "last_completed" not in status[8]
    exceptions = {r.rank: r.fields for r in of(found, "python_exception")}
    assert (exceptions[20]["type"], exceptions[20]["line"]) == ("AssertionError", 22)
    assert (exceptions[21]["type"], exceptions[21]["line"]) == ("ZeroDivisionError", 33)
    assert exceptions[22]["type"] == "unknown"
    assert [r.evidence[0].first for r in of(found, "parse_problem")] == [36]


def test_truncated() -> None:
    found = records(fixture("torch_log", "truncated.txt"))
    assert [(r.rank, r.fields["seq"]) for r in of(found, "torch_timeout")] == [(3, 4711)]
    assert [(r.rank, r.fields["type"]) for r in of(found, "python_exception")] == [(7, "unknown")]


def test_a_group_is_attached_only_when_one_fits() -> None:
    lines = [
        f"[rank3]:[E1 ProcessGroupNCCL.cpp:1] [Rank 3] {TIMEOUT}(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
        " Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
        "[rank3]:[E512 21:14:10.1 ProcessGroupNCCL.cpp:1664] [PG ID 2 PG GUID 17(tp) Rank 3]  failure detected by"
        " watchdog at work sequence id: 5 PG status: last enqueued work: 7, last completed work: 4",
    ]
    other = lines[1].replace("PG GUID 17(tp)", "PG GUID 18(dp)")
    assert only("\n".join(lines), "torch_timeout").fields["group"] == "PG 17 (tp)"
    assert "group" not in only("\n".join([*lines, other]), "torch_timeout").fields


def test_refused_connections_at_start_are_normal_and_missing_routes_are_not() -> None:
    line = (
        "[W304 08:11:21.1 socket.cpp:759] [c10d] The client socket has failed to connect to [198.51.100.7]:29500"
        " (errno: {})."
    )
    assert not of(records("\n".join([line.format("111 - Connection refused")] * 5)), "torch_store")
    found = only(line.format("113 - No route to host"), "torch_store")
    assert (found.fields["event"], found.fields["error"], found.fields["peer"]) == (
        "connect_failed",
        "no_route",
        "198.51.100.7:29500",
    )
    assert (found.fields["peer_address"], found.fields["peer_port"]) == ("198.51.100.7", 29500)


def test_a_killed_data_loader_worker() -> None:
    text = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/srv/train.py", line 3, in main\n'
        "[rank1]:     next(it)\n"
        "[rank1]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that"
        " dataloader's workers are out of shared memory.\n"
    )
    found = records(text)
    assert of(found, "python_exception")[0].fields["cause"] == "data"
    assert of(found, "process_exit")[0].fields["signal"] == "SIGBUS"


def test_an_exit_that_deepspeed_tells_names_no_local_rank() -> None:
    text = (
        "[2025-03-04 10:11:12,346] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python', '-u', 'train.py',"
        " '--local_rank=3'] exits with return code = -9\n"
    )
    fields = only(text, "process_exit").fields
    assert (fields["signal"], fields["reason"], fields["reporter"]) == ("SIGKILL", "killed", "deepspeed")
    assert "local_rank" not in fields
    assert not of(records(text.replace("-9", "0")), "process_exit")


def test_a_dead_worker_of_ray() -> None:
    text = (
        "\tpid: 912\n\tip: 10.0.8.78\nThe actor is dead because its worker process has died."
        " Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits. There are some potential root"
        " causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.\n"
    )
    fields = only(text, "process_exit").fields
    assert (fields["pid"], fields["reason"], fields["reporter"]) == (912, "crashed", "ray")
    assert fields["text"].startswith("worker on 10.0.8.78: ") and "OOM" not in fields["text"]
    assert only(text.replace("SYSTEM_ERROR", "NODE_OUT_OF_MEMORY"), "process_exit").fields["reason"] == "killed"
    assert not of(records(text.replace("SYSTEM_ERROR", "INTENDED_USER_EXIT")), "process_exit")


def test_a_host_short_of_memory_is_no_gpu_short_of_memory() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/srv/train.py", line 3, in <module>\n'
        "    ray.get(ref)\n"
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    )
    assert only(text, "python_exception").fields["cause"] == "host_oom"


def test_blocks_give_what_one_text_gives() -> None:
    lines = lines_of(fixture("torch_log", "sick.txt"))
    source = Source("x", "x")
    whole = next(iter(PARSER.scan([Block(1, "\n".join(line.text for line in lines))], source)))
    for size in (1, 7):
        blocks = [Block(n + 1, "\n".join(x.text for x in lines[n : n + size])) for n in range(0, len(lines), size)]
        parts = next(iter(PARSER.scan(blocks, source)))
        assert isinstance(parts, Digest)
        assert list(parts.records()) == list(whole.records())
    assert list(next(iter(PARSER.parse(iter(lines), source))).records()) == list(whole.records())


def test_foreign_text_yields_nothing() -> None:
    assert PARSER.sniff(FOREIGN, "x.txt") == 0
    assert records(FOREIGN) == []


def test_a_traceback_of_a_tool_is_not_claimed() -> None:
    text = "Traceback (most recent call last):\n  File \"/usr/bin/mlnx_qos\", line 9, in <module>\nKeyError: 'eth9'\n"
    assert PARSER.sniff(text, "mlnx_qos.txt") == 0
    assert PARSER.sniff(text.replace("mlnx_qos", "train.py"), "x.txt") == 0.5


@pytest.mark.parametrize(
    ("launcher", "rank"), [("", 3), ("3: W0304 08:11:02.5 1 torch/distributed/run.py:793] x\n", None)]
)
def test_a_task_of_srun_is_a_rank_unless_torchrun_stands_between(launcher: str, rank: int | None) -> None:
    text = launcher + '3: Traceback (most recent call last):\n3:   File "/srv/train.py", line 3, in f\n3: KeyError: 1\n'
    assert only(text, "python_exception").rank == rank


def test_a_fingerprint_without_the_comma_after_its_number() -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=4OpType=BARRIER), but Rank 2 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=3OpType=BARRIER).Collectives differ in the following aspects: "
        "\t Sequence number: 4vs 3\n"
    )
    (found,) = of(run(PARSER, text), "torch_mismatch")
    assert [found.fields[n] for n in ("seq", "seq_other", "op", "op_other", "differs")] == [
        4, 3, "BARRIER", "BARRIER", "seq",
    ]  # fmt: skip


def test_a_log_whose_line_ends_were_lost() -> None:
    text = (
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 811 closing signal SIGTERM" + " " * 300
        + "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 815) of binary"
        + "/opt/python" + " " * 90 + 'Traceback (most recent call last):   File "/opt/bin/torchrun", line 33\n'
    )  # fmt: skip
    (found,) = of(run(PARSER, text), "process_exit")
    assert (found.fields["signal"], found.fields["local_rank"], found.fields["pid"]) == ("SIGKILL", 4, 815)
    assert str(found.fields["text"]).startswith("failed (exitcode: -9)")


def test_a_wrapped_fingerprint() -> None:
    line = next(x for x in fixture("torch_log", "sick.txt").split("\n") if "CollectiveFingerPrint" in x)
    text = "\n".join([line[:90], *(f"[rank9]: {line[n : n + 80]}" for n in range(90, len(line), 80))])
    found = only(text, "torch_mismatch")
    assert (found.rank, found.fields["rank_other"], found.fields["seq"], found.fields["seq_other"]) == (9, 8, 18, 22)


def test_many_ranks_interleave_line_by_line() -> None:
    block = [
        "Traceback (most recent call last):",
        '  File "/srv/train.py", line {0}, in f',
        "    go()",
        "ValueError: {0}",
    ]
    text = "\n".join(f"[rank{r}]: {part.format(r)}" for part in block for r in range(300))
    found = of(records(text), "python_exception")
    assert [(r.rank, r.fields["line"], r.fields["message"]) for r in found] == [(r, r, str(r)) for r in range(300)]


@pytest.mark.parametrize("name", ["healthy", "sick", "dirty", "truncated"])
def test_sniff(name: str) -> None:
    assert PARSER.sniff(fixture("torch_log", f"{name}.txt"), "x.txt") >= 0.5


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.integers(0, 9000), st.sampled_from(["sick.txt", "dirty.txt"]), st.integers(0, 400))
def test_any_text_conforms(noise: str, at: int, name: str, cut: int) -> None:
    text = fixture("torch_log", name)
    records(noise)
    records(text[:at] + noise + text[at + cut :])


def test_an_ignored_exception_stays_harmless_when_its_sentence_is_wrapped() -> None:
    text = fixture("torch_log", "healthy.txt").replace(
        "_MultiProcessingDataLoaderIter.__del__ at 0x7f", "_Iter at\n0x7f"
    )
    assert not of(run(PARSER, text), "python_exception")


def test_a_taken_port_alone_is_recognised() -> None:
    text = (
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29511, useIpv6: 0, "
        "code: -98, name: EADDRINUSE, message: address already in use\n"
    )
    assert PARSER.sniff(text, "out.txt") > 0.5
    (found,) = of(run(PARSER, text), "torch_store")
    assert (found.fields["event"], found.fields["error"]) == ("bind_failed", "in_use")


def test_what_a_finaliser_raises_is_harmless_without_its_first_line() -> None:
    text = fixture("torch_log", "healthy.txt")
    lines = [line for line in text.split("\n") if "Exception ignored" not in line]
    assert not of(run(PARSER, "\n".join(lines)), "python_exception")


def test_gloo_messages_larger_than_the_call_are_no_lost_connections() -> None:
    where = "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] "
    assert only(f"{where}op.preamble.length <= op.nbytes. 194478720 vs 4", "torch_error").fields["type"] == (
        "GlooSizeMismatch"
    )
    closed = (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.42.3.19]:2"
    )
    assert only(closed, "torch_error").fields["type"] == "GlooError"


def test_only_ascii_digits_are_a_rank() -> None:
    line = "[rank٣]:[E1112 03:01:02.1 ProcessGroupNCCL.cpp:632] [Rank ٣] Watchdog caught collective operation timeout: "
    found = run(PARSER, line + "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)")
    assert all(r.rank is None for r in found)
