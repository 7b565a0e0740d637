"""The condition language of rules: text -> the AST of `model`, with names and types checked against the vocabulary.

    name == 'tx_pause_share' and value > max_share and not (device in ('lo', 'docker0'))
    host == pause.host and width < width_max and known speed_gts
    elapsed_ms >= 0.9 * timeout_ms or at - pause.at < 30s

Operators, loosest first: `or`, `and`, `not`, comparisons (`== != < <= > >=`, `in`, `not in`, `known`, `unknown`),
`+ -`, `* /`. A bare name is a threshold of the rule, else a field of the pattern's own kind; `alias.field` is a field
of a fact bound earlier. All errors of a text are collected, each with its 1-based column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, cast

import pyparsing as pp

from diagnose import model as m
from diagnose.units import NUMBER, UNIT, UNITS, Quantity, Unit, quantity, unit_of_field
from diagnose.vocabulary import Vocabulary, did_you_mean

MAX_LENGTH = 2_000
"""Longest condition read, in characters."""

KEYWORDS = ("and", "or", "not", "in", "known", "unknown", "true", "false")

Type = Literal["string", "number", "boolean"]


class Mistake(NamedTuple):
    """What is wrong at a 1-based column of the text."""

    column: int
    text: str


class ConditionError(ValueError):
    """All mistakes of one text."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(f"column {c}: {t}" for c, t in mistakes))
        self.mistakes = tuple(mistakes)


# --- grammar: text -> nodes that know their column --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    at: int
    op: str  # 'name', 'literal', 'quantity', 'known', 'unknown', 'in', 'not in', 'neg', 'not', or the operator itself
    value: Any = None
    items: tuple[_Node, ...] = ()


_NAME = rf"(?!(?:{'|'.join(KEYWORDS)})\b)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?"
_STRING = r"'[^'\n]*'|\"[^\"\n]*\""
_PLAIN = rf"""
    (?P<left>{_NAME})\s*(?P<op>[=!<>]=|[<>])\s*
    (?:(?P<text>{_STRING})|(?P<number>{NUMBER})|(?P<right>{_NAME}))
    (?=\s*(?:\)|\Z|and\b|or\b))"""
"""A whole comparison of a name with a name or constant: most of what rules say, read in one step."""


def _plain_comparison(_: str, __: int, tokens: Any) -> _Node:
    found: re.Match[str] = tokens[0]
    kind = found.lastgroup or ""
    at, value = found.start(kind) + 1, found[kind]
    if kind == "right":
        right = _Node(at, "name", value)
    else:
        right = _Node(at, "literal", value[1:-1] if kind == "text" else _number(value))
    left = _Node(found.start("left") + 1, "name", found["left"])
    return _Node(found.start("op") + 1, found["op"], None, (left, right))


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


