"""Literal search over findings, their evidence and all sources; bounded, and stoppable between blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from diagnose.model import Diagnosis, Finding

from .case import CaseLike, LineReader, window
from .items import subject_text

BLOCK = 4_000
MAX_PER_SOURCE = 500
MAX_HITS = 5_000
EXCERPT = 300


@dataclass(frozen=True)
class FindingHit:
    """A finding whose texts hold the needle; `evidence` tells which evidence holds it, None for other texts."""

    key: str
    title: str
    evidence: int | None
    excerpt: str


@dataclass(frozen=True)
class SourceHit:
    """A line of a source."""

    path: str
    line: int
    excerpt: str


Hit = FindingHit | SourceHit


def matcher(needle: str) -> Callable[[str], int]:
    """Position of the needle in a text or -1; case matters only when the needle has capitals."""
    if needle != needle.lower():
        return lambda text: text.find(needle)
    return lambda text: text.lower().find(needle)


def around(text: str, at: int) -> str:
    """The part of a line that shows the place `at`."""
    start = max(0, at - EXCERPT // 3)
    return ("…" if start else "") + text[start : start + EXCERPT]


def in_findings(diagnosis: Diagnosis, needle: str) -> Iterator[FindingHit]:
    """Findings that hold the needle in their texts or evidence, each text once."""
    find = matcher(needle)
    for finding in diagnosis.findings:
        for text in _texts(finding):
            at = find(text)
            if at >= 0:
                yield FindingHit(finding.key, finding.title, None, around(text, at))
                break
        for number, evidence in enumerate(finding.evidence):
            at = find(evidence.text)
            if at >= 0:
                yield FindingHit(finding.key, finding.title, number, around(evidence.text, at))


def _texts(finding: Finding) -> list[str]:
    texts = [finding.title, finding.summary, finding.id, finding.cause]
    texts += [subject_text(s) for s in finding.subjects]
    for step in finding.remediation:
        texts += [step.text, step.command or ""]
    return texts


def in_sources(
    case: CaseLike,
    reader_of: Callable[[str], LineReader | None],
    needle: str,
    only: str | None,
    stopped: Callable[[], bool],
    on_source: Callable[[str], None],
) -> Iterator[SourceHit]:
    """Lines of sources that hold the needle; at most MAX_PER_SOURCE per source."""
    find = matcher(needle)
    for source in case.diagnosis.sources:
        if only is not None and source.path != only:
            continue
        on_source(source.path)
        reader = reader_of(source.path)
        total = len(reader) if reader is not None else 0
        found = 0
        for first in range(1, total + 1, BLOCK):
            if stopped() or reader is None:
                return
            for line in window(reader, first, first + BLOCK - 1):
                at = find(line.text)
                if at >= 0:
                    yield SourceHit(source.path, line.number, around(line.text, at))
                    found += 1
            if found >= MAX_PER_SOURCE:
                break
