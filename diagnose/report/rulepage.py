"""One rule's page: what it looks for, what it needs, why, and what to do. `explain` and `docs/rules/` are this text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from diagnose.model import (
    And,
    Arith,
    Compare,
    Condition,
    Const,
    Expr,
    Known,
    Member,
    Not,
    Or,
    Pattern,
    Ref,
    Rule,
    Scalar,
    Step,
)
from diagnose.report import mark
from diagnose.report.safe import safe, safe_lines, wrap
from diagnose.report.words import Words
from diagnose.vocabulary import Vocabulary

Form = Literal["title", "head", "text", "item", "sub", "command"]


_OPTIONAL = re.compile(r"\[\[((?:(?!\|\||\]\]).)*)(?:\|\|((?:(?!\]\]).)*))?\]\]", re.DOTALL)
"""Words said only when their fields are known, and what is said otherwise."""
_PLACEHOLDER = re.compile(r"\{[a-z][a-z0-9_]*\.([a-z][a-z0-9_]*)(?::[^{}]*)?\}")

_DERIVED = "derived"
"""The topic of facts that follow from others: no command supplies it."""


class Block(NamedTuple):
    """One piece of a page; `code` stands before its text and is set as code."""

    form: Form
    text: str
    code: str = ""


def markdown(rule: Rule, vocabulary: Vocabulary, lang: str = "en") -> str:
    """The page as Markdown."""
    lines: list[str] = []
    last: Form = "title"
    for form, said, code in blocks(rule, vocabulary, Words(lang)):
        tight = form in ("item", "sub") and last in ("item", "sub")
        lines += [] if tight or not lines else [""]
        shown = ": ".join(filter(None, [mark.code(code), mark.prose(said)]))
        lines.append(mark.fenced(said, "sh", 2) if form == "command" else _LEADS[form] + shown)
        last = form
    return "\n".join(lines) + "\n"


_LEADS: dict[Form, str] = {"title": "# ", "head": "## ", "text": "", "item": "- ", "sub": "    - "}


def text(rule: Rule, vocabulary: Vocabulary, lang: str = "en", width: int = 100) -> str:
    """The page for a terminal."""
    lines: list[str] = []
    for form, said, code in blocks(rule, vocabulary, Words(lang)):
        said = ": ".join(filter(None, [code, said]))
        if form == "command":
            lines += [f"       $ {line}" for line in safe_lines(said)]
        elif form in ("item", "sub"):
            lines += wrap(safe(said), width, "   - " if form == "item" else "       - ")
        else:
            lines += [] if form == "text" or not lines else [""]
            lines += wrap(safe(said), width, "   " if form == "text" else "")
    return "\n".join(lines) + "\n"


def blocks(rule: Rule, vocabulary: Vocabulary, words: Words) -> Iterator[Block]:
    """The page in pieces."""
    texts = rule.texts.get(words.lang) or rule.texts["en"]
    yield Block("title", texts.title)
    severities = list(dict.fromkeys(words.severity(choice.severity) for choice in rule.severity))
    status = [" / ".join(severities), words[rule.confidence], f"{words['page_status']} {rule.status}"]
    yield Block("text", " · ".join(status), rule.id)
    yield Block("text", sentence(texts.says))
    yield Block("head", words["page_evidence"])
    yield from _patterns(rule.when, vocabulary, commands=True)
    if rule.supports:
        yield Block("head", words["page_supports"])
        yield from _patterns(rule.supports, vocabulary)
    if rule.unless:
        yield Block("head", words["page_unless"])
        yield from _patterns(rule.unless, vocabulary, commands=True)
    yield Block("head", words["page_cause"])
    yield Block("text", texts.cause)
    if texts.steps:
        yield Block("head", words["page_steps"])
        for step in texts.steps:
            yield from _step(step, words)
    if rule.look_alikes:
        yield Block("head", words["look_alikes"])
        for other in rule.look_alikes:
            yield Block("item", other.question, other.id)
            if other.text:
                yield Block("sub", sentence(other.text))
            yield from _command(other.command)
    if rule.thresholds:
        yield Block("head", words["thresholds"])
        for t in rule.thresholds:
            yield Block(
                "item", f"{t.name} = {t.text}{words.colon()}{t.why} ({words['source']}{words.colon()}{t.source})"
            )
    if rule.explains:
        yield Block("head", words["page_explained"])
        for explained in rule.explains:
            yield Block("item", words["page_scope_" + explained.scope], explained.id)
    if rule.examples:
        yield Block("head", words["page_examples"])
        for example in rule.examples:
            yield Block("item", example.name)
    if rule.references:
        yield Block("head", words["references"])
        for reference in rule.references:
            yield Block("item", reference)


def _step(step: Step, words: Words) -> Iterator[Block]:
    where = f" ({words['on']} {step.where})" if step.where else ""
    yield Block("item", sentence(f"[{words[step.effect]}] {step.text}{where}"))
    yield from _command(step.command)
    if step.verify:
        yield Block("sub", sentence(f"{words['verify']}{words.colon()}{step.verify}"))
    if step.rollback:
        yield Block("sub", sentence(f"{words['rollback']}{words.colon()}{step.rollback}"))


def _command(command: str | None) -> Iterator[Block]:
    if command:
        yield Block("command", sentence(command))


def sentence(template: str) -> str:
    """A template as a reader sees it without a case: `<who> did not reach <what>`, `py-spy dump --pid PID`.

    What is said only when it is known stands there, unless it is nothing but a value that words can take the place of.
    """

    def variant(found: re.Match[str]) -> str:
        if not _PLACEHOLDER.search(found[1]):
            return found[0]
        return found[2] if found[2] and _PLACEHOLDER.fullmatch(found[1]) else found[1]

    return _PLACEHOLDER.sub(lambda found: f"<{found[1].replace('_', ' ')}>", _OPTIONAL.sub(variant, template))


def _patterns(patterns: Iterable[Pattern], vocabulary: Vocabulary, *, commands: bool = False) -> Iterator[Block]:
    asked: set[str] = set()
    for pattern in patterns:
        kind = vocabulary.kinds.get(pattern.kind)
        condition = describe(pattern.where)
        asks = f"{pattern.kind} where {condition}" if condition else pattern.kind
        yield Block("item", kind.description if kind else "", asks)
        topic = vocabulary.topics.get(kind.topic) if kind else None
        if commands and topic and topic.name not in (*asked, _DERIVED) and topic.collect:
            asked.add(topic.name)
            yield Block("command", topic.collect)


# --- conditions in words ----------------------------------------------------------------------------


def describe(condition: Condition) -> str:
    """The condition as it could stand in a rule file, thresholds as numbers; empty when it always holds."""
    return _said(condition, top=True)


def _said(condition: Condition, *, top: bool = False) -> str:
    match condition:
        case Compare(op, left, right):
            return f"{_value(left)} {op} {_value(right)}"
        case Member(left, values):
            return f"{_value(left)} in ({', '.join(map(_constant, values))})"
        case Known(ref):
            return f"known {_value(ref)}"
        case Not(item):
            return f"not {_said(item)}"
        case And(items) | Or(items):
            joined = (" and " if isinstance(condition, And) else " or ").join(_said(i) for i in items)
            return joined if top or len(items) < 2 else f"({joined})"


def _value(expr: Expr) -> str:
    match expr:
        case Ref(alias, field):
            return field if alias is None else f"{alias}.{field}"
        case Const(value):
            return _constant(value)
        case Arith(op, left, right):
            return f"({_value(left)} {op} {_value(right)})"


def _constant(value: Scalar) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
