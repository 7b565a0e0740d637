"""Rules and facts of one phase -> rulesets of durable-rules that mean the same, and back.

durable-rules gives wrong answers or crashes outside a small subset, so this compiler stays inside it:

- Every pattern starts with `kind ==`. All values are small integers: numbers by their rank among all numbers in
  play, other values by a serial number; so equality and order are exact whatever the type or size. What concerns one
  fact only and is more than a comparison with a constant (membership, arithmetic, `or`, known) is computed here, as an
  attribute 1. Joins, choices of distinct facts and the absence of `unless` facts are the engine's.
- `or` between facts becomes several rules, of which the firings are united. `unless` patterns come after the `go`
  fact; where a rule has too many, several rules carry a part each, of which the firings are intersected.
- A pattern with a join ends with a condition that cannot fail (`one >= one`), and looks only at attributes that
  the other fact has for certain (-1 stands for unknown, with a flag where -1 could satisfy).
- What the engine cannot express (arithmetic across facts, comparisons among two other facts in an `unless`) it does not
  see: its firings are then candidates, and `holds` decides.
- Patterns per kind, kinds, rules and attributes per ruleset are limited; what is beyond goes to another ruleset
  (`rulesets`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, NamedTuple, cast

from diagnose.logic import evaluate, holds, mentions, number, rename
from diagnose.model import And, Compare, Condition, Expr, Known, Member, Not, Or, Pattern, Rule, Value

MAX_PATTERNS = 16
"""Patterns of a rule, with `go` (17 fail)."""
MAX_JOINS = 28
"""Conditions of a pattern that look at other facts (29 work)."""
MAX_ALTERNATIVES = 64
"""Alternatives that the `or`s of one rule may multiply to."""

_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Unsupported(Exception):
    """A rule that cannot be compiled."""


# --- conditions -> alternatives of literals ---------------------------------------------------------


def positive(condition: Condition, truth: bool = True) -> Condition:
    """An equivalent (as to being true) with `not` only before membership and `known`."""
    match condition:
        case Not(item=item):
            return positive(item, not truth)
        case And(items=items) | Or(items=items):
            whole = And if isinstance(condition, And) == truth else Or
            return whole(tuple(positive(item, truth) for item in items))
        case Compare(op=op, left=left, right=right):
            return condition if truth else Compare(cast(Any, _NEGATED[op]), left, right)
        case Member() | Known():
            return condition if truth else Not(condition)


def alternatives(condition: Condition) -> list[list[Condition]]:
    """Alternatives, each a list of literals that all must be true. What concerns one fact only stays whole."""
    if len(mentions(condition)) <= 1 and not isinstance(condition, And):
        return [[condition]]
    if isinstance(condition, Or):
        found = [alternative for item in condition.items for alternative in alternatives(item)]
    elif isinstance(condition, And):
        parts = [alternatives(item) for item in condition.items]
        size = 1
        for part in parts:
            size *= len(part)
            if size > MAX_ALTERNATIVES:
                raise Unsupported(f"its conditions have more than {MAX_ALTERNATIVES} alternatives")
        found = [[literal for part in choice for literal in part] for choice in product(*parts)]
    else:
        return [[condition]]
    if len(found) > MAX_ALTERNATIVES:
        raise Unsupported(f"its conditions have more than {MAX_ALTERNATIVES} alternatives")
    return found


# --- literals -> what the engine is told ------------------------------------------------------------


class Attribute(NamedTuple):
    """What a fact of a kind is given: the code of an expression's value ('e' for equality, 'o' for order: numbers
    only), or 't', whether a condition about the fact alone is true. The name ends in a number."""

    kind: str
    name: str
    item: Expr | Condition


class Versus(NamedTuple):
    """Own attribute against a constant."""

    op: str
    own: Attribute
    value: Value


class Join(NamedTuple):
    """Own attribute against one of an earlier pattern."""

    op: str
    own: Attribute
    place: int
    far: Attribute


class Flag(NamedTuple):
    """A test of an earlier pattern's fact, asked in an `unless`."""

    place: int
    far: Attribute


Part = Versus | Join | Flag


@dataclass(slots=True)
class Shape:
    """A pattern as the engine will see it."""

    kind: str
    parts: list[Part] = field(default_factory=list[Part])

    def room(self) -> bool:
        """Whether one more part fits: a join may need a flag, and the last condition is the guard."""
        joins = sum(
            2 if isinstance(p, Join) and p.op in _NEEDS_KNOWN else not isinstance(p, Versus) for p in self.parts
        )
        return joins + 3 <= MAX_JOINS

    def sides(self) -> Iterator[tuple[str, Attribute, str]]:
        """Kind, attribute and side ('' own, 'r' referred to, 'k' known) of all that facts must carry."""
        for part in self.parts:
            if isinstance(part, Flag):
                yield part.far.kind, part.far, "r"
                continue
            yield self.kind, part.own, ""
            if isinstance(part, Join):
                yield part.far.kind, part.far, "r"
                if part.op in _NEEDS_KNOWN:
                    yield part.far.kind, part.far, "k"


_NEEDS_KNOWN = ("!=", ">", ">=")
"""Operators that -1, which stands for unknown on the far side, would satisfy."""


@dataclass(slots=True)
class Definition:
    """One rule of the engine: part `chunk` of an alternative of a rule, the `serial`th."""

    rule: str
    serial: int
    variant: int
    chunk: int
    when: list[Shape]
    unless: list[Shape]

    @property
    def name(self) -> str:
        """Its name there."""
        return f"{self.rule}.{self.serial}.{self.variant}.{self.chunk}"


