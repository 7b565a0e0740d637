"""Folders, archives, files and standard input become Sources. Bounded, and never outside the bundle.

    with open_bundle(["evidence.tar.gz"], packs.load_parsers()) as bundle:
        for source in bundle.sources:
            for line in read_lines(source): ...

What cannot be read becomes a Problem that names the path and the reason; the rest goes on.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import BinaryIO

from diagnose.bundle.archives import Limits
from diagnose.bundle.manifest import Absent, Entry, Manifest, read_manifest
from diagnose.bundle.origins import Origin, numbered, origin_of, shelves
from diagnose.bundle.reading import LineReader, count_lines, encoding_of, excerpt, peek, read_blocks, read_lines
from diagnose.bundle.recognise import SAMPLE, binary_note, text_note
from diagnose.bundle.streams import MAX_SIZE, READ_FROM, Parts, Stream, chosen, parts_of
from diagnose.bundle.walk import Found, Walk, display, reason
from diagnose.model import Line, Problem, Source, SourceStatus

__all__ = [
    "Absent", "Bundle", "Entry", "Limits", "LineReader", "Manifest", "Stream",
    "count_lines", "excerpt", "open_bundle", "read_blocks", "read_lines", "streams_of",
]  # fmt: skip

_MAX_GONE = 20
"""Files that a manifest lists and the bundle lacks are named up to this number."""
_DIGEST_WHOLE = 64 << 20
_DIGEST_END = 4 << 20


class Bundle:
    """Everything that was given, as sources sorted by path. Close it (or use `with`) to remove its private folder."""

    def __init__(
        self,
        sources: tuple[Source, ...],
        problems: tuple[Problem, ...],
        manifests: tuple[Manifest, ...],
        digest: str,
        folder: tempfile.TemporaryDirectory[str],
    ):
        self.sources = sources
        self.problems = problems
        self.manifests = manifests
        self.digest = digest
        self._folder = folder

    def close(self) -> None:
        """Remove unpacked copies; sources from archives cannot be read any more."""
        self._folder.cleanup()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_bundle(
    paths: Sequence[str],
    parsers: Sequence[ModuleType],
    *,
    stdin: BinaryIO | None = None,
    limits: Limits | None = None,
) -> Bundle:
    """Everything below `paths` (files, folders, archives; `-` is standard input) as a Bundle.

    A path that cannot be read is a Problem, never an exception. Kinds are those of the parsers whose
    `sniff` reaches 0.5.
    """
    folder = tempfile.TemporaryDirectory(prefix="diagnose-", ignore_cleanup_errors=True)
    try:
        walk = Walk(Path(folder.name), limits or Limits(), stdin)
        walk.take_all(paths)
        return _assemble(walk, parsers, folder)
    except BaseException:
        folder.cleanup()
        raise


def _assemble(walk: Walk, parsers: Sequence[ModuleType], folder: tempfile.TemporaryDirectory[str]) -> Bundle:
    problems = walk.problems
    manifests: list[Manifest] = []
    for path, location in walk.manifests:
        try:
            manifest, wrong = read_manifest(location.read_text("utf-8-sig", "replace"), path)
        except OSError as error:
            manifest, wrong = None, [reason(error)]
        problems += [Problem(f"{path}: {text}", path) for text in wrong[:20]]
        if manifest is not None:
            manifests.append(manifest)
    listed = {entry.path: entry for manifest in manifests for entry in manifest.entries}
    found = sorted(walk.found, key=lambda f: f.path)
    names = _Names(found, manifests)
    sniffer = _Sniffer(parsers)
    sources: list[Source] = []
    for f in found:
        try:
            source = _source(f, listed.get(f.manifest_path), names)
            source = _recognised(source, f, sniffer)
        except OSError as error:
            problems.append(Problem(f"{f.path}: {reason(error)}", f.path))
            continue
        sources.append(replace(source, id=f"s{len(sources) + 1}"))
    taken = {f.manifest_path for f in found}
    gone = [display(entry.path) for entry in listed.values() if entry.path not in taken]
    problems += _gone(gone, walk.broken)
    problems += [Problem(text) for text in sniffer.failures.values()]
    digest = hashlib.sha256()
    parts = [(s.path, s.digest) for s in sources]
    parts += [(path, _digest_of(location)) for path, location in walk.manifests]
    for path, part in sorted(parts):
        digest.update(f"{path}\0{part}\n".encode("utf-8", "replace"))
    return Bundle(tuple(sources), tuple(problems), tuple(manifests), digest.hexdigest(), folder)


def _gone(paths: Sequence[str], broken: Sequence[str]) -> Iterator[Problem]:
    """What the manifests list and the bundle lacks; what was behind the break of an archive is only counted."""
    if not paths:
        return
    if broken:
        yield Problem(f"{', '.join(broken)}: {len(paths)} files that the manifest lists are lost after the break")
        return
    for path in paths[:_MAX_GONE]:
        yield Problem(f"{path}: listed in the manifest, but not in the bundle")
    if len(paths) > _MAX_GONE:
        yield Problem(f"{len(paths) - _MAX_GONE} more files are listed in the manifest, but not in the bundle")


class _Names:
    """What paths and manifests tell about where files come from, all files taken together."""

    def __init__(self, found: Sequence[Found], manifests: Sequence[Manifest]):
        self._began = {m.path.rpartition("/")[0]: m.job_began for m in manifests if m.job_began is not None}
        self._hosts = {m.path.rpartition("/")[0]: m.host for m in manifests if m.host or m.of_job}
        self._shelves = shelves(f.folders for f in found)
        told = {e.host for m in manifests for e in m.entries if e.host} | {h for h in self._hosts.values() if h}
        self._known = sorted(told | {h for f in found if (h := origin_of(self._folders(f), "").host)})
        groups: dict[str, list[tuple[str, int]]] = {}
        for f in found:
            part = numbered(f.path)
            if part is not None:
                groups.setdefault(part[0], []).append((f.path, part[1]))
        self._series = {path: number for group in groups.values() if len(group) > 1 for path, number in group}

    def _folders(self, f: Found) -> tuple[str, ...]:
        return tuple(name for depth, name in enumerate(f.folders, 1) if f.folders[:depth] not in self._shelves)

    def origin(self, f: Found, of_job: bool) -> Origin:
        """Host (nearest manifest first), rank, snapshot and time; `cmd.1.txt` counts only beside a `cmd.2.txt`."""
        origin = origin_of(self._folders(f), f.name, self._known)
        if origin.snapshot is None:
            origin = replace(origin, snapshot=self._series.get(f.path))
        named = origin_of((), f.name, self._known).host
        if of_job:
            return replace(origin, host=named)
        for folder in _above(f.manifest_path):
            if folder in self._hosts:
                return replace(origin, host=self._hosts[folder] or named)
        return origin

    def job_began(self, f: Found) -> float | None:
        """When the job started on the file's host, by the nearest manifest that tells it."""
        return next((self._began[folder] for folder in _above(f.manifest_path) if folder in self._began), None)


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in, nearest first, the root ("") last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _source(f: Found, entry: Entry | None, names: _Names) -> Source:
    origin = names.origin(f, entry is not None and entry.of_job)
    host, snapshot, taken_at, command = origin.host, origin.snapshot, origin.taken_at, None
    notes = list(f.notes)
    status: SourceStatus = "partial" if f.notes else "parsed"
    digest = _digest_of(f.location)
    if entry is not None:
        host = entry.host or host
        command = entry.command
        snapshot = entry.snapshot if entry.snapshot is not None else snapshot
        taken_at = entry.start if entry.start is not None else taken_at
        if entry.truncated:
            status = "partial"
            notes.append("cut short when it was collected")
        if entry.exit_code:
            notes.append(f"its command ended with exit code {entry.exit_code}")
        if entry.sha256 and not digest.startswith("sampled:") and entry.sha256 != digest:
            notes.append("differs from the sha256 in the manifest")
    return Source(
        "", f.path, str(f.location), f.location.stat().st_size, digest, (), host, origin.rank, command, snapshot,
        taken_at, 0, status, tuple(notes), names.job_began(f),
    )  # fmt: skip


