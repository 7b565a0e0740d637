"""Arithmetic across ranks, hosts and snapshots: observations in, derived facts out. No data frame leaves the room."""

from __future__ import annotations

from diagnose.model import Fact, FactBase
from diagnose.tables import benchmarks, counters, deviations, host, network, profiles, progress, readings, stacks
from diagnose.tables.summary import job, summary

__all__ = ["derive", "job", "summary"]

PARTS = (progress, stacks, counters, deviations, network, host, benchmarks, readings, profiles)


def derive(base: FactBase) -> list[Fact]:
    """All derived facts, in a fixed order."""
    return [fact for part in PARTS for fact in part.derive(base)]
