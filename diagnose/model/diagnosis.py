"""What is said: findings, open questions, and the whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from diagnose.model.evidence import Evidence, Problem, Source
from diagnose.model.rules import Confidence, LookAlike, Severity, Step

Role = Literal["root", "consequence", "context"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about. A rank's name is decimal numbers and ranges (`37`, `0-16,18-1023`)."""

    kind: str
    name: str
    host: str | None = None


@dataclass(frozen=True, slots=True)
class NextEvidence:
    """What would settle an open question, and the command that supplies it."""

    text: str
    command: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with its grounds and its remedy."""

    id: str
    severity: Severity
    confidence: Confidence
    role: Role
    title: str
    summary: str
    subjects: tuple[Subject, ...]
    evidence: tuple[Evidence, ...]
    cause: str
    remediation: tuple[Step, ...]
    explained_by: tuple[str, ...] = ()
    next_evidence: tuple[NextEvidence, ...] = ()
    look_alikes: tuple[LookAlike, ...] = ()
    references: tuple[str, ...] = ()
    acknowledged: str | None = None
    shows_nothing: bool = False
    """It says that its evidence cannot show what it was taken for."""

    @property
    def key(self) -> str:
        """Id plus subjects: unique within a diagnosis, stable between runs."""
        return self.id + "@" + ",".join(f"{s.host or ''}:{s.kind}:{s.name}" for s in self.subjects)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that could not be judged, why, and the command that would supply the evidence."""

    question: str
    because: str
    collect: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer. `tables`, `job` and `tool` hold JSON values only, bounded and folded."""

    findings: tuple[Finding, ...]
    unknowns: tuple[Unknown, ...]
    sources: tuple[Source, ...]
    problems: tuple[Problem, ...]
    job: Mapping[str, Any]
    tables: Mapping[str, Any]
    tool: Mapping[str, Any]
    bundle_digest: str = ""