@cache
def _grammar() -> pp.ParserElement:
    def leaf(pattern: str, op: str, read: Any) -> pp.ParserElement:
        def act(_: str, at: int, tokens: Any) -> _Node:
            return _Node(at + 1, op, read(tokens[0]))

        return pp.Regex(pattern).set_parse_action(act)

    def sign(pattern: str) -> pp.ParserElement:
        return leaf(pattern, "", str)

    def chain(item: pp.ParserElement, operator: str) -> pp.ParserElement:
        def fold(_: str, __: int, tokens: Any) -> _Node:
            node: _Node = tokens[0]
            for sign, right in zip(tokens[1::2], tokens[2::2], strict=True):
                node = _Node(sign.at, sign.value, None, (node, right))
            return node

        return (item + (sign(operator) - item)[...]).set_parse_action(fold)

    def quantity_of(text: str) -> Quantity:
        number = re.match(NUMBER, text, re.ASCII)
        assert number
        return quantity(number[0], text[number.end() :].strip())

    def unary(word: str, op: str, item: pp.ParserElement) -> pp.ParserElement:
        def act(_: str, at: int, tokens: Any) -> _Node:
            return _Node(at + 1, op, None, (tokens[1],))

        return (pp.Regex(word) - item).set_parse_action(act)

    with_unit = leaf(rf"{NUMBER}[ ]?(?:{UNIT})(?![\w/])", "quantity", quantity_of)
    number = leaf(rf"{NUMBER}(?![\w.%])", "literal", _number)
    string = leaf(_STRING, "literal", lambda text: text[1:-1])
    truth = leaf(r"(?:true|false)\b(?!\.)", "literal", lambda text: text == "true")
    name = leaf(_NAME, "name", str)
    name.set_name("a field, number or text")

    expression = pp.Forward()
    group = pp.Regex(r"\(").suppress() + expression - pp.Regex(r"\)").suppress()
    atom = group | with_unit | number | string | truth | name
    signed = pp.Forward()
    signed <<= unary(r"-", "neg", signed) | atom
    total = chain(chain(signed, r"[*/]"), r"[+-]")
    known = unary(r"known\b", "known", name) | unary(r"unknown\b", "unknown", name)
    constant = unary(r"-", "neg", with_unit | number) | with_unit | number | string | truth | name
    listed = pp.Regex(r"[(\[]").suppress() - pp.DelimitedList(constant) - pp.Regex(r"[)\]]").suppress()
    member = sign(r"(?:not\s+)?in\b") - pp.Group(listed)
    comparison = sign(r"[=!<>]=|[<>]") - total

    def compare(_: str, __: int, tokens: Any) -> _Node:
        if len(tokens) == 1:
            return tokens[0]
        left, sign, right = tokens
        if isinstance(right, _Node):
            return _Node(sign.at, sign.value, None, (left, right))
        op = "in" if sign.value == "in" else "not in"
        return _Node(sign.at, op, None, (left, _Node(sign.at, "list", None, tuple(right))))

    plain = pp.Regex(re.compile(_PLAIN, re.VERBOSE), as_match=True).set_parse_action(_plain_comparison)
    relation = plain | known | (total + pp.Opt(comparison | member)).set_parse_action(compare)
    negation = pp.Forward()
    negation <<= unary(r"not\b", "not", negation) | relation
    expression <<= chain(chain(negation, r"and\b"), r"or\b")
    return expression


_SLIPS = {"=": "==", "&&": "and", "||": "or", "!": "not", "<>": "!=", "===": "==", "~": "a precomputed field"}


def _parse(text: str) -> _Node:
    if len(text) > MAX_LENGTH:
        raise ConditionError([Mistake(1, f"longer than {MAX_LENGTH} characters")])
    try:
        return cast(_Node, _grammar().parse_string(text, parse_all=True)[0])
    except pp.ParseBaseException as error:
        at = error.loc + len(text[error.loc :]) - len(text[error.loc :].lstrip())
        rest = text[at:]
        if not rest:
            raise ConditionError([Mistake(len(text) + 1, "something is missing at the end")]) from None
        number = re.match(rf"{NUMBER}\s?([A-Za-z%µ/]+)", rest, re.ASCII)
        if number and number[1] not in UNITS:
            raise ConditionError(
                [Mistake(at + 1, f"unknown unit '{number[1]}'{did_you_mean(number[1], UNITS)}")]
            ) from None
        found = re.match(r"\w+|[^\w\s'\"()]+|.", rest, re.DOTALL)
        word = found[0] if found else rest[:1]
        hint = f"; write {_SLIPS[word]}" if word in _SLIPS else ""
        if word in ("<", "<=", ">", ">=", "==", "!=") and re.search("[<>=]", text[:at]):
            hint = "; comparisons do not chain, write a < b and b < c"
        elif word in ("'", '"'):
            hint = "; the quote is not closed"
        raise ConditionError([Mistake(at + 1, f"cannot read '{word}' here{hint}")]) from None
    except RecursionError:
        raise ConditionError([Mistake(1, "nested too deeply")]) from None


# --- meaning: nodes -> AST, names and types checked -------------------------------------------------


