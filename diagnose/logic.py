"""Truth and value of rule expressions over bound facts.

Conditions are three-valued (Kleene): a comparison with something unknown is unknown and `not` keeps it so. Non-finite
numbers are unknown; `<` and its kin are unknown unless both sides are numbers; arithmetic that fails is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from diagnose.model import And, Arith, Compare, Condition, Const, Expr, Fact, Known, Member, Not, Or, Ref, Value

Bindings = Mapping[str | None, Fact]


def evaluate(expr: Expr, bindings: Bindings) -> Value | None:
    """Value of an expression; None is unknown. The own fact is bound to None."""
    return valuer(expr)(bindings)


def holds(condition: Condition, bindings: Bindings) -> bool | None:
    """True, false or unknown (None)."""
    return truth_of(condition)(bindings)


def equal(a: Value, b: Value) -> bool:
    """Equality of values: numbers by value whatever their type, but a boolean is no number and a text no number."""
    return identity(a) == identity(b)


def identity(value: Value) -> object:
    """Hashable stand-in of a value that is equal exactly for equal values."""
    if isinstance(value, tuple):
        return ("tuple", *map(identity, value))
    return (value,) if isinstance(value, bool) else value


def number(value: Value | None) -> int | float | None:
    """The value when it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def mentions(item: Condition | Expr) -> frozenset[str | None]:
    """Aliases whose fields are looked at; None is the own fact."""
    match item:
        case Ref(alias=alias) | Known(ref=Ref(alias=alias)):
            return frozenset((alias,))
        case Const():
            return frozenset()
        case Arith(left=left, right=right) | Compare(left=left, right=right):
            return mentions(left) | mentions(right)
        case Member(left=left):
            return mentions(left)
        case Not(item=inner):
            return mentions(inner)
        case And(items=items) | Or(items=items):
            return frozenset[str | None]().union(*map(mentions, items))


def rename(item: Any, old: str | None, new: str | None) -> Any:
    """The condition or expression with alias `old` called `new`."""
    match item:
        case Ref(alias=alias, field=name):
            return Ref(new, name) if alias == old else item
        case Known(ref=ref):
            return Known(rename(ref, old, new))
        case Not(item=inner):
            return Not(rename(inner, old, new))
        case And(items=items):
            return And(tuple(rename(i, old, new) for i in items))
        case Or(items=items):
            return Or(tuple(rename(i, old, new) for i in items))
        case Member(left=left, values=values):
            return Member(rename(left, old, new), values)
        case Compare(op=op, left=left, right=right):
            return Compare(op, rename(left, old, new), rename(right, old, new))
        case Arith(op=op, left=left, right=right):
            return Arith(op, rename(left, old, new), rename(right, old, new))
        case _:
            return item


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """The conditions that all must be true for the whole to be true."""
    if isinstance(condition, And):
        for item in condition.items:
            yield from conjuncts(item)
    else:
        yield condition


def valuer(expr: Expr) -> Callable[[Bindings], Value | None]:
    """`evaluate` prepared for many bindings."""
    match expr:
        case Const(value=value):
            return lambda _: value
        case Ref(alias=alias, field=name):

            def look(bindings: Bindings) -> Value | None:
                fact = bindings.get(alias)
                found = fact.fields.get(name) if fact is not None else None
                return None if isinstance(found, float) and not math.isfinite(found) else found

            return look
        case Arith(op=op, left=left, right=right):
            sides = valuer(left), valuer(right)

            def compute(bindings: Bindings) -> Value | None:
                a, b = number(sides[0](bindings)), number(sides[1](bindings))
                if a is None or b is None:
                    return None
                try:
                    result = a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b
                except (ZeroDivisionError, OverflowError):
                    return None
                return number(result)

            return compute


def truth_of(condition: Condition) -> Callable[[Bindings], bool | None]:
    """`holds` prepared for many bindings."""
    match condition:
        case Compare():
            return _comparison(condition)
        case Member(left=left, values=values):
            value, wanted = valuer(left), frozenset(map(identity, values))

            def member(bindings: Bindings) -> bool | None:
                found = value(bindings)
                if found is None:
                    return None
                return any(identity(v) in wanted for v in (found if isinstance(found, tuple) else (found,)))

            return member
        case Known(ref=ref):
            known = valuer(ref)
            return lambda bindings: known(bindings) is not None
        case Not(item=item):
            inner = truth_of(item)

            def negation(bindings: Bindings) -> bool | None:
                truth = inner(bindings)
                return None if truth is None else not truth

            return negation
        case And(items=items):
            return _fold(tuple(map(truth_of, items)), False)
        case Or(items=items):
            return _fold(tuple(map(truth_of, items)), True)


def _fold(parts: tuple[Callable[[Bindings], bool | None], ...], decisive: bool) -> Callable[[Bindings], bool | None]:
    def fold(bindings: Bindings) -> bool | None:
        unknown = False
        for part in parts:
            truth = part(bindings)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    return fold


def _comparison(condition: Compare) -> Callable[[Bindings], bool | None]:
    left, right, op = valuer(condition.left), valuer(condition.right), condition.op
    if op in ("==", "!="):

        def same(bindings: Bindings) -> bool | None:
            a, b = left(bindings), right(bindings)
            return None if a is None or b is None else equal(a, b) == (op == "==")

        return same

    def ordered(bindings: Bindings) -> bool | None:
        a, b = number(left(bindings)), number(right(bindings))
        if a is None or b is None:
            return None
        return a < b if op == "<" else a <= b if op == "<=" else a > b if op == ">" else a >= b

    return ordered
