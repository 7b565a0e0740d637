"""The whole chain: paths -> Diagnosis. The command line, the screen and the tests call this and nothing deeper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, BinaryIO

import diagnose
from diagnose import packs
from diagnose.model import Diagnosis, Digest, Fact, Fields, Line, Pattern, Problem, Record, Rule, Source

if TYPE_CHECKING:
    from diagnose.bundle import Bundle, LineReader
    from diagnose.rulebook import Rulebook

PARALLEL_FROM_BYTES = 24 * 1024 * 1024
"""Less text than this is parsed faster in one process than it takes to start a second one."""


class NothingAnalysed(Exception):
    """Nothing could be analysed: no readable path, no source of a known kind, or a broken pack. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to analyse. `tz` names the zone of times that carry none; `jobs` limits processes; acknowledgements of the
    site file that expired before `today` no longer hold."""

    rules: tuple[Path, ...] = ()
    parsers: tuple[Path, ...] = ()
    site: Path | None = None
    tz: str | None = None
    lang: str = "en"
    drafts: bool = False
    jobs: int | None = None
    stdin: BinaryIO | None = None
    today: date | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of the work; `total` is 0 when unknown."""

    stage: str
    text: str
    done: int = 0
    total: int = 0


def _ignore(_: Progress) -> None:
    return None


class Case:
    """A diagnosis with its sources still at hand; closing it removes what was unpacked."""

    def __init__(self, diagnosis: Diagnosis, bundle: Bundle) -> None:
        self.diagnosis = diagnosis
        self._bundle = bundle
        self._by_path = {s.path: s for s in diagnosis.sources}

    def excerpt(self, source: str, first: int, last: int, context: int = 3) -> list[Line]:
        """Lines first…last of a source with some around them; empty when the source is gone."""
        from diagnose.bundle import excerpt

        found = self._by_path.get(source)
        try:
            return excerpt(found, first, last, context) if found else []
        except OSError:
            return []

    def lines(self, source: str) -> LineReader | None:
        """All lines of a source by position (`len`, slices), read where asked; None when it is gone."""
        from diagnose.bundle import LineReader

        found = self._by_path.get(source)
        try:
            return LineReader(found) if found else None
        except OSError:
            return None

    def close(self) -> None:
        """Remove private copies."""
        self._bundle.close()

    def __enter__(self) -> Case:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def analyse(
    paths: Sequence[str], options: Options = Options(), on_progress: Callable[[Progress], None] = _ignore
) -> Diagnosis:
    """Analyse any mix of files, folders and archives ('-' is standard input). Raises NothingAnalysed."""
    with open_case(paths, options, on_progress) as case:
        return case.diagnosis


def open_case(
    paths: Sequence[str], options: Options = Options(), on_progress: Callable[[Progress], None] = _ignore
) -> Case:
    """As `analyse`, and keeps the sources readable until the case is closed."""
    from diagnose import bundle as bundles

    try:
        parsers = packs.load_parsers(options.parsers)
    except (ImportError, OSError) as error:
        raise NothingAnalysed(str(error)) from error
    on_progress(Progress("open", "opening the bundle"))
    bundle = bundles.open_bundle(paths, parsers, stdin=options.stdin)
    try:
        diagnosis = _diagnose(bundle, parsers, options, on_progress)
    except BaseException:
        bundle.close()
        raise
    return Case(diagnosis, bundle)


def _diagnose(
    bundle: Bundle,
    parsers: Sequence[ModuleType],
    options: Options,
    on_progress: Callable[[Progress], None],
) -> Diagnosis:
    readable = [s for s in bundle.sources if s.kinds]
    if not readable:
        reasons = "; ".join(p.text for p in bundle.problems[:3])
        raise NothingAnalysed("no source of a known kind" + (f": {reasons}" if reasons else ""))
    from diagnose import engine, facts, findings, rulebook, site, tables

    settings = site.load(options.site) if options.site else site.find()
    parsed, problems = _parse_all(readable, parsers, options, on_progress)
    extra: Sequence[tuple[str, Fields]] = settings.facts if settings else ()
    base = facts.build(parsed, extra)
    on_progress(Progress("judge", "comparing ranks and hosts"))
    derived = facts.numbered(tables.derive(base), "d")
    known = (*base.facts, *derived)
    overrides = settings.thresholds if settings else {}
    statuses = ("draft", "trial", "stable") if options.drafts else ("trial", "stable")
    book = rulebook.load((packs.builtin("rules"), *options.rules), overrides=overrides, statuses=statuses)
    if not book.rules:
        raise NothingAnalysed("no usable rule: " + "; ".join(str(e) for e in book.errors[:3]))
    on_progress(Progress("judge", f"judging with {len(book.rules)} rules"))
    outcome = engine.run(book.rules, relevant(book.rules, known))
    acknowledged = [
        findings.Acknowledgement(a.id, a.host, a.reason) for a in (settings.acknowledged if settings else ())
        if a.expires is None or options.today is None or a.expires >= options.today
    ]  # fmt: skip
    judged = findings.judge(book.rules, outcome, options.lang, acknowledged)
    read = {s.path: s for s, _ in parsed}
    problems = [*bundle.problems, *problems, *base.problems, *outcome.problems, *_rule_problems(book.errors)]
    return Diagnosis(
        findings=judged, unknowns=findings.unknowns(book.rules, outcome),
        sources=tuple(read.get(s.path, s) for s in bundle.sources), problems=tuple(problems),
        job=tables.job(base, known), tables=tables.summary(base, known, judged),
        tool=_tool(outcome.engine, book, overrides), bundle_digest=bundle.digest,
    )  # fmt: skip


