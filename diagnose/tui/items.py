"""The list on the left as data: findings with their consequences, then groups of what is unknown, broken or unread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from diagnose.model import SEVERITIES, UNNAMED_HOST, Diagnosis, Finding, Problem, Severity, Source, Subject, Unknown

GLYPHS: dict[str, str] = {"critical": "✖", "major": "●", "minor": "▲", "info": "·"}
ACKNOWLEDGED_GLYPH = "–"
"""Instead of the severity of a finding that the site has accepted."""
STATUS_GLYPHS: dict[str, str] = {"parsed": "✓", "partial": "◐", "unrecognised": "?", "empty": "∅", "error": "✖"}
EFFECT_WORDS: dict[str, str] = {
    "read-only": "READ-ONLY",
    "changes-state": "CHANGES STATE",
    "maintenance": "MAINTENANCE",
}

OPEN_LIMIT = 4
"""A group of at most so many members is unfolded at first."""

GroupName = Literal["explained", "unknowns", "problems", "sources"]
Thing = Finding | Unknown | Problem | Source


@dataclass(frozen=True)
class Group:
    """A foldable row: `name` says of what, `of` whose (key of the finding that explains them), `members` the things."""

    name: GroupName
    members: tuple[Thing, ...]
    of: str = ""
    unfolded: bool = False


@dataclass(frozen=True)
class Item:
    """One row of the list: what it stands for, how deep it is nested, and a key that survives refiltering."""

    thing: Thing | Group
    depth: int = 0

    @property
    def key(self) -> str:
        thing = self.thing
        if isinstance(thing, Finding):
            return "finding:" + thing.key
        if isinstance(thing, Unknown):
            return f"unknown:{thing.question}:{thing.collect}"
        if isinstance(thing, Problem):
            return f"problem:{thing.source}:{thing.first}:{thing.text}"
        if isinstance(thing, Source):
            return "source:" + thing.path
        return f"group:{thing.name}:{thing.of}"


def subject_text(subject: Subject) -> str:
    """A subject in a few words: `node017 mlx5_3`, `ranks 0-16,18-1023`."""
    if subject.kind == "rank":
        many = "," in subject.name or "-" in subject.name
        return ("ranks " if many else "rank ") + subject.name
    if subject.kind in ("host", "job") or subject.host == subject.name:
        return "the host" if subject.name == UNNAMED_HOST else subject.name
    return f"{subject.host} {subject.name}" if subject.host not in (None, UNNAMED_HOST) else subject.name


def subjects_text(subjects: Iterable[Subject], most: int = 3) -> str:
    """The first few subjects, and how many more there are; a host is left out where its device or rank is named."""
    subjects = tuple(subjects)
    named = {s.host for s in subjects if s.kind != "host"}
    texts = list(dict.fromkeys(subject_text(s) for s in subjects if s.kind != "host" or s.name not in named))
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" +{more} more" if more > 0 else "")


def at_least(severity: Severity, least: Severity) -> bool:
    """Is `severity` as grave as `least` or graver?"""
    return SEVERITIES.index(severity) <= SEVERITIES.index(least)


def _order(finding: Finding) -> tuple[bool, int, bool, int]:
    confidence = ("high", "medium", "low").index(finding.confidence)
    return finding.acknowledged is not None, SEVERITIES.index(finding.severity), finding.role == "context", confidence


def _parent(finding: Finding, candidates: Collection[Finding]) -> Finding | None:
    """The finding beneath which this one folds: named by key, or by id on the same host, or by id."""
    if not finding.explained_by:
        return None
    named = [
        c for c in candidates if c is not finding and (c.key in finding.explained_by or c.id in finding.explained_by)
    ]
    hosts = {s.host or s.name for s in finding.subjects}

    def closeness(candidate: Finding) -> tuple[bool, bool]:
        same_host = any((s.host or s.name) in hosts for s in candidate.subjects)
        return candidate.key not in finding.explained_by, not same_host

    return min(named, key=closeness, default=None)


def _family(findings: Collection[Finding]) -> tuple[list[Finding], dict[str, list[Finding]]]:
    """Findings that stand by themselves, and under the key of each the ones it explains, directly or through others."""
    parents = {f.key: _parent(f, findings) for f in findings}
    roots: list[Finding] = []
    children: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=_order):
        seen = {finding.key}
        top = finding
        while (above := parents[top.key]) is not None and above.key not in seen:
            seen.add(above.key)
            top = above
        if top is finding or parents[top.key] is not None:
            roots.append(finding)
        else:
            children.setdefault(top.key, []).append(finding)
    return roots, children


def _group(name: GroupName, members: Iterable[Thing], toggled: Collection[str], of: str = "") -> list[Item]:
    things = tuple(members)
    if not things:
        return []
    depth = 1 if of else 0
    closed = Item(Group(name, things, of), depth)
    unfolded = (len(things) <= OPEN_LIMIT and name in ("explained", "unknowns")) != (closed.key in toggled)
    if name == "explained" and unfolded:
        return [Item(thing, depth) for thing in things]
    head = Item(Group(name, things, of, unfolded), depth)
    return [head, *(Item(thing, depth + 1) for thing in things)] if unfolded else [head]


def arrange(diagnosis: Diagnosis, least: Severity = "info", toggled: Collection[str] = ()) -> list[Item]:
    """All rows of the list. `toggled` holds the keys of groups that are folded or unfolded against their default."""
    shown = [f for f in diagnosis.findings if at_least(f.severity, least)]
    roots, children = _family(shown)
    items: list[Item] = []
    for finding in roots:
        items.append(Item(finding))
        items.extend(_group("explained", children.get(finding.key, ()), toggled, finding.key))
    items.extend(_group("unknowns", diagnosis.unknowns, toggled))
    items.extend(_group("problems", diagnosis.problems, toggled))
    bad_first = sorted(diagnosis.sources, key=lambda s: s.status == "parsed")
    items.extend(_group("sources", bad_first, toggled))
    return items


def unread_text(sources: Iterable[Thing], say: Callable[[str], str]) -> str:
    """`, 2 not fully read`, or nothing when all were."""
    count = sum(isinstance(s, Source) and s.status != "parsed" for s in sources)
    return f", {count} " + say("not fully read") if count else ""
