"""Compiled rules and facts -> the child's job as JSON values, and its answer -> joint matches."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from diagnose._durable.compile import (
    Attribute,
    Compiled,
    Compiler,
    Definition,
    Flag,
    Join,
    Shape,
    Unsupported,
    Versus,
)
from diagnose.logic import identity, number, truth_of, valuer
from diagnose.model import Condition, Expr, Fact, Rule, Value
from diagnose.reference import Base, Joint, blocker, satisfied

MAX_PER_KIND = 60
"""Patterns per kind in a ruleset (65 under one parent fail). The engine shares equal ones, but none with a join."""
MAX_KINDS = 480
"""Kinds in a ruleset (511 first conditions work)."""
MAX_RULES = 200
"""Rules of a ruleset, and uses of one pattern (256 identical ones crash)."""
MAX_ATTRIBUTES = 200
"""Attributes of a fact (252 work)."""

Json = dict[str, Any]

_Carried = tuple[str, str]
"""Name of an attribute and its side."""

_GO: Json = {"go": {"kind": "__go"}}
_OPERATORS = {"!=": "$neq", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}


class Codes:
    """Small integers for values: equal values have equal codes, and those of numbers are in their order."""

    def __init__(self, values: Iterable[Value]) -> None:
        numbers: set[int | float] = set()
        others: dict[object, None] = {}
        for value in values:
            figure = number(value)
            if figure is None:
                others[identity(value)] = None
            else:
                numbers.add(figure)
        self._numbers = sorted(numbers)
        self._others = {name: len(self._numbers) + n for n, name in enumerate(others)}

    def of(self, value: Value) -> int:
        """Code of a value that was given at the start."""
        figure = number(value)
        return self._others[identity(value)] if figure is None else bisect_left(self._numbers, figure)


@dataclass(slots=True)
class _Ruleset:
    rules: dict[str, Json] = field(default_factory=dict[str, Json])
    patterns: dict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))
    uses: Counter[str] = field(default_factory=Counter[str])
    carried: dict[str, set[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict[str, set[tuple[str, str]]](set)
    )

    def take(self, definition: Definition, all_of: list[Json], kinds: list[str], texts: list[str]) -> bool:
        """Add a definition where it fits."""
        carried: dict[str, set[_Carried]] = defaultdict(set)
        for shape in (*definition.when, *definition.unless):
            for kind, attribute, side in shape.sides():
                carried[kind].add((attribute.name, side))
        patterns: dict[str, set[str]] = defaultdict(set)
        for kind, text in zip(kinds, texts, strict=True):
            patterns[kind].add(text)
        uses = self.uses + Counter(texts)
        if self.rules and (
            len(self.rules) >= MAX_RULES
            or len(self.patterns.keys() | patterns.keys()) > MAX_KINDS
            or any(len(self.patterns[kind] | some) > MAX_PER_KIND for kind, some in patterns.items())
            or any(len(self.carried[kind] | some) > MAX_ATTRIBUTES for kind, some in carried.items())
            or max(uses.values()) > MAX_RULES
        ):
            return False
        if any(len(some) > MAX_ATTRIBUTES for some in carried.values()):
            raise Unsupported("it looks at too many attributes of one kind")
        self.rules[definition.name] = {"all": all_of}
        self.uses = uses
        for kind, some in patterns.items():
            self.patterns[kind] |= some
        for kind, pairs in carried.items():
            self.carried[kind] |= pairs
        return True


class Phase:
    """The rules of one phase over its facts. Unsupported (with the rule's id) when one cannot be compiled."""

    def __init__(self, rules: Sequence[Rule], base: Base) -> None:
        self._rules, self._base = rules, base
        compiler = Compiler()
        self._compiled: list[Compiled] = []
        for n, rule in enumerate(rules):
            try:
                self._compiled.append(compiler.rule(n, rule))
            except Unsupported as error:
                raise Unsupported(f"rule {rule.id}: {error}") from None
        self._attributes = list(compiler.attributes.values())
        self._values = {a.name: self._evaluated(a) for a in self._attributes}
        constants = [
            part.value
            for compiled in self._compiled
            for definition in compiled.definitions
            for shape in (*definition.when, *definition.unless)
            for part in shape.parts
            if isinstance(part, Versus) and not part.own.name.startswith("t")
        ]
        found = (v for name, values in self._values.items() if name[0] != "t" for v in values if v is not None)
        self._codes = Codes([*constants, *found])

    def _evaluated(self, attribute: Attribute) -> list[Value | None]:
        facts = self._base.by_kind.get(attribute.kind, [])
        if attribute.name[0] == "t":
            test = truth_of(cast(Condition, attribute.item))
            return [test({None: fact}) is True for fact in facts]
        value = valuer(cast(Expr, attribute.item))
        if attribute.name[0] == "o":
            return [number(value({None: fact})) for fact in facts]
        return [value({None: fact}) for fact in facts]

    def job(self, most: int) -> Json:
        """What the child is sent; `most` bounds the joint matches."""
        open_sets: list[_Ruleset] = []
        for compiled in self._compiled:
            for definition in compiled.definitions:
                self._place(definition, open_sets)
        names = {a.name: a for a in self._attributes}
        carriers = [{"rules": s.rules, "facts": self._facts(s, names)} for s in open_sets]
        return {"rulesets": carriers, "max": most}

    def _place(self, definition: Definition, open_sets: list[_Ruleset]) -> None:
        kinds: list[str] = []
        texts: list[str] = []
        whole: list[Json] = []
        for n, shape in enumerate((*definition.when, *definition.unless)):
            if n == len(definition.when):
                whole.append(_GO)
            conditions, joined = self._conditions(shape)
            kinds.append(shape.kind)
            texts.append(json.dumps(conditions) + (f"{definition.name}/{n}" if joined else ""))
            whole.append({f"m{n}" if n < len(definition.when) else f"n{n}$not": {"$and": conditions}})
        if not definition.unless:
            whole.append(_GO)
        for ruleset in open_sets:
            if ruleset.take(definition, whole, kinds, texts):
                return
        open_sets.append(_Ruleset())
        open_sets[-1].take(definition, whole, kinds, texts)

    def _conditions(self, shape: Shape) -> tuple[list[Json], bool]:
        found: list[Json] = [{"kind": shape.kind}]
        joins: list[Json] = []
        for part in shape.parts:
            match part:
                case Versus(op=op, own=own, value=value):
                    code = 1 if own.name.startswith("t") else self._codes.of(value)
                    found.append(_condition_json(op, own.name, code))
                case Flag(place=place, far=far):
                    joins.append({"one": {f"m{place}": "r" + far.name}})
                case Join(op=op, own=own, place=place, far=far):
                    joins.append(_condition_json(op, own.name, {f"m{place}": "r" + far.name}))
                    if (far.kind, far, "k") in shape.sides():
                        joins.append({"one": {f"m{place}": "k" + far.name}})
        if joins:
            joins.sort(key=lambda c: next(iter(c)).startswith("$"))
            joins.append({"$gte": {"one": {"m0": "one"}}})
        elif len(found) == 1:
            found.append({"one": 1})
        return found + joins, bool(joins)

    def _facts(self, ruleset: _Ruleset, names: dict[str, Attribute]) -> list[Json]:
        told: list[Json] = []
        place = self._base.place
        for kind in ruleset.patterns:
            facts: Sequence[Fact] = self._base.by_kind.get(kind, [])
            made: list[Json] = [{"kind": kind, "uid": place[fact.id]} for fact in facts]
            for name, side in sorted(ruleset.carried.get(kind, ())):
                self._carry(made, names[name], side)
            told += made
        return sorted(told, key=lambda fact: fact["uid"])

    def _carry(self, made: list[Json], attribute: Attribute, side: str) -> None:
        test = attribute.name.startswith("t")
        for fact, value in zip(made, self._values[attribute.name], strict=True):
            if side == "k":
                fact["k" + attribute.name] = int(value is not None)
            elif test:
                if value or side:
                    fact[side + attribute.name] = int(bool(value))
            elif value is not None:
                fact[side + attribute.name] = self._codes.of(value)
            elif side:
                fact[side + attribute.name] = -1

    def joints(self, fired: Any) -> list[list[Joint]]:
        """The joint matches of each rule, sorted, from the child's answer; ValueError when it makes no sense."""
        parts: dict[str, set[tuple[int, ...]]] = {d.name: set() for c in self._compiled for d in c.definitions}
        sizes = {d.name: len(d.when) for c in self._compiled for d in c.definitions}
        try:
            for ruleset in fired:
                for name, places in ruleset:
                    if len(places) != sizes[name] or not all(0 <= p < len(self._base.facts) for p in places):
                        raise ValueError(f"{name} cannot bind {places}")
                    parts[name].add(tuple(places))
        except (TypeError, KeyError) as error:
            raise ValueError(f"not an answer: {error!r}") from None
        return [self._joint(n, compiled, parts) for n, compiled in enumerate(self._compiled)]

    def _joint(self, n: int, compiled: Compiled, parts: dict[str, set[tuple[int, ...]]]) -> list[Joint]:
        variants: dict[int, set[tuple[int, ...]]] = {}
        for definition in compiled.definitions:
            some = parts[definition.name]
            variants[definition.variant] = variants.get(definition.variant, some) & some
        rule, facts = self._rules[n], self._base.facts
        found = [tuple(facts[p] for p in places) for places in sorted(set().union(*variants.values()))]
        if compiled.recheck:
            found = [joint for joint in found if satisfied(rule, joint)]
        if compiled.hard:
            blocked = blocker(rule, compiled.hard, self._base)
            found = [joint for joint in found if not blocked(joint)]
        return found


def _condition_json(op: str, name: str, value: Any) -> Json:
    return {name: value} if op == "==" else {_OPERATORS[op]: {name: value}}
