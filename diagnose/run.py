"""The whole chain: paths -> Diagnosis. The command line, the screen and the tests call this and nothing deeper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, BinaryIO

import diagnose
from diagnose import packs
from diagnose.model import Diagnosis, Fact, Fields, Line, Pattern, Problem, Rule, Source

if TYPE_CHECKING:
    from diagnose.bundle import Bundle, LineReader
    from diagnose.intake import Mapper
    from diagnose.rulebook import Rulebook, RuleError

MAX_TEXTS = 64
"""Binary sources kept as text by a case."""


class NothingAnalysed(Exception):
    """Nothing could be analysed: no readable path, no source of a known kind, or a broken pack. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to analyse. `tz` names the zone of times that carry none; `jobs` limits processes; `scheduler`
    is the address of a Dask scheduler that reads the sources, or `local`; acknowledgements of the
    site file that expired before `today` no longer hold."""

    rules: tuple[Path, ...] = ()
    parsers: tuple[Path, ...] = ()
    site: Path | None = None
    tz: str | None = None
    lang: str = "en"
    drafts: bool = False
    jobs: int | None = None
    scheduler: str | None = None
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

    def __init__(self, diagnosis: Diagnosis, bundle: Bundle, parsers: Sequence[ModuleType] = ()) -> None:
        self.diagnosis = diagnosis
        self._bundle = bundle
        self._parsers = parsers
        self._by_path = {s.path: s for s in diagnosis.sources}
        self._texts: dict[str, list[Line] | None] = {}

    def excerpt(self, source: str, first: int, last: int, context: int = 3) -> list[Line]:
        """Lines first…last of a source with some around them; empty when the source is gone."""
        from diagnose.bundle import excerpt

        found = self._by_path.get(source)
        text = self._text(found)
        if text is not None:
            return text[max(0, first - 1 - context) : last + context]
        try:
            return excerpt(found, first, last, context) if found else []
        except OSError:
            return []

    def _text(self, source: Source | None) -> list[Line] | None:
        """The lines of a binary source, read once; None for text."""
        if source is None or not source.kinds:
            return None
        if source.path not in self._texts:
            from diagnose.intake import text_of

            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            self._texts[source.path] = text_of(source, self._parsers)
        return self._texts[source.path]

    def lines(self, source: str) -> LineReader | list[Line] | None:
        """All lines of a source by position (`len`, slices), read where asked; None when it is gone."""
        from diagnose.bundle import LineReader

        found = self._by_path.get(source)
        text = self._text(found)
        if text is not None:
            return text
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
    return Case(diagnosis, bundle, parsers)


def _diagnose(
    bundle: Bundle,
    parsers: Sequence[ModuleType],
    options: Options,
    on_progress: Callable[[Progress], None],
) -> Diagnosis:
    readable = [s for s in bundle.sources if s.kinds]
    if not readable:
        raise NothingAnalysed(_why_nothing(bundle))
    from diagnose import engine, facts, findings, intake, rulebook, site, tables

    settings = site.load(options.site) if options.site else site.find()
    with _mapper(options.scheduler) as mapper:
        parsed, problems = intake.parse_all(
            readable, parsers, options.parsers, options.tz, options.jobs, mapper,
            lambda path, done: on_progress(Progress("parse", path, done, len(readable))),
        )  # fmt: skip
    extra: Sequence[tuple[str, Fields]] = settings.facts if settings else ()
    base = facts.build(parsed, extra)
    on_progress(Progress("judge", "comparing ranks and hosts"))
    derived = facts.numbered(tables.derive(base), "d")
    known = (*base.facts, *derived)
    overrides = settings.thresholds if settings else {}
    statuses = ("draft", "trial", "stable") if options.drafts else ("trial", "stable")
    site_file = f"site file {Path(settings.path).name}" if settings else ""
    folders = (packs.builtin("rules"), *options.rules)
    book = rulebook.load(folders, overrides=overrides, site_file=site_file, statuses=statuses)
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
    problems = [
        *bundle.problems, *problems, *base.problems, *outcome.problems, *_rule_problems(book.errors, options.rules),
        *_unknown_topics(parsers),
    ]  # fmt: skip
    return Diagnosis(
        findings=judged, unknowns=findings.unknowns(book.rules, outcome),
        sources=tuple(read.get(s.path, s) for s in bundle.sources), problems=tuple(problems),
        job=tables.job(base, known), tables=tables.summary(base, known, judged),
        tool=_tool(outcome.engine, book), bundle_digest=bundle.digest,
    )  # fmt: skip


@contextmanager
def _mapper(scheduler: str | None) -> Iterator[Mapper | None]:
    """What runs batches elsewhere; None for this machine's processes."""
    if scheduler is None:
        yield None
        return
    from diagnose import cluster

    try:
        with cluster.mapper(scheduler) as found:
            yield found
    except cluster.NoCluster as error:
        raise NothingAnalysed(str(error)) from error


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


_SENDABLE = (
    "it reads logs of NCCL, PyTorch and the kernel and what nvidia-smi, ethtool, ibstat and the like print; "
    "'diagnose collect' gathers them"
)


def _why_nothing(bundle: Bundle) -> str:
    names = [s.path for s in bundle.sources]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    parts = ["no source of a known kind", ", ".join(names[:3]) + more, "; ".join(p.text for p in bundle.problems[:3])]
    return ": ".join(filter(None, parts)) + f"; {_SENDABLE}"


def _unknown_topics(parsers: Sequence[ModuleType]) -> Iterator[Problem]:
    from diagnose.vocabulary import did_you_mean, vocabulary

    known = vocabulary().topics
    for parser in parsers:
        for topic in parser.TOPICS:
            if topic not in known:
                yield Problem(f"parser {parser.KIND}: unknown topic '{topic}'{did_you_mean(topic, known)}")


def _rule_problems(errors: Sequence[RuleError], folders: Sequence[Path]) -> Iterator[Problem]:
    for error in errors:
        yield Problem(f"rule not loaded: {_beside(str(error), folders)}" if error.line else str(error))


def _beside(text: str, folders: Sequence[Path]) -> str:
    """An error message with the paths of packs shortened to their names: reports carry no absolute path."""
    for folder in (packs.builtin("rules"), *folders):
        text = text.replace(f"{folder}{os.sep}", f"{folder.resolve().name}/")
    return text


def _tool(engine_name: str, book: Rulebook) -> dict[str, object]:
    rules = book.rules
    in_force = {f"{r.id}.{t.name}": t.value for r in rules for t in r.thresholds}
    return {
        "name": "diagnose", "version": diagnose.__version__, "engine": engine_name,
        "rules": {"count": len(rules), "digest": book.digest},
        "thresholds_in_force": dict(sorted(in_force.items())), "overridden": list(book.overridden),
    }  # fmt: skip
