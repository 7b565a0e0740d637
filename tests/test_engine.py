"""The engine: limits that nobody meets, failures that the reference answers for, and that durable-rules really runs."""

import subprocess
import sys
import textwrap
from importlib import metadata

import pytest

from diagnose import engine, reference
from diagnose.conditions import parse_condition
from diagnose.model import And, Compare, Const, Derivation, Fact, Or, Pattern, Ref, Rule, SeverityChoice
from diagnose.vocabulary import vocabulary

try:
    metadata.version("durable-rules")
    INSTALLED = True
except metadata.PackageNotFoundError:
    INSTALLED = False

needs_durable = pytest.mark.skipif(
    not INSTALLED and sys.version_info >= (3, 13), reason="durable-rules does not build on this Python without a flag"
)


def pattern(alias, kind, where="", **aliases):
    condition = parse_condition(where, kind, aliases, {}, vocabulary()) if where else And(())
    return Pattern(alias, kind, condition)


def rule(name, *when, supports=(), unless=(), derives=(), phase=0):
    return Rule(
        f"test/{name}", "stable", (SeverityChoice("major"),), "high", when, tuple(supports), tuple(unless),
        (), (), {}, derives=tuple(derives), phase=phase,
    )  # fmt: skip


def facts(*given):
    return [Fact(f"f{n}", kind, fields) for n, (kind, fields) in enumerate(given)]


def both(rules, given):
    """The outcome, given that the engine answered and agrees with the reference."""
    got, wanted = engine.run(rules, given), reference.run(rules, given)
    assert got.engine == f"durable-rules {metadata.version('durable-rules')}", got.problems
    assert got.firings == wanted.firings
    assert repr(got.facts) == repr(wanted.facts)
    assert got.problems == wanted.problems
    return got


def bound(outcome):
    return [(f.rule.split("/")[1], *f.bindings.values()) for f in outcome.firings]


RATES = [("nic_rate", {"host": f"n{n % 7}", "device": f"eth{n % 3}", "value": n, "metric": "x"}) for n in range(40)]
PAUSE = pattern("a", "nic_rate", "value > 36")


@needs_durable
def test_durable_answers_where_it_installs():
    """The stand-in must not silently become the engine."""
    outcome = engine.run([rule("one", PAUSE)], facts(*RATES))
    assert outcome.engine == "durable-rules 2.0.28"
    assert outcome.problems == ()
    assert bound(outcome) == [("one", "f37"), ("one", "f38"), ("one", "f39")]
    assert [f.order for f in outcome.firings] == [0, 1, 2]


@needs_durable
def test_joins_unless_supports_and_coverage():
    rules = [
        rule(
            "joined",
            PAUSE,
            pattern("b", "nic_rate", "host == a.host and value < a.value - 25", a="nic_rate"),
            supports=[pattern("s", "nic_rate", "device == a.device and value < 3", a="nic_rate")],
            unless=[pattern("u", "kernel_event", "host == a.host", a="nic_rate"), pattern("v", "stall")],
        )
    ]
    given = facts(*RATES, ("kernel_event", {"host": "n3", "event": "xid", "text": ""}))
    outcome = both(rules, given)
    assert {f.bindings["a"] for f in outcome.firings} == {"f37", "f39"}
    assert outcome.firings[0].supports == {"s": ("f1",)}
    assert {f.checked for f in outcome.firings} == {(False, True)}
    covered = [Fact(f"c{n}", "covered", {"topic": "kernel_log", "host": h}) for n, h in enumerate(("n2", "n4"))]
    checked = {f.bindings["a"]: f.checked for f in both(rules, given + covered).firings}
    assert checked == {"f37": (True, True), "f39": (True, True)}


@needs_durable
def test_one_fact_is_bound_once_in_a_match():
    rules = [rule("pair", pattern("a", "stall"), pattern("b", "stall"), unless=[pattern("u", "stall")])]
    assert bound(both(rules, facts(("stall", {}), ("stall", {})))) == [("pair", "f0", "f1"), ("pair", "f1", "f0")]
    assert both(rules, facts(*[("stall", {})] * 3)).firings == ()


