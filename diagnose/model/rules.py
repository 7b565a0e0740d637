"""Rules, and what comes of them when they meet facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from diagnose.model.conditions import ALWAYS, Condition, Expr, Ref
from diagnose.model.evidence import Fields, Problem, Scalar
from diagnose.model.knowledge import Fact

Severity = Literal["critical", "major", "minor", "info"]
Confidence = Literal["high", "medium", "low"]
Effect = Literal["read-only", "changes-state", "maintenance"]
Status = Literal["draft", "trial", "stable"]

SEVERITIES: tuple[Severity, ...] = ("critical", "major", "minor", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Facts of one kind that satisfy a condition; earlier aliases of the rule may be referred to."""

    alias: str
    kind: str
    where: Condition = ALWAYS


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number (or text) of a rule, with its reason and source; `value` is after the site file's override."""

    name: str
    value: Scalar
    text: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Step:
    """One remediation step, with what it does to running jobs, how to see it worked and how to undo it."""

    text: str
    effect: Effect
    command: str | None = None
    where: str | None = None
    verify: str | None = None
    rollback: str | None = None


@dataclass(frozen=True, slots=True)
class LookAlike:
    """Another pathology that looks the same, the question that separates them, and the command that answers it."""

    id: str
    question: str
    text: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """A fact that a firing makes for a later phase; values are constants or fields of bound facts."""

    kind: str
    fields: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences of a rule in one language; `says` is a template of `{alias.field:spec}`."""

    title: str
    says: str
    cause: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class SeverityChoice:
    """First choice whose condition holds wins; `when` is None for the last."""

    severity: Severity
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Explains:
    """Findings that this rule's finding folds beneath itself: an id or `family/*`, on the same host or job-wide."""

    id: str
    scope: Literal["host", "job"] = "host"


@dataclass(frozen=True, slots=True)
class Example:
    """Facts given and what must follow: `fires` maps aliases or texts to expectations, or the rule stays quiet."""

    name: str
    given: tuple[tuple[str, Fields], ...]
    quiet: bool
    fires: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """One pathology: everything that is said about it lies here. `shows_nothing`: it says that its evidence cannot show
    what it was taken for. `step_conditions`: when each step is named, None for always."""

    id: str
    status: Status
    severity: tuple[SeverityChoice, ...]
    confidence: Confidence
    when: tuple[Pattern, ...]
    supports: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]
    about: tuple[tuple[str, Ref], ...]
    per: tuple[Ref, ...]
    texts: Mapping[str, Texts]
    explains: tuple[Explains, ...] = ()
    look_alikes: tuple[LookAlike, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    references: tuple[str, ...] = ()
    derives: tuple[Derivation, ...] = ()
    phase: int = 0
    examples: tuple[Example, ...] = ()
    shows_nothing: bool = False
    step_conditions: tuple[Condition | None, ...] = ()
    path: str = ""

    @property
    def family(self) -> str:
        """First part of the id."""
        return self.id.split("/", 1)[0]


@dataclass(frozen=True, slots=True)
class Firing:
    """One joint match: `bindings` alias -> fact id, `supports` alias -> ids of the facts that strengthen it.

    `checked` tells for each `unless` of the rule whether its topic was covered for the hosts bound (True), or the
    rule fires with that question open (False).
    """

    rule: str
    bindings: Mapping[str, str]
    order: int
    supports: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    checked: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What rules made of facts: the firings in a fixed order, and all facts including those that rules derived.

    `engine` names what answered: "durable-rules 2.0.28", or "reference" with the reason in brackets.
    """

    firings: tuple[Firing, ...]
    facts: tuple[Fact, ...]
    engine: str
    problems: tuple[Problem, ...] = ()
