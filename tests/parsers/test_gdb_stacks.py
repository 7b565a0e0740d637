"""Native stacks of gdb and pstack: what each thread waits for."""

from __future__ import annotations

import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

PARSER = support.load("gdb_stacks")
PSTACK = """\
Thread 2 (LWP 812):
#0  0x00007f in ncclProxyProgress () from /usr/lib/libnccl.so.2
#1  0x00007f in start_thread () from /lib64/libpthread.so.0
Thread 1 (LWP 811):
#0  0x00007f in nanosleep () from /lib64/libc.so.6
#1  0x000055 in pysleep (timeout=1) at Modules/timemodule.c:2159
"""


def test_threads_of_a_process() -> None:
    text = support.fixture("gdb_stacks", "sick.txt")
    assert PARSER.sniff(text, "x") == 0.9
    threads = {r.fields["thread"]: r for r in support.run(PARSER, text)}
    assert {r.fields["pid"] for r in threads.values()} == {70310}
    places = [(r.fields["where"], r.fields["main"], r.evidence[0].first) for r in support.run(PARSER, text)]
    assert places == [("collective", False, 6), ("io", False, 12), ("cuda", True, 17)]
    assert threads["pt_nccl_watchdg"].fields["function"] == "c10d::ProcessGroupNCCL::watchdogHandler"


def test_pstack() -> None:
    records = support.run(PARSER, PSTACK)
    assert [(r.fields["where"], r.fields["main"], r.fields["pid"]) for r in records] == [
        ("collective", False, 811), ("sleep", True, 811),
    ]  # fmt: skip


def test_other_stacks_are_not_claimed() -> None:
    for name in ("healthy.txt", "sick.txt"):
        if (support.FIXTURES / "py_spy" / name).exists():
            assert PARSER.sniff(support.fixture("py_spy", name), name) < 0.5
    assert PARSER.sniff("INFO: task python:42 blocked for more than 122 seconds.\n#0 nothing\n", "x") < 0.5


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2500), st.text(max_size=30))
def test_any_text(at: int, junk: str) -> None:
    text = support.fixture("gdb_stacks", "sick.txt")
    support.run(PARSER, text[:at] + junk + text[at + len(junk) :])


def test_a_stack_of_a_million_frames_costs_no_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    known = PARSER.unprefix
    monkeypatch.setattr(PARSER, "unprefix", lambda text: asked.append(text) or known(text))
    text = "Thread 1 (Thread 0x7f (LWP 10)):\n" + "#0  0x00007f11 in forward (a=1) at /a/b.c:12\n" * 2_000
    (stack,) = support.run(PARSER, text)
    assert str(stack.fields["function"]) == "forward" and len(asked) < 300
