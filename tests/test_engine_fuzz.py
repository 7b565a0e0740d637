"""The engine and the reference give the same outcome for random programs; the reference agrees with a naive reading."""

import sys

import pytest
from rule_programs import Programs, naive

from diagnose import engine, reference

SEEDS = range(20261130, 20261130 + 24)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_engine_means_what_the_reference_means(seed):
    programs = Programs(seed)
    rules, facts = programs.rules(60), programs.facts(28)
    wanted = reference.run(rules, facts)
    got = engine.run(rules, facts)
    if sys.version_info < (3, 13):
        assert got.engine.startswith("durable-rules "), (seed, got.problems)
    assert got.problems == wanted.problems, seed
    assert got.firings == wanted.firings, seed
    assert repr(got.facts) == repr(wanted.facts), seed


@pytest.mark.parametrize("seed", range(60))
def test_the_reference_agrees_with_trying_every_choice_of_facts(seed):
    programs = Programs(seed)
    facts = programs.facts(9)
    for rule in programs.rules(8):
        found = reference.run([rule], facts)
        first = {f.id for f in facts}
        got = {tuple(f.bindings[p.alias] for p in rule.when) for f in found.firings}
        assert len(got) == len(found.firings)
        assert got == naive(rule, [f for f in facts if f.id in first]), (seed, rule)