def _recognised(source: Source, f: Found, sniffer: _Sniffer) -> Source:
    if source.size == 0:
        return replace(source, status="empty", kinds=sniffer.binary_kinds(b"", f.name))
    with f.location.open("rb") as handle:
        head = handle.read(SAMPLE)
    binary_kinds = sniffer.binary_kinds(head, f.name)
    if binary_kinds:
        return replace(source, kinds=binary_kinds)
    note = f.binary or (binary_note(head) if encoding_of(head).startswith("utf-8") else None)
    if note is not None:
        return replace(source, status="unrecognised", notes=(*source.notes, note))
    text = peek(source)
    if not text or text.isspace():
        return replace(source, status="empty")
    parts = parts_of([Line(n, line) for n, line in enumerate(text.split("\n"), 1)])
    kinds, apart = sniffer.kinds(text, f.name, parts)
    if kinds:
        return replace(source, kinds=kinds, apart=apart if source.size <= MAX_SIZE else ())
    return replace(source, status="unrecognised", notes=(*source.notes, text_note(text)))


class _Sniffer:
    """Asks every parser; one whose sniff fails is named once and not asked to read that source."""

    def __init__(self, parsers: Sequence[ModuleType]):
        self._parsers = parsers
        self.failures: dict[str, str] = {}

    def kinds(self, text: str, name: str, parts: Parts | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Kinds that may read this text, surest first, and those of them that read its streams one by one."""
        whole = self._asked("sniff", text, name)
        if parts is None:
            return tuple(whole), ()
        apart: list[str] = []
        for parser in self._parsers:
            if not hasattr(parser, "sniff") or parser.KIND in self.failures:
                continue
            try:
                if chosen(parser, parts, whole.get(parser.KIND, 0.0), name):
                    apart.append(parser.KIND)
            except Exception as error:  # a parser of the user's may do anything
                self._failed(parser, name, error)
        return tuple(dict.fromkeys((*whole, *apart))), tuple(apart)

    def binary_kinds(self, head: bytes, name: str) -> tuple[str, ...]:
        """The kind that reads this file as bytes, from its first 64 KiB; empty for all others."""
        return tuple(self._asked("sniff_bytes", head, name))[:1]

    def _failed(self, parser: ModuleType, name: str, error: Exception) -> None:
        self.failures.setdefault(parser.KIND, f"parser {parser.KIND} failed to sniff at {name}: {error!r}")

    def _asked(self, question: str, head: str | bytes, name: str) -> dict[str, float]:
        """The kinds that claim it with their scores, surest first."""
        scores: list[tuple[float, str]] = []
        for parser in self._parsers:
            if not hasattr(parser, question):
                continue
            try:
                score = float(getattr(parser, question)(head, name))
            except Exception as error:  # a parser of the user's may do anything
                self._failed(parser, name, error)
                continue
            if score >= READ_FROM:
                scores.append((-score, parser.KIND))
        return {kind: -score for score, kind in sorted(scores)}


def streams_of(source: Source, parsers: Sequence[ModuleType]) -> dict[str, list[Stream]]:
    """For each kind that reads a source in parts, those: the lines of one host or task without their prefixes. OSError
    when the file is gone."""
    parts = parts_of(list(read_lines(source))) if source.apart else None
    if parts is None:
        return {}
    return {p.KIND: chosen(p, parts, 0.0, source.name) for p in parsers if p.KIND in source.apart}


def _digest_of(location: Path) -> str:
    """sha256 in hex; of files over 64 MiB that of the size and both ends, marked `sampled:`."""
    size = location.stat().st_size
    digest = hashlib.sha256()
    with location.open("rb", buffering=0) as handle:
        if size > _DIGEST_WHOLE:
            digest.update(str(size).encode())
            digest.update(handle.read(_DIGEST_END))
            handle.seek(size - _DIGEST_END)
            digest.update(handle.read(_DIGEST_END))
            return "sampled:" + digest.hexdigest()
        left = size
        while left > 0 and (piece := handle.read(min(1 << 20, left))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()
