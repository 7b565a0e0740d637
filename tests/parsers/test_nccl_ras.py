"""RAS: text, JSON (whole, with NCCL 2.28.9's missing comma, cut), monitor, diagnostics."""

from __future__ import annotations

import json
from random import Random

import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator import dumps, faults, layout, ras

PARSER = support.load("nccl_ras")


def text(name: str) -> str:
    return support.fixture("nccl_ras", name)


def job(fault: str, seed: int = 3) -> tuple[faults.Run, dumps.Clock]:
    rng = Random(seed)
    while True:
        made = layout.draw(rng, 8, 24)
        run = faults.broken(rng, made, fault) if made.kind in ("ddp", "fsdp") else None
        if run:
            return run, dumps.Clock(rng, made, 0.0)


def test_healthy() -> None:
    records = support.run(PARSER, text("healthy.txt"))
    comms = support.of(records, "ras_comm")
    assert [(c.fields["size"], c.fields["comms"], c.fields["errors"]) for c in comms] == [(16, 1, "OK"), (2, 8, "OK")]
    assert support.of(records, "nccl_version")[0].fields["version"] == "2.28.9"
    assert not support.of(records, "ras_count") and not support.of(records, "parse_problem")


def test_sick() -> None:
    records = support.run(PARSER, text("sick.txt"))
    assert support.of(records, "ras_comm")[0].fields["errors"] == "INCOMPLETE,ERROR,MISMATCH"
    counts = {r.fields["count"]: r.fields for r in support.of(records, "ras_count")}
    assert {c: f["number"] for c, f in counts.items()} == {6650: 11, 6649: 2, 0: 1}
    assert (counts[6649]["ranks"], counts[6649]["hosts"], counts[6649]["op"]) == ("1-2", "crane-03", "AllReduce")
    assert "ranks" not in counts[6650]
    assert counts[0]["comm_id"] == "0x5e1f70aa11bb22"
    missing = support.of(records, "ras_missing")
    assert {(r.fields["state"], r.fields.get("pid"), r.fields.get("comm_rank")) for r in missing} >= {
        ("dead", 51203, None), ("incomplete", 51207, None), ("incomplete", 51203, 10), ("incomplete", None, 14),
    }  # fmt: skip
    errors = {
        (r.fields["phase"], r.fields.get("comm_rank"), r.fields["error"]) for r in support.of(records, "ras_error")
    }
    assert errors >= {("async", 3, "Remote process error"), ("async", 5, "System error"), ("status", 3, "ABORT")}
    assert support.of(records, "ras_timeout")[0].fields["number"] == 2
    places = {r.fields["comm_rank"]: (r.host, r.fields["gpu"]) for r in support.of(records, "ras_rank")}
    assert places[2] == ("crane-03", "2 (NVML 6)")


def test_monitor_and_diagnostics() -> None:
    records = support.run(PARSER, text("dirty.txt"))
    events = support.of(records, "ras_event")
    assert [(r.fields["event"], r.fields["pid"], r.host) for r in events][1:] == [
        ("PEER_UNRESPONSIVE", 51203, "crane-04"), ("PEER_DEAD", 51203, "crane-04"),
    ]  # fmt: skip
    told = [(r.fields["check"], r.fields["result"]) for r in support.of(records, "nccl_diagnostic")]
    assert told == [("net_bw", "ok"), ("net_bw", "problem"), ("ecc", "problem")]


def test_two_snapshots_in_one_text() -> None:
    twice = support.run(PARSER, text("sick.txt") + text("sick.txt"))
    assert {r.fields["snapshot"] for r in support.of(twice, "ras_count")} == {0, 1}
    for later in ("$ sleep 30; ncclras -v\n", "Tue May 12 03:00:30 UTC 2026\n"):
        apart = support.run(PARSER, text("sick.txt") + later + text("sick.txt"))
        assert {r.fields["snapshot"] for r in support.of(apart, "ras_count")} == {0, 1000}
    dated = "Tue May 12 03:00:00 UTC 2026\n" + text("sick.txt")
    assert {r.fields["snapshot"] for r in support.of(support.run(PARSER, dated * 2), "ras_count")} == {0, 1}


