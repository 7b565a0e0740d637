"""What every test of the arithmetic needs: observations with evidence, and the derived facts held to the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

from diagnose.model import Evidence, Fact, FactBase, Value
from diagnose.vocabulary import vocabulary

Given = tuple[str, Mapping[str, Value]]


def observations(given: Iterable[Given]) -> tuple[Fact, ...]:
    """One observation each, with line n of `log` as its evidence."""
    found = [
        Fact(f"o{n}", kind, fields, (Evidence("log", n, n, f"line {n}"),)) for n, (kind, fields) in enumerate(given, 1)
    ]
    for fact in found:
        assert not (wrong := vocabulary().check(fact.kind, fact.fields)), wrong
    return tuple(found)


def base(*given: Given, facts: Iterable[Given] = (), ranks: Mapping[int, str] | None = None) -> FactBase:
    """A fact base of these observations; `facts` are those of the site file."""
    seen = observations(given)
    hosts = sorted({str(o.fields["host"]) for o in seen if "host" in o.fields})
    return FactBase(seen, observations(facts), (), tuple(hosts), ranks or {}, len(ranks) if ranks else None)


def derived(part: ModuleType, known: FactBase, kind: str | None = None) -> list[Fact]:
    """Derived facts of one module (of one kind), each conforming to the vocabulary and of a kind that tables make."""
    found = list(part.derive(known))
    for fact in found:
        wrong = vocabulary().check(fact.kind, fact.fields)
        assert not wrong, wrong
        assert fact.kind == "covered" or vocabulary().kinds[fact.kind].origin == "tables"
    return [f for f in found if kind is None or f.kind == kind]


def lines(fact: Fact) -> list[int]:
    """Numbers of the evidence lines."""
    return [e.first for e in fact.evidence]
