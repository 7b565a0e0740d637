"""Which kernel messages count as the job's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose import facts
from diagnose.model import Evidence, Fact, Record, Source

DAY, HOUR = 86_400.0, 3600.0
WAITS = 1_000_000.0
"""When the job of these tests begins to wait; its time-out comes ten minutes later."""


def record(kind: str, at: float | None = None, line: int = 1, *, host: str = "n1", **fields: Any) -> Record:
    return Record(kind, fields, (Evidence("dmesg.txt", line, line, "x"),), at=at, host=host)


def event(records: list[Record], **told: Any) -> Fact:
    made = facts.build([(Source("s1", "dmesg.txt", **told), records)])
    return next(f for f in made.facts if f.kind == "kernel_event")


def kill(at: float, **fields: Any) -> Record:
    return record("kernel_event", at, event="oom_kill", text="x", **fields)


TIMED_OUT = record("torch_timeout", WAITS + 600, 2, op="ALLREDUCE", seq=7, elapsed_ms=600_000, timeout_ms=600_000)


def test_long_before_the_end_of_its_log_when_nothing_else_tells_its_time():
    end = record("covered", 1000 + 5 * DAY, topic="kernel_log")
    assert event([kill(1000), end]).get("old") is True
    assert event([kill(1000), record("covered", 2000, topic="kernel_log")]).get("old") is None


def test_a_process_killed_before_the_job_started_is_old_and_a_broken_device_is_not():
    def seen(what: str, at: float) -> Any:
        return event([record("kernel_event", at, event=what, text="x")], job_began=5000.0).get("old")

    assert seen("oom_kill", 1000) is True
    assert seen("segfault", 1000) is True
    assert seen("oom_kill", 4990) is None
    assert seen("oom_kill", 6000) is None
    assert seen("xid", 1000) is None


def test_what_the_job_survived_for_hours_is_old_and_tells_how_long():
    found = event([kill(WAITS - 6.7 * HOUR), TIMED_OUT])
    assert found.get("old") is True and found.get("before") == "6.7 h before the job failed"
    assert event([record("kernel_event", WAITS - 6.7 * HOUR, event="xid", text="x"), TIMED_OUT]).get("old") is True


@pytest.mark.parametrize("before", [-300.0, 0.0, 60.0, 1700.0])
def test_what_came_when_the_job_began_to_wait_is_its_own(before: float):
    assert event([kill(WAITS - before), TIMED_OUT]).get("old") is False


@pytest.mark.parametrize("zone", [1, 5.5, 7, 8])
def test_stamps_that_may_differ_by_their_time_zone_alone_prove_nothing(zone: float):
    assert event([kill(WAITS - zone * HOUR - 40), TIMED_OUT]).get("old") is False


def test_a_process_of_the_job_counts_whenever_it_ended():
    exited = record("process_exit", WAITS + 700, 3, rank=3, pid=4711, exit_code=1, reason="error")
    assert event([kill(WAITS - 6.7 * HOUR, pid=4711), TIMED_OUT, exited]).get("old") is False
    assert event([kill(WAITS - 6.7 * HOUR, pid=4712), TIMED_OUT, exited]).get("old") is True


def test_of_a_capture_without_a_job_the_distance_is_told():
    assert event([kill(WAITS)], taken_at=WAITS + 2 * HOUR).get("before") == "2.0 h before the capture"
    assert event([kill(WAITS)], taken_at=WAITS + 60).get("before") is None
    assert event([kill(WAITS)], taken_at=WAITS + 16 * DAY).get("before") == "16 days before the capture"


def test_repeated_messages_count_by_the_last():
    stalls = record("kernel_event", WAITS - 6.7 * HOUR, event="nfs_stall", text="x")
    assert event([stalls, TIMED_OUT]).get("old") is True
    stalls = replace(stalls, count=9, last_at=WAITS + 5)
    assert event([stalls, TIMED_OUT]).get("old") is False


def test_without_a_time_out_the_failure_may_have_come_hours_later():
    raised = record("python_exception", WAITS, 2, rank=0, type="DistBackendError", cause="collective", message="x")
    assert event([kill(WAITS - 2.6 * HOUR), raised]).get("old") is False
    assert event([kill(WAITS - 3.6 * HOUR), raised]).get("old") is True


@pytest.mark.parametrize(
    ("late", "told"), [(-60.0, None), (90.0, None), (300.0, True), (HOUR - 60, None), (HOUR + 900, True)]
)
def test_what_came_clearly_after_the_waiting_began_did_not_begin_it(late: float, told: bool | None):
    down = record("kernel_event", WAITS + late, event="link_down", text="x")
    assert event([down, TIMED_OUT]).get("while_waiting") is told


def test_of_several_waits_the_last_to_begin_counts():
    down = record("kernel_event", WAITS + 300, event="link_down", text="x")
    again = record("torch_timeout", WAITS + 1800, 3, op="ALLREDUCE", seq=9, elapsed_ms=600_000, timeout_ms=600_000)
    assert event([down, TIMED_OUT, again]).get("while_waiting") is None


def test_time_outs_without_a_year_take_that_of_the_kernel_log():
    stamp = "[rank0]:[E0112 13:56:40.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective"
    told = Evidence("dmesg.txt", 2, 2, stamp)
    timed_out = replace(TIMED_OUT, at=None, evidence=(told,))
    for late, marked in ((300.0, True), (-300.0, None)):
        down = record("kernel_event", WAITS + late, event="link_down", text="x")
        assert event([down, timed_out]).get("while_waiting") is marked
