"""A small, seeded set of incidents through the whole chain; `benchmarks/stall_accuracy.py` measures a thousand."""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]

from stall_accuracy import run_one  # noqa: E402

INCIDENTS, LARGEST = 36, 40


def test_the_right_ranks_are_named_and_no_other() -> None:
    """The seed is drawn anew at every run and shown when this fails; STALL_SEED repeats one."""
    seed = int(os.environ.get("STALL_SEED", secrets.randbelow(1 << 40)))
    draw = Random(seed)
    results = [run_one(draw.randrange(1 << 40), LARGEST) for _ in range(INCIDENTS)]
    odd = [r for r in results if r["verdict"] != "exact" and not (r["verdict"] == "open" and r["may_pass"])]
    verdicts = Counter(r["verdict"] for r in results)
    told = f"STALL_SEED={seed} {verdicts} {odd}"
    assert verdicts["wrong"] + verdicts["alarm"] <= 1, told
    assert len(odd) <= 3, told
