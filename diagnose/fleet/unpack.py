"""Unpacks an archive that came from a host into one new folder. Nobody vouches for it: names are checked, links and
devices refused, sizes and counts bounded, and a damaged or cut archive is read up to where it breaks."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

MAX_FILES = 20_000
MAX_UNPACKED = 2 << 30
"""Bytes of one host, unpacked."""
_MAX_HEADER = 1 << 20
_MAX_DEPTH = 12
_PIECE = 1 << 18
_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, RecursionError, ValueError)


class Refused(Exception):
    """A member that is not unpacked, and why."""


@dataclass
class Unpacked:
    """Files by their path below the folder with (bytes, sha256); what was refused; where the archive broke."""

    files: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    broken: str = ""


def unpack(archive: Path, folder: Path, own: str) -> Unpacked:
    """Unpack into `folder`, which must exist and be empty. The archive's root folder, and the folder `own` in it, which
    is the host's, are left away. OSError when this side cannot write."""
    found = Unpacked()
    try:
        with archive.open("rb") as raw, gzip.GzipFile(fileobj=raw) as packed:
            reader = _Counted(packed)
            with tarfile.open(fileobj=reader, mode="r|", tarinfo=_Member, errorlevel=0) as tar:  # type: ignore[arg-type]
                for path, info, source in _members(tar, own, found):
                    _store(folder, path, source, info.size, found)
            found.broken = reader.broken
    except Refused as refused:
        found.broken = f"{refused}; read up to there"
    except _DAMAGE as error:
        found.broken = _damaged(error)
    return found


def _damaged(error: Exception) -> str:
    return f"damaged or cut archive ({type(error).__name__}); read up to there"


def _members(tar: tarfile.TarFile, own: str, found: Unpacked) -> Iterator[tuple[str, tarfile.TarInfo, IO[bytes]]]:
    count = 0
    for info in tar:
        count += 1
        if count > MAX_FILES:
            raise Refused(f"more than {MAX_FILES:,} files")
        if info.isdir():
            continue
        try:
            path = inside(info.name, own)
            if not info.isreg() or info.issparse():
                raise Refused("a link, device or file of an unusual type")
            if path in found.files:
                raise Refused("it comes twice")
        except Refused as refused:
            found.refused.append((ascii(info.name)[1:200], str(refused)))
            continue
        source = tar.extractfile(info)
        if source is not None:
            yield path, info, source
        tar.members = []  # type: ignore[attr-defined]


def inside(name: str, own: str) -> str:
    """A member's path below the host's folder. Refused when it leads elsewhere or cannot be a path."""
    if len(name) > 1000 or not name.isprintable() or "\\" in name or name.startswith("/") or name[1:2] == ":":
        raise Refused("its name cannot be a path in a bundle")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Refused("its name climbs out of the archive")
    parts = parts[1:]
    if parts[:1] == [own]:
        parts = parts[1:]
    if not parts or len(parts) > _MAX_DEPTH or any(len(os.fsencode(p)) > 200 or p.startswith(".") for p in parts):
        raise Refused("its name cannot be a path in a bundle")
    return "/".join(parts)


def _store(folder: Path, path: str, source: IO[bytes], size: int, found: Unpacked) -> None:
    target = folder / path
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except (FileExistsError, NotADirectoryError):
        found.refused.append((path, "its name is taken"))
        return
    digest, written = hashlib.sha256(), 0
    try:
        with os.fdopen(descriptor, "wb") as out:
            while piece := source.read(_PIECE):
                out.write(piece)
                digest.update(piece)
                written += len(piece)
    finally:
        if written or not size:
            found.files[path] = (written, digest.hexdigest())
        else:
            target.unlink(missing_ok=True)


class _Member(tarfile.TarInfo):
    """Refuses name and attribute headers of absurd length, which tarfile would read into memory whole."""

    def _proc_member(self, tarfile: tarfile.TarFile) -> Any:
        if self.type in b"LKxgX" and self.size > _MAX_HEADER:
            raise Refused("a header of more than 1 MiB")
        return super()._proc_member(tarfile)  # type: ignore[misc]


class _Counted:
    """Counts what comes out of the decompressor; Refused beyond the bound. Where the data breaks it ends: what came
    before is then still handed on."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._size = stream, 0
        self.broken = ""

    def read(self, size: int = -1) -> bytes:
        if self.broken:
            return b""
        try:
            piece = self._stream.read1(min(size, _PIECE) if size >= 0 else _PIECE)
        except _DAMAGE as error:
            self.broken = _damaged(error)
            return b""
        self._size += len(piece)
        if self._size > MAX_UNPACKED:
            raise Refused(f"more than {MAX_UNPACKED >> 30} GiB unpacked")
        return piece
