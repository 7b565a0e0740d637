"""Stacks of py-spy and what they wait for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import fixture, load, of, run

from diagnose.model import Record

PARSER = load("py_spy")


def records(name: str) -> list[Record]:
    return run(PARSER, fixture("py_spy", name), name)


def test_sick() -> None:
    found = records("sick.txt")
    said = [
        (r.fields.get("pid"), r.fields["thread"], r.fields["where"], r.fields["active"], r.fields["gil"]) for r in found
    ]
    assert said == [
        (4242, "MainThread", "dataloader", False, False),
        (4242, "pt_autograd_0", "lock", False, False),
        (4242, "logger", "io", True, True),
        (4300, "MainThread", "collective", True, False),
        (4301, "MainThread", "checkpoint", False, False),
        (4301, "0x7F0B1", "other", False, False),
    ]
    main = found[0]
    assert (main.fields["function"], main.fields["file"], main.fields["line"]) == ("wait", "threading.py", 331)
    assert (main.evidence[0].first, main.evidence[0].last) == (4, 12)


def test_healthy_with_locals() -> None:
    (found,) = records("healthy.txt")
    assert found.fields["frames"] == "forward (model.py:60) < main (train.py:33) < <module> (train.py:90)"
    assert found.fields["main"] is True


def test_native_json() -> None:
    (found,) = records("native.json")
    assert (found.fields["where"], found.fields["function"], found.fields["line"]) == ("cuda", "main", 44)
    assert found.evidence[0].first == 6


def test_dirty() -> None:
    found = records("dirty.txt")
    (stack,) = of(found, "python_stack")
    assert (stack.rank, stack.fields["pid"], stack.fields["where"]) == (3, 4242, "collective")
    assert len(of(found, "parse_problem")) == 1


def test_truncated() -> None:
    (found,) = records("truncated.txt")
    assert found.fields["frames"] == "wait (threading.py:331)"


def test_damaged_json_is_a_problem() -> None:
    text = fixture("py_spy", "native.json")[:400]
    assert [r.kind for r in run(PARSER, text)] == ["parse_problem"]


def test_options_that_py_spy_refuses_are_a_problem() -> None:
    text = "$ py-spy dump --native --nonblocking -p 7\nCan't get native stack traces with the --nonblocking option.\n"
    assert PARSER.sniff(text, "x") == 0.5
    assert [r.kind for r in run(PARSER, text)] == ["parse_problem"]


def test_identical_stacks_are_counted() -> None:
    text = "Process 7: python\n" + 'Thread 9 (idle): "w"\n    run (a.py:1)\n' * 3
    (found,) = run(PARSER, text)
    assert found.count == 3


def test_foreign_text_yields_nothing() -> None:
    text = "Thread pool started\nProcess finished\n    work (idle)\nError: device busy\n"
    assert PARSER.sniff(text, "x") == 0
    assert run(PARSER, text) == []


@pytest.mark.parametrize("name", ["sick.txt", "healthy.txt", "native.json", "dirty.txt", "truncated.txt"])
def test_sniff(name: str) -> None:
    assert PARSER.sniff(fixture("py_spy", name), name) >= 0.5


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.integers(0, 1200), st.sampled_from(["sick.txt", "native.json"]), st.integers(0, 300))
def test_any_text_conforms(noise: str, at: int, name: str, cut: int) -> None:
    text = fixture("py_spy", name)
    run(PARSER, noise)
    run(PARSER, text[:at] + noise + text[at + cut :])


def test_a_kernel_log_before_a_dump_is_no_json() -> None:
    dump = fixture("py_spy", "healthy.txt")
    alone = of(run(PARSER, dump), "python_stack")
    assert len(of(run(PARSER, '[ 1.000000] usb: "owns_gil"\n' + dump), "python_stack")) == len(alone) > 0


def test_a_stack_of_a_million_frames_costs_no_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    known = PARSER.unprefix
    monkeypatch.setattr(PARSER, "unprefix", lambda text: asked.append(text) or known(text))
    text = 'Process 10: python x\nThread 10 (active): "MainThread"\n' + "    forward (model/some.py:12)\n" * 2_000
    (stack,) = run(PARSER, text)
    assert str(stack.fields["function"]) == "forward" and len(asked) < 300
