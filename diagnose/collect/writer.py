"""The bundle while it grows: a private folder `*.partial/` whose manifest grows by whole entries, then an archive.

Nothing half-written ever has the final name. On a full disk the manifest can still be written: a reserve is kept.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import threading
import time
from typing import IO, Any, Callable, Dict, List, Optional, Set

SCHEMA = "diagnose.manifest/1"
RESERVE_BYTES = 512 * 1024
FLUSH_EVERY_S = 1.0
ARCHIVE_ENDINGS = (".tar.gz", ".tgz")


class DiskFull(Exception):
    """The file system of the bundle has no room; what was written before stays good."""


def utc(at: float) -> str:
    """Epoch seconds as the manifest has times: 2026-11-24T09:12:00.123Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".%03dZ" % int(at % 1 * 1000)


def is_full(error: OSError) -> bool:
    """Whether an error says that the disk or the quota is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Writer(object):
    """Files and manifest of one bundle, for several threads. `clean` takes credentials out of texts, `mask` overwrites
    them in binary data.
    """

    def __init__(
        self, folder: str, head: Dict[str, Any], clean: Callable[[bytes], bytes], mask: Callable[[bytes], bytes] = bytes
    ) -> None:
        self.folder = folder
        self.head = head
        self.clean = clean
        self.mask = mask
        self.full = False
        self.files: List[Dict[str, Any]] = []
        self.absent: List[Dict[str, Any]] = []
        self.bytes = 0
        self._binary: Set[str] = set()
        self._lock = threading.Lock()
        self._flushed = 0.0
        os.mkdir(folder, 0o700)
        self._keep_reserve()
        self.flush(force=True)

    # --- content -----------------------------------------------------------------------------------

    def put(self, path: str, data: bytes, entry: Dict[str, Any], binary: bool = False) -> Optional[Dict[str, Any]]:
        """Write one file, cleaned, with its manifest entry; None, and an absence, when that is not possible."""
        data = self.mask(data) if binary else self.clean(data)
        target = os.path.join(self.folder, path)
        if self.full and len(data) > 65536:
            self.miss(entry.get("command") or path, "disk full")
            return None
        try:
            self._make_folders(os.path.dirname(target))
            self._write(target, data)
        except OSError as error:
            if not is_full(error):
                self.miss(entry.get("command") or path, "cannot be stored: " + (error.strerror or str(error)))
                return None
            self._remove(target)
            self._disk_full()
            self.miss(entry.get("command") or path, "disk full")
            return None
        made: Dict[str, Any] = {"path": path}
        made.update(entry)
        made["bytes"] = len(data)
        made["sha256"] = hashlib.sha256(data).hexdigest()
        with self._lock:
            if binary:
                self._binary.add(path)
            self.files.append(made)
            self.bytes += len(data)
        self.flush()
        return made

    def miss(self, what: str, reason: str, **more: Any) -> None:
        """Say that something is absent, and why."""
        item: Dict[str, Any] = {"what": self._text(what), "reason": self._text(reason)[:500]}
        item.update(more)
        with self._lock:
            if item not in self.absent:
                self.absent.append(item)
        self.flush()

    def note(self, **fields: Any) -> None:
        """Add to the head of the manifest."""
        with self._lock:
            self.head.update(fields)

    def clean_again(self) -> None:
        """Clean once more what was written before some credential became known. Nothing is added meanwhile."""
        for entry in list(self.files):
            target = os.path.join(self.folder, entry["path"])
            with open(target, "rb") as handle:
                data = handle.read()
            cleaned = self.mask(data) if entry["path"] in self._binary else self.clean(data)
            if cleaned == data:
                continue
            try:
                self._write(target, cleaned)
            except OSError as error:
                self._remove(target)
                self.files.remove(entry)
                self.miss(entry.get("command") or entry["path"], "cannot be stored: " + (error.strerror or str(error)))
                continue
            entry["bytes"], entry["sha256"] = len(cleaned), hashlib.sha256(cleaned).hexdigest()
        self.head, self.files, self.absent = (self._strings(x) for x in (self.head, self.files, self.absent))

    def _strings(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if k in ("path", "sha256") else self._strings(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._strings(v) for v in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")

    # --- manifest ----------------------------------------------------------------------------------

    def manifest(self) -> Dict[str, Any]:
        """The manifest as it would be written now."""
        with self._lock:
            made = dict(self.head)
            made["files"] = sorted(self.files, key=lambda f: f["path"])
            made["absent"] = list(self.absent)
        return made

    def flush(self, force: bool = False) -> None:
        """Write the manifest when the last time is a while ago; a new file takes the old one's place."""
        with self._lock:
            now = time.monotonic()
            if not force and now - self._flushed < FLUSH_EVERY_S:
                return
            self._flushed = now
        data = encode(self.manifest())
        name = os.path.join(self.folder, "manifest.json")
        with self._lock:
            try:
                self._write(name + ".new", data)
                os.rename(name + ".new", name)
            except OSError as error:
                if not is_full(error):
                    raise
                self._remove(name + ".new")
                self._disk_full()
                if force:
                    self._write(name + ".new", data)
                    os.rename(name + ".new", name)

    def adopt(self, manifest: Dict[str, Any]) -> None:
        """Go on with another manifest: that of the same folder after it was rewritten."""
        with self._lock:
            self.head = {k: v for k, v in manifest.items() if k not in ("files", "absent")}
            self.files, self.absent = list(manifest.get("files", [])), list(manifest.get("absent", []))
        self.flush(force=True)

    # --- the end -----------------------------------------------------------------------------------

    def close(self, out: str) -> str:
        """Give the bundle its final name: an archive when `out` ends in .tar.gz, a folder else. Returns the path."""
        self._remove(os.path.join(self.folder, ".reserve"))
        self.note(created=utc(time.time()))
        self.flush(force=True)
        if not out.endswith(ARCHIVE_ENDINGS):
            os.rename(self.folder, out)
            return out
        return self._pack(out)

    def _pack(self, out: str) -> str:
        part = out + ".part"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as handle:
                pack(self.folder, root_name(out), handle)
                handle.flush()
                os.fsync(handle.fileno())
            os.rename(part, out)
        except OSError as error:
            self._remove(part)
            kept = strip_endings(out)
            os.rename(self.folder, kept)
            if is_full(error):
                print("no room for the archive: the bundle stays a folder", file=sys.stderr)
                return kept
            raise
        shutil.rmtree(self.folder, ignore_errors=True)
        return out

    # --- disk --------------------------------------------------------------------------------------

    def _make_folders(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for name in reversed(missing):
            try:
                os.mkdir(name, 0o700)
            except FileExistsError:
                pass

    def _write(self, target: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(target, flags, 0o600), "wb") as handle:
            handle.write(data)

    def _keep_reserve(self) -> None:
        try:
            self._write(os.path.join(self.folder, ".reserve"), b"\xa5" * RESERVE_BYTES)
        except OSError as error:
            self._remove(self.folder + "/.reserve")
            os.rmdir(self.folder)
            if is_full(error):
                raise DiskFull(self.folder)
            raise

    def _disk_full(self) -> None:
        self.full = True
        self._remove(os.path.join(self.folder, ".reserve"))

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError:
            pass


def encode(manifest: Dict[str, Any]) -> bytes:
    """A manifest as it is stored."""
    return (json.dumps(manifest, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def strip_endings(path: str) -> str:
    """The path without .tar.gz or .tgz."""
    for ending in ARCHIVE_ENDINGS:
        if path.endswith(ending):
            return path[: -len(ending)]
    return path


def root_name(out: str) -> str:
    """Name of the folder inside an archive."""
    return os.path.basename(strip_endings(out)) or "bundle"


def pack(folder: str, name: str, handle: IO[bytes]) -> None:
    """Write `folder` as a .tar.gz: members in order, owner and group left out, modes 0600 and 0700."""

    def plain(info: "tarfile.TarInfo") -> "tarfile.TarInfo":
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o700 if info.isdir() else 0o600
        return info

    with tarfile.open(fileobj=handle, mode="w:gz", compresslevel=5) as archive:
        archive.add(os.path.join(folder, "manifest.json"), name + "/manifest.json", filter=plain)
        for where, folders, files in os.walk(folder):
            folders.sort()
            for file in sorted(files):
                full = os.path.join(where, file)
                inside = os.path.relpath(full, folder)
                if inside not in ("manifest.json", ".reserve", "manifest.json.new") and not os.path.islink(full):
                    archive.add(full, name + "/" + inside, recursive=False, filter=plain)


class Buffer(io.BytesIO):
    """Output of one command while it runs; capped by the runner, so it is kept in memory."""
