"""Ticks and comments, kept beside the bundle: in the user's state folder, under the bundle's digest."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

SCHEMA = "diagnose.notes/1"


def state_folder() -> Path:
    """`$XDG_STATE_HOME/diagnose`, by default `~/.local/state/diagnose`; made for the user alone when missing."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(base) / "diagnose"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class Notes:
    """Ticked steps and comments per finding key. Without a digest they live as long as the screen."""

    def __init__(self, digest: str, folder: Path | None = None) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "_", digest)[:100]
        self.path = (folder or state_folder()) / "notes" / f"{name}.json" if name else None
        self.ticks: dict[str, set[str]] = {}
        self.comments: dict[str, str] = {}
        if self.path is not None and self.path.is_file():
            self._take(json.loads(self.path.read_text("utf-8")))

    def _take(self, kept: Any) -> None:
        if not isinstance(kept, dict) or kept.get("schema") != SCHEMA:
            raise ValueError(f"{self.path}: not a file of notes")
        self.ticks = {str(key): {str(step) for step in steps} for key, steps in kept.get("ticks", {}).items()}
        self.comments = {str(key): str(text) for key, text in kept.get("comments", {}).items()}

    def tick(self, finding: str, step: str) -> bool:
        """Tick a step, or take the tick away; tells whether it is ticked now."""
        steps = self.ticks.setdefault(finding, set())
        steps ^= {step}
        self.save()
        return step in steps

    def comment(self, finding: str, text: str) -> None:
        """Set the comment of a finding; an empty one removes it."""
        if text.strip():
            self.comments[finding] = text.strip()
        else:
            self.comments.pop(finding, None)
        self.save()

    def save(self) -> None:
        """Write all, whole or not at all. OSError when the folder cannot be written."""
        if self.path is None:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(self.as_json(), ensure_ascii=False, indent=1, sort_keys=True) + "\n", "utf-8")
        fresh.replace(self.path)

    def as_json(self) -> dict[str, Any]:
        """All notes as JSON values."""
        ticks = {key: sorted(steps) for key, steps in self.ticks.items() if steps}
        return {"schema": SCHEMA, "ticks": ticks, "comments": dict(self.comments)}

    @property
    def empty(self) -> bool:
        return not any(self.ticks.values()) and not self.comments
