"""Sentences with what is not known left out."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from diagnose import findings, packs, reference
from diagnose.model import UNNAMED_HOST, Fact, Rule, Subject, Value
from diagnose.report.view import subjects
from diagnose.report.words import Words
from diagnose.rulebook import load
from diagnose.tui.items import subject_text
from diagnose.wording import fill, render

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


@pytest.mark.parametrize(
    ("text", "ranks", "times", "said"),
    [
        ("Ranks {x.ranks} wait in vain.", "0", 1, "Rank 0 waits in vain."),
        ("Ranks {x.ranks} wait in vain.", "0-3", 1, "Ranks 0-3 wait in vain."),
        ("[[Ranks {x.ranks} wait]] there", "12", 1, "Rank 12 waits there"),
        ("missing: ranks {x.ranks}[[ ({x.times} times)]].", "5", 1, "missing: rank 5 (1 time)."),
        ("seen {x.times} times in rank {x.ranks}", "5", 2, "seen 2 times in rank 5"),
        ("Rank {x.times} waits, {x.times:.0f} hosts", "5", 1, "Rank 1 waits, 1 host"),
        ("{x.times} other", "5", 1, "1 other"),
    ],
)
def test_one_of_something_is_singular(text: str, ranks: str, times: int, said: str) -> None:
    event = Fact("f0", "kernel_event", {"event": "xid", "text": "", "ranks": ranks, "times": times})
    assert render(text, {"x": event}) == said


def test_a_device_alone() -> None:
    event = Fact("f0", "kernel_event", {"event": "xid", "text": "", "device": "mlx5_3"})
    assert render("{x.host} {x.device} is down.", {"x": event}) == "mlx5_3 is down."


@pytest.mark.parametrize(
    ("command", "fields", "filled"),
    [
        ("py-spy dump --pid [[{x.pid}||PID]]", {"pid": 7}, "py-spy dump --pid 7"),
        ("py-spy dump --pid [[{x.pid}||PID]]", {}, "py-spy dump --pid PID"),
        ("ethtool [[{x.device}||IFACE]]", {"device": "eth0"}, "ethtool eth0"),
        ("ethtool [[{x.device}||IFACE]]", {"device": "eth0; reboot"}, "ethtool 'eth0; reboot'"),
        ("ethtool [[{x.device}||IFACE]]", {"device": "--flash"}, "ethtool IFACE"),
        ("ethtool [[{x.device}||IFACE]]", {"device": ""}, "ethtool IFACE"),
        ("ls '/sys/[[{x.device}||DEVICE]]/mtu'", {"device": "e'; reboot; '"}, "ls '/sys/DEVICE/mtu'"),
        ("[[ -d /x || -d /y ]] && ls {x.device}", {"device": "eth0"}, "[[ -d /x || -d /y ]] && ls eth0"),
        ("ssh [[{x.host}||HOST]] uptime", {"host": UNNAMED_HOST}, "ssh HOST uptime"),
        ("ls [[{x.device}||D]]", {"device": "[[{x.pid}||PID]]", "pid": 7}, "ls '[[{x.pid}||PID]]'"),
    ],
)
def test_a_command_says_what_is_known_and_what_to_put_where_it_is_not(
    command: str, fields: dict[str, Value], filled: str
) -> None:
    event = Fact("f0", "kernel_event", {"event": "xid", "text": "", **fields})
    assert fill(command, {"x": event}, shell=True) == filled


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
