"""What rules mean, in plain Python: the oracle of the engine's tests, and its stand-in.

A pattern matches only where its condition is true (`logic`: unknown is neither true nor false). A rule fires once for
each choice of *distinct* facts, one per `when` pattern, for which no other fact matches an `unless` pattern. Facts
that a firing derives exist for later phases only, so the result depends on no order.

Firings come sorted by phase, rule id and the places of the bound facts in the input, numbered from 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, cast

from diagnose.logic import Bindings, conjuncts, evaluate, holds, identity, mentions, truth_of, valuer
from diagnose.model import (
    CONFIDENCES,
    And,
    Compare,
    Condition,
    Confidence,
    Evidence,
    Expr,
    Fact,
    Firing,
    Outcome,
    Pattern,
    Problem,
    Rule,
    Severity,
    Value,
)
from diagnose.vocabulary import vocabulary

MAX_FIRINGS = 20_000
"""Firings kept of one run; what is beyond is a problem."""

MAX_RULE_FIRINGS = 5_000
"""Firings kept of one rule, so that one careless rule cannot silence the others."""

MAX_SUPPORTS = 20
"""Facts kept per `supports` pattern of a firing."""

MAX_STEPS = 3_000_000
"""Candidates that one rule may look at here."""

MAX_EVIDENCE = 8
"""Evidence items that a derived fact inherits."""

Joint = tuple[Fact, ...]
"""Facts bound to the `when` patterns of a rule, in their order."""

# --- joint matches ----------------------------------------------------------------------------------


class Base:
    """Facts of one phase, found by kind, by own condition and by the values that a join asks for."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.facts = list(facts)
        self.place = {fact.id: n for n, fact in enumerate(self.facts)}
        self.by_kind: dict[str, list[Fact]] = defaultdict(list)
        self.covered: dict[object, set[object]] = defaultdict(set)
        for fact in self.facts:
            self.by_kind[fact.kind].append(fact)
            if fact.kind == "covered":
                self.covered[fact.fields.get("topic")].add(fact.fields.get("host"))
        self._buckets: dict[tuple[str, str, str], dict[object, list[Fact]]] = {}

    def bucket(self, kind: str, own: Sequence[Condition], keys: Sequence[Expr]) -> dict[object, list[Fact]]:
        """Facts of a kind that satisfy `own`, by the values of `keys`; facts with an unknown key are left out."""
        name = (kind, repr(own), repr(keys))
        found = self._buckets.get(name)
        if found is None:
            found = self._buckets[name] = {}
            tests, values = [truth_of(c) for c in own], [valuer(e) for e in keys]
            for fact in self.by_kind.get(kind, ()):
                alone: Bindings = {None: fact}
                if all(test(alone) for test in tests):
                    key = _key(values, alone)
                    if key is not None:
                        found.setdefault(key, []).append(fact)
        return found


def _key(values: Sequence[Callable[[Bindings], Value | None]], bindings: Bindings) -> object:
    key: list[object] = []
    for value in values:
        found = value(bindings)
        if found is None:
            return None
        key.append(identity(found))
    return tuple(key)


class _Plan:
    """One pattern, its condition split into: about itself, equal to something bound, and the rest."""

    def __init__(self, pattern: Pattern, base: Base) -> None:
        own: list[Condition] = []
        rest: list[Condition] = []
        keys: list[Expr] = []
        asked: list[Expr] = []
        for part in conjuncts(pattern.where):
            pair = _equality(part)
            if mentions(part) <= _OWN:
                own.append(part)
            elif pair:
                keys.append(pair[0])
                asked.append(pair[1])
            else:
                rest.append(part)
        self._buckets = base.bucket(pattern.kind, own, keys)
        self._asked = [valuer(expr) for expr in asked]
        self._rest = truth_of(And(tuple(rest))) if rest else None

    def candidates(self, bindings: Bindings) -> Sequence[Fact]:
        """Facts that may match, in input order."""
        return self._buckets.get(_key(self._asked, bindings), ())

    def matches(self, fact: Fact, bindings: dict[str | None, Fact]) -> bool:
        """Whether a candidate does; it stays bound to None."""
        if self._rest is None:
            return True
        bindings[None] = fact
        return self._rest(bindings) is True


