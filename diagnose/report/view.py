"""What every form of the report shows, and in which order: the verdict, findings with what they explain, the rest.

The forms (text, Markdown, HTML) only lay out what is gathered here, so they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

from diagnose.model import UNNAMED_HOST, Diagnosis, Evidence, Finding, Problem, Source, Subject, Unknown
from diagnose.report.safe import safe
from diagnose.report.words import Words

UNDETERMINED = ("undetermined", "snapshot-difference", "warning-unexplained")
"""Slugs of rules that say that something may be wrong and what would decide it: `stall/undetermined`."""
_DECIDES = re.compile(
    r"NCCL (?:WARN|ERROR)|Watchdog|Xid|Traceback|\b\w*Error\b|\berror\b|\bfail|timed? ?out|\bexitcode\b", re.IGNORECASE
)
_EXCEPTION = re.compile(
    r"(?:^|[\s:>|])(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:Error|Exception|Exit|Interrupt)(?::|\s*$)"
)
"""The line that ends a traceback, behind a launcher's prefix or not."""

State = Literal["fault", "cannot-tell", "no-fault", "acknowledged"]
_SHOWN_SUBJECTS = 4
_SHOWN_NAMES = 6
_NAME_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class Quote:
    """Evidence with the path of its source. `lines` are (number or None, text)."""

    path: str
    first: int
    last: int
    lines: tuple[tuple[int | None, str], ...]
    deciding: int
    column: int = 0

    @property
    def place(self) -> str:
        """`path:31` or `path:31-32`; the path alone when no line is known."""
        if self.first <= 0:
            return self.path
        return f"{self.path}:{self.first}" if self.last <= self.first else f"{self.path}:{self.first}-{self.last}"

    @property
    def deciding_place(self) -> str:
        """`path:line` of the line that decides."""
        number = self.lines[self.deciding][0] if self.lines else self.first
        return f"{self.path}:{number or self.first}" if (number or self.first) > 0 else self.path

    @property
    def deciding_text(self) -> str:
        """That line."""
        return self.lines[self.deciding][1] if self.lines else ""