def test_what_cannot_be_is_left_out() -> None:
    status = {"init_state": 0, "async_error": 0}
    ranks = [(0, 100), (1, 97), (-7, 100), (10**9, 100), (2, 10**18)]
    entries = [
        {"rank": r, "host": "crane-01", "pid": 4000, "status": status, "collective_counts": {"AllReduce": n}}
        for r, n in ranks
    ]
    document = {
        "nccl_version": "2.28.9", "communicators": [{"hash": "0xab", "size": 10**15, "ranks": entries}],
    }  # fmt: skip
    records = support.run(PARSER, json.dumps(document, indent=1))
    assert {r.fields["count"]: r.fields["ranks"] for r in support.of(records, "ras_count")} == {100: "0", 97: "1"}
    assert "size" not in support.of(records, "ras_comm")[0].fields
    assert len(support.of(records, "parse_problem")) == 3
    sick = text("sick.txt").replace("operation 6649", "operation 99999999999999999999")
    counted = support.run(PARSER, sick)
    assert 99999999999999999999 not in {r.fields["count"] for r in support.of(counted, "ras_count")}
    assert support.of(counted, "parse_problem")


def test_truncated() -> None:
    records = support.run(PARSER, text("truncated.txt"))
    assert [r.fields["count"] for r in support.of(records, "ras_count")] == [88]


@pytest.mark.parametrize("comma", [True, False])
def test_json(comma: bool) -> None:
    run, clock = job("crash")
    lines = ras.as_json(run, clock, 0.0, comma=comma)
    records = support.run(PARSER, "\n".join(lines))
    assert PARSER.sniff("\n".join(lines), "x") == 0.9
    assert not support.of(records, "parse_problem")
    dead = [r for r in support.of(records, "ras_missing") if r.fields["state"] == "dead"]
    assert {r.fields["comm_rank"] for r in dead} == run.truth.crashed
    assert len(support.of(records, "ras_rank")) == run.layout.world - len(run.truth.crashed)
    numbers = sum(int(r.fields["number"]) for r in support.of(records, "ras_count") if r.fields["op"] == "AllReduce")
    assert numbers == run.layout.world - len(run.truth.crashed)
    for record in support.of(records, "ras_rank"):
        first = record.evidence[0]
        assert f'"rank": {record.rank},' in lines[first.first - 1]


def test_json_cut_anywhere_keeps_whole_ranks() -> None:
    run, clock = job("sleep")
    whole = "\n".join(ras.as_json(run, clock, 0.0))
    for end in range(400, len(whole) - 200, 997):
        records = support.run(PARSER, whole[:end])
        assert support.of(records, "parse_problem")


def test_several_documents_are_several_snapshots() -> None:
    run, clock = job("sleep")
    both = [*ras.as_json(run, clock, 0.0), *ras.as_json(run, clock, 40.0)]
    records = support.run(PARSER, "\n".join(both))
    assert {r.fields["snapshot"] for r in support.of(records, "ras_count")} == {0, 1}
    times = sorted({r.at for r in support.of(records, "ras_count") if r.at})
    assert times[1] - times[0] == 40.0


@pytest.mark.parametrize("other", ["healthy.txt", "sick.txt"])
def test_logs_are_not_claimed(other: str) -> None:
    for kind in ("nccl_log", "torch_log", "ethtool", "py_spy"):
        folder = support.FIXTURES / kind
        if (folder / other).exists():
            assert PARSER.sniff(support.fixture(kind, other), other) < 0.5


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(("healthy.txt", "sick.txt", "dirty.txt")), st.integers(0, 4000), st.text(max_size=20))
def test_any_text(name: str, at: int, junk: str) -> None:
    whole = text(name)
    support.run(PARSER, whole[:at] + junk + whole[at + len(junk) :])