_OWN: frozenset[str | None] = frozenset((None,))


def _equality(condition: Condition) -> tuple[Expr, Expr] | None:
    if not isinstance(condition, Compare) or condition.op != "==":
        return None
    for own, other in ((condition.left, condition.right), (condition.right, condition.left)):
        if mentions(own) == _OWN and mentions(other) and None not in mentions(other):
            return own, other
    return None


class Overrun(Exception):
    """A rule looked at more candidates than MAX_STEPS."""


def joint_matches(rule: Rule, base: Base) -> Iterator[Joint]:
    """All joint matches of a rule, in the order of the bound facts; Overrun when the search is too wide."""
    plans = [_Plan(pattern, base) for pattern in rule.when]
    blockers = [_Plan(pattern, base) for pattern in rule.unless]
    bindings: dict[str | None, Fact] = {}
    bound: list[Fact] = []
    steps = 0

    def others(plan: _Plan) -> Iterator[Fact]:
        nonlocal steps
        for fact in plan.candidates(bindings):
            steps += 1
            if steps > MAX_STEPS:
                raise Overrun(rule.id)
            if not any(fact is b for b in bound) and plan.matches(fact, bindings):
                yield fact

    def search(depth: int) -> Iterator[Joint]:
        if depth == len(plans):
            if not any(True for blocker in blockers for _ in others(blocker)):
                yield tuple(bound)
            return
        for fact in others(plans[depth]):
            bindings[rule.when[depth].alias] = fact
            bound.append(fact)
            yield from search(depth + 1)
            bound.pop()
            del bindings[rule.when[depth].alias]

    return search(0)


def satisfied(rule: Rule, bound: Joint) -> bool:
    """Whether a joint match makes the conditions of all `when` patterns true."""
    bindings: dict[str | None, Fact] = {}
    for pattern, fact in zip(rule.when, bound, strict=True):
        bindings[None] = bindings[pattern.alias] = fact
        if holds(pattern.where, bindings) is not True:
            return False
    return True


def blocker(rule: Rule, patterns: Sequence[Pattern], base: Base) -> Callable[[Joint], bool]:
    """Tells whether a joint match is blocked by one of these `unless` patterns of the rule."""
    plans = [_Plan(pattern, base) for pattern in patterns]

    def blocked(bound: Joint) -> bool:
        bindings: dict[str | None, Fact] = {p.alias: f for p, f in zip(rule.when, bound, strict=True)}
        for plan in plans:
            for fact in plan.candidates(bindings):
                if not any(fact is b for b in bound) and plan.matches(fact, bindings):
                    return True
        return False

    return blocked


# --- from joint matches to an outcome ---------------------------------------------------------------

Matcher = Callable[[Sequence[Rule], Base], Iterable[Iterable[Joint]]]
"""Rules of one phase and its facts -> the joint matches of each rule, sorted by the places of the facts."""


class _Told(NamedTuple):
    firings: list[Firing]
    problems: list[Problem]


def run(rules: Sequence[Rule], facts: Sequence[Fact]) -> Outcome:
    """Firings of the rules on the facts, and the facts with those derived. Facts need unique ids."""
    return infer(rules, facts, lambda some, base: [joint_matches(rule, base) for rule in some], "reference")