def relevant(rules: Sequence[Rule], facts: Sequence[Fact]) -> list[Fact]:
    """Facts that at least one pattern could match by its own fields; the engine need not hear of the others."""
    from diagnose.logic import holds

    patterns: dict[str, list[Pattern]] = {}
    for rule in rules:
        for pattern in (*rule.when, *rule.supports, *rule.unless):
            patterns.setdefault(pattern.kind, []).append(pattern)
    return [
        f for f in facts
        if f.kind == "covered" or any(_possible(holds(p.where, {None: f})) for p in patterns.get(f.kind, ()))
    ]  # fmt: skip


def _possible(verdict: bool | None) -> bool:
    """A condition that mentions other facts is unknown by itself, and may still come true."""
    return verdict is not False


def _rule_problems(errors: Sequence[object]) -> Iterator[Problem]:
    for error in errors:
        yield Problem(f"rule not loaded: {_beside(str(error))}")


def _beside(text: str) -> str:
    """An error message with the pack's own path taken off: reports carry no absolute path."""
    return text.replace(f"{packs.builtin('rules')}{os.sep}", "rules/")


def _tool(engine_name: str, book: Rulebook, overrides: Mapping[str, object]) -> dict[str, object]:
    rules = book.rules
    in_force = {f"{r.id}.{t.name}": t.value for r in rules for t in r.thresholds}
    return {
        "name": "diagnose", "version": diagnose.__version__, "engine": engine_name,
        "rules": {"count": len(rules), "digest": book.digest},
        "thresholds_in_force": dict(sorted(in_force.items())), "overridden": sorted(overrides),
    }  # fmt: skip


# --- parsing ----------------------------------------------------------------------------------------


def _parse_all(
    sources: Sequence[Source], parsers: Sequence[ModuleType], options: Options, on_progress: Callable[[Progress], None]
) -> tuple[list[tuple[Source, list[Record]]], list[Problem]]:
    """Records of every source, in the order of the sources; large bundles are read by several processes."""
    jobs = options.jobs or os.cpu_count() or 1
    total = sum(s.size for s in sources)
    results: list[tuple[Source, list[Record], list[Problem]]] = []
    if jobs > 1 and len(sources) > 1 and total >= PARALLEL_FROM_BYTES:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        order = sorted(range(len(sources)), key=lambda i: -sources[i].size)
        with ProcessPoolExecutor(min(jobs, len(sources)), mp_context=get_context("spawn")) as pool:
            futures = {i: pool.submit(parse_source, sources[i], options.parsers, options.tz) for i in order}
            for done, i in enumerate(range(len(sources))):
                on_progress(Progress("parse", sources[i].path, done, len(sources)))
                results.append(futures[i].result())
    else:
        by_kind = {p.KIND: p for p in parsers}
        for done, source in enumerate(sources):
            on_progress(Progress("parse", source.path, done, len(sources)))
            results.append(_parse(source, by_kind, options.tz))
    return [(s, r) for s, r, _ in results], [p for _, _, found in results for p in found]


def parse_source(
    source: Source, folders: tuple[Path, ...], tz: str | None
) -> tuple[Source, list[Record], list[Problem]]:
    """Parse one source in a worker process, which loads the packs for itself."""
    return _parse(source, {p.KIND: p for p in packs.load_parsers(folders)}, tz)


def _parse(
    source: Source, by_kind: Mapping[str, ModuleType], tz: str | None
) -> tuple[Source, list[Record], list[Problem]]:
    from diagnose import bundle, parsing

    records: list[Record] = []
    problems: list[Problem] = []
    status = source.status
    for kind in source.kinds:
        parser = by_kind[kind]
        try:
            if hasattr(parser, "scan"):
                produced = parser.scan(parsing.rejoined(bundle.read_blocks(source)), source)
            else:
                produced = parser.parse(bundle.read_lines(source), source)
            with parsing.assumed_zone(tz):
                for item in produced:
                    records.extend(item.records() if isinstance(item, Digest) else (item,))
        except OSError as error:
            problems.append(Problem(f"cannot be read: {error.strerror or error}", source.path))
            status = "error"
        except Exception as error:
            problems.append(Problem(f"parser {kind} failed: {type(error).__name__}: {error}"[:300], source.path))
            status = "partial"
    if any(r.kind == "parse_problem" for r in records) and status == "parsed":
        status = "partial"
    return replace(source, status=status, line_count=bundle.count_lines(source)), records, problems