@dataclass(slots=True)
class Compiled:
    """A rule's definitions; `recheck` when its `when` needs `holds`, `hard` are `unless` patterns left to Python."""

    definitions: list[Definition]
    recheck: bool
    hard: list[Pattern]


_OWN = "*"


class Compiler:
    """Compiles the rules of one phase; attributes are shared between rules."""

    def __init__(self) -> None:
        self.attributes: dict[tuple[str, str, str], Attribute] = {}

    def attribute(self, kind: str, mode: str, item: Any) -> Attribute:
        """The attribute for an expression or condition that mentions one alias."""
        (alias,) = mentions(item)
        local = rename(item, alias, None)
        key = (kind, mode, repr(local))
        if key not in self.attributes:
            self.attributes[key] = Attribute(kind, f"{mode}{len(self.attributes)}", local)
        return self.attributes[key]

    def rule(self, serial: int, rule: Rule) -> Compiled:
        """A rule's definitions; Unsupported when it exceeds a limit."""
        places = {pattern.alias: n for n, pattern in enumerate(rule.when)}
        kinds = [pattern.kind for pattern in rule.when]
        whole = And(tuple(rename(positive(p.where), None, p.alias) for p in rule.when))
        compiled = Compiled([], False, [])
        unless: list[Shape] = []
        for pattern in rule.unless:
            shapes = self._blockers(pattern, places, kinds)
            if shapes is None:
                compiled.hard.append(pattern)
            else:
                unless += shapes
        room = MAX_PATTERNS - len(kinds) - 1
        if room < (1 if unless else 0):
            raise Unsupported(f"it has more than {MAX_PATTERNS - 2} patterns")
        chunks = [unless[n : n + room] for n in range(0, len(unless), room)] if unless else [[]]
        for variant, literals in enumerate(alternatives(whole)):
            shapes = self._positives(literals, places, kinds, compiled)
            if shapes is not None:
                compiled.definitions += [
                    Definition(rule.id, serial, variant, n, shapes, chunk) for n, chunk in enumerate(chunks)
                ]
        return compiled

    def _positives(
        self, literals: Sequence[Condition], places: dict[str, int], kinds: Sequence[str], compiled: Compiled
    ) -> list[Shape] | None:
        """One shape per pattern, or None when a literal can never be true."""
        shapes = [Shape(kind) for kind in kinds]
        for literal in literals:
            about = {places[cast(str, alias)] for alias in mentions(literal)}
            if not about:
                if holds(literal, {}) is not True:
                    return None
                continue
            at = max(about)
            part = self._part(literal, at, places, kinds[at], kinds)
            if part is False:
                return None
            if part is None or not shapes[at].room():
                compiled.recheck = True
            else:
                shapes[at].parts.append(part)
        return shapes

    def _blockers(self, pattern: Pattern, places: dict[str, int], kinds: Sequence[str]) -> list[Shape] | None:
        """A shape per alternative of an `unless`, or None when the engine cannot express one of them."""
        shapes: list[Shape] = []
        inside = {**places, _OWN: len(kinds)}
        for literals in alternatives(rename(positive(pattern.where), None, _OWN)):
            shape = Shape(pattern.kind)
            possible = True
            for literal in literals:
                about = mentions(literal)
                if not about:
                    possible = possible and holds(literal, {}) is True
                    continue
                part = self._part(literal, len(kinds), inside, pattern.kind, [*kinds, pattern.kind])
                if part is None or not shape.room():
                    return None
                possible = possible and part is not False
                if part is not False:
                    shape.parts.append(part)
            if possible:
                shapes.append(shape)
        return shapes

    def _part(
        self, literal: Condition, at: int, places: dict[str, int], kind: str, kinds: Sequence[str]
    ) -> Part | Literal[False] | None:
        """What the pattern at place `at` is told; None when it cannot be told, False when it is never true."""
        about = mentions(literal)
        if len(about) == 1:
            (alias,) = about
            place = places[cast(str, alias)]
            if place != at:
                return Flag(place, self.attribute(kinds[place], "t", literal))
            return self._alone(literal, kind)
        if not isinstance(literal, Compare) or len(about) > 2:
            return None
        sides = [mentions(literal.left), mentions(literal.right)]
        if len(sides[0]) != 1 or len(sides[1]) != 1:
            return None
        left, right = (places[cast(str, alias)] for side in sides for alias in side)
        if at not in (left, right):
            return None
        own, far, place, op = literal.left, literal.right, right, str(literal.op)
        if right == at:
            own, far, place, op = literal.right, literal.left, left, _FLIPPED[op]
        mode = "e" if op in ("==", "!=") else "o"
        return Join(op, self.attribute(kind, mode, own), place, self.attribute(kinds[place], mode, far))

    def _alone(self, literal: Condition, kind: str) -> Part | Literal[False]:
        if isinstance(literal, Compare) and not (mentions(literal.left) and mentions(literal.right)):
            own, other, op = literal.left, literal.right, str(literal.op)
            if not mentions(own):
                own, other, op = other, own, _FLIPPED[op]
            value = evaluate(other, {})
            if value is None:
                return False
            if op in ("==", "!="):
                return Versus(op, self.attribute(kind, "e", own), value)
            return Versus(op, self.attribute(kind, "o", own), value) if number(value) is not None else False
        return Versus("==", self.attribute(kind, "t", literal), 1)
