"""Writes the stored bundles: `PYTHONPATH=tests/scenarios python -m forge [NAME …]`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml

from forge import SCENARIOS, make

FIXTURES = Path(__file__).parents[3] / "fixtures"
EXPECTED = Path(__file__).parents[1] / "expected"


def store(name: str) -> None:
    """Write one scenario and what is expected of it."""
    made = make(name)
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    made.bundle.write(folder)
    text = yaml.safe_dump(made.truth.as_data(), sort_keys=False, width=120)
    (EXPECTED / f"{name}.yaml").write_text(text, encoding="utf-8")


for wanted in sys.argv[1:] or SCENARIOS:
    store(wanted)
