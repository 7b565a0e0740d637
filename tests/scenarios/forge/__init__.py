"""Writes bundles of invented jobs in the formats of real tools, and the truth about each; same name, same bytes."""

from . import clocks, healthy, lossless, lots, nodes, overlays, stalls  # noqa: F401 - they register their scenarios
from .core import SCENARIOS, Bundle, Scenario, Truth, make

__all__ = ["SCENARIOS", "Bundle", "Scenario", "Truth", "make"]