def infer(rules: Sequence[Rule], facts: Sequence[Fact], matcher: Matcher, engine: str) -> Outcome:
    """Phase by phase: joint matches become firings with supports and coverage, and derive facts for later phases."""
    unique = {fact.id: fact for fact in reversed(facts)}
    known = [fact for fact in facts if unique[fact.id] is fact]
    told = _Told([], [])
    if len(known) < len(facts):
        told.problems.append(Problem(f"{len(facts) - len(known)} facts share the id of another and were left out"))
    seen = {_content(fact) for fact in known} if any(rule.derives for rule in rules) else set[object]()
    for phase in sorted({rule.phase for rule in rules}):
        now = sorted((rule for rule in rules if rule.phase == phase), key=lambda rule: rule.id)
        base = Base(known)
        for rule, joints in zip(now, matcher(now, base), strict=True):
            made = 0
            if len(told.firings) == MAX_FIRINGS:
                text = f"{MAX_FIRINGS} firings: rule {rule.id} and those after it were not judged"
                return Outcome(tuple(told.firings), tuple(known), engine, (*told.problems, Problem(text)))
            for bound in _kept(rule, joints, base, told):
                for fact in _derived(rule, bound):
                    content = _content(fact)
                    if content in seen:
                        continue
                    seen.add(content)
                    made += 1
                    known.append(Fact(f"{rule.id}#{made}", fact.kind, fact.fields, fact.evidence))
    return Outcome(tuple(told.firings), tuple(known), engine, tuple(told.problems))


def _kept(rule: Rule, joints: Iterable[Joint], base: Base, told: _Told) -> Iterator[Joint]:
    room = min(MAX_RULE_FIRINGS, MAX_FIRINGS - len(told.firings))
    supports = [(pattern.alias, _Plan(pattern, base)) for pattern in rule.supports]
    try:
        for n, bound in enumerate(islice(joints, room + 1)):
            if n == room:
                told.problems.append(Problem(f"rule {rule.id}: only the first {room} firings were kept"))
                return
            bindings: dict[str | None, Fact] = {p.alias: f for p, f in zip(rule.when, bound, strict=True)}
            helped: dict[str, tuple[str, ...]] = {}
            for alias, plan in supports:
                others = (f for f in plan.candidates(bindings) if not any(f is b for b in bound))
                ids = tuple(f.id for f in islice((f for f in others if plan.matches(f, bindings)), MAX_SUPPORTS))
                if ids:
                    helped[alias] = ids
            ids_bound = {p.alias: f.id for p, f in zip(rule.when, bound, strict=True)}
            covered = tuple(_covered(pattern.kind, bound, base) for pattern in rule.unless)
            told.firings.append(Firing(rule.id, ids_bound, len(told.firings), helped, covered))
            yield bound
    except Overrun:
        told.problems.append(Problem(f"rule {rule.id}: search stopped after {MAX_STEPS} candidates"))


def _covered(kind: str, bound: Joint, base: Base) -> bool:
    """Whether the absence of `kind` says something about the hosts bound: its topic was read for each of them."""
    described = vocabulary().kinds.get(kind)
    topic = described.topic if described else ""
    if topic in ("derived", "site"):
        return True
    hosts = {fact.fields["host"] for fact in bound if "host" in fact.fields}
    return hosts <= base.covered.get(topic, set()) if hosts else bool(base.covered.get(topic))


def _derived(rule: Rule, bound: Joint) -> Iterator[Fact]:
    bindings: Bindings = {p.alias: f for p, f in zip(rule.when, bound, strict=True)}
    for derivation in rule.derives:
        fields = {name: evaluate(expr, bindings) for name, expr in derivation.fields.items()}
        evidence: dict[Evidence, None] = {e: None for fact in bound for e in fact.evidence}
        told = {name: value for name, value in fields.items() if value is not None}
        yield Fact("", derivation.kind, told, tuple(evidence)[:MAX_EVIDENCE])


def _content(fact: Fact) -> object:
    return fact.kind, repr(sorted(fact.fields.items()))


# --- verdicts of one firing -------------------------------------------------------------------------


def severity(rule: Rule, bound: Mapping[str, Fact]) -> Severity:
    """The first choice whose condition holds for the facts bound; the last one otherwise."""
    for choice in rule.severity:
        if choice.when is None or holds(choice.when, cast(Bindings, bound)) is True:
            return choice.severity
    return rule.severity[-1].severity


def confidence(rule: Rule, firing: Firing) -> Confidence:
    """The rule's confidence, one level lower when an `unless` could not be checked, one higher with a `supports`."""
    level = CONFIDENCES.index(rule.confidence) + (not all(firing.checked)) - any(firing.supports.values())
    return CONFIDENCES[min(max(level, 0), len(CONFIDENCES) - 1)]
