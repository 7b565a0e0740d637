"""Diagnosis to JSON and back: the form `diagnose.report/1`, described by `report.schema.json`.

Same diagnosis, same bytes: keys are sorted, nothing reads a clock, no absolute path is written. A source goes by its
path, which is unique within a report: `evidence`, `problems` and `sources` all say that.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_args

import diagnose
from diagnose.model import (
    CONFIDENCES,
    SEVERITIES,
    Diagnosis,
    Effect,
    Evidence,
    Finding,
    LookAlike,
    NextEvidence,
    Problem,
    Role,
    Source,
    SourceStatus,
    Step,
    Subject,
    Unknown,
)
from diagnose.report.safe import UNSAFE

SCHEMA = "diagnose.report/1"
JOB_KEYS = ("nodes", "ranks", "gpus", "stalled_since", "versions")
TABLE_KEYS = ("progress", "hosts_by_check", "topology", "timeline", "counters", "benchmarks")

_INVISIBLE = re.compile(f"(?![\\t\\n]){UNSAFE}")
T = TypeVar("T")


class NotAReport(ValueError):
    """The text is no `diagnose.report/1`; the message says where."""


# --- out --------------------------------------------------------------------------------------------


def to_json(diagnosis: Diagnosis) -> str:
    """The report as JSON text that ends with a newline. Control and bidi characters leave as \\u escapes."""
    text = json.dumps(to_data(diagnosis), ensure_ascii=False, sort_keys=True, indent=2, allow_nan=False)
    return _INVISIBLE.sub(_escaped, text) + "\n"


def to_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The report as plain dicts and lists: numbers that JSON cannot hold become null."""
    paths = {s.id: s.path for s in diagnosis.sources}
    tool = {
        "name": "diagnose",
        "version": diagnose.__version__,
        "engine": "",
        "rules": {"count": 0, "digest": ""},
        "thresholds_in_force": {},
        **diagnosis.tool,
    }
    return _plain(
        {
            "schema": SCHEMA,
            "tool": tool,
            "bundle_digest": diagnosis.bundle_digest,
            "sources": [_source(s) for s in sorted(diagnosis.sources, key=lambda s: (s.path, s.id))],
            "findings": [_finding(f, paths) for f in diagnosis.findings],
            "unknowns": [
                {"question": u.question, "because": u.because, "collect": u.collect} for u in diagnosis.unknowns
            ],
            "problems": [
                {
                    "source": None if p.source is None else paths.get(p.source, p.source),
                    "lines": None if p.first is None else [p.first, p.last or p.first],
                    "text": p.text,
                }
                for p in diagnosis.problems
            ],
            "job": {**dict.fromkeys(JOB_KEYS), **diagnosis.job},
            "tables": {**dict.fromkeys(TABLE_KEYS), **diagnosis.tables},
        }
    )


def _source(s: Source) -> dict[str, Any]:
    return {
        "id": s.path,
        "path": s.path,
        "kinds": list(s.kinds),
        "host": s.host,
        "rank": s.rank,
        "command": s.command,
        "snapshot": s.snapshot,
        "taken_at": s.taken_at,
        "size": s.size,
        "digest": s.digest,
        "line_count": s.line_count,
        "status": s.status,
        "notes": list(s.notes),
    }


def _finding(f: Finding, paths: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": f.id,
        "severity": f.severity,
        "confidence": f.confidence,
        "role": f.role,
        "explained_by": list(f.explained_by),
        "title": f.title,
        "summary": f.summary,
        "subjects": [
            {"kind": s.kind, "name": s.name} if s.host is None else {"kind": s.kind, "name": s.name, "host": s.host}
            for s in f.subjects
        ],
        "evidence": [_evidence(e, paths) for e in f.evidence],
        "cause": f.cause,
        "remediation": [
            {
                "text": s.text,
                "command": s.command,
                "where": s.where,
                "effect": s.effect,
                "verify": s.verify,
                "rollback": s.rollback,
            }
            for s in f.remediation
        ],
        "next_evidence": [{"text": n.text, "command": n.command} for n in f.next_evidence],
        "look_alikes": [
            {"id": a.id, "question": a.question, "text": a.text, "command": a.command} for a in f.look_alikes
        ],
        "references": list(f.references),
        "acknowledged": f.acknowledged,
        **({"shows_nothing": True} if f.shows_nothing else {}),
    }


def _evidence(e: Evidence, paths: Mapping[str, str]) -> dict[str, Any]:
    found = {"source": paths.get(e.source, e.source), "lines": [e.first, e.last], "text": e.text}
    return {**found, "spans": [list(span) for span in e.spans]} if e.spans else found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value)
        return {str(key): _plain(item) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(tuple[Any, ...], value)]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in cast(set[Any], value)), key=repr)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


# --- in ---------------------------------------------------------------------------------------------