@dataclass(slots=True)
class _Reader:
    kind: str | None
    aliases: Mapping[str, str]
    thresholds: Mapping[str, m.Scalar | Quantity]
    vocabulary: Vocabulary
    mistakes: list[Mistake]

    def wrong(self, node: _Node, text: str) -> None:
        self.mistakes.append(Mistake(node.at, text))

    def reference(self, node: _Node) -> tuple[m.Ref, Type | None]:
        alias, _, field = node.value.rpartition(".")
        kind = self.aliases.get(alias) if alias else self.kind
        if alias and kind is None:
            self.wrong(node, f"unknown alias '{alias}'{did_you_mean(alias, self.aliases)}")
        elif kind is None:
            self.wrong(node, f"'{field}' needs an alias here (alias.{field})")
        elif kind in self.vocabulary.kinds:
            known = self.vocabulary.kinds[kind].fields
            if field in known:
                of = known[field].type
                return m.Ref(alias or None, field), cast(Type, "number" if of == "integer" else of)
            names = [*known, *(() if alias else self.thresholds)]
            quoted = "" if alias else f"; a text stands in quotes: '{field}'"
            self.wrong(node, f"{kind} has no field '{field}'{did_you_mean(field, names) or quoted}")
        return m.Ref(alias or None, field), None

    def threshold(self, node: _Node) -> m.Scalar | Quantity | None:
        return self.thresholds.get(node.value) if node.op == "name" else None

    def unit(self, node: _Node) -> Unit | None:
        """Unit of the fields of a sum; products are left to their author."""
        if node.op == "name" and self.threshold(node) is None:
            return unit_of_field(node.value.rpartition(".")[2])
        if node.op in ("+", "-", "neg"):
            return next(filter(None, map(self.unit, node.items)), None)
        return None

    def constant(self, node: _Node, value: m.Scalar | Quantity, unit: Unit | None) -> tuple[m.Expr, Type | None]:
        if isinstance(value, Quantity):
            try:
                return m.Const(value.to(unit) if unit else value.base), "number"
            except ValueError as error:
                self.wrong(node, str(error))
                return m.Const(0), "number"
        if isinstance(value, bool):
            return m.Const(value), "boolean"
        return m.Const(value), "string" if isinstance(value, str) else "number"

    def expression(self, node: _Node, unit: Unit | None) -> tuple[m.Expr, Type | None]:
        """The expression and its type; None when its type cannot be told because of an error reported already."""
        value = node.value if node.op in ("literal", "quantity") else self.threshold(node)
        if value is not None:
            return self.constant(node, value, unit)
        if node.op == "name":
            return self.reference(node)
        if node.op in ("+", "-", "*", "/", "neg"):
            sides: list[m.Expr] = []
            for item in node.items:
                side, of = self.expression(item, unit)
                if of not in ("number", None):
                    self.wrong(item, f"arithmetic needs numbers, this is a {of}")
                sides.append(side)
            if node.op == "neg":
                inner = sides[0]
                if isinstance(inner, m.Const) and not isinstance(inner.value, str):
                    return m.Const(-inner.value), "number"
                return m.Arith("-", m.Const(0), inner), "number"
            return m.Arith(cast(Any, node.op), sides[0], sides[1]), "number"
        self.wrong(node, f"'{node.op}' gives true or false, not a value")
        return m.Const(False), None

    def condition(self, node: _Node) -> m.Condition:
        match node.op:
            case "and" | "or":
                parts: list[m.Condition] = []
                whole = m.And if node.op == "and" else m.Or
                for part in map(self.condition, node.items):
                    parts.extend(part.items if isinstance(part, whole) else (part,))
                return whole(tuple(parts))
            case "not":
                return m.Not(self.condition(node.items[0]))
            case "known" | "unknown":
                named = node.items[0]
                if self.threshold(named) is not None:
                    self.wrong(named, f"'{named.value}' is a threshold, always known")
                known = m.Known(self.reference(named)[0])
                return known if node.op == "known" else m.Not(known)
            case "in" | "not in":
                member = self.member(node)
                return member if node.op == "in" else m.Not(member)
            case "==" | "!=" | "<" | "<=" | ">" | ">=":
                return self.comparison(node)
            case _:
                value, of = self.expression(node, None)
                if of not in ("boolean", None):
                    self.wrong(node, f"a {of} alone is no condition; compare it with something")
                return m.Compare("==", value, m.Const(True))

    def comparison(self, node: _Node) -> m.Compare:
        left, right = node.items
        units = (self.unit(left), self.unit(right))
        if units[0] and units[1] and units[0] != units[1]:
            self.wrong(node, "the two sides have different units; multiply one to fit the other")
        unit = units[0] or units[1]
        a, of_a = self.expression(left, unit)
        b, of_b = self.expression(right, unit)
        if of_a and of_b and of_a != of_b:
            self.wrong(node, f"compares a {of_a} with a {of_b}")
        elif node.op not in ("==", "!=") and (of_a or of_b) in ("string", "boolean"):
            self.wrong(node, f"'{node.op}' orders numbers only")
        return m.Compare(cast(Any, node.op), a, b)

    def member(self, node: _Node) -> m.Member:
        left, listed = node.items
        unit = self.unit(left)
        value, of = self.expression(left, unit)
        values: list[m.Scalar] = []
        for item in listed.items:
            if item.op == "name" and self.threshold(item) is None:
                self.wrong(item, f"'{item.value}' is no constant; put quotes round a text")
                continue
            constant, of_item = self.expression(item, unit)
            if of and of_item and of != of_item:
                self.wrong(item, f"compares a {of} with a {of_item}")
            if isinstance(constant, m.Const):
                values.append(constant.value)
        return m.Member(value, tuple(values))


