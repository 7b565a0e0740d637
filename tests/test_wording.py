"""Sentences with what is not known left out."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from diagnose import findings, packs, reference
from diagnose.model import UNNAMED_HOST, Fact, Rule, Subject
from diagnose.report.view import subjects
from diagnose.report.words import Words
from diagnose.rulebook import load
from diagnose.tui.items import subject_text
from diagnose.wording import render

CLUMSY = re.compile(r"\bon unknown|unknown on|unnamed-host|\(unknown\)|,\)|  | ,| \.(?: |$)|addresss")


@pytest.mark.parametrize(
    ("text", "said", "unsaid"),
    [
        ("Rank 3 on {x.host} failed.", "Rank 3 on kite-1 failed.", "Rank 3 failed."),
        ("On {x.host} a message came.", "On kite-1 a message came.", "A message came."),
        ("{x.host}: the kernel killed it.", "kite-1: the kernel killed it.", "The kernel killed it."),
        ("{x.host} lost it. {x.host} waits.", "kite-1 lost it. kite-1 waits.", "The host lost it. The host waits."),
        ("{x.host} {x.device} is down.", "kite-1 0000:3b:00 is down.", "The host is down."),
        ("The GPU at {x.device} on {x.host} hangs.", "The GPU at 0000:3b:00 on kite-1 hangs.", "The GPU hangs."),
        ("It died (pid {x.pid}).", "It died (pid 7).", "It died."),
        ("It died (pid 7, of {x.event}).", "It died (pid 7, of xid).", "It died (pid 7, of xid)."),
        ("Lost[[ (pid {x.pid})||, by nobody]].", "Lost (pid 7).", "Lost, by nobody."),
        ("该 GPU 在 {x.host} 上", "该 GPU 在 kite-1 上", "该 GPU 在 该主机 上"),
    ],
)
def test_what_is_not_known_is_left_out(text: str, said: str, unsaid: str) -> None:
    event = Fact("f0", "kernel_event", {"event": "xid", "text": "", "host": "kite-1", "device": "0000:3b:00", "pid": 7})
    assert render(text, {"x": event}) == said
    bare = Fact("f0", "kernel_event", {"event": "xid", "text": ""})
    assert render(text, {"x": bare}) == unsaid
    nameless = replace(bare, fields={**bare.fields, "host": UNNAMED_HOST})
    assert render(text, {"x": nameless}) == unsaid


def test_texts_that_end_with_a_full_stop_get_no_second() -> None:
    event = Fact("f0", "kernel_event", {"event": "xid", "text": "It hangs."})
    assert render("{x.text}. Look.", {"x": event}) == "It hangs. Look."


def test_a_device_alone() -> None:
    event = Fact("f0", "kernel_event", {"event": "xid", "text": "", "device": "mlx5_3"})
    assert render("{x.host} {x.device} is down.", {"x": event}) == "mlx5_3 is down."


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(load([packs.builtin("rules")], statuses=("draft", "trial", "stable")).rules)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
@pytest.mark.parametrize("host", [None, UNNAMED_HOST], ids=["absent", "unnamed"])
def test_no_sentence_speaks_of_a_host_that_nobody_names(rule: Rule, host: str | None) -> None:
    for example in rule.examples:
        facts: list[Fact] = []
        for n, (kind, given) in enumerate(example.given):
            fields = {name: value for name, value in given.items() if name != "host"}
            facts.append(Fact(f"f{n}", kind, fields if host is None else {**fields, "host": host}))
        for finding in findings.judge([rule], reference.run([rule], facts)):
            assert not CLUMSY.search(finding.summary), finding.summary
            assert not CLUMSY.search(subjects(finding, Words("en"))), finding.subjects


def test_subjects_without_a_name() -> None:
    (rule,) = [r for r in rules() if r.id == "host/process-failed"]
    fact = Fact("f0", "process_exit", {"host": UNNAMED_HOST, "exit_code": 1, "reason": "error"})
    (finding,) = findings.judge([rule], reference.run([rule], [fact]))
    assert finding.summary.startswith("A process ended with exit code 1.")
    assert subjects(finding, Words("en")) == "the host"
    assert [subject_text(s) for s in finding.subjects] == ["the host"]
    assert subject_text(Subject("nic", "mlx5_0", UNNAMED_HOST)) == "mlx5_0"


def test_plurals() -> None:
    assert [Words("en").plural(kind) for kind in ("nic", "address", "switch", "rank")] == [
        "nics", "addresses", "switches", "ranks",
    ]  # fmt: skip
