"""A bundle in memory, what is true of it, and the register of scenarios. Nothing here knows the program under test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any


@dataclass
class Bundle:
    """Files by path with what a collector would note about them; written with a `manifest.json`."""

    start: float
    files: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    absent: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    beside: dict[str, str] = field(default_factory=dict[str, str])
    """Files that are stored with the bundle and are no evidence (a site file)."""

    def add(
        self, path: str, text: str | Iterable[str], *, host: str | None = None, command: str | None = None,
        at: float | None = None, snapshot: int | None = None, exit_code: int = 0, duration: float = 0.1,
    ) -> str:  # fmt: skip
        """Add a file; `at` counts in seconds from the start of the bundle. Returns its path."""
        assert path not in self.files, path
        whole = text if isinstance(text, str) else "\n".join(text) + "\n"
        self.files[path] = whole
        note: dict[str, Any] = {"path": path, "host": host, "start": stamp(self.start + (at or 0.0))}
        if command is not None:
            note |= {"command": command, "duration_s": duration, "exit_code": exit_code}
        if snapshot is not None:
            note["snapshot"] = snapshot
        raw = whole.encode()
        self.notes.append(note | {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)})
        return path

    def line(self, path: str, needle: str, after: str | None = None) -> int:
        """Number of the first line that contains `needle` (below the first that contains `after`)."""
        lines = self.files[path].splitlines()
        first = next(i for i, text in enumerate(lines) if after in text) if after else 0
        return next(i for i, text in enumerate(lines, 1) if i > first and needle in text)

    def at(self, path: str, needle: str, after: str | None = None) -> str:
        """`path:line` of that line."""
        return f"{path}:{self.line(path, needle, after)}"

    def write(self, folder: Path) -> Path:
        """Write every file below `folder`. Returns it."""
        manifest = {
            "schema": "diagnose.manifest/1", "tool": {"name": "diagnose", "version": "0.1.0"},
            "created": stamp(self.start + 120), "files": self.notes, "absent": self.absent,
        }  # fmt: skip
        written = {**self.files, **self.beside, "manifest.json": json.dumps(manifest, indent=1) + "\n"}
        for path, text in written.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")
        return folder


@dataclass
class Truth:
    """What a correct analysis says. Ids at or above minor other than these are wrong."""

    roots: list[str] = field(default_factory=list[str])
    """In this order, roots at or above minor."""
    consequences: list[str] = field(default_factory=list[str])
    """Must be there, folded beneath another finding."""
    may: list[str] = field(default_factory=list[str])
    """May be there as a consequence: true, but not decisive."""
    absent: list[str] = field(default_factory=list[str])
    """Ids or families that must not appear at or above minor (said although all others are refused too)."""
    subjects: dict[str, dict[str, list[str]]] = field(default_factory=dict[str, dict[str, list[str]]])
    """id -> kind of subject -> names."""
    evidence: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """id -> `source:line` that its evidence must hold."""
    first: list[list[str]] = field(default_factory=lambda: [[], [], []])
    """Tokens that the first three lines of the text report contain."""
    never: list[str] = field(default_factory=list[str])
    """Names that line 1 must not contain: those of the innocent."""
    asks: list[str] = field(default_factory=list[str])
    """Tokens of commands that the report must ask for."""
    exit: int = 1
    site: str | None = None

    def as_data(self) -> dict[str, Any]:
        """Plain data for `expected/NAME.yaml`, empty parts left out."""
        data = {k: v for k, v in vars(self).items() if v not in ([], {}, None, [[], [], []])}
        return data | {"roots": self.roots, "exit": self.exit}


@dataclass
class Scenario:
    """A bundle and the truth about it."""

    bundle: Bundle
    truth: Truth


Build = Callable[[Random, bool], Scenario]
SCENARIOS: dict[str, Build] = {}


def scenario(name: str) -> Callable[[Build], Build]:
    """Register a builder; it gets a random generator and whether somebody else is guilty (the swapped variant)."""

    def register(build: Build) -> Build:
        assert name not in SCENARIOS, name
        SCENARIOS[name] = build
        return build

    return register


def make(name: str, swapped: bool = False) -> Scenario:
    """The scenario of that name, the same every time."""
    return SCENARIOS[name](Random(f"{name}/{'swapped' if swapped else 'as stored'}"), swapped)


def epoch(text: str) -> float:
    """Seconds of a UTC time such as `2026-05-12 03:14:07`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def stamp(at: float) -> str:
    """ISO 8601 UTC of epoch seconds."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}Z"
