"""Reads a bundle again: folder or .tar.gz, the manifests in it, and whether the files still have their hashes."""

import hashlib
import json
import lzma
import os
import tarfile
import tempfile
import zlib
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple

MANIFEST = "manifest.json"
MAX_MANIFEST = 64 << 20
MAX_MEMBERS = 500_000
MAX_UNPACKED = 64 << 30
DAMAGE = (tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What reading a damaged archive raises."""
IGNORED = (".reserve", "manifest.json.new")


class NoBundle(Exception):
    """The path is no bundle that diagnose wrote; the text says why."""


class Broken(NoBundle):
    """An archive that cannot be read to its end; the text says why."""


class Verdict(object):
    """What a check of the hashes found; paths are relative to the bundle."""

    def __init__(self) -> None:
        self.same = 0
        self.differs: List[str] = []
        self.missing: List[str] = []
        self.unhashed: List[str] = []
        self.unlisted: List[str] = []
        self.outside: List[str] = []
        self.broken: Optional[str] = None
        """Where an archive breaks, and how; what the manifest lists after that is in `missing`."""

    @property
    def good(self) -> bool:
        """Whether every file listed is there and unchanged, and nothing else is."""
        return not (self.differs or self.missing or self.unlisted or self.outside or self.broken)

    def lines(self) -> List[str]:
        """One line for each thing that is wrong, and a summary."""
        told = []
        wrong = [
            ("differs", self.differs),
            ("missing", [] if self.broken else self.missing),
            ("not in the manifest", self.unlisted),
            ("leads outside", self.outside),
        ]
        for word, paths in wrong + [("no hash", self.unhashed)]:
            told += ["%s: %s" % (word, _shown(path)) for path in sorted(paths)]
        if self.broken:
            told.append("%s; %d files that come after it are lost" % (_shown(self.broken), len(self.missing)))
        bad = sum(len(paths) for _, paths in wrong) + (len(self.missing) if self.broken else 0)
        return told + ["%d files unchanged, %d wrong" % (self.same, bad)]


def files_of(path: str) -> Iterator[Tuple[str, IO[bytes]]]:
    """(path inside, open file) of a folder's or an archive's regular files; links and devices are passed over."""
    if os.path.isdir(path):
        for where, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                full = os.path.join(where, name)
                if os.path.isfile(full) and not os.path.islink(full) and name not in IGNORED:
                    with open(full, "rb") as handle:
                        yield os.path.relpath(full, path).replace(os.sep, "/"), handle
        return
    try:
        with tarfile.open(path, "r:*") as archive:
            for count, member in enumerate(archive):
                if count > MAX_MEMBERS:
                    raise NoBundle("more than %d members" % MAX_MEMBERS)
                if member.isfile():
                    handle = archive.extractfile(member)
                    if handle is not None:
                        yield member.name, handle
            _check_end(archive)
    except Broken:
        raise
    except DAMAGE as error:
        raise NoBundle("no folder and no readable archive: %s" % error)


def _check_end(archive: tarfile.TarFile) -> None:
    """Broken when the members end at something else than the zeros that end a tar file."""
    if archive.fileobj is None:
        return
    archive.fileobj.seek(archive.offset)
    block = archive.fileobj.read(512)
    if len(block) < 512:
        raise Broken("it ends early")
    if any(block):
        raise Broken("damaged data")


def verify(path: str) -> Verdict:
    """Compare every file with the hash that the nearest manifest above it gives."""
    digests: Dict[str, str] = {}
    manifests: Dict[str, Dict[str, Any]] = {}
    verdict = Verdict()
    name = ""
    try:
        for name, handle in files_of(path):
            if name.rpartition("/")[2] == MANIFEST:
                manifest = read_manifest(handle)
                if manifest is not None:
                    manifests[name.rpartition("/")[0]] = manifest
                    continue
            digests[name] = digest(handle)
    except (Broken, OSError) + DAMAGE as error:
        if not name or (isinstance(error, OSError) and os.path.isdir(path)):
            raise
        verdict.broken = "the archive breaks %s %s: %s" % ("after" if name in digests else "in", name, error)
    if not manifests:
        raise NoBundle(verdict.broken or "no manifest.json of a bundle in it")
    seen = set()
    for folder, manifest in manifests.items():
        for entry in manifest.get("files", manifest.get("captures", [])):
            name = inside(folder, entry.get("path", entry.get("file", ""))) if isinstance(entry, dict) else None
            if name is None:
                verdict.outside.append(str(entry)[:200])
                continue
            seen.add(name)
            wanted = entry.get("sha256")
            if name not in digests:
                verdict.missing.append(name)
            elif not isinstance(wanted, str):
                verdict.unhashed.append(name)
            elif wanted.lower() != digests[name]:
                verdict.differs.append(name)
            else:
                verdict.same += 1
    verdict.unlisted = [name for name in digests if name not in seen]
    return verdict


def read_manifest(handle: IO[bytes]) -> Optional[Dict[str, Any]]:
    """A manifest, or None for other files of that name."""
    try:
        raw = json.loads(handle.read(MAX_MANIFEST).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("files", raw.get("captures")), list):
        return None
    return raw


def digest(handle: IO[bytes]) -> str:
    """sha256 of what is left of an open file."""
    found = hashlib.sha256()
    while True:
        piece = handle.read(1 << 20)
        if not piece:
            return found.hexdigest()
        found.update(piece)


def inside(folder: str, name: str) -> Optional[str]:
    """`name` below `folder`, or None when it leads outside."""
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if not parts or ".." in parts or name.startswith("/") or "\\" in name or "\0" in name:
        return None
    return "/".join(([folder] if folder else []) + parts)


def unpack(path: str) -> Tuple[str, str]:
    """(folder that holds manifest.json, private folder to remove afterwards or '') of a bundle."""
    if os.path.isdir(path):
        return _root(path), ""
    target = tempfile.mkdtemp(prefix="diagnose-redact-")
    room = MAX_UNPACKED
    for name, handle in files_of(path):
        safe = inside("", name)
        if safe is None:
            continue
        full = os.path.join(target, safe)
        os.makedirs(os.path.dirname(full), mode=0o700, exist_ok=True)
        with os.fdopen(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            while True:
                piece = handle.read(1 << 20)
                room -= len(piece)
                if room < 0:
                    raise NoBundle("it unpacks to more than %d bytes" % MAX_UNPACKED)
                if not piece:
                    break
                out.write(piece)
    return _root(target), target


def _root(folder: str) -> str:
    """The folder with the topmost manifest."""
    for _ in range(4):
        names = sorted(n for n in os.listdir(folder) if n not in IGNORED)
        if MANIFEST in names or len(names) != 1 or not os.path.isdir(os.path.join(folder, names[0])):
            return folder
        folder = os.path.join(folder, names[0])
    return folder


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:300]
