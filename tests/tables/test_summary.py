"""What the views show beside the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from diagnose.model import Evidence, Finding, Severity, Subject
from diagnose.tables.summary import MAX_ROWS, job, summary
from tests.tables.support import Given, base, observations


def finding(name: str, *subjects: Subject, severity: Severity = "major", evidence: Sequence[Evidence] = ()) -> Finding:
    return Finding(name, severity, "high", "root", "t", "s", subjects, tuple(evidence), "c", ())


def table(name: str, *given: Given, facts: Sequence[Given] = (), findings: Sequence[Finding] = (), **more: Any) -> Any:
    made = summary(base(*given, **more), observations(facts), findings)
    json.dumps(made, allow_nan=False)
    return made.get(name)


# --- the job ------------------------------------------------------------------------------------------


def test_job_in_numbers():
    known = base(
        ("gpu", {"host": "n1", "index": 0, "bus_id": "0000:9b:00", "driver": "570.1"}),
        ("gpu", {"host": "n1", "index": 0, "bus_id": "0000:9b:00", "temp_c": 40.0}),
        ("gpu", {"host": "n2", "index": 0, "bus_id": "0000:9b:00", "driver": "570.1"}),
        ("nccl_version", {"host": "n1", "version": "2.27.7"}),
        ("torch_timeout", {"op": "ALLREDUCE", "at": 2_000.0, "elapsed_ms": 600_000.0}),
        ("torch_timeout", {"op": "ALLREDUCE", "at": 2_010.0, "elapsed_ms": 600_500.0}),
        ranks={0: "n1", 1: "n2"},
    )
    assert job(known, ()) == {
        "nodes": 2, "ranks": 2, "gpus": 2, "stalled_since": 1_400,
        "versions": {"nccl": ["2.27.7"], "driver": ["570.1"]},
    }  # fmt: skip


def test_of_an_empty_bundle_nothing_is_said():
    assert job(base(), ()) == {}
    assert summary(base(), (), ()) == {}


# --- tables -----------------------------------------------------------------------------------------------


def test_progress_shows_the_ranks_that_ended():
    stall: Given = (
        "stall",
        {"evidence_kind": "watchdog", "verdict": "missing_rank", "group": "PG 0", "op": "ALLREDUCE", "seq": 41,
         "world": 8, "waiting": "0-3", "silent": "4-5,7"},
    )  # fmt: skip
    died: Given = ("suspect_rank", {"rank": 6, "reason": "crashed", "detail": "its process ended with SIGKILL"})
    behind: Given = ("suspect_rank", {"rank": 7, "reason": "behind"})
    of_another: Given = ("suspect_rank", {"rank": 9, "reason": "exited", "detail": "exit code 1"})
    facts = [stall, died, behind, of_another]
    (group,) = table("progress", facts=facts, ranks={r: "n1" if r < 4 else "n2" for r in range(8)})["groups"]
    assert [(r["ranks"], r["host"], r["states"], r["note"]) for r in group["rows"]][:2] == [
        ("6", "n2", ["failed"], "its process ended with SIGKILL"),
        ("4-5,7", "n2", ["unknown"], "nothing known in these files"),
    ]


def test_progress_shows_the_odd_ranks_first():
    stall: Given = (
        "stall",
        {"evidence_kind": "watchdog", "verdict": "behind_rank", "group": "PG 0", "op": "ALLREDUCE", "seq": 41,
         "waiting": "0-6", "behind": "7"},
    )  # fmt: skip
    (group,) = table("progress", facts=[stall], ranks={r: "n1" if r < 4 else "n2" for r in range(8)})["groups"]
    assert (group["group"], group["op"], group["seqs"]) == ("PG 0", "ALLREDUCE", [41])
    assert [(row["ranks"], row["host"], row["odd"]) for row in group["rows"]] == [
        ("7", "n2", True),
        ("0-6", "2 hosts", False),
    ]


def test_hosts_by_check():
    both = finding("link/down", Subject("host", "n2"), Subject("nic", "eth2", "n1"))
    job_wide = finding("stall/undetermined")
    assert table("hosts_by_check", findings=[both, job_wide])["rows"] == [
        {"id": "link/down", "severity": "major", "hosts": ["n1", "n2"]}
    ]


def test_topology_fills_both_halves_and_shows_the_odd_host_first():
    links: list[Given] = [
        ("topo_link", {"host": host, "a": "GPU0", "b": "mlx5_0", "relation": relation})
        for host, relation in (("n1", "PIX"), ("n2", "SYS"), ("n3", "PIX"))
    ]
    hosts = table("topology", *links)["hosts"]
    assert [h["host"] for h in hosts] == ["n2", "n1", "n3"]
    assert hosts[0]["columns"] == ["GPU0", "mlx5_0"]
    assert hosts[0]["rows"][1] == {"name": "mlx5_0", "cells": ["SYS", "X"]}


def test_timeline_holds_only_what_findings_rest_on_in_order_of_time():
    given: list[Given] = [
        ("clock_event", {"host": "n1", "event": "stepped", "text": "b", "at": 20.0}),
        ("clock_event", {"host": "n2", "event": "stepped", "text": "a", "at": 10.0}),
        ("clock_event", {"host": "n3", "event": "stepped", "text": "c", "at": 5.0}),
        ("clock_event", {"host": "n4", "event": "stepped", "text": "d"}),
    ]
    grounds = [o.evidence[0] for n, o in enumerate(observations(given)) if n != 2]
    rows = table("timeline", *given, findings=[finding("clock/stepped", evidence=grounds)])["rows"]
    assert [(row["at"], row["host"], row["line"]) for row in rows] == [(10.0, "n2", 2), (20.0, "n1", 1)]


def test_counters_that_moved_the_largest_first():
    rates: list[Given] = [
        ("nic_rate", {"host": f"n{n}", "device": "eth2", "metric": "crc_errors", "value": float(v), "delta": v})
        for n, v in enumerate((3, 0, 9))
    ]
    assert [row["host"] for row in table("counters", facts=rates)["rows"]] == ["n2", "n0"]


def test_benchmarks():
    run: Given = ("bench_ib", {"host": "n1", "test": "ib_write_bw", "avg_gbps": 389.0})
    assert table("benchmarks", run)["rows"] == [
        {"kind": "bench_ib", "host": "n1", "test": "ib_write_bw", "avg_gbps": 389.0}
    ]


def test_tables_are_bounded_and_say_so():
    run: Given = ("bench_ib", {"test": "ib_write_bw", "avg_gbps": 389.0})
    made = table("benchmarks", *[run] * (MAX_ROWS + 7))
    assert (len(made["rows"]), made["rows_dropped"]) == (MAX_ROWS, 7)