def from_json(text: str) -> Diagnosis:
    """The diagnosis that `to_json` wrote. NotAReport on anything else; keys that are not known are passed over."""
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise NotAReport("not a report: nested too deeply") from None
    except ValueError as error:
        raise NotAReport(f"not a report: {error}") from None
    if not isinstance(data, dict):
        raise NotAReport("not a report: the file holds no JSON object")
    top = _Reader(cast(dict[str, Any], data), "report")
    if top.raw.get("schema") != SCHEMA:
        raise NotAReport(f"not a report of this version: schema is {top.raw.get('schema')!r:.60}, not '{SCHEMA}'")
    return Diagnosis(
        findings=top.each("findings", _read_finding),
        unknowns=top.each("unknowns", lambda r: Unknown(r.text("question"), r.text("because"), r.text("collect"))),
        sources=top.each("sources", _read_source),
        problems=top.each("problems", _read_problem),
        job=_known_only(top.mapping("job")),
        tables=_known_only(top.mapping("tables")),
        tool=top.mapping("tool"),
        bundle_digest=top.text("bundle_digest"),
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _known_only(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}


class _Reader:
    """Typed access to one JSON object; errors name the place."""

    def __init__(self, raw: dict[str, Any], place: str) -> None:
        self.raw = raw
        self.place = place

    def _get(self, key: str, kinds: tuple[type, ...], default: Any = None, *, needed: bool = True) -> Any:
        value = self.raw.get(key, default)
        if value is None and not needed:
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise NotAReport(f"not a report: {self.place}.{key} is {value!r:.60}")
        return value

    def text(self, key: str) -> str:
        return self._get(key, (str,))

    def maybe_text(self, key: str) -> str | None:
        return self._get(key, (str,), needed=False)

    def maybe_int(self, key: str) -> int | None:
        return self._get(key, (int,), needed=False)

    def number(self, key: str) -> int:
        return self._get(key, (int,), 0)

    def maybe_float(self, key: str) -> float | None:
        value = self._get(key, (int, float), needed=False)
        try:
            return None if value is None else float(value)
        except OverflowError:
            raise NotAReport(f"not a report: {self.place}.{key} is too large") from None

    def one_of(self, key: str, allowed: tuple[T, ...]) -> T:
        value = self.raw.get(key)
        if value not in allowed:
            raise NotAReport(f"not a report: {self.place}.{key} is {value!r:.60}")
        return cast(T, value)

    def items(self, key: str) -> list[Any]:
        return self._get(key, (list,), [])

    def mapping(self, key: str) -> dict[str, Any]:
        return self._get(key, (dict,), {})

    def texts(self, key: str) -> tuple[str, ...]:
        items = self.items(key)
        if not all(isinstance(item, str) for item in items):
            raise NotAReport(f"not a report: {self.place}.{key} holds more than texts")
        return tuple(items)

    def pair(self, value: Any, key: str) -> tuple[int, int]:
        if isinstance(value, list):
            numbers = cast(list[Any], value)
            if len(numbers) == 2 and all(type(n) is int for n in numbers):
                return numbers[0], numbers[1]
        raise NotAReport(f"not a report: {self.place}.{key} is {value!r:.60}, not two numbers")

    def each(self, key: str, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        found: list[T] = []
        for i, item in enumerate(self.items(key)):
            if not isinstance(item, dict):
                raise NotAReport(f"not a report: {self.place}.{key}[{i}] is no object")
            found.append(read(_Reader(cast(dict[str, Any], item), f"{self.place}.{key}[{i}]")))
        return tuple(found)


def _read_source(r: _Reader) -> Source:
    return Source(
        id=r.text("id"),
        path=r.text("path"),
        size=r.number("size"),
        digest=r.maybe_text("digest") or "",
        kinds=r.texts("kinds"),
        host=r.maybe_text("host"),
        rank=r.maybe_int("rank"),
        command=r.maybe_text("command"),
        snapshot=r.maybe_int("snapshot"),
        taken_at=r.maybe_float("taken_at"),
        line_count=r.number("line_count"),
        status=r.one_of("status", get_args(SourceStatus)),
        notes=r.texts("notes"),
    )


def _read_problem(r: _Reader) -> Problem:
    lines = r.raw.get("lines")
    first, last = (None, None) if lines is None else r.pair(lines, "lines")
    return Problem(r.text("text"), r.maybe_text("source"), first, last)


def _read_evidence(r: _Reader) -> Evidence:
    first, last = r.pair(r.raw.get("lines"), "lines")
    spans = tuple(r.pair(span, "spans") for span in r.items("spans"))
    return Evidence(r.text("source"), first, last, r.text("text"), spans)


def _read_step(r: _Reader) -> Step:
    effect: Effect = r.one_of("effect", get_args(Effect))
    command, where = r.maybe_text("command"), r.maybe_text("where")
    return Step(r.text("text"), effect, command, where, r.maybe_text("verify"), r.maybe_text("rollback"))


def _read_finding(r: _Reader) -> Finding:
    role: Role = r.one_of("role", get_args(Role))
    return Finding(
        id=r.text("id"),
        severity=r.one_of("severity", SEVERITIES),
        confidence=r.one_of("confidence", CONFIDENCES),
        role=role,
        title=r.text("title"),
        summary=r.text("summary"),
        subjects=r.each("subjects", lambda s: Subject(s.text("kind"), s.text("name"), s.maybe_text("host"))),
        evidence=r.each("evidence", _read_evidence),
        cause=r.text("cause"),
        remediation=r.each("remediation", _read_step),
        explained_by=r.texts("explained_by"),
        next_evidence=r.each("next_evidence", lambda n: NextEvidence(n.text("text"), n.text("command"))),
        look_alikes=r.each(
            "look_alikes",
            lambda a: LookAlike(a.text("id"), a.text("question"), a.maybe_text("text"), a.maybe_text("command")),
        ),
        references=r.texts("references"),
        acknowledged=r.maybe_text("acknowledged"),
        shows_nothing=r.raw.get("shows_nothing") is True,
    )
