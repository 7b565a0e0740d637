"""The near end of one host: its lines become an archive that is whole, or a reason why there is none."""

from __future__ import annotations

import binascii
import errno
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

MAX_ARCHIVE = 256 << 20
"""Bytes of one host's archive at most, packed."""
MAX_JSON = 64 << 10
MAX_SAID = 40

State = Literal["waiting", "connecting", "collecting", "sending", "arrived", "failed"]


@dataclass
class Visit:
    """One host. `name` is how it was addressed, `folder` its folder in the bundle; sizes in bytes, times in seconds.

    `offset_s` is the host's clock minus this one, low by the time that the fastest line was on its way.
    """

    name: str
    folder: str
    about: dict[str, str] = field(default_factory=dict[str, str])
    state: State = "waiting"
    reason: str = ""
    hello: dict[str, Any] = field(default_factory=dict[str, Any])
    end: dict[str, Any] = field(default_factory=dict[str, Any])
    offset_s: float | None = None
    size: int = 0
    said: str = ""
    spool: Path | None = None
    damaged: str = ""
    _handle: IO[bytes] | None = None
    _digest: Any = None

    @property
    def over(self) -> bool:
        """Whether nothing more is awaited from this host."""
        return self.state in ("arrived", "failed")

    @property
    def partial(self) -> bool:
        """Whether what arrived is known to be less than the collector would give."""
        return bool(self.damaged or self.end.get("cut") or self.end.get("unfinished") or self.end.get("exit") != 0)

    def start(self, spool: Path) -> None:
        """The link to the host is being opened; its archive goes to `spool`."""
        self.state, self.spool = "connecting", spool
        self.size, self._digest = 0, hashlib.sha256()

    def line(self, letter: str, payload: bytes, now: float) -> None:
        """One line of the host. `now` in epoch seconds."""
        if self.over:
            return
        if letter == "D":
            self._data(payload)
            return
        fields = _json(payload)
        if fields is None:
            return
        sent = fields.get("time")
        if isinstance(sent, int | float) and abs(sent - now) < 1e9:
            self.offset_s = max(sent - now, self.offset_s if self.offset_s is not None else sent - now)
        if letter == "H":
            self.hello, self.state = fields, "collecting"
        elif letter == "B":
            self.said = printable(fields.get("said"))
        elif letter == "E":
            self.end = fields
            self._ended()

    def finish(self, reason: str) -> None:
        """The link is closed: without an end line there is at most the start of an archive, and `reason` says why."""
        self._close()
        if self.over:
            return
        if self.size:
            self.state, self.damaged = "arrived", reason
        else:
            self.state, self.reason = "failed", reason

    def again(self) -> None:
        """Forget the attempt, for another one."""
        self._close()
        self.state, self.reason, self.hello = "waiting", "", {}

    def _data(self, payload: bytes) -> None:
        try:
            data = binascii.a2b_base64(payload)
        except binascii.Error:
            data = b""
            self.damaged = "its archive arrived damaged"
        if self.size + len(data) > MAX_ARCHIVE:
            self.damaged = f"its archive is larger than {MAX_ARCHIVE >> 20} MiB; read up to there"
            self._close()
            self.state = "arrived"
            return
        try:
            if self._handle is None:
                assert self.spool is not None
                self._handle = self.spool.open("wb")
            self._handle.write(data)
            self.state = "sending"
            self.size += len(data)
            self._digest.update(data)
        except OSError as error:
            self._close()
            self.state, self.reason = "failed", no_room(error)

    def _ended(self) -> None:
        self._close()
        error = printable(self.end.get("error"))
        if error:
            self.state, self.reason = "failed", error
        elif not self.size:
            self.state = "failed"
            self.reason = f"the collector left nothing (exit code {self.end.get('exit')})"
            said = printable(self.end.get("said"))
            self.reason += f": {said}" if said else ""
        else:
            self.state = "arrived"
            if self._digest.hexdigest() != self.end.get("sha256"):
                self.damaged = "its archive arrived damaged (sha256 differs)"
            why = printable(self.end.get("why"))
            if self.end.get("unfinished") or self.end.get("cut"):
                self.damaged = self.damaged or why or "the collector did not finish"

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                handle.close()
            except OSError as error:
                self.damaged = no_room(error)


def no_room(error: OSError) -> str:
    """Why something cannot be stored here."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "no room for it on the collecting side" if full else f"cannot be stored: {error.strerror or error}"


def printable(value: object) -> str:
    """Text of a host as one short line without control characters."""
    text = value if isinstance(value, str) else ""
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text[:4000])).strip()[:300]


def _json(payload: bytes) -> dict[str, Any] | None:
    if len(payload) > MAX_JSON:
        return None
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