@needs_durable
def test_unknown_is_neither_true_nor_false():
    given = facts(("nic_rate", {"host": "n1"}), ("nic_rate", {"host": "n2", "value": 1}))
    for where, wanted in (
        ("value > 0", ["f1"]),
        ("not (value > 0)", []),
        ("unknown value", ["f0"]),
        ("value > 0 or host == 'n1'", ["f0", "f1"]),
        ("not (value > 0 and host == 'n1')", ["f1"]),
    ):
        outcome = both([rule("x", pattern("a", "nic_rate", where))], given)
        assert [f.bindings["a"] for f in outcome.firings] == wanted, where


@needs_durable
def test_derived_facts_exist_for_later_phases_only():
    made = Derivation("suspect_rank", {"host": Ref("a", "host"), "reason": Const("x"), "lag": Ref("a", "rank")})
    rules = [
        rule("late", pattern("s", "suspect_rank"), phase=1),
        rule("early", PAUSE, derives=[made]),
        rule("same", pattern("s", "suspect_rank"), phase=0),
        rule("quiet", PAUSE, unless=[pattern("u", "suspect_rank", "host == a.host", a="nic_rate")], phase=2),
    ]
    outcome = both(rules, facts(*RATES))
    assert [f.rule for f in outcome.firings] == ["test/early"] * 3 + ["test/late"] * 3
    assert [(f.id, f.fields) for f in outcome.facts[-3:]] == [
        (f"test/early#{n}", {"host": f"n{h}", "reason": "x"}) for n, h in ((1, 2), (2, 3), (3, 4))
    ]


@needs_durable
def test_two_hundred_rules_on_one_kind():
    rules = [
        rule(f"r{n:03d}", pattern("a", "nic_rate", f"value > {n // 8} and device != 'eth{n % 3}'")) for n in range(200)
    ]
    rules += [
        rule(f"s{n:03d}", PAUSE, pattern("b", "nic_rate", f"host == a.host and value > {n}", a="nic_rate"))
        for n in range(100)
    ]
    outcome = both(rules, facts(*RATES))
    assert len({f.rule for f in outcome.firings}) == 232


@needs_durable
def test_many_patterns_blockers_alternatives_and_kinds():
    kinds = [f"kind{n}" for n in range(600)]
    rules = [rule(f"k{n:03d}", Pattern("a", kind)) for n, kind in enumerate(kinds)]
    chain = [Pattern("p0", "stall", Compare("==", Ref(None, "seq"), Const(0)))]
    for n in range(1, 14):
        chain.append(pattern(f"p{n}", "stall", f"seq == p{n - 1}.seq + 1", **{f"p{n - 1}": "stall"}))
    rules.append(rule("chain", *chain))
    unless = [
        pattern("u", "nic_rate", f"host == a.host and value == a.value + {n}", a="nic_rate") for n in range(1, 13)
    ]
    rules.append(rule("unless", pattern("a", "nic_rate"), unless=unless))
    either = " or ".join(f"host == 'n{n}' and value > a.value" for n in range(30))
    rules.append(rule("either", PAUSE, pattern("b", "nic_rate", either, a="nic_rate")))
    given = facts(*RATES, *[("stall", {"seq": n}) for n in range(14)], *[(kind, {}) for kind in kinds])
    outcome = both(rules, given)
    assert sum(f.rule == "test/chain" for f in outcome.firings) == 1
    assert [f.bindings["a"] for f in outcome.firings if f.rule == "test/unless"] == [f"f{n}" for n in range(33, 40)]


def test_what_cannot_be_compiled_is_answered_by_the_reference_with_a_problem():
    either = [
        Or(tuple(Compare(op, Ref(None, "value"), Ref("a", "value")) for op in ("<", ">", "=="))) for _ in range(4)
    ]
    outcome = engine.run([rule("wide", PAUSE, Pattern("b", "nic_rate", And(tuple(either))))], facts(*RATES))
    assert len(outcome.firings) == 3 * 39
    if INSTALLED:
        assert outcome.engine.startswith("reference (rule test/wide: ")
        assert "alternatives" in outcome.problems[0].text