@dataclass(frozen=True, slots=True)
class Group:
    """One finding, the same pathology on other subjects, and what the two explain."""

    lead: Finding
    others: tuple[Finding, ...]
    consequences: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """One command, and the questions it would let be judged, each with what is missing."""

    collect: str
    questions: tuple[Unknown, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A diagnosis put in order for the eye."""

    diagnosis: Diagnosis
    state: State
    lead: Finding | None
    groups: tuple[Group, ...]
    context: tuple[Finding, ...]
    acknowledged: tuple[Finding, ...]
    open: tuple[Open, ...]
    read: tuple[Source, ...]
    unread: tuple[Source, ...]
    paths: Mapping[str, str]
    judged: tuple[Source, ...]
    """Sources read of which no finding says that they show nothing."""
    limits: tuple[Finding, ...]
    """Findings that say so."""

    def quote(self, evidence: Evidence) -> Quote:
        """The evidence with its path, split into numbered lines."""
        texts = evidence.text.replace("\r\n", "\n").rstrip("\n").split("\n")
        whole = evidence.first > 0 and len(texts) == evidence.last - evidence.first + 1
        lines = tuple((evidence.first + i if whole else None, text) for i, text in enumerate(texts))
        deciding, column = _deciding(evidence, texts)
        path = self.paths.get(evidence.source, evidence.source)
        return Quote(path, evidence.first, evidence.last, lines, deciding, column)

    def place(self, problem: Problem) -> str:
        """Where a problem lies, or nothing when it belongs to no source or says itself where."""
        if problem.source is None:
            return ""
        path = self.paths.get(problem.source, problem.source)
        if problem.text.startswith(f"{path}: "):
            return ""
        if problem.first is None:
            return path
        return Quote(path, problem.first, problem.last or problem.first, (), 0).place


def _deciding(evidence: Evidence, texts: list[str]) -> tuple[int, int]:
    """Index and column of what decides: the first highlighted span, else the first line with a telling word.

    A traceback ends with what it is about: its last line decides.
    """
    if evidence.spans:
        start, seen = evidence.spans[0][0], 0
        for i, text in enumerate(texts):
            if start <= seen + len(text):
                return i, start - seen
            seen += len(text) + 1
    told = next((i for i in range(len(texts) - 1, 0, -1) if _EXCEPTION.search(texts[i])), None)
    if told is not None and "Traceback (most recent" in texts[0]:
        return told, 0
    for i, text in enumerate(texts):
        word = _DECIDES.search(text)
        if word:
            return i, word.start()
    return next((i for i, text in enumerate(texts) if text.strip()), 0), 0


def view(diagnosis: Diagnosis) -> View:
    """Everything in its place."""
    current = [f for f in diagnosis.findings if f.acknowledged is None]
    groups, context = _grouped(current)
    faults = [g.lead for g in groups if g.lead.severity != "info"]
    symptoms = [f for f in context if f.severity != "info"]
    questions = [f for f in context if undetermined(f) and not f.shows_nothing]
    lead = next(iter([*faults, *symptoms, *questions]), None)
    sources = sorted(diagnosis.sources, key=lambda s: (s.path, s.id))
    read = tuple(s for s in sources if s.status in ("parsed", "partial"))
    limits = tuple(f for f in context if f.shows_nothing)
    silent = {e.source for f in limits for e in f.evidence}
    judged = tuple(s for s in read if s.path not in silent and s.id not in silent)
    if lead is None and not judged:
        lead = next(iter(limits), None)
    acknowledged = tuple(f for f in diagnosis.findings if f.acknowledged is not None)
    accepted = next((f for f in acknowledged if f.severity != "info" and f.role == "root"), None)
    state: State = "no-fault"
    if lead is None and accepted is not None and known(diagnosis.job, "stalled_since"):
        lead, state = accepted, "acknowledged"
    elif faults and undetermined(faults[0]):
        state = "cannot-tell"
    elif faults:
        state = "fault"
    elif lead or not judged or known(diagnosis.job, "stalled_since"):
        state = "cannot-tell"
    return View(
        diagnosis,
        state,
        lead,
        tuple(groups),
        tuple(context),
        acknowledged,
        _open(diagnosis.unknowns),
        read,
        tuple(s for s in sources if s not in read),
        {s.id: s.path for s in diagnosis.sources},
        judged,
        limits,
    )


def undetermined(finding: Finding) -> bool:
    """Whether the finding itself says that the cause is not in the evidence."""
    return finding.shows_nothing or finding.id.partition("/")[2] in UNDETERMINED


def known(mapping: Mapping[str, Any], key: str) -> bool:
    """Whether the mapping tells that."""
    return mapping.get(key) is not None


def _grouped(findings: list[Finding]) -> tuple[list[Group], list[Finding]]:
    roots = _Roots(findings)
    leads: dict[str, list[Finding]] = {}
    beneath: dict[str, list[Finding]] = {}
    context: list[Finding] = []
    for finding in findings:
        top = roots.of(finding)
        if top is not None:
            beneath.setdefault(top.id, []).append(finding)
        elif finding.role == "context":
            context.append(finding)
        else:
            leads.setdefault(finding.id, []).append(finding)
    groups = [Group(same[0], tuple(same[1:]), tuple(beneath.get(id, ()))) for id, same in leads.items()]
    return groups, context


class _Roots:
    """Finds the finding at the top of a chain of explanations; a chain that leads nowhere or in a ring has none."""

    def __init__(self, findings: list[Finding]) -> None:
        self.named: dict[str, Finding] = {}
        for finding in findings:
            self.named.setdefault(finding.id, finding)
            self.named.setdefault(finding.key, finding)

    def of(self, finding: Finding) -> Finding | None:
        """The root that explains `finding`; None when it stands for itself."""
        seen = {finding.key}
        at = finding
        while at.role == "consequence":
            above = next((self.named[name] for name in at.explained_by if name in self.named), None)
            if above is None or above.key in seen:
                break
            seen.add(above.key)
            at = above
        return at if at.key != finding.key and at.role != "consequence" else None


def unread(v: View, words: Words) -> list[tuple[str, list[str]]]:
    """Why sources were not read, or only in part, and which; the reason that most share comes last."""
    by_reason: dict[str, list[str]] = {}
    for s in (*(s for s in v.read if s.status == "partial"), *v.unread):
        reasons = s.notes if s.notes and s.status == "unrecognised" else (words[s.status], *s.notes)
        by_reason.setdefault("; ".join(reasons), []).append(s.path)
    return sorted(by_reason.items(), key=lambda item: len(item[1]))


def said_by(unknown: Unknown) -> str:
    """Why a question is open, unless the question says it already."""
    return "" if unknown.question.partition(":")[0] in unknown.because else unknown.because


def _open(unknowns: Iterable[Unknown]) -> tuple[Open, ...]:
    by_command: dict[str, list[Unknown]] = {}
    for unknown in unknowns:
        by_command.setdefault(unknown.collect, []).append(unknown)
    return tuple(Open(command, tuple(questions)) for command, questions in by_command.items())


# --- small texts --------------------------------------------------------------------------------------


def subjects(finding: Finding, words: Words, shown: int = _SHOWN_SUBJECTS) -> str:
    """`rank 37 on node-b, nic mlx5_3 on node-b`: hosts that another subject names are not repeated."""
    kept = _without_hosts_said(finding)
    grouped: dict[tuple[str, str | None], list[str]] = {}
    for s in kept:
        grouped.setdefault((s.kind, s.host if s.kind != "host" else None), []).append(s.name)
    parts = [_subject(kind, host, names, words) for (kind, host), names in grouped.items()] or [
        words["the_host"] for _ in finding.subjects[:1]
    ]
    if len(parts) > shown:
        parts = [*parts[:shown], words.say("more", n=len(parts) - shown)]
    return ", ".join(parts)


def _without_hosts_said(finding: Finding) -> list[Subject]:
    """Its subjects without hosts that another subject names, and without the host that no file names."""
    placed = {s.host for s in finding.subjects if s.host and s.kind != "host"}
    return [s for s in finding.subjects if not (s.kind == "host" and s.name in (*placed, UNNAMED_HOST))]


def _subject(kind: str, host: str | None, names: list[str], words: Words) -> str:
    named = ", ".join(safe(name, _NAME_COLUMNS) for name in names[:_SHOWN_NAMES])
    if len(names) > _SHOWN_NAMES:
        named += " " + words.say("more", n=len(names) - _SHOWN_NAMES)
    several = len(names) > 1 or (kind == "rank" and not names[0].isdecimal())
    label = words.plural(kind) if several else kind
    what = f"{label} {named}"
    return what if host in (None, UNNAMED_HOST) else words.on(what, safe(host, _NAME_COLUMNS))


def subject_names(findings: Iterable[Finding]) -> list[str]:
    """Short names of what several findings of one kind are about: `node-a mlx5_0`, each host said once."""
    return list(dict.fromkeys(filter(None, map(_short, findings))))


def _short(finding: Finding) -> str:
    words: list[str] = []
    at = None
    for subject in _without_hosts_said(finding):
        name = safe(subject.name, _NAME_COLUMNS)
        host = None if subject.kind == "host" or subject.host == UNNAMED_HOST else subject.host
        if host not in (None, at):
            words.append(safe(str(host), _NAME_COLUMNS))
            at = host
        words.append(name if subject.kind in ("host", "nic", "port") else f"{subject.kind} {name}")
    return " ".join(words)


def job_line(job: Mapping[str, Any], words: Words) -> str:
    """`8 nodes, 64 ranks, stalled since 2025-11-14 03:12:45 UTC`, as far as it is known."""
    parts: list[str] = []
    for key, what in (("nodes", "node"), ("ranks", "rank"), ("gpus", "gpu")):
        value = job.get(key)
        size = len(cast(list[Any], value)) if isinstance(value, list | tuple | dict) else value
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            parts.append(words.count(size, what))
        elif isinstance(size, str):
            parts.append(f"{what} {size}")
    if known(job, "stalled_since"):
        parts.append(words.say("stalled_since", at=moment(job["stalled_since"])))
    versions = job.get("versions")
    if isinstance(versions, Mapping):
        named = cast(Mapping[str, Any], versions)
        parts += [f"{name} {listed(named[name])}" for name in sorted(named) if named[name] is not None]
    return "" if parts == [words.count(1, "node")] else ", ".join(parts)


def moment(at: Any) -> str:
    """Epoch seconds as UTC text; text stays as it is."""
    if isinstance(at, int | float) and 0 <= at < 253402300800:
        return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return str(at)


def listed(value: Any) -> str:
    """A JSON value in a few words."""
    if isinstance(value, list | tuple):
        items = [listed(item) for item in cast(list[Any], value)]
        return ", ".join(items[:8]) + (" …" if len(items) > 8 else "")
    if isinstance(value, Mapping):
        named = cast(Mapping[str, Any], value)
        return ", ".join(f"{key} {listed(item)}" for key, item in sorted(named.items())[:8])
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == UNNAMED_HOST:
        return "the host"
    return f"{value:g}" if isinstance(value, float) else str(value)


def counts(findings: Iterable[Finding], words: Words) -> str:
    """`2 MAJOR, 1 MINOR`."""
    found = list(findings)
    numbers = {s: sum(f.severity == s for f in found) for s in ("critical", "major", "minor", "info")}
    return ", ".join(f"{n} {words[s]}" for s, n in numbers.items() if n)
