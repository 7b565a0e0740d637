"""A small, seeded set of incidents through the whole chain; `benchmarks/stall_accuracy.py` measures a thousand."""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]

import pytest  # noqa: E402
from stall_accuracy import run_one  # noqa: E402

from diagnose import packs, rulebook  # noqa: E402

LARGEST = 40


@pytest.fixture(autouse=True)
def rules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are loaded once for all incidents of a test."""
    rules = rulebook.load((packs.builtin("rules"),))
    monkeypatch.setattr(rulebook, "load", lambda *_, **__: rules)


def outcome(seed: int, incidents: int) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Verdicts, and the incidents that were not answered as they could be."""
    draw = Random(seed)
    results = [run_one(draw.randrange(1 << 40), LARGEST) for _ in range(incidents)]
    odd = [r for r in results if r["verdict"] != "exact" and not (r["verdict"] == "open" and r["may_pass"])]
    return Counter(r["verdict"] for r in results), odd


def test_the_right_ranks_are_named_and_no_other() -> None:
    verdicts, odd = outcome(20260512, 30)
    assert verdicts["wrong"] + verdicts["alarm"] == 0, odd
    assert len(odd) <= 1, odd


def test_incidents_that_nobody_has_seen() -> None:
    """The seed is drawn anew at every run and shown when this fails; STALL_SEED repeats one."""
    seed = int(os.environ.get("STALL_SEED", secrets.randbelow(1 << 40)))
    verdicts, odd = outcome(seed, 14)
    told = f"STALL_SEED={seed} {verdicts} {odd}"
    assert verdicts["wrong"] + verdicts["alarm"] <= 1, told
    assert len(odd) <= 3, told
