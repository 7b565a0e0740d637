"""Every rule of the built-in pack passes lint and its own examples, and the engine agrees."""

from functools import cache

import pytest

from diagnose import engine, packs, reference
from diagnose.model import Fact
from diagnose.rulebook import lint, load, run_examples

PACK = packs.builtin("rules")


@cache
def book():
    return load([PACK], statuses=("draft", "trial", "stable"))


def test_lint_finds_nothing():
    assert [str(e) for e in lint([PACK]) if e.level == "error"] == []


@pytest.mark.parametrize("rule", book().rules, ids=lambda rule: rule.id)
def test_examples(rule):
    assert run_examples(rule) == []


def test_the_engine_answers_all_examples_as_the_reference_does():
    given = [pair for rule in book().rules for example in rule.examples for pair in example.given]
    facts = [Fact(f"f{n}", kind, fields) for n, (kind, fields) in enumerate(given)]
    wanted, got = reference.run(book().rules, facts), engine.run(book().rules, facts)
    assert wanted.firings
    assert (got.firings, got.problems) == (wanted.firings, wanted.problems)
