"""Opens .tar, .zip, .gz, .bz2, .xz and their mixtures, detected by content, into numbered files of a private folder.

Nothing is ever written under a name that an archive gives; links, devices and names that climb out are refused, and
sizes, counts and compression ratios are bounded. A member that breaks a bound is dropped with a reason, the rest stays.
"""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from diagnose.bundle.inflate import DAMAGE, MAGIC_LENGTH, Inflater, is_tar

_PIECE = 1 << 20
_MAX_HEADER = 1 << 20


class Readable(Protocol):
    """Anything with `read`."""

    def read(self, size: int = ..., /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one `open_bundle`: members and files, bytes unpacked in all, and when a ratio counts as a bomb."""

    members: int = 100_000
    total: int = 8 << 30
    ratio: int = 500
    ratio_from: int = 32 << 20
    depth: int = 2


class Refused(Exception):
    """A member or archive that is not unpacked, and why."""


@dataclass(slots=True)
class Budget:
    """What is left of the limits."""

    limits: Limits
    used: int = 0
    members: int = 0

    def spend(self, size: int) -> None:
        """Count unpacked bytes; Refused beyond the total."""
        self.used += size
        if self.used > self.limits.total:
            raise Refused(f"more than {self.limits.total:,} bytes unpacked in all")

    def member(self) -> None:
        """Count a file; Refused beyond the allowed number."""
        self.members += 1
        if self.members > self.limits.members:
            raise Refused(f"more than {self.limits.members:,} files")

    def check_ratio(self, unpacked: int, packed: int) -> None:
        """Refused when so many bytes came out of so few."""
        if unpacked > self.limits.ratio_from and unpacked > self.limits.ratio * max(1, packed):
            raise Refused(f"compressed more than {self.limits.ratio}-fold, as in a decompression bomb")


@dataclass(frozen=True, slots=True)
class Member:
    """An unpacked file: its name in the archive (cleaned, "" for a lone compressed file), where it lies now, and
    whether the archive tells the name from the folder that it was packed in (`./name`)."""

    name: str
    location: Path
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A member left out, or an archive cut short (`broken`), and why."""

    name: str
    reason: str
    broken: bool = False


def unpack(location: Path, kind: str, new_file: Callable[[], Path], budget: Budget) -> Iterator[Member | Refusal]:
    """Members of the archive at `location`. `new_file` names the next free file of the private folder.

    OSError when the archive cannot be read or the disk is full.
    """
    if kind == "zip":
        yield from _unpack_zip(location, new_file, budget)
        return
    with location.open("rb") as handle:
        if kind == "tar":
            yield from _unpack_tar(handle, location.stat().st_size, new_file, budget)
            return
        stream = Inflater(handle, kind)
        try:
            head = stream.fill(MAGIC_LENGTH)
        except DAMAGE as error:
            yield Refusal("", _damage(error))
            return
        stream.push_back(head)
        if is_tar(head):
            yield from _unpack_tar(stream, location.stat().st_size, new_file, budget)
        else:
            yield from _inflate(stream, new_file(), budget)


def _inflate(stream: Inflater, target: Path, budget: Budget) -> Iterator[Member | Refusal]:
    budget.member()
    size = 0
    try:
        with target.open("wb") as out:
            while piece := stream.read(_PIECE):
                size += len(piece)
                budget.spend(len(piece))
                budget.check_ratio(size, stream.packed)
                out.write(piece)
    except Refused as refused:
        target.unlink()
        budget.used -= size
        yield Refusal("", str(refused))
        return
    except DAMAGE as error:
        yield Refusal("", _damage(error) + ("; read up to there" if size else ""))
        if not size:
            target.unlink()
            return
    yield Member("", target)


def _damage(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the compressed data ends early (cut short while it was written or copied?)"
    if isinstance(error, lzma.LZMAError) and "emory" in str(error):
        return "needs too much memory to decompress"
    return f"damaged compressed data: {error}"


# --- tar -----------------------------------------------------------------------------------------------


class _TarMember(tarfile.TarInfo):
    """Refuses name and attribute headers of absurd length, which tarfile would read into memory whole, and damage."""

    def _proc_member(self, tarfile: tarfile.TarFile) -> Any:
        if self.type in b"LKxgX" and self.size > _MAX_HEADER:
            raise Refused("a header of more than 1 MiB")
        return super()._proc_member(tarfile)  # type: ignore[misc]

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> tarfile.TarInfo:
        """Raises ValueError for what is no header: tarfile would take it for the end."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and any(buf):
                raise ValueError(str(error)) from error
            raise


_TAR_KINDS = (
    ("islnk", "a hard link, not followed"),
    ("issym", "a symbolic link, not followed"),
    ("ischr", "a device, skipped"),
    ("isblk", "a device, skipped"),
    ("isfifo", "a named pipe, skipped"),
)


def _unpack_tar(
    handle: Readable, packed: int, new_file: Callable[[], Path], budget: Budget
) -> Iterator[Member | Refusal]:
    counted: Any = _Counted(handle, budget)
    ended = True
    last = ""
    try:
        with tarfile.open(fileobj=counted, mode="r|", tarinfo=_TarMember, errorlevel=0) as archive:
            for info in archive:
                last = info.name
                yield from _tar_member(archive, info, packed, new_file, budget)
                archive.members = []  # type: ignore[attr-defined]
        ended = counted.ended_with_zeros
    except Refused as refused:
        yield Refusal("", f"{refused}; the rest of the archive is not read")
    except (tarfile.TarError, RecursionError, *DAMAGE) as error:
        reason = _damage(error) if not isinstance(error, tarfile.TarError | RecursionError) else f"damaged tar: {error}"
        yield Refusal("", f"{reason}; read up to {last or 'there'}", broken=True)
    if not ended:
        reason = "the archive ends early (cut short while it was written or copied?)"
        yield Refusal("", f"{reason}; read up to {last or 'there'}", broken=True)


def _tar_member(
    archive: tarfile.TarFile, info: tarfile.TarInfo, packed: int, new_file: Callable[[], Path], budget: Budget
) -> Iterator[Member | Refusal]:
    budget.member()
    if info.isdir():
        return
    try:
        name = member_name(info.name)
    except Refused as refused:
        yield Refusal(info.name, str(refused))
        return
    for test, reason in _TAR_KINDS:
        if getattr(info, test)():
            yield Refusal(name, reason)
            return
    if not info.isreg() or info.issparse():
        yield Refusal(name, "a sparse file or member of an unknown type, skipped")
        return
    try:
        budget.check_ratio(info.size, packed)
    except Refused as refused:
        yield Refusal(name, str(refused))
        return
    source = archive.extractfile(info)
    if source is None:
        return
    target = new_file()
    try:
        with target.open("wb") as out:
            shutil.copyfileobj(source, out, _PIECE)
    except (tarfile.TarError, Refused, *DAMAGE):
        if target.stat().st_size:
            yield Member(name, target, info.name.startswith("./"))
        raise
    if target.stat().st_size < info.size:
        yield Refusal(name, "the archive ends inside this file; read up to there")
    yield Member(name, target, info.name.startswith("./"))


class _Counted:
    """Counts what a tar reader takes, skipped members included, and remembers whether the end mark was seen."""

    def __init__(self, handle: Readable, budget: Budget):
        self._handle, self._budget = handle, budget
        self._last = b""
        self._at_end = False

    def read(self, size: int = -1) -> bytes:
        piece = self._handle.read(min(size, _PIECE) if size >= 0 else _PIECE)
        self._budget.spend(len(piece))
        self._last = (self._last + piece)[-512:]
        self._at_end = self._at_end or not piece
        return piece

    @property
    def ended_with_zeros(self) -> bool:
        """Whether reading stopped at the zeros that end a tar file, and not because the data ran out."""
        return not self._at_end or not any(self._last)


# --- zip -----------------------------------------------------------------------------------------------


def _unpack_zip(location: Path, new_file: Callable[[], Path], budget: Budget) -> Iterator[Member | Refusal]:
    try:
        archive = zipfile.ZipFile(location)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        yield Refusal("", f"damaged zip: {error}")
        return
    with archive:
        for info in archive.infolist():
            try:
                budget.member()
            except Refused as refused:
                yield Refusal("", f"{refused}; the rest of the archive is not read")
                return
            if info.is_dir():
                continue
            yield _zip_member(archive, info, new_file, budget)


def _zip_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, new_file: Callable[[], Path], budget: Budget
) -> Member | Refusal:
    target: Path | None = None
    size = 0
    try:
        name = member_name(info.filename)
        kind = stat.S_IFMT(info.external_attr >> 16) if info.create_system == 3 else 0
        if kind and not stat.S_ISREG(kind):
            raise Refused("a link or device, not followed")
        if info.flag_bits & 1:
            raise Refused("encrypted")
        if info.compress_type == zipfile.ZIP_LZMA:
            raise Refused("packed with a method that is not supported (LZMA)")
        budget.check_ratio(info.file_size, info.compress_size)
        target = new_file()
        with archive.open(info) as source, target.open("wb") as out:
            while piece := source.read(_PIECE):
                size += len(piece)
                budget.spend(len(piece))
                budget.check_ratio(size, info.compress_size)
                out.write(piece)
        return Member(name, target)
    except Refused as refused:
        budget.used -= size
        reason = str(refused)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        reason = f"cannot be unpacked: {error}"
    if target is not None:
        target.unlink(missing_ok=True)
    return Refusal(info.filename, reason)


# --- names and streams -----------------------------------------------------------------------------------


def member_name(raw: str) -> str:
    """A member's name as a relative path, without drive, leading slashes and backslashes; Refused if it climbs."""
    name = raw.replace("\\", "/")
    if len(name) > 4096:
        raise Refused("a name of more than 4,096 characters")
    if name[1:2] == ":" and name[:1].isalpha():
        name = name[2:]
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Refused("its name climbs out of the archive")
    if not parts:
        raise Refused("it has no name")
    return "/".join(parts)
