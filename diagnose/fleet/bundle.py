"""The bundle of many hosts while it grows: `*.partial/` with a folder a host, then one manifest and the final name.

Until the end each host's folder keeps the manifest that came with it, so that even a bundle whose collector was killed
can be read. At the end these become one manifest at the top.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diagnose.fleet.names import host_of
from diagnose.fleet.unpack import Unpacked, unpack
from diagnose.fleet.visit import Visit, no_room

SCHEMA = "diagnose.manifest/1"
ENDINGS = (".tar.gz", ".tgz")
MAX_MANIFEST = 64 << 20
RESERVE = 4 << 20
"""Bytes kept free for the manifest, should the disk fill up."""
_MAX_ENTRIES = 40_000


class Bundle:
    """`out` is the final name: NAME.tar.gz or a folder. Safe for several threads. FileExistsError, OSError."""

    def __init__(self, out: Path, head: Mapping[str, Any], clean: Callable[[bytes], bytes]) -> None:
        self.out = out
        self.began = time.time()
        self.folder = out.parent / (_stem(out) + ".partial")
        self._clean = clean
        self._head = dict(head)
        self._files: list[dict[str, Any]] = []
        self._absent: list[dict[str, Any]] = []
        self._hosts: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        if out.exists():
            raise FileExistsError(errno.EEXIST, "exists already", str(out))
        self.folder.mkdir(mode=0o700)
        self._incoming = self.folder / ".incoming"
        self._incoming.mkdir(mode=0o700)
        with (self._incoming / ".reserve").open("wb") as reserve:
            os.posix_fallocate(reserve.fileno(), 0, RESERVE)

    def spool(self, visit: Visit) -> Path:
        """Where the archive of a host goes while it arrives."""
        return self._incoming / f"{visit.folder}.tar.gz"

    # --- content -------------------------------------------------------------------------------------

    def add_host(self, visit: Visit) -> None:
        """Take in what arrived from a host, or the reason why nothing did."""
        head: dict[str, Any] = {}
        if visit.state == "arrived" and visit.spool is not None:
            try:
                head = self._take_in(visit, visit.spool)
            except OSError as error:
                visit.state, visit.reason = "failed", no_room(error)
            finally:
                visit.spool.unlink(missing_ok=True)
        if visit.state == "failed":
            self.miss("everything of this host", visit.reason, host=host_of(visit.name))
        known = {"hostname": visit.hello.get("hostname"), "python": visit.hello.get("python")}
        host = {
            "host": host_of(visit.name), "address": visit.name, "folder": visit.folder, **visit.about,
            **{k: v for k, v in known.items() if isinstance(v, str)}, "state": visit.state,
            "reason": visit.reason or visit.damaged, "bytes_sent": visit.size, "exit_code": visit.end.get("exit"),
            "clock_offset_s": round(visit.offset_s, 4) if visit.offset_s is not None else None, "collector": head,
        }  # fmt: skip
        with self._lock:
            self._hosts[visit.name] = {k: v for k, v in host.items() if v not in (None, "", {})}

    def put(self, path: str, data: bytes, **entry: Any) -> None:
        """A file of the whole job or of a host, cleaned of credentials. `path` is relative to the bundle."""
        data = self._clean(data)
        target = self.folder / path
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(data)
        except OSError as error:
            self.miss(str(entry.get("command") or path), no_room(error), host=entry.get("host"))
            return
        made = {"path": path, "host": None, **entry, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        with self._lock:
            self._files.append(made)

    def miss(self, what: str, reason: str, host: str | None = None) -> None:
        """Say what is absent, and why."""
        with self._lock:
            self._absent.append({"what": what, "reason": reason[:500], "host": host})

    def _take_in(self, visit: Visit, spool: Path) -> dict[str, Any]:
        """The head of the host's own manifest."""
        fresh = self.folder / ".incoming" / visit.folder
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        found = unpack(spool, fresh, visit.folder)
        for name, reason in found.refused:
            self.miss(name, f"refused: {reason}", host=host_of(visit.name))
        if found.broken and not visit.damaged:
            visit.damaged = found.broken
        raw, wrong = _read_manifest(fresh / "manifest.json")
        if wrong:
            self.miss("manifest of the host", wrong, host=host_of(visit.name))
        if not found.files:
            visit.state, visit.reason = "failed", visit.damaged or "an empty archive"
            return {}
        target = self.folder / visit.folder
        target.mkdir(mode=0o700, exist_ok=True)
        for child in sorted(fresh.iterdir()):
            if (target / child.name).exists():
                self.miss(child.name, "refused: its name is taken", host=host_of(visit.name))
                found.files = {p: f for p, f in found.files.items() if p.partition("/")[0] != child.name}
            else:
                child.rename(target / child.name)
        self._merge(visit, raw, found, target)
        return {k: v for k, v in raw.items() if k not in ("files", "captures", "absent", "schema") and _small(v)}

    def _merge(self, visit: Visit, raw: dict[str, Any], found: Unpacked, target: Path) -> None:
        """The host's entries under its folder and the name it was addressed with; digests are those of what is here."""
        host, entries = host_of(visit.name), _items(raw, "files")
        told = {_below(str(e.get("path", "")), visit.folder): e for e in entries}
        listed: list[dict[str, Any]] = []
        for path, (size, digest) in sorted(found.files.items()):
            if path == "manifest.json":
                continue
            entry = {k: v for k, v in told.pop(path, {}).items() if _scalar(v)}
            if entry.get("sha256") not in (None, digest):
                self.miss(path, "it is not what the collector wrote: cut or changed on the way", host=host)
                entry["truncated"] = True
            listed.append({**entry, "path": f"{target.name}/{path}", "host": host, "bytes": size, "sha256": digest})
        lost = [
            {"what": str(e.get("command") or p)[:4000], "reason": "lost on the way", "host": host}
            for p, e in told.items()
            if p
        ]
        absent = [
            {**{k: v for k, v in item.items() if _scalar(v)}, "host": host} for item in _items(raw, "absent")
            if isinstance(item.get("what", item.get("command")), str)
        ]  # fmt: skip
        with self._lock:
            self._files += listed
            self._absent += absent + lost

    # --- the end ---------------------------------------------------------------------------------------

    def close(self) -> Path:
        """Write the manifest and give the bundle its final name; where there is no room for an archive it stays a
        folder. Returns the path. OSError when not even that is possible: the partial folder stays."""
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._write_manifest()
        for name in self._hosts:
            (self.folder / str(self._hosts[name]["folder"]) / "manifest.json").unlink(missing_ok=True)
        if not self.out.name.endswith(ENDINGS):
            self.folder.rename(self.out)
            return self.out
        part = self.out.parent / (self.out.name + ".part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
                self._pack(handle)
                handle.flush()
                os.fsync(handle.fileno())
            part.rename(self.out)
        except OSError as error:
            part.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            kept = self.out.parent / _stem(self.out)
            self.folder.rename(kept)
            return kept
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.out

    def _write_manifest(self) -> None:
        offsets = {h["host"]: h["clock_offset_s"] for h in self._hosts.values() if "clock_offset_s" in h}
        head = {"schema": SCHEMA, **self._head, "created": utc(time.time()), "clock_offset_s": offsets}
        told = [h["collector"].get("job_began") for h in self._hosts.values() if isinstance(h.get("collector"), dict)]
        if times := [t for t in told if isinstance(t, str)]:
            head["job_began"] = min(times)
        lists = {
            "hosts": [self._hosts[name] for name in sorted(self._hosts)],
            "files": sorted(self._files, key=lambda f: f["path"]),
            "absent": self._absent,
        }
        new = self.folder / "manifest.json.new"
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
            out.write(json.dumps(head)[:-1])
            for name, items in lists.items():
                out.write(f',\n"{name}": [' + ",".join("\n" + json.dumps(item) for item in items) + "\n]")
            out.write("\n}\n")
        new.rename(self.folder / "manifest.json")

    def _pack(self, handle: Any) -> None:
        root = _stem(self.out)
        with tarfile.open(fileobj=handle, mode="w:gz", compresslevel=5) as archive:
            archive.add(self.folder / "manifest.json", f"{root}/manifest.json", filter=_plain)
            for entry in sorted(self._files, key=lambda f: f["path"]):
                archive.add(self.folder / entry["path"], f"{root}/{entry['path']}", recursive=False, filter=_plain)


def utc(at: float) -> str:
    """Epoch seconds as the manifest has times: 2026-11-24T09:12:00.123Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def _stem(out: Path) -> str:
    for ending in ENDINGS:
        if out.name.endswith(ending):
            return out.name[: -len(ending)] or "bundle"
    return out.name


def _read_manifest(path: Path) -> tuple[dict[str, Any], str]:
    try:
        if path.stat().st_size > MAX_MANIFEST:
            return {}, "too large to be read"
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"cannot be read ({type(error).__name__})"
    return (raw, "") if isinstance(raw, dict) else ({}, "not a manifest")


def _items(raw: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = raw.get(key)
    return [item for item in items[:_MAX_ENTRIES] if isinstance(item, dict)] if isinstance(items, list) else []


def _below(path: str, folder: str) -> str:
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else path


def _scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 4000)


def _small(value: Any) -> bool:
    return _scalar(value) or len(json.dumps(value)) <= 200_000
