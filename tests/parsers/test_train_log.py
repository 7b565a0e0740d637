"""Step times of training logs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import fixture, lines_of, load, run

from diagnose.model import Record, Source

PARSER = load("train_log")


def records(name: str) -> list[Record]:
    return run(PARSER, fixture("train_log", name), name)


@pytest.mark.parametrize(
    ("line", "seconds", "step"),
    [
        ("step 120 | time 1.23s", 1.23, 120),
        ("2026-03-04 09:11:00,459 INFO trainer: step 5110 loss 1.8 step_time 2.91s", 2.91, 5110),
        ("iteration 500/ 10000 | elapsed time per iteration (ms): 812.3 | lr", 0.8123, 500),
        ("step: 5 loss: 1 time/step: 0.9s", 0.9, 5),
        ("{'loss': 2.1, 'step': 8, 'step_time_ms': 1310.5}", 1.3105, 8),
        ('{"global_step": 9, "step_time": 1.5}', 1.5, 9),
        ("step 1/100 loss 10.2 dt: 1203.22ms, tok/sec 300000", 1.20322, 1),
        ("iter 120: loss 3.2, time 345.67ms, mfu 33%", 0.34567, 120),
        ("Epoch: [0][ 120/5005]\tTime  0.345 ( 0.402)\tData  0.010 ( 0.020)", 0.345, None),
        (" 12%|#2   | 60/500 [01:10<08:38,  1.18s/it]", 1.18, 60),
        ("Epoch 0: 6%|# | 320/500 [0:28:43<0:39:17,  2.00it/s, loss=2.6]", 0.5, 320),
    ],
)
def test_phrasings(line: str, seconds: float, step: int | None) -> None:
    (found,) = run(PARSER, line)
    assert found.fields["median_s"] == seconds
    assert found.fields.get("last_step") == step
    assert PARSER.sniff(line, "x") == 0.5


@pytest.mark.parametrize(
    "line",
    [
        "Loading checkpoint shards: 40%|#### | 12/30 [00:10<00:15,  1.20s/it]",
        "time: 2026-03-04 elapsed 300 s since start",
        "step 4 loss 2.1",
        "saved checkpoint at step 500 in 12.1 seconds",
        "timestep embedding dim: 320",
    ],
)
def test_other_times_are_no_step_times(line: str) -> None:
    assert run(PARSER, line) == []
    assert PARSER.sniff(line, "x") == 0


def test_healthy() -> None:
    (found,) = records("healthy.txt")
    assert found.rank is None
    assert (found.fields["steps"], found.fields["last_step"]) == (40, 400)
    assert (
        0.8 < found.fields["min_s"] <= found.fields["median_s"] <= found.fields["p99_s"] <= found.fields["max_s"] < 0.83
    )
    assert [e.first for e in found.evidence] == [2, 41]


def test_one_rank_is_slow() -> None:
    medians = {r.rank: r.fields["median_s"] for r in records("sick.txt")}
    assert medians == {0: 1.0, 1: 1.001, 2: 1.902, 3: 1.003}


def test_dirty() -> None:
    found = records("dirty.txt")
    assert {r.rank: r.fields["steps"] for r in found if r.rank is not None} == {4: 2, 5: 1, 6: 1}
    assert sum(int(r.fields["steps"]) for r in found) == 8


def test_repeated_bars_count_once() -> None:
    (found,) = records("bars.txt")
    assert (found.fields["steps"], found.fields["min_s"], found.fields["last_step"]) == (3, 0.5, 32040)


def test_truncated() -> None:
    (found,) = records("truncated.txt")
    assert (found.fields["steps"], found.fields["last_step"]) == (2, 20)


def test_parse_gives_what_scan_gives() -> None:
    lines = lines_of(fixture("train_log", "sick.txt"))
    assert list(PARSER.parse(iter(lines), Source("sick.txt", "sick.txt"))) == records("sick.txt")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.integers(0, 900), st.sampled_from(["dirty.txt", "bars.txt", "sick.txt"]))
def test_any_text_conforms(noise: str, at: int, name: str) -> None:
    text = fixture("train_log", name)
    run(PARSER, noise)
    run(PARSER, text[:at] + noise + text[at:])