CHILDREN = {
    "hang": ("import time; time.sleep(60)", "no answer in 0.5 s"),
    "crash": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11"),
    "exit": ("import sys; sys.exit('no such module')", "exit code 1: no such module"),
    "nonsense": ("input(); print('{}')", "its answer makes no sense"),
    "half": ("input(); print('{\"fired\": [[[', end='')", "exit code 0"),
    "error": ('print(\'{"error": "code 303"}\')', "code 303"),
    "wrong": ('print(\'{"fired": [[["0.0.0", [999]]]]}\')', "its answer makes no sense"),
    "silent": ("input()", "exit code 0"),
}


@needs_durable
@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_that_fails_is_replaced_by_the_reference(name, tmp_path, monkeypatch):
    code, why = CHILDREN[name]
    child = tmp_path / "child.py"
    child.write_text(code)
    monkeypatch.setattr(engine, "_CHILD", child)
    rules, given = [rule("one", PAUSE)], facts(*RATES)
    outcome = engine.run(rules, given, timeout_s=0.5 if name == "hang" else 20)
    assert outcome.firings == reference.run(rules, given).firings
    assert outcome.engine == f"reference ({why})"
    (problem,) = outcome.problems
    assert why in problem.text


def test_a_missing_engine_is_named_but_no_problem(monkeypatch):
    monkeypatch.setattr(engine, "_installed", lambda: None)
    outcome = engine.run([rule("one", PAUSE)], facts(*RATES))
    assert outcome.engine == "reference (durable-rules is not installed)"
    assert outcome.problems == ()
    assert len(outcome.firings) == 3


@needs_durable
def test_too_many_firings_are_cut_and_told():
    many = facts(*[("stall", {"seq": n}) for n in range(120)])
    outcome = both([rule("all", pattern("a", "stall"), pattern("b", "stall")), rule("other", PAUSE)], many)
    assert len(outcome.firings) == reference.MAX_RULE_FIRINGS
    assert "only the first" in outcome.problems[0].text
    more = facts(*[("stall", {"seq": n}) for n in range(300)])
    outcome = engine.run([rule("all", pattern("a", "stall"), pattern("b", "stall"))], more)
    assert outcome.engine.startswith("reference (")
    assert len(outcome.firings) == reference.MAX_RULE_FIRINGS


def test_the_reference_gives_up_on_a_search_that_is_too_wide(monkeypatch):
    monkeypatch.setattr(reference, "MAX_STEPS", 1_000)
    wide = rule("wide", pattern("a", "stall"), pattern("b", "stall", "seq > a.seq + 1000", a="stall"))
    outcome = reference.run([wide, rule("other", PAUSE)], facts(*RATES, *[("stall", {"seq": n}) for n in range(90)]))
    assert "search stopped" in outcome.problems[0].text
    assert sum(f.rule == "test/other" for f in outcome.firings) == 3


def test_facts_with_one_id_are_told():
    given = [*facts(*RATES), Fact("f39", "nic_rate", {"value": 99})]
    outcome = engine.run([rule("one", PAUSE)], given)
    assert len(outcome.firings) == 3
    assert "share the id" in outcome.problems[0].text


def test_no_rules_and_no_facts():
    assert engine.run([], facts(*RATES)).firings == ()
    assert engine.run([rule("one", PAUSE)], []).firings == ()


def test_the_child_imports_durable_and_nothing_of_diagnose():
    code = textwrap.dedent(
        f"""
        import io, runpy, sys
        sys.stdin = io.StringIO("")
        runpy.run_path({str(engine._CHILD)!r}, run_name="__main__")
        loaded = {{name.split(".")[0] for name in sys.modules}}
        assert "durable" in loaded
        sys.stderr.write(" ".join(loaded & {{"diagnose", "pandas", "yaml", "pyparsing"}}))
        """
    )
    installed = engine._installed()
    if installed is None:
        pytest.skip("durable-rules is not installed")
    done = subprocess.run([sys.executable, "-I", "-c", code, installed[1]], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@needs_durable
def test_two_runs_are_identical():
    rules = [rule("pair", pattern("a", "nic_rate"), pattern("b", "nic_rate", "host == a.host", a="nic_rate"))]
    assert engine.run(rules, facts(*RATES)) == engine.run(rules, facts(*RATES))