def parse_condition(
    text: str,
    kind: str | None,
    aliases: Mapping[str, str],
    thresholds: Mapping[str, m.Scalar | Quantity],
    vocabulary: Vocabulary,
) -> m.Condition:
    """The condition that `text` states about a fact of `kind`; ConditionError with all mistakes.

    `kind` is None where there is no own fact (severities): then every field needs its alias. `aliases` maps the
    aliases that may be referred to, to their kinds. Quantities fold to the unit in the name of the field that they
    are compared with.
    """
    reader = _Reader(kind, aliases, thresholds, vocabulary, [])
    condition = reader.condition(_parse(text))
    if reader.mistakes:
        raise ConditionError(sorted(reader.mistakes))
    return condition


def names_used(text: str) -> frozenset[str]:
    """The names that a condition mentions (fields, thresholds, `alias.field`); empty when it cannot be read."""
    try:
        todo = [_parse(text)]
    except ConditionError:
        return frozenset()
    names: set[str] = set()
    while todo:
        node = todo.pop()
        if node.op == "name":
            names.add(node.value)
        todo.extend(node.items)
    return frozenset(names)


_REFERENCE = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)\Z", re.ASCII)


def parse_reference(text: str, aliases: Mapping[str, str] | None = None, vocabulary: Vocabulary | None = None) -> m.Ref:
    """`pause.device` -> Ref; ConditionError for anything else, and for unknown names when the aliases are given."""
    found = _REFERENCE.match(text)
    if found is None:
        raise ConditionError([Mistake(1, f"'{text:.60}' is not of the form alias.field")])
    alias, field = found.groups()
    if aliases is not None:
        if alias not in aliases:
            raise ConditionError([Mistake(1, f"unknown alias '{alias}'{did_you_mean(alias, aliases)}")])
        kind = vocabulary.kinds.get(aliases[alias]) if vocabulary else None
        if kind and field not in kind.fields:
            wrong = f"{kind.name} has no field '{field}'{did_you_mean(field, kind.fields)}"
            raise ConditionError([Mistake(len(alias) + 2, wrong)])
    return m.Ref(alias, field)
