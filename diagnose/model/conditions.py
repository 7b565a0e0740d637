"""Conditions of rules as a small tree: built by `conditions`, compiled by `engine`, interpreted by `reference`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diagnose.model.evidence import Scalar


@dataclass(frozen=True, slots=True)
class Ref:
    """A field of a fact: of the pattern's own fact when `alias` is None."""

    alias: str | None
    field: str


@dataclass(frozen=True, slots=True)
class Const:
    """A literal; units are already folded in (10s -> 10.0, 4MiB -> 4194304, 5% -> 0.05)."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Arith:
    """Arithmetic on two numbers; unknown or non-numeric operands, and division by zero, give unknown."""

    op: Literal["+", "-", "*", "/"]
    left: Expr
    right: Expr


Expr = Ref | Const | Arith


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison. Unknown on either side gives unknown; `<` and its kin hold between numbers only."""

    op: Literal["==", "!=", "<", "<=", ">", ">="]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Member:
    """`left in (a, b, …)`, constants only; a list-valued field is a member when any of its items is."""

    left: Expr
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """`known field`: true or false, never unknown."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Not:
    """Kleene negation: not unknown is unknown."""

    item: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Kleene conjunction; no items is true."""

    items: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Kleene disjunction; no items is false."""

    items: tuple[Condition, ...]


Condition = Compare | Member | Known | Not | And | Or

ALWAYS = And(())
"""The condition that every fact satisfies."""
