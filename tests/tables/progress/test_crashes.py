"""Who ended by itself, and who was ended: exits, exceptions and unfinished starts in logs."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.model import Fact
from diagnose.tables import progress
from tests.tables.support import Given, base, derived


def gone(rank: int | None = None, host: str | None = None, **fields: Any) -> Given:
    told: dict[str, Any] = {"reporter": "torchrun", **fields}
    return "process_exit", told | ({} if rank is None else {"rank": rank}) | ({} if host is None else {"host": host})


def late(rank: int, **fields: Any) -> Given:
    return "torch_timeout", {"rank": rank, "seq": 9, "op": "ALLREDUCE", "group": "PG 0", "timeout_ms": 6e5} | fields


def lost(*given: Given) -> list[Fact]:
    return derived(progress, base(*given), "suspect_rank")


def started(rank: int) -> Given:
    fields = {"comm_id": "0xa", "comm_rank": rank, "rank": rank, "nranks": 8, "state": "started"}
    return "nccl_comm", fields


ABORTED: dict[str, Any] = {"signal": "SIGABRT", "exit_code": -6, "reason": "crashed"}
KILLED: dict[str, Any] = {"signal": "SIGKILL", "exit_code": -9, "reason": "killed"}
FAILED: dict[str, Any] = {"exit_code": 1, "reason": "error"}


def test_a_log_that_ends_before_initialisation_did_is_no_stall() -> None:
    assert derived(progress, base(started(0), started(1))) == []


@pytest.mark.parametrize(
    ("sign", "complaints"),
    [
        (("python_stack", {"rank": 0, "where": "collective"}), False),
        (("torch_store", {"event": "wait_timeout", "text": "wait timeout after 600000ms"}), True),
    ],
)
def test_with_a_sign_of_a_hang_it_is_one(sign: Given, complaints: bool) -> None:
    (stall,) = derived(progress, base(started(0), started(1), sign), "stall")
    assert (stall.fields["verdict"], stall.fields["complaints"]) == ("init_incomplete", complaints)


def test_the_only_rank_that_aborted_is_named_when_nobody_complains() -> None:
    (suspect,) = lost(gone(3, "tern-1", **ABORTED, first_failure=True), gone(2, "tern-1", signal="SIGTERM"))
    assert (suspect.fields["who"], suspect.fields["signal"]) == ("Rank 3 on tern-1", "SIGABRT")


def test_several_aborts_name_nobody() -> None:
    assert not lost(gone(3, "tern-1", **ABORTED), gone(9, "tern-2", **ABORTED))


def test_an_abort_among_time_outs_names_nobody_unless_it_came_clearly_before() -> None:
    told = [late(r, at=10_000.0) for r in (0, 1)]
    assert not [f for f in lost(*told, gone(2, at=10_001.0, **ABORTED)) if f.fields["reason"] == "crashed"]
    (suspect,) = [f for f in lost(*told, gone(2, at=9_400.0, **ABORTED)) if f.fields["reason"] == "crashed"]
    assert suspect.fields["rank"] == 2


def test_exit_codes_name_a_rank_only_where_it_is_the_only_one() -> None:
    assert [f.fields["rank"] for f in lost(gone(3, **FAILED))] == [3]
    assert not lost(gone(3, **FAILED), gone(4, **FAILED))
    assert [f.fields["rank"] for f in lost(gone(3, **FAILED), gone(4, **KILLED))] == [4]


def test_what_killed_tasks_of_several_hosts_was_no_rank() -> None:
    assert not lost(gone(3, "tern-1", **KILLED), gone(8, "tern-2", **KILLED))
    assert len(lost(gone(3, "tern-1", **KILLED), gone(2, "tern-1", **KILLED))) == 2
    oom: Given = ("kernel_event", {"event": "oom_kill", "text": "out of memory", "host": "tern-2", "pid": 7})
    found = lost(gone(3, "tern-1", pid=5, **KILLED), gone(8, "tern-2", pid=7, **KILLED), oom)
    assert [f.fields["rank"] for f in found] == [8]
    old: Given = (oom[0], {**oom[1], "old": True})
    assert not lost(gone(3, "tern-1", pid=5, **KILLED), gone(8, "tern-2", pid=7, **KILLED), old)


def test_the_only_killed_process_is_named_though_nobody_tells_its_rank() -> None:
    found = derived(progress, base(*(late(r) for r in range(7)), gone(host="tern-1", pid=71, **KILLED)))
    (suspect,) = [f for f in found if f.kind == "suspect_rank"]
    assert "rank" not in suspect.fields
    assert (suspect.fields["host"], suspect.fields["pid"]) == ("tern-1", 71)
    assert suspect.fields["who"] == "A process of the job on tern-1 (pid 71)"
    (stall,) = [f for f in found if f.kind == "stall"]
    assert stall.fields["verdict"] == "missing_rank"
    assert stall.fields["effect"] == "Ranks 0-6 are known to wait for it in ALLREDUCE #9 of PG 0 and are victims"


@pytest.mark.parametrize(
    "ends",
    [
        [gone(host="tern-1", pid=71, **KILLED), gone(host="tern-2", pid=72, **KILLED)],
        [gone(host="tern-1", pid=71, **ABORTED)],
        [gone(host="tern-1", pid=71, **FAILED)],
        [gone(**KILLED)],
    ],
    ids=["two hosts", "a victim's abort", "an exit code", "nothing tells where"],
)
def test_other_processes_without_a_rank_are_not_blamed(ends: list[Given]) -> None:
    assert not [f for f in lost(*(late(r) for r in range(7)), *ends) if f.fields["reason"] == "crashed"]


def test_an_exception_that_is_the_last_word_of_a_log_without_a_rank() -> None:
    fields = {"type": "KeyError", "message": "'labels'", "cause": "other", "file": "train.py", "line": 88}
    known = base(late(0), late(1), ("python_exception", fields))
    assert [f.fields["who"] for f in derived(progress, known, "suspect_rank")] == ["A process of the job"]
    caught = base(("python_exception", fields), late(0), late(1))
    assert not derived(progress, caught, "suspect_rank")


def test_a_cut_traceback_makes_nobody_guilty() -> None:
    fields = {"rank": 3, "type": "unknown", "message": "the traceback is cut off", "cause": "other"}
    cut: Given = ("python_exception", fields)
    assert [f.fields["reason"] for f in lost(cut)] == ["first_error"]
    assert [(f.fields["rank"], f.fields["reason"]) for f in lost(cut, gone(5, **KILLED))] == [(5, "crashed")]
    assert not lost(cut, *(late(r) for r in range(8)))


def test_an_end_without_code_and_signal_is_told_in_words() -> None:
    (suspect,) = lost(gone(3, reason="error"))
    assert suspect.fields["detail"] == "its process ended with an error"
    (suspect,) = lost(gone(3, reason="oom"))
    assert suspect.fields["detail"] == "its process was killed for lack of host memory"


def test_nobody_is_said_to_wait_where_nobody_is_known_to() -> None:
    closed: Given = ("nccl_peer_closed", {"host": "tern-2", "reason": "reset"})
    (stall,) = derived(progress, base(gone(3, "tern-1", **KILLED), closed), "stall")
    assert stall.fields["effect"] == "The errors of the others follow from this"


def test_a_rank_that_talks_is_not_called_silent() -> None:
    stuck: Given = ("torch_heartbeat", {"rank": 2, "event": "watchdog_stuck", "text": "got stuck for 480 seconds"})
    (stall,) = derived(progress, base(late(1), late(3), stuck), "stall")
    told = "rank 0, and any above 3, are silent in these files; rank 2 does not say that it waits"
    assert stall.fields["others"] == told
    assert stall.fields["effect"] == "Ranks 1,3 wait in vain"
    (stall,) = derived(progress, base(late(1)), "stall")
    assert stall.fields["effect"] == "Rank 1 waits in vain"


def test_a_rank_that_has_completed_it_does_not_wait_in_it() -> None:
    ahead: Given = ("torch_pg_status", {"rank": 1, "group": "PG 0", "last_enqueued": 11, "last_completed": 9})
    (stall,) = derived(progress, base(late(0), ahead), "stall")
    assert stall.fields["waiting"] == "0"
    assert stall.fields["others"] == (
        "the size of the group is not known; nothing is said of ranks above 1; rank 1 has completed it"
    )


def test_a_rank_that_three_pasted_lines_do_not_list_has_not_died() -> None:
    def failed(rank: int, message: str) -> Given:
        return ("python_exception", {"rank": rank, "type": "RuntimeError", "message": message, "cause": "network"})

    lines = failed(2, "Connection closed by peer [192.0.2.19]:21733"), failed(1, "Timed out waiting 1800000ms for recv")
    assert not derived(progress, base(*lines), "suspect_rank")
