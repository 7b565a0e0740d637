"""Writes bundles of invented jobs in the formats of the real tools, and the truth about each; same name, same bytes."""

from . import healthy, stalls
from .core import SCENARIOS, Bundle, Scenario, Truth, make

__all__ = ["SCENARIOS", "Bundle", "Scenario", "Truth", "healthy", "make", "stalls"]
