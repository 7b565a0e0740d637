"""Sources -> records: every source by the parsers that claim it, in one process, several, or on a cluster.

Large bundles are read by several processes in batches; results come back in the order of the sources, whichever way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from diagnose import packs
from diagnose.model import Block, Digest, Line, Problem, Record, Source

if TYPE_CHECKING:
    from diagnose.bundle import Stream

PARALLEL_FROM_BYTES = 24 * 1024 * 1024
"""Less text than this is parsed faster in one process than it takes to start a second one."""
BATCH_BYTES = 8 << 20
BATCH_FILES = 64
"""A batch ends at whichever comes first."""

NO_ANSWER = "nothing in it could be read"
NOTHING_KNOWN = "holds nothing that any check looks at"
"""Notes on sources that gave no record."""

Parsed = tuple[Source, list[Record], list[Problem]]
Batch = tuple[tuple[Source, ...], tuple[Path, ...], str | None]
Mapper = Callable[[Callable[[Batch], list[Parsed]], Sequence[Batch]], Iterable[list[Parsed]]]
"""Applies a function to every batch, somewhere, and gives the results in order."""


def parse_all(
    sources: Sequence[Source], parsers: Sequence[ModuleType], folders: tuple[Path, ...] = (), tz: str | None = None,
    jobs: int | None = None, mapper: Mapper | None = None,
    on_source: Callable[[str, int], None] = lambda path, done: None,
) -> tuple[list[tuple[Source, list[Record]]], list[Problem]]:  # fmt: skip
    """Records of every source, in the order of the sources. `mapper` runs the batches elsewhere (a cluster)."""
    jobs = jobs or os.cpu_count() or 1
    results: list[Parsed] = []
    if mapper is None and (jobs < 2 or len(sources) < 2 or sum(s.size for s in sources) < PARALLEL_FROM_BYTES):
        by_kind = {p.KIND: p for p in parsers}
        for done, source in enumerate(sources):
            on_source(source.path, done)
            results.append(parse(source, by_kind, tz))
    else:
        batches = [(tuple(batch), folders, tz) for batch in _batches(sources)]
        for found in (mapper or _Processes(jobs))(parse_batch, batches):
            on_source(found[0][0].path, len(results))
            results += found
    return [(s, r) for s, r, _ in results], [p for _, _, found in results for p in found]


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    batch: list[Source] = []
    for source in sources:
        if batch and (len(batch) >= BATCH_FILES or sum(s.size for s in batch) + source.size > BATCH_BYTES):
            yield batch
            batch = []
        batch.append(source)
    if batch:
        yield batch


class _Processes:
    """Batches on local processes."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def __call__(self, function: Callable[[Batch], list[Parsed]], batches: Sequence[Batch]) -> Iterator[list[Parsed]]:
        from concurrent.futures import Future, ProcessPoolExecutor
        from multiprocessing import get_context

        order = sorted(range(len(batches)), key=lambda i: -sum(s.size for s in batches[i][0]))
        with ProcessPoolExecutor(min(self._jobs, len(batches)), mp_context=get_context("spawn")) as pool:
            waiting: dict[int, Future[list[Parsed]]] = {i: pool.submit(function, batches[i]) for i in order}
            for i in range(len(batches)):
                yield waiting.pop(i).result()


def parse_batch(batch: Batch) -> list[Parsed]:
    """Parse sources in a worker process, which loads the packs for itself."""
    sources, folders, tz = batch
    by_kind = {p.KIND: p for p in packs.load_parsers(folders)}
    return [parse(source, by_kind, tz) for source in sources]


def parse(source: Source, by_kind: Mapping[str, ModuleType], tz: str | None) -> Parsed:
    """Records and problems of one source; never raises because of content."""
    from diagnose import bundle, guarded, parsing

    records: list[Record] = []
    problems: list[Problem] = []
    status, lines = source.status, 0
    apart: dict[str, list[Stream]] | None = None
    for kind in source.kinds:
        parser = by_kind[kind]
        try:
            if kind in source.apart:
                if apart is None:
                    apart = bundle.streams_of(source, [by_kind[k] for k in source.apart])
                with parsing.assumed_zone(tz):
                    records += [record for stream in apart[kind] for record in _of_stream(parser, stream, source)]
                continue
            if hasattr(parser, "scan_bytes"):
                found, lines = guarded.shared().scan(parser, source)
                records += found
                continue
            if hasattr(parser, "scan"):
                produced = parser.scan(parsing.rejoined(bundle.read_blocks(source)), source)
            else:
                produced = parser.parse(bundle.read_lines(source), source)
            with parsing.assumed_zone(tz):
                for item in produced:
                    records.extend(item.records() if isinstance(item, Digest) else (_record(item),))
        except guarded.Unreadable as error:
            problems.append(Problem(f"{kind}: {error}", source.path))
            status = "error"
            records += parser.unread(source) if hasattr(parser, "unread") else ()
        except OSError as error:
            problems.append(Problem(f"cannot be read: {error.strerror or error}", source.path))
            status = "error"
        except Exception as error:
            problems.append(Problem(f"parser {kind} failed: {type(error).__name__}: {error}"[:300], source.path))
            status = "partial"
    unreadable = any(r.kind == "parse_problem" for r in records)
    notes = source.notes
    if status != "error" and all(r.kind == "parse_problem" for r in records):
        status, notes = "unrecognised", (*notes, NO_ANSWER if unreadable else NOTHING_KNOWN)
    elif unreadable and status == "parsed":
        status = "partial"
    read = replace(source, status=status, notes=notes, line_count=lines or _line_count(source))
    return read, records, problems


def _of_stream(parser: ModuleType, stream: Stream, source: Source) -> Iterator[Record]:
    """Records of one host's or task's lines; the prefix tells whose they are where the lines do not."""
    rank = stream.rank if stream.rank is not None else source.rank
    told = replace(source, host=stream.host or source.host, rank=rank)
    if hasattr(parser, "parse"):
        produced = parser.parse(iter(stream.lines), told)
    else:
        produced = parser.scan([Block(stream.lines[0].number, stream.text())], told)
    for item in produced:
        for record in item.records() if isinstance(item, Digest) else (_record(item),):
            rank = record.rank if record.rank is not None else stream.rank
            yield replace(record, host=record.host or stream.host, rank=rank)


def _record(item: object) -> Record:
    if not isinstance(item, Record):
        raise TypeError(f"yields {type(item).__name__}, neither Record nor Digest")
    return item


def _line_count(source: Source) -> int:
    from diagnose import bundle

    try:
        return bundle.count_lines(source)
    except OSError:
        return 0


def text_of(source: Source, parsers: Iterable[ModuleType]) -> list[Line] | None:
    """A binary source as lines of text, or None when it is text itself. Empty when it cannot be read."""
    from diagnose import guarded

    parser = next((p for p in parsers if p.KIND in source.kinds and hasattr(p, "render_bytes")), None)
    if parser is None:
        return None
    try:
        return [Line(n, text) for n, text in enumerate(guarded.shared().render(parser, source), 1)]
    except guarded.Unreadable:
        return []
