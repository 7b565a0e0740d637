"""A bundle without identities: every file, every name and the manifests get the same tokens. The map stays private."""

import hashlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple

from . import bundles
from .identities import Identities
from .options import BadOption
from .secrets import Cleaner
from .writer import ARCHIVE_ENDINGS, Writer, encode, pack, root_name, strip_endings, utc

PIECE = 8 << 20
DUMP_LIMIT_S = 60.0


class Made(object):
    """A redacted bundle: where it and its map lie, and what was left out."""

    def __init__(self, path: str, map_path: str, left_out: List[Tuple[str, str]]) -> None:
        self.path = path
        self.map_path = map_path
        self.left_out = left_out


def redact_bundle(path: str, out: Optional[str], version: str) -> Made:
    """Write a redacted copy of the bundle at `path`, and its private map beside it. Raises NoBundle and OSError."""
    packed = not os.path.isdir(path)
    if out is None:
        here = os.path.dirname(os.path.abspath(path))
        out = os.path.join(here, "diagnose-redacted-%s" % time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        out += ".tar.gz" if packed else ""
    out = os.path.abspath(out)
    part = strip_endings(out) + ".partial"
    for taken in (out, part, map_beside(out)):
        if os.path.lexists(taken):
            raise BadOption("%s is there already" % taken)
    folder, temporary = bundles.unpack(path)
    try:
        if bundles.MANIFEST not in os.listdir(folder):
            raise bundles.NoBundle("no manifest.json of a bundle in it")
        os.mkdir(part, 0o700)
        redactor = Redactor(version)
        redactor.learn(folder)
        redactor.copy(folder, part)
        final = _close(part, out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    write_map(map_beside(final), redactor.names)
    return Made(final, map_beside(final), redactor.left_out)


def _close(part: str, out: str) -> str:
    if not out.endswith(ARCHIVE_ENDINGS):
        os.rename(part, out)
        return out
    with os.fdopen(os.open(out + ".part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        pack(part, root_name(out), handle)
    os.rename(out + ".part", out)
    shutil.rmtree(part, ignore_errors=True)
    return out


def redact_folder(writer: Writer, version: str) -> Identities:
    """Redact a bundle that is still growing, before it is closed; `writer` then holds the redacted folder."""
    writer.flush(force=True)
    redactor = Redactor(version)
    redactor.learn(writer.folder)
    fresh = writer.folder + ".redacted"
    os.mkdir(fresh, 0o700)
    redactor.copy(writer.folder, fresh, parent=False)
    shutil.rmtree(writer.folder)
    os.rename(fresh, writer.folder)
    with open(os.path.join(writer.folder, bundles.MANIFEST), "rb") as handle:
        writer.adopt(bundles.read_manifest(handle) or {})
    return redactor.names


def map_beside(path: str) -> str:
    """Where the private map of a bundle lies."""
    return strip_endings(path) + ".map.json"


def write_map(path: str, names: Identities) -> None:
    """The private map, token to original, for the user alone."""
    data = {
        "what": "private map of a redacted bundle: token to original",
        "tokens": dict(sorted(names.mapping.items())),
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        json.dump(data, handle, indent=1)


class Redactor(object):
    """Two passes over a bundle's folder."""

    def __init__(self, version: str) -> None:
        self.names = Identities()
        self.version = version
        self.left_out: List[Tuple[str, str]] = []
        self._cleaner = Cleaner()

    def learn(self, folder: str) -> None:
        """First pass."""
        for name, handle in bundles.files_of(folder):
            if name.rpartition("/")[2] == bundles.MANIFEST:
                manifest = bundles.read_manifest(handle)
                if manifest is not None:
                    self.names.learn_hosts(_hosts_of(manifest))
                    self._learn(json.dumps(manifest, ensure_ascii=False))
                continue
            for piece in pieces(handle):
                if is_binary(piece):
                    self._cleaner.masked(piece)
                else:
                    self._learn(piece.decode("utf-8", "surrogateescape"))
        self.names.settle()

    def _learn(self, text: str) -> None:
        self._cleaner.text(text)
        self.names.learn(text)

    def copy(self, folder: str, target: str, parent: bool = True) -> None:
        """Second pass: everything into the empty folder `target`."""
        written: Dict[str, Tuple[str, int, str]] = {}
        manifests: List[Tuple[str, Dict[str, Any], str]] = []
        for name, handle in bundles.files_of(folder):
            if name.rpartition("/")[2] == bundles.MANIFEST:
                raw = handle.read()
                manifest = json.loads(raw.decode("utf-8-sig", "replace"))
                if isinstance(manifest, dict):
                    manifests.append((name, manifest, hashlib.sha256(raw).hexdigest()))
                    continue
            made = self._file(name, handle, target)
            if made is not None:
                written[name] = made
        for name, manifest, digest in manifests:
            place = os.path.join(target, self.names.path(name))
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            data = encode(self._manifest(name, manifest, written, digest if parent else None))
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(data)

    def _file(self, name: str, handle: IO[bytes], target: str) -> Optional[Tuple[str, int, str]]:
        """Copy one file; its new path, size and hash."""
        first = handle.read(PIECE)
        place, made = self.names.path(name), iter([first])
        if is_binary(first):
            dump, why = read_dump(first + handle.read())
            if dump is None:
                self.left_out.append((name, why))
                return None
            place, made = place + ".json", iter([dump])
        else:
            made = pieces(handle, first)
        full = os.path.join(target, place)
        os.makedirs(os.path.dirname(full), mode=0o700, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with os.fdopen(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            for piece in made:
                data = self.text(piece.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
                digest.update(data)
                size += len(data)
                out.write(data)
        return place, size, digest.hexdigest()

    def text(self, text: str) -> str:
        """A text without credentials and identities."""
        return self.names.text(self._cleaner.text(text))

    def _manifest(
        self, name: str, manifest: Dict[str, Any], written: Dict[str, Tuple[str, int, str]], parent: Optional[str]
    ) -> Dict[str, Any]:
        folder = name.rpartition("/")[0]
        new_folder = self.names.path(folder) if folder else ""
        files = []
        absent = list(manifest.get("absent", []))
        key = "files" if isinstance(manifest.get("files"), list) else "captures"
        for entry in manifest.get(key, []):
            inside = bundles.inside(folder, str(entry.get("path", entry.get("file", ""))))
            made = written.get(inside or "")
            if made is None:
                why = dict(self.left_out).get(inside or "", "not in the bundle")
                absent.append({"what": entry.get("command") or inside or "?", "reason": "left out: " + why})
                continue
            fresh = self._strings({k: v for k, v in entry.items() if k not in ("path", "file", "sha256", "bytes")})
            fresh["path"] = made[0][len(new_folder) + 1 :] if new_folder else made[0]
            fresh["bytes"], fresh["sha256"] = made[1], made[2]
            files.append(fresh)
        rest = self._strings({k: v for k, v in manifest.items() if k not in (key, "absent", *_TIMES)})
        for kept in ("schema", *_TIMES):
            if kept in manifest:
                rest[kept] = manifest[kept]
        rest["redacted"] = {"identities": True, "at": utc(time.time()), "version": self.version}
        if parent is not None:
            rest["parent"] = {"manifest_sha256": parent}
        rest["files"] = files
        rest["absent"] = self._strings(absent)
        return rest

    def _strings(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._strings(v) for v in value]
        if isinstance(value, dict):
            return {self.text(k) if k not in _KEYS else k: self._strings(v) for k, v in value.items()}
        return value


_TIMES = ("created", "started", "job_began")
_KEYS = frozenset(
    """
    schema tool name version created started job_began by host scope files captures absent clock_offset_s path file
    command
    start at duration_s exit_code snapshot truncated sha256 bytes what reason collector processes pid role rank
    local_rank world ppid comm state threads container cgroup libraries devices stdout stderr python root kernel
    machine complete interrupted copied modified whole_bytes part left_out stopped inner_pid
    """.split()
)


def _hosts_of(manifest: Dict[str, Any]) -> Iterator[str]:
    named = [manifest.get("host"), (manifest.get("collector") or {}).get("name")]
    for key in ("files", "captures", "absent"):
        named += [e.get("host") for e in manifest.get(key, []) if isinstance(e, dict)]
    offsets = manifest.get("clock_offset_s")
    named += list(offsets) if isinstance(offsets, dict) else []
    return (n for n in named if isinstance(n, str) and n)


def read_dump(data: bytes) -> Tuple[Optional[bytes], str]:
    """A pickled dump as JSON, by a child that runs nothing of it; None, and why, for other binary data."""
    if data[:1] != b"\x80":
        return None, "binary data, which cannot be redacted"
    source = pkgutil.get_data(__name__.rpartition(".")[0], "undump.py") or b""
    argv = [sys.executable, "-I", "-S", "-c", source.decode("utf-8")]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, errors = child.communicate(data, DUMP_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return None, "a pickle that takes too long to read"
    if child.returncode == 0:
        return out, ""
    said = errors.decode("utf-8", "replace").strip().splitlines()
    return None, "a pickle that cannot be read safely: " + "".join(said[-1:])[:200]


def pieces(handle: IO[bytes], first: bytes = b"") -> Iterator[bytes]:
    """The file in pieces of whole lines."""
    held = first
    while True:
        piece = handle.read(PIECE)
        if not piece:
            if held:
                yield held
            return
        held += piece
        cut = held.rfind(b"\n") + 1 or (len(held) if len(held) > 4 * PIECE else 0)
        if cut:
            yield held[:cut]
            held = held[cut:]


def is_binary(data: bytes) -> bool:
    """Whether data is no text: a pickle, or many NULs or bytes that are no UTF-8."""
    head = data[:65536]
    if head[:1] == b"\x80" or head[:4] in (b"\x7fELF", b"PK\x03\x04") or head[:2] == b"\x1f\x8b":
        return True
    if head.count(b"\0") > len(head) // 50:
        return True
    return head.decode("utf-8", "replace").count("\ufffd") > max(20, len(head) // 10)
