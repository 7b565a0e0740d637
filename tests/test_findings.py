"""Findings: grouping, folding under causes, ranking, confidence, next evidence, acknowledgements, unknowns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from diagnose import findings, reference
from diagnose.conditions import parse_condition
from diagnose.findings import MAX_EVIDENCE, MAX_SUBJECTS, MERGE_ABOVE, Acknowledgement
from diagnose.model import (
    And,
    Evidence,
    Explains,
    Fact,
    Finding,
    LookAlike,
    Pattern,
    Ref,
    Rule,
    SeverityChoice,
    Step,
    Subject,
    Texts,
    Value,
)
from diagnose.vocabulary import vocabulary

Given = tuple[str, Mapping[str, Value]]


def pattern(alias: str, kind: str, where: str = "", **aliases: str) -> Pattern:
    condition = parse_condition(where, kind, aliases, {}, vocabulary()) if where else And(())
    return Pattern(alias, kind, condition)


def ref(text: str) -> Ref:
    alias, _, field = text.partition(".")
    return Ref(alias, field)


def rule(
    name: str,
    *when: Pattern,
    about: Sequence[tuple[str, str]] = (),
    severity: Any = "major",
    explains: Any = (),
    **more: Any,
) -> Rule:
    choices = (SeverityChoice(severity),) if isinstance(severity, str) else tuple(severity)
    texts = Texts(f"Title of {name}", more.pop("says", "something"), "because", more.pop("steps", ()))
    return Rule(
        name, more.pop("status", "stable"), choices, more.pop("confidence", "high"), when, more.pop("supports", ()),
        more.pop("unless", ()), tuple((kind, ref(r)) for kind, r in about), tuple(ref(r) for r in more.pop("per", ())),
        more.pop("texts", {"en": texts}),
        tuple(Explains(e) if isinstance(e, str) else Explains(*e) for e in explains), **more,
    )  # fmt: skip


def facts(*given: Given) -> list[Fact]:
    return [
        Fact(f"f{n}", kind, fields, (Evidence("log", n, n, f"line {n}"),)) for n, (kind, fields) in enumerate(given, 1)
    ]


def judge(rules: Sequence[Rule], *given: Given, **options: Any) -> list[Finding]:
    return list(findings.judge(rules, reference.run(rules, facts(*given)), **options))


def drops(host: str, device: str = "eth2", value: float = 1.0) -> Given:
    return ("nic_rate", {"host": host, "device": device, "metric": "crc_errors", "value": value, "delta": int(value)})


def xid(host: str, code: int = 79, **fields: Value) -> Given:
    return ("kernel_event", {"host": host, "event": "xid", "code": code, "text": "Xid", **fields})


def covered(topic: str, host: str) -> Given:
    return ("covered", {"topic": topic, "host": host})


NIC = rule(
    "link/x",
    pattern("nic", "nic_rate"),
    about=[("host", "nic.host"), ("nic", "nic.device")],
    says="{nic.value:.0f} on {nic.host}",
)
GPU = rule("gpu/x", pattern("xid", "kernel_event"), about=[("host", "xid.host")], severity="critical")


# --- grouping -----------------------------------------------------------------------------------------


def test_one_finding_per_subjects_with_the_evidence_of_all_firings():
    (finding,) = judge([NIC], drops("n1", value=1.0), drops("n1", value=2.0))
    assert finding.subjects == (Subject("host", "n1"), Subject("nic", "eth2", "n1"))
    assert [e.first for e in finding.evidence] == [1, 2]
    assert (finding.id, finding.title, finding.summary, finding.role) == (
        "link/x",
        "Title of link/x",
        "1 on n1",
        "root",
    )


def test_per_joins_what_about_would_keep_apart():
    one = rule(
        "link/y", pattern("nic", "nic_rate"), about=[("host", "nic.host"), ("nic", "nic.device")], per=["nic.host"]
    )
    (finding,) = judge([one], drops("n1", "eth2"), drops("n1", "eth3"))
    assert [s.name for s in finding.subjects] == ["n1", "eth2", "eth3"]


def test_the_worst_firing_speaks():
    worse = [SeverityChoice("critical", parse_condition("nic.value > 5", None, {"nic": "nic_rate"}, {}, vocabulary())),
             SeverityChoice("minor")]  # fmt: skip
    one = rule(
        "link/y", pattern("nic", "nic_rate"), about=[("host", "nic.host")], severity=worse, says="{nic.value:.0f}"
    )
    (finding,) = judge([one], drops("n1", value=1.0), drops("n1", "eth3", value=9.0))
    assert (finding.severity, finding.summary) == ("critical", "9")


def test_ranks_are_folded_and_stand_first():
    one = rule("stall/x", pattern("s", "suspect_rank"), about=[("host", "s.host"), ("rank", "s.rank")], per=["s.host"])
    given: list[Given] = [("suspect_rank", {"host": "n1", "rank": r, "reason": "absent"}) for r in (5, 3, 4, 9)]
    (finding,) = judge([one], *given)
    assert finding.subjects == (Subject("rank", "3-5,9", "n1"), Subject("host", "n1"))


def test_unreadable_ranks_do_no_harm():
    one = rule("stall/x", pattern("s", "stall"), about=[("rank", "s.behind")])
    (finding,) = judge([one], ("stall", {"evidence_kind": "ras", "verdict": "undetermined", "behind": "3-x"}))
    assert finding.subjects == ()


def test_many_alike_become_one_that_lists_them_all():
    given = [drops(f"n{n}", value=float(n)) for n in range(MERGE_ABOVE + 3)]
    (finding,) = judge([NIC], *given)
    assert f"and {MERGE_ABOVE + 2} more like it, on {MERGE_ABOVE + 3} hosts in all" in finding.summary
    assert {s.name for s in finding.subjects if s.kind == "host"} == {f"n{n}" for n in range(MERGE_ABOVE + 3)}
    assert len(judge([NIC], *given[:MERGE_ABOVE])) == MERGE_ABOVE


def test_subjects_and_evidence_are_bounded():
    (finding,) = judge([NIC], *[drops(f"n{n}") for n in range(200)])
    assert (len(finding.subjects), len(finding.evidence)) == (MAX_SUBJECTS, MAX_EVIDENCE)


def test_a_rule_on_trial_says_at_most_minor():
    (finding,) = judge([rule("gpu/t", pattern("xid", "kernel_event"), severity="critical", status="trial")], xid("n1"))
    assert finding.severity == "minor"


def test_info_is_context_and_no_fault():
    (finding,) = judge([rule("gpu/i", pattern("xid", "kernel_event"), severity="info")], xid("n1"))
    assert finding.role == "context"


# --- folding ------------------------------------------------------------------------------------------


def roles(found: Sequence[Finding]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(f.id, f.role, f.explained_by) for f in found]


def explaining(*explains: Any, severity: str = "critical") -> Rule:
    return rule(
        "gpu/x", pattern("xid", "kernel_event"), about=[("host", "xid.host")], severity=severity, explains=explains
    )


def test_a_cause_folds_its_consequence_on_the_same_host():
    found = judge([NIC, explaining("link/x")], drops("n1"), drops("n2"), xid("n1"))
    assert roles(found) == [("gpu/x", "root", ()), ("link/x", "root", ()), ("link/x", "consequence", ("gpu/x",))]
    assert found[1].subjects[0].name == "n2"


def test_a_family_and_the_whole_job():
    assert roles(judge([NIC, explaining(("link/*", "job"))], drops("n2"), xid("n1")))[1] == (
        "link/x",
        "consequence",
        ("gpu/x",),
    )


def test_a_finding_about_no_host_touches_all():
    job = rule("stall/x", pattern("s", "stall"))
    stall: Given = ("stall", {"evidence_kind": "ras", "verdict": "undetermined"})
    assert roles(judge([job, explaining("stall/x")], stall, xid("n1")))[1] == ("stall/x", "consequence", ("gpu/x",))


def test_nothing_hides_what_is_more_severe():
    found = judge([NIC, explaining("link/x", severity="minor")], drops("n1"), xid("n1"))
    assert roles(found) == [("link/x", "root", ()), ("gpu/x", "root", ())]


def test_circles_are_cut_at_the_more_causal_end():
    nic = rule("link/x", pattern("nic", "nic_rate"), about=[("host", "nic.host")], explains=["gpu/x"])
    found = judge([nic, explaining("link/x", severity="major")], drops("n1"), xid("n1"))
    assert roles(found) == [("gpu/x", "root", ()), ("link/x", "consequence", ("gpu/x",))]


def test_chains_name_each_direct_cause():
    third = rule("perf/x", pattern("s", "straggler"), about=[("host", "s.host")])
    nic = rule("link/x", pattern("nic", "nic_rate"), about=[("host", "nic.host")], explains=["perf/x"])
    slow: Given = (
        "straggler", {"host": "n1", "subject": "host", "name": "n1", "figure": "busbw", "value": 1.0, "median": 2.0,
                      "slower_pct": 50.0},
    )  # fmt: skip
    found = judge([third, nic, explaining("link/x", "perf/x")], slow, drops("n1"), xid("n1"))
    assert [f.explained_by for f in found] == [(), ("gpu/x",), ("gpu/x", "link/x")]


# --- order ----------------------------------------------------------------------------------------------


def test_severity_then_confidence_then_causal_depth():
    rules = [
        rule(name, pattern("xid", "kernel_event"), severity=severity, confidence=confidence)
        for name, severity, confidence in (
            ("perf/a", "major", "high"), ("gpu/b", "major", "medium"), ("topo/c", "critical", "low"),
            ("link/d", "major", "high"), ("gpu/e", "info", "high"),
        )
    ]  # fmt: skip
    assert [f.id for f in judge(rules, xid("n1"))] == ["topo/c", "link/d", "perf/a", "gpu/b", "gpu/e"]


# --- confidence and next evidence -------------------------------------------------------------------------


def unless_fabric(**more: Any) -> Rule:
    exception = pattern("", "kernel_event", "host == nic.host", nic="nic_rate")
    return rule("lossless/x", pattern("nic", "nic_rate"), unless=(exception,), about=[("host", "nic.host")], **more)


def test_an_open_question_costs_one_level_and_is_asked():
    (finding,) = judge([unless_fabric()], drops("n1"), covered("kernel_log", "n2"))
    assert finding.confidence == "medium"
    assert [n.text for n in finding.next_evidence] == ["not checked: kernel log"]
    assert finding.next_evidence[0].command.startswith("dmesg")


def test_a_checked_exception_costs_nothing():
    (finding,) = judge([unless_fabric()], drops("n1"), covered("kernel_log", "n1"))
    assert (finding.confidence, finding.next_evidence) == ("high", ())


def test_derived_exceptions_count_as_checked():
    one = rule("link/y", pattern("nic", "nic_rate"), unless=(pattern("", "deviation", "subject == 'pfc'"),))
    (finding,) = judge([one], drops("n1"))
    assert (finding.confidence, finding.next_evidence) == ("high", ())


def test_missing_support_and_look_alikes_are_asked_for():
    look = LookAlike("gpu/y", "is it the other one?", "the other counter", "cat other")
    one = rule("link/y", pattern("nic", "nic_rate"), supports=(pattern("k", "kernel_event"),), look_alikes=(look,))
    (finding,) = judge([one], drops("n1"))
    assert [(n.text, n.command.split("  ")[0]) for n in finding.next_evidence] == [
        ("the other counter", "cat other"), ("would strengthen this: kernel log", "dmesg -T"),
    ]  # fmt: skip
    assert finding.look_alikes[0].question == "is it the other one?"


# --- steps and texts ----------------------------------------------------------------------------------------


def test_steps_name_host_and_device_and_commands_quote_them():
    steps = (Step("Look at {nic.device}", "read-only", "ethtool -S {nic.device}", "{nic.host}", "see {nic.metric}"),)
    one = rule("link/y", pattern("nic", "nic_rate"), about=[("host", "nic.host")], steps=steps)
    (finding,) = judge([one], drops("n1", "eth2; reboot"))
    assert finding.remediation == (
        Step("Look at eth2; reboot", "read-only", "ethtool -S 'eth2; reboot'", "n1", "see crc_errors"),
    )  # fmt: skip


def test_the_language_asked_for_or_english():
    both = {"en": Texts("English", "s", "c"), "zh": Texts("中文", "s", "c")}
    one = rule("gpu/x", pattern("xid", "kernel_event"), texts=both)
    assert [judge([one], xid("n1"), lang=lang)[0].title for lang in ("en", "zh", "de")] == [
        "English",
        "中文",
        "English",
    ]


# --- acknowledgements -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "host", "hit"),
    [("link/x", None, True), ("link/*", "n1", True), ("link/x", "n2", False), ("gpu/*", None, False)],
)
def test_acknowledged_by_id_family_and_host(id: str, host: str | None, hit: bool):
    (finding,) = judge([NIC], drops("n1"), acknowledged=[Acknowledgement(id, host, "cable on order")])
    assert finding.acknowledged == ("cable on order" if hit else None)


def test_the_same_on_other_hosts_is_not_acknowledged():
    hosts = {f"n{n}" for n in range(MERGE_ABOVE + 3)}
    found = judge([NIC], *map(drops, sorted(hosts)), acknowledged=[Acknowledgement("link/x", "n1", "cable on order")])
    told = {f.acknowledged: {s.name for s in f.subjects if s.kind == "host"} for f in found}
    assert told == {"cable on order": {"n1"}, None: hosts - {"n1"}}


def test_a_finding_about_two_hosts_is_acknowledged_when_both_are():
    other = pattern("other", "nic_rate", "value > nic.value", nic="nic_rate")
    two = rule("link/y", pattern("nic", "nic_rate"), other, about=[("host", "nic.host"), ("host", "other.host")])
    one, both = Acknowledgement("link/y", "n1", "ticket 1"), Acknowledgement("link/*", "n2", "ticket 2")
    given = [drops("n1"), drops("n2", value=2.0)]
    assert [f.acknowledged for f in judge([two], *given, acknowledged=[one])] == [None]
    assert [f.acknowledged for f in judge([two], *given, acknowledged=iter([one, both]))] == ["ticket 1; ticket 2"]


# --- what was not judged ----------------------------------------------------------------------------------


def unknown(rules: Sequence[Rule], *given: Given) -> list[tuple[str, str]]:
    found = findings.unknowns(rules, reference.run(rules, facts(*given)))
    return [(u.question, u.collect.split("  ")[0]) for u in found]


def test_a_blind_rule_is_not_judged_and_its_command_named():
    assert unknown([GPU]) == [("kernel log: Title of gpu/x?", "dmesg -T")]


def test_a_topic_read_anywhere_is_judged():
    assert unknown([GPU], covered("kernel_log", "n7")) == []


def test_rules_of_one_topic_are_asked_for_together_and_counted():
    rules = [rule(f"gpu/r{n}", pattern("xid", "kernel_event")) for n in range(5)]
    ((question, _),) = unknown(rules)
    assert question == "kernel log: Title of gpu/r0; Title of gpu/r1; Title of gpu/r2; and 2 more?"


def test_derived_kinds_are_judged_by_any_of_their_sources():
    stall = rule("stall/x", pattern("s", "stall"))
    assert unknown([stall], covered("torch_log", "n1")) == []
    assert len(unknown([stall])) == 1


def test_a_deviation_is_judged_by_its_subject():
    pfc = rule("lossless/x", pattern("d", "deviation", "subject == 'pfc'"))
    assert unknown([pfc], covered("qos", "n1")) == []
    assert [command for _, command in unknown([pfc], covered("nic_link", "n1"))] == ["mlnx_qos -i IFACE"]


def test_related_evidence_is_asked_for_first():
    rules = [GPU, rule("link/y", pattern("nic", "nic_rate"), severity="minor")]
    question, _ = unknown(rules, covered("nic_counters", "n1"))[0]
    assert question.startswith("NIC counters in two snapshots: ")
