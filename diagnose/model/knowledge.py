"""What is known: facts, and the observations that tables compute across."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.model.evidence import Evidence, Fields, Problem, Value


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement of the vocabulary. `fields` is flat: scalars and tuples of scalars; host and rank are fields."""

    id: str
    kind: str
    fields: Fields
    evidence: tuple[Evidence, ...] = ()

    def get(self, name: str) -> Value | None:
        """Field value, or None when unknown."""
        return self.fields.get(name)


@dataclass(frozen=True, slots=True)
class FactBase:
    """What is known before any arithmetic.

    `observations` are unfolded, in source order; `facts` are folded and hold the coverage; `hosts` are all host names
    with evidence; `rank_host` maps global ranks to hosts as far as the evidence tells; `world` is the job's size.
    """

    observations: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    problems: tuple[Problem, ...]
    hosts: tuple[str, ...]
    rank_host: Mapping[int, str]
    world: int | None
