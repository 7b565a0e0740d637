"""Reads `manifest.json`: what was captured where, when and how. Lenient: what is wrong is said, the rest is used.

Two forms are known: `diagnose.manifest/1` (manifest.schema.json) with `files`, and the short form that sites write by
hand, one per host folder, with `host` or `scope` and `captures`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from diagnose.parsing import parse_time

NAME = "manifest.json"
MAX_HOST = 253
LAST_TIME = 7_258_118_400
"""2200-01-01: times are seconds between 1970 and then."""
MAX_SIZE = 64 << 20
"""Longest manifest read, in bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One captured file. `path` is relative to the root, `of_job` says that it belongs to no host; times in seconds."""

    path: str
    host: str | None = None
    of_job: bool = False
    command: str | None = None
    start: float | None = None
    duration: float | None = None
    exit_code: int | None = None
    snapshot: int | None = None
    truncated: bool = False
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """Something that could not be captured, where, and why."""

    what: str
    host: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as read. `clock_offset` is the host's clock minus the collector's, in seconds; `job_began` is when
    the first process of the job started on the host."""

    path: str
    host: str | None = None
    of_job: bool = False
    tool: str | None = None
    created: float | None = None
    job_began: float | None = None
    clock_offset: float | None = None
    clock_offsets: Mapping[str, float] = field(default_factory=dict[str, float])
    entries: tuple[Entry, ...] = ()
    absent: tuple[Absent, ...] = ()


def looks_like_manifest(raw: Any) -> bool:
    """Whether a JSON document means to be one of ours; other tools have files of that name too."""
    if not isinstance(raw, dict):
        return False
    if str(raw.get("schema", "")).startswith("diagnose.manifest"):
        return True
    return any(isinstance(raw.get(key), list) for key in ("files", "captures"))


def read_manifest(text: str, path: str) -> tuple[Manifest | None, list[str]]:
    """The manifest at `path` (relative to the root) and what is wrong with it; None when it is not one of ours."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, [f"not JSON: {error}"]
    if not looks_like_manifest(raw):
        return None, []
    wrong: list[str] = []
    schema = raw.get("schema")
    if schema is not None and schema != "diagnose.manifest/1":
        wrong.append(f"schema {str(schema)!r:.60} is not diagnose.manifest/1; read as far as understood")
    folder = path.rpartition("/")[0]
    host = _host(raw, wrong, "")
    entries: list[Entry] = []
    listed = raw.get("files", raw.get("captures"))
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        entry = _entry(item, index, folder, host, wrong)
        if entry is not None:
            entries.append(entry)
    absent: list[Absent] = []
    missing = raw.get("absent")
    for item in missing if isinstance(missing, list) else ():
        what = item.get("what", item.get("command")) if isinstance(item, dict) else None
        if isinstance(what, str):
            where = _host(item, wrong, "absent") or host
            absent.append(Absent(what, where, str(item.get("reason", "not said"))[:500]))
        else:
            wrong.append("absent: an entry without 'what'")
    offset = raw.get("clock_offset_s")
    offsets = {str(h): float(v) for h, v in offset.items() if _is_number(v)} if isinstance(offset, dict) else {}
    manifest = Manifest(
        path,
        host,
        raw.get("scope") == "job",
        _text(raw, "tool", wrong, "") if not isinstance(raw.get("tool"), dict) else str(raw["tool"].get("name", "")),
        _time(raw, ("created",), wrong, ""),
        _time(raw, ("job_began",), wrong, ""),
        float(offset) if _is_number(offset) else None,
        offsets,
        tuple(entries),
        tuple(absent),
    )
    return manifest, wrong


def _entry(item: Any, index: int, folder: str, host: str | None, wrong: list[str]) -> Entry | None:
    where = f"files[{index}]"
    if not isinstance(item, dict):
        wrong.append(f"{where} is no object")
        return None
    name = item.get("path", item.get("file"))
    if not isinstance(name, str) or not name:
        wrong.append(f"{where} has no path")
        return None
    inside = _inside(folder, name)
    if inside is None:
        wrong.append(f"{where}: path {name!r:.120} leads outside the bundle")
        return None
    digest = item.get("sha256")
    if digest is not None and not (isinstance(digest, str) and len(digest) == 64):
        wrong.append(f"{where}.sha256 is no sha256")
        digest = None
    return Entry(
        inside,
        _host(item, wrong, where) or (None if "host" in item else host),
        "host" in item and item["host"] is None,
        _text(item, "command", wrong, where),
        _time(item, ("start", "at", "time"), wrong, where),
        _number(item, "duration_s", wrong, where),
        _integer(item, "exit_code", wrong, where),
        _integer(item, "snapshot", wrong, where),
        item.get("truncated") is True,
        digest.lower() if digest else None,
        _integer(item, "bytes", wrong, where),
    )


def _inside(folder: str, name: str) -> str | None:
    """`name` relative to `folder`, as a path below the bundle's root; None when it leads out."""
    if "\\" in name or "\0" in name or name.startswith("/") or name[1:2] == ":":
        return None
    parts = [part for part in folder.split("/") if part]
    for part in name.split("/"):
        if part == "..":
            return None
        if part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _text(item: dict[str, Any], key: str, wrong: list[str], where: str) -> str | None:
    value = item.get(key)
    if value is None or isinstance(value, str):
        return value or None
    wrong.append(f"{_at(where, key)} must be text")
    return None


def _host(item: dict[str, Any], wrong: list[str], where: str) -> str | None:
    """A host name: printable and without blanks, as it goes into commands and tables."""
    name = _text(item, "host", wrong, where)
    if name is None or (name.isprintable() and " " not in name and len(name) <= MAX_HOST):
        return name
    wrong.append(f"{_at(where, 'host')} is no host name")
    return None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _number(item: dict[str, Any], key: str, wrong: list[str], where: str) -> float | None:
    value = item.get(key)
    if value is None or _is_number(value):
        return value
    wrong.append(f"{_at(where, key)} must be a number")
    return None


def _integer(item: dict[str, Any], key: str, wrong: list[str], where: str) -> int | None:
    value = _number(item, key, wrong, where)
    return int(value) if value is not None else None


def _time(item: dict[str, Any], keys: tuple[str, ...], wrong: list[str], where: str) -> float | None:
    for key in keys:
        value = item.get(key)
        if value is None:
            continue
        if _is_number(value) and 0 <= value < LAST_TIME:
            return float(value)
        at = parse_time(value)[0] if isinstance(value, str) else None
        if at is None:
            wrong.append(f"{_at(where, key)} must be a UTC time such as 2026-11-24T09:12:00Z")
        return at
    return None
