"""One rule file's data -> `Rule`, with every name and type checked; all errors of a file are collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from diagnose import model as m
from diagnose.conditions import ConditionError, parse_condition, parse_reference
from diagnose.rulebook._yaml import Document
from diagnose.units import Quantity, parse_scalar
from diagnose.vocabulary import Vocabulary, did_you_mean
from diagnose.wording import check_placeholders, check_template

Path = tuple[str | int, ...]


class RuleError(NamedTuple):
    """Something wrong in a rule file, with its place (1-based; line 0: the file as a whole)."""

    path: str
    line: int
    column: int
    text: str
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{place}: {'' if self.level == 'error' else 'warning: '}{self.text}"


class _Malformed(Exception):
    """A part has not even the right shape; it was reported."""


@dataclass(slots=True)
class Builder:
    """Builds the rule of one document.

    `path` stands in errors, `name` (relative to its pack) in the rule; `overrides` maps `rule-id.threshold` to the
    site's value. A value that does not fit leaves the threshold as it is; `refused` says why, by `rule-id.threshold`.
    """

    document: Document
    path: str
    name: str
    vocabulary: Vocabulary
    overrides: Mapping[str, m.Scalar] = field(default_factory=dict[str, m.Scalar])
    errors: list[RuleError] = field(default_factory=list[RuleError])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    gave_up: RuleError | None = None
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    constants: dict[str, m.Scalar | Quantity] = field(default_factory=dict[str, m.Scalar | Quantity])

    def wrong(self, path: Path, text: str, column: int | None = None) -> None:
        """Report an error at a part of the document, or at a column of the text there."""
        line, col = self.document.place(path) if column is None else self.document.inside(path, column)
        self.errors.append(RuleError(self.path, line, col, text))

    def build(self) -> m.Rule | None:
        """The rule, or None with `errors` when there are any."""
        data = self.document.data
        if not isinstance(data, dict):
            self.wrong((), "a rule file holds one mapping")
            return None
        rule: m.Rule | None = None
        try:
            rule = self._rule(data)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, _Malformed) as error:
            if not self.errors:
                self.wrong((), f"not a valid rule ({type(error).__name__}: {error})")
                self.gave_up = self.errors[-1]
        return None if self.errors else rule

    def _rule(self, data: Mapping[str, Any]) -> m.Rule:
        thresholds = tuple(self._thresholds(data["id"], data.get("thresholds") or {}))
        when = self._named(data["when"], "when")
        bound = dict(self.kinds)
        supports = self._named(data.get("supports") or {}, "supports")
        self.kinds = bound
        unless = tuple(
            self._pattern(f"unless{n + 1}", raw, ("unless", n)) for n, raw in enumerate(data.get("unless") or ())
        )
        self._threshold_names([*when, *supports, *unless], data.get("thresholds") or {})
        about = tuple(self._about(data["about"]))
        per = tuple(self._reference(text, ("per", n)) for n, text in enumerate(data.get("per") or ()))
        status = data["status"]
        return m.Rule(
            id=data["id"],
            status=status,
            severity=self._severity(data["severity"], capped=status == "trial"),
            confidence=data["confidence"],
            when=when,
            supports=supports,
            unless=unless,
            about=about,
            per=per or tuple(ref for _, ref in about),
            texts=self._texts(data),
            explains=tuple(
                m.Explains(e) if isinstance(e, str) else m.Explains(e["id"], e.get("scope", "host"))
                for e in data.get("explains") or ()
            ),
            step_conditions=tuple(
                self._condition(raw["when"], None, ("steps", n, "when")) if "when" in raw else None
                for n, raw in enumerate(data["steps"])
            ),
            look_alikes=tuple(self._look_alikes(data.get("look_alikes") or ())),
            thresholds=thresholds,
            references=tuple(data["references"]),
            derives=tuple(self._derivation(d, ("derive", n)) for n, d in enumerate(data.get("derive") or ())),
            phase=data.get("phase", 0),
            examples=self._examples(data["examples"]),
            shows_nothing=data.get("shows_nothing", False),
            path=self.name,
        )

    # --- thresholds, conditions, references ---

    def _thresholds(self, rule_id: str, raw: Mapping[str, Any]) -> Iterator[m.Threshold]:
        for name, told in raw.items():
            path = ("thresholds", name, "value")
            value = told["value"]
            try:
                read = parse_scalar(value)
            except ValueError as error:
                self.wrong(path, f"threshold {name}: {error}")
                continue
            full = f"{rule_id}.{name}"
            if full in self.overrides:
                try:
                    read, value = self._overridden(read, self.overrides[full]), self.overrides[full]
                except ValueError as error:
                    self.refused[full] = f"{error}; {value} stays in force"
            self.constants[name] = read
            base = read.base if isinstance(read, Quantity) else read
            yield m.Threshold(name, base, str(value), told["why"], told["source"])

    @staticmethod
    def _overridden(old: m.Scalar | Quantity, value: m.Scalar) -> m.Scalar | Quantity:
        new = parse_scalar(value)
        if isinstance(old, Quantity) and isinstance(new, Quantity):
            try:
                new.to(old.unit)
            except ValueError as error:
                raise ValueError(f"{value!r} is {error}") from error
        elif isinstance(old, Quantity) and isinstance(new, int | float) and not isinstance(new, bool):
            raise ValueError(f"{value!r} lacks a unit of {old.unit.dimension}")
        elif _type(old) is not _type(new):
            raise ValueError(f"{value!r} is no {_WORDS[_type(old)]}")
        return new

    def _threshold_names(self, patterns: Sequence[m.Pattern], raw: Mapping[str, Any]) -> None:
        for name in raw:
            for kind in dict.fromkeys(p.kind for p in patterns):
                if self.vocabulary.field(kind, name):
                    line, column = self.document.key_place(("thresholds", name))
                    text = f"threshold '{name}' is named like a field of {kind}; rename it"
                    self.errors.append(RuleError(self.path, line, column, text))
                    break

    @contextmanager
    def _at(self, path: Path) -> Iterator[None]:
        try:
            yield
        except ConditionError as error:
            for mistake in error.mistakes:
                self.wrong(path, mistake.text, mistake.column)

    def _condition(self, text: Any, kind: str | None, path: Path) -> m.Condition:
        if not isinstance(text, str):
            self.wrong(path, "a condition is a text")
            raise _Malformed
        with self._at(path):
            return parse_condition(text, kind, self.kinds, self.constants, self.vocabulary)
        return m.And(())

    def _reference(self, text: Any, path: Path) -> m.Ref:
        with self._at(path):
            return parse_reference(str(text), self.kinds, self.vocabulary)
        return m.Ref(None, "")

    def _named(self, raw: Mapping[str, Any], part: str) -> tuple[m.Pattern, ...]:
        patterns: list[m.Pattern] = []
        for alias, told in raw.items():
            if alias in self.kinds:
                self.wrong((part, alias), f"alias '{alias}' is used twice")
            if alias in ("unless", "known"):
                self.wrong((part, alias), f"'{alias}' cannot be an alias")
            pattern = self._pattern(alias, told, (part, alias))
            patterns.append(pattern)
            if part == "when":
                self.kinds[alias] = pattern.kind
        return tuple(patterns)

    def _pattern(self, alias: str, raw: Mapping[str, Any], path: Path) -> m.Pattern:
        kind = raw["kind"]
        if kind not in self.vocabulary.kinds:
            self.wrong((*path, "kind"), f"unknown kind '{kind}'{did_you_mean(str(kind), self.vocabulary.kinds)}")
            return m.Pattern(alias, str(kind))
        where = raw.get("where")
        return m.Pattern(alias, kind, m.And(()) if where is None else self._condition(where, kind, (*path, "where")))

    def _about(self, raw: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, m.Ref]]:
        for n, entry in enumerate(raw):
            ((kind, text),) = entry.items()
            yield kind, self._reference(text, ("about", n, kind))

    def _severity(self, raw: Any, *, capped: bool) -> tuple[m.SeverityChoice, ...]:
        def cap(word: m.Severity) -> m.Severity:
            return "minor" if capped and word in ("critical", "major") else word

        if isinstance(raw, str):
            return (m.SeverityChoice(cap(m.SEVERITIES[m.SEVERITIES.index(raw)])),)
        choices: list[m.SeverityChoice] = []
        for n, choice in enumerate(raw):
            if ("else" in choice) != (n == len(raw) - 1):
                self.wrong(("severity", n), "the last choice, and only that, is {else: …}")
            elif "else" in choice:
                choices.append(m.SeverityChoice(cap(choice["else"])))
            else:
                when = self._condition(choice["when"], None, ("severity", n, "when"))
                choices.append(m.SeverityChoice(cap(choice["is"]), when))
        return tuple(choices)

    # --- texts, steps, derivations, examples ---

    def _template(self, text: str, path: Path) -> str:
        for problem in check_template(text, self.kinds, self.vocabulary):
            self.wrong(path, problem)
        return text

    def _placeholders(self, raw: Mapping[str, Any], names: Sequence[str], path: Path) -> None:
        for name in names:
            for problem in check_placeholders(raw.get(name) or "", self.kinds, self.vocabulary):
                self.wrong((*path, name), problem)

    def _texts(self, data: Mapping[str, Any]) -> dict[str, m.Texts]:
        steps: list[m.Step] = []
        for n, raw in enumerate(data["steps"]):
            self._placeholders(raw, ("text", "command", "where", "verify", "rollback"), ("steps", n))
            steps.append(m.Step(**{k: raw.get(k) for k in ("text", "effect", *_STEP_OPTIONS)}))
        texts = {"en": m.Texts(data["title"], self._template(data["says"], ("says",)), data["cause"], tuple(steps))}
        zh = data.get("zh")
        if zh:
            translated = tuple(self._translated(steps, zh.get("steps")))
            texts["zh"] = m.Texts(zh["title"], self._template(zh["says"], ("zh", "says")), zh["cause"], translated)
        return texts

    def _translated(self, steps: Sequence[m.Step], raw: Sequence[Any] | None) -> Iterator[m.Step]:
        if raw is None:
            return
        if len(raw) != len(steps):
            self.wrong(("zh", "steps"), f"{len(raw)} steps here, {len(steps)} in English")
            return
        for step, told in zip(steps, raw, strict=True):
            texts = {"text": told} if isinstance(told, str) else told
            yield m.Step(
                texts["text"], step.effect, step.command, step.where,
                texts.get("verify", step.verify), texts.get("rollback", step.rollback),
            )  # fmt: skip

    def _look_alikes(self, raw: Sequence[Mapping[str, Any]]) -> Iterator[m.LookAlike]:
        for n, entry in enumerate(raw):
            following = entry.get("next") or {}
            self._placeholders(following, ("text", "command"), ("look_alikes", n, "next"))
            yield m.LookAlike(entry["id"], entry["question"], following.get("text"), following.get("command"))

    def _derivation(self, raw: Mapping[str, Any], path: Path) -> m.Derivation:
        kind, fields = raw["kind"], raw["fields"]
        known = self.vocabulary.kinds.get(kind)
        if known is None:
            self.wrong((*path, "kind"), f"unknown kind '{kind}'{did_you_mean(str(kind), self.vocabulary.kinds)}")
            raise _Malformed
        made: dict[str, m.Expr] = {}
        for name, value in fields.items():
            place = (*path, "fields", name)
            if name not in known.fields:
                self.wrong(place, f"{kind} has no field '{name}'{did_you_mean(name, known.fields)}")
                continue
            alias = value.partition(".")[0] if isinstance(value, str) and "." in value else None
            made[name] = self._reference(value, place) if alias in self.kinds else m.Const(value)
            of = self._type_of(made[name])
            wanted = known.fields[name].type
            if of != wanted and (of, wanted) != ("integer", "number"):
                self.wrong(place, f"{kind}.{name} is a {wanted}, this is a {of}")
        for needed in known.fields.values():
            if needed.required and needed.name not in fields:
                self.wrong((*path, "fields"), f"{kind} needs '{needed.name}'")
        return m.Derivation(kind, made)

    def _type_of(self, expr: m.Expr) -> str:
        if isinstance(expr, m.Ref) and expr.alias:
            known = self.vocabulary.field(self.kinds[expr.alias], expr.field)
            return known.type if known else "string"
        value = expr.value if isinstance(expr, m.Const) else ""
        return {bool: "boolean", int: "integer", float: "number"}.get(type(value), "string")

    def _examples(self, raw: Sequence[Mapping[str, Any]]) -> tuple[m.Example, ...]:
        examples: list[m.Example] = []
        for entry in raw:
            given = [(g["kind"], {k: v for k, v in g.items() if k != "kind"}) for g in entry["given"]]
            hosts: dict[Any, None] = {fields.get("host"): None for _, fields in given}
            for topic in entry.get("covered") or ():
                named = [host for host in hosts if host is not None]
                given += [("covered", {"topic": topic, "host": host}) for host in named]
                given += [] if named else [("covered", {"topic": topic})]
            quiet = entry.get("quiet") is True
            examples.append(m.Example(entry["name"], tuple(given), quiet, entry.get("fires") or {}))
        for quiet, missing in ((False, "fires"), (True, "stays quiet")):
            if not any(e.quiet is quiet for e in examples):
                self.wrong(("examples",), f"no example that {missing}")
        return tuple(examples)


_STEP_OPTIONS = ("command", "where", "verify", "rollback")


_WORDS = {bool: "true or false", str: "text", float: "number"}


def _type(value: m.Scalar | Quantity) -> type:
    if isinstance(value, bool | str):
        return type(value)
    return float
