"""Finds the files below the paths given, unpacks archives on the way, and stays inside."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from diagnose.bundle.archives import Budget, Limits, Member, Refusal, Refused, unpack
from diagnose.bundle.inflate import MAGIC_LENGTH, holds_tar, kind_of
from diagnose.bundle.manifest import MAX_SIZE, NAME, read_manifest
from diagnose.bundle.origins import names_host, strip_archive_endings
from diagnose.bundle.recognise import document_note
from diagnose.model import Problem

MAX_DEPTH = 32
_JUNK_FOLDERS = frozenset({"__MACOSX", ".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", "node_modules"})
_JUNK_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz)$", re.I)


@dataclass(frozen=True, slots=True)
class Found:
    """A file: shown path, where it lies, folders that may name a host, and its name for parsers."""

    path: str
    location: Path
    folders: tuple[str, ...]
    name: str
    manifest_path: str
    notes: tuple[str, ...] = ()
    binary: str | None = None


def display(text: str) -> str:
    """A path fit for a terminal: control characters, direction marks and undecodable bytes become `?`."""
    return _UNPRINTABLE.sub("?", text)


def reason(error: OSError) -> str:
    """Why a file could not be read, in lower case and without its absolute path."""
    return (error.strerror or type(error).__name__).lower()


def _is_junk(parts: Sequence[str]) -> bool:
    name = parts[-1]
    if name.startswith("._") or name in _JUNK_FILES or name.endswith((".pyc", ".pyo")):
        return True
    return any(part in _JUNK_FOLDERS for part in parts)


def _top(items: Sequence[Member | Refusal]) -> str:
    """The folder that holds all members of an archive, with its slash; empty when there is none."""
    members = [item for item in items if isinstance(item, Member)]
    tops = {item.name.partition("/")[0] for item in members}
    if len(tops) != 1 or any(item.dotted or "/" not in item.name for item in members):
        return ""
    return tops.pop() + "/"


class Walk:
    """Collects `found`, `manifests` (shown path and location) and `problems`."""

    def __init__(self, folder: Path, limits: Limits, stdin: BinaryIO | None):
        self.found: list[Found] = []
        self.manifests: list[tuple[str, Path]] = []
        self.problems: list[Problem] = []
        self.broken: list[str] = []
        """Archives that could not be read to their end."""
        self._folder = folder
        self._budget = Budget(limits)
        self._stdin = stdin
        self._paths: set[str] = set()
        self._files = 0
        self._copies = 0
        self._full = False

    def take_all(self, paths: Sequence[str]) -> None:
        """Take every path given; several folders or archives keep their own names in front of what they hold."""
        several = sum(1 for p in paths if p != "-" and (os.path.isdir(p) or self._archive_kind(Path(p)))) > 1  # noqa: PTH112
        for given in sorted(paths):  # equal names are numbered alike, in whatever order they are given
            if given == "-":
                self._spool(self._stdin or sys.stdin.buffer, "stdin")
                continue
            if not given:
                self._problem("", "an empty path was given")
                continue
            path = Path(given)
            name = path.name if path.name not in ("", "..") else path.resolve().name
            try:
                mode = path.stat().st_mode
            except OSError as error:
                self._problem(name or given, reason(error))
                continue
            except ValueError:
                self._problem(given, "not a possible file name")
                continue
            if stat.S_ISDIR(mode):
                self._take_folder(path, (name,) if several else ())
            elif stat.S_ISREG(mode):
                self._take_given_file(path, name, several)
            elif str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/")):
                with contextlib.suppress(OSError), path.open("rb") as handle:
                    self._spool(handle, name)
            else:
                self._problem(name, "neither a file nor a folder")

    def _take_given_file(self, path: Path, name: str, several: bool) -> None:
        """A lone archive is a root like a folder, so its members stand for themselves."""
        kind = self._archive_kind(path)
        if kind is None:
            self._take_file(path, (name,))
        else:
            self._unpack(path, kind, (name,), (strip_archive_endings(name),) if several else (), 1)

    def _archive_kind(self, path: Path) -> str | None:
        """How a file of many members is packed; None for a single file, compressed or not."""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return None
            with path.open("rb") as handle:
                head = handle.read(MAGIC_LENGTH)
            kind = kind_of(head)
            if kind == "zip":
                return None if document_note(head) else kind
            return kind if kind == "tar" or (kind and holds_tar(path, kind)) else None
        except (OSError, ValueError):
            return None

    # --- folders -----------------------------------------------------------------------------------

    def _take_folder(self, root: Path, prefix: tuple[str, ...]) -> None:
        real_root = os.path.realpath(root)
        seen: set[tuple[int, int]] = set()
        waiting: list[tuple[Path, tuple[str, ...]]] = [(root, prefix)]
        while waiting and not self._full:
            folder, parts = waiting.pop()
            try:
                status = folder.stat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=lambda e: e.name)
            except OSError as error:
                self._problem("/".join(parts) or root.name, reason(error))
                continue
            deeper: list[tuple[Path, tuple[str, ...]]] = []
            for entry in entries:
                below = (*parts, entry.name)
                if _is_junk((entry.name,)):
                    continue
                try:
                    if self._is_folder(entry, below, real_root):
                        if len(below) > MAX_DEPTH:
                            self._problem("/".join(below), f"folders nested more than {MAX_DEPTH} deep are not read")
                        else:
                            deeper.append((Path(entry.path), below))
                except OSError as error:
                    self._problem("/".join(below), reason(error))
                if self._full:
                    break
            waiting += reversed(deeper)

    def _is_folder(self, entry: os.DirEntry[str], parts: tuple[str, ...], real_root: str) -> bool:
        """Whether to go down; files are taken at once, links only when they stay inside."""
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if target != real_root and not target.startswith(real_root.rstrip("/") + "/"):
                self._problem("/".join(parts), "a link that leads out of the folder given, not followed")
                return False
            if not Path(target).exists():
                self._problem("/".join(parts), "a link to nothing")
                return False
        if entry.is_dir():
            return True
        if stat.S_ISREG(entry.stat().st_mode):
            self._take_file(Path(entry.path), parts)
        return False

    # --- files -------------------------------------------------------------------------------------

    def _take_file(self, location: Path, parts: tuple[str, ...], depth: int = 0, notes: tuple[str, ...] = ()) -> None:
        if self._full:
            return
        self._files += 1
        if self._files > self._budget.limits.members:
            self._full = True
            self._problem("", f"more than {self._budget.limits.members:,} files: the rest is not read")
            return
        shown = "/".join(parts)
        try:
            with location.open("rb") as handle:
                head = handle.read(MAGIC_LENGTH)
        except OSError as error:
            self._problem(shown, reason(error))
            return
        kind = kind_of(head)
        document = document_note(head) if kind == "zip" else None
        if kind is not None and document is None:
            if depth >= self._budget.limits.depth:
                self._problem(shown, "an archive inside an archive inside an archive is not unpacked")
            else:
                self._unpack(location, kind, parts, parts, depth + 1)
            return
        if parts[-1] == NAME and location.stat().st_size <= MAX_SIZE and self._is_manifest(location):
            self.manifests.append((self._unique(shown), location))
            return
        name = _COMPRESSED.sub("", parts[-1]) if depth else parts[-1]
        self.found.append(
            Found(
                self._unique(shown),
                location,
                tuple(map(display, parts[:-1])),
                display(name),
                display(shown),
                notes,
                document,
            )
        )

    def _is_manifest(self, location: Path) -> bool:
        """Broken JSON counts too, so that it is reported; other tools' manifest.json do not."""
        manifest, wrong = read_manifest(location.read_text("utf-8-sig", "replace"), NAME)
        return manifest is not None or bool(wrong)

    def _unpack(self, location: Path, kind: str, shown: tuple[str, ...], parts: tuple[str, ...], depth: int) -> None:
        """Members under `parts`; troubles are told of the archive as `shown`.

        An archive that was given and holds one folder is what that folder would be if it were given.
        """
        where = "/".join(shown)
        items: list[Member | Refusal] = []
        try:
            for item in unpack(location, kind, self._new_file, self._budget):
                if isinstance(item, Member) and item.name and _is_junk(item.name.split("/")):
                    item.location.unlink()
                    continue
                items.append(item)
        except Refused as refused:
            items.append(Refusal("", f"{refused}; the rest is not read"))
        except OSError as error:
            items.append(Refusal("", f"cannot be unpacked: {reason(error)}"))
        top = _top(items) if depth == 1 and shown != parts else ""
        if top and parts:
            folder = top[:-1]
            parts, top = ((folder,), top) if folder in parts or names_host(folder) else (parts, "")
        early: list[str] = []
        for item in items:
            name = item.name.removeprefix(top)
            if isinstance(item, Refusal):
                self._problem(f"{where}/{name}" if name else where, item.reason)
                if item.broken:
                    self.broken.append(display(where))
                if not name:
                    early.append(item.reason)
                continue
            notes = tuple(early) if not name else ()
            self._take_file(item.location, (*parts, *name.split("/")) if name else shown, depth, notes)

    def _new_file(self) -> Path:
        self._copies += 1
        folder = self._folder / f"{self._copies // 1000:04d}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{self._copies:07d}"

    def _spool(self, stream: BinaryIO, name: str) -> None:
        target = self._new_file()
        try:
            with target.open("wb") as out:
                while piece := stream.read(1 << 20):
                    self._budget.spend(len(piece))
                    out.write(piece)
        except Refused as refused:
            self._problem(name, f"{refused}; read up to there")
        except OSError as error:
            self._problem(name, reason(error))
        self._take_given_file(target, name, False)

    def _unique(self, path: str) -> str:
        path = display(path)
        unique, number = path, 2
        while unique in self._paths:
            unique, number = f"{path}#{number}", number + 1
        self._paths.add(unique)
        return unique

    def _problem(self, path: str, text: str) -> None:
        path = display(path)
        self.problems.append(Problem(f"{path}: {text}" if path else text, path or None))
