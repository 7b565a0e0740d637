"""What a reader saw, and the meaning of exit codes and signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Line

MAX_TEXT = 300

SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU",
}  # fmt: skip
WORDS = {
    "Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS",
    "Terminated": "SIGTERM", "Illegal instruction": "SIGILL", "Floating point exception": "SIGFPE",
}  # fmt: skip
"""How shells, srun and mpirun spell signals (strsignal of glibc)."""

_REASONS = {
    "SIGTERM": "cancelled",
    "SIGINT": "cancelled",
    "SIGHUP": "cancelled",
    "SIGKILL": "killed",
    "SIGXCPU": "killed",
}


@dataclass(slots=True)
class Seen:
    """One observation with its lines; `ranks` are global ranks that the lines name."""

    kind: str
    fields: dict[str, Any]
    lines: Sequence[Line]
    host: str | None = None
    ranks: tuple[int, ...] = ()
    at: float | None = None
    key: tuple[Any, ...] = field(default=())


def exited(code: int | None = None, signal: str | None = None) -> dict[str, Any]:
    """exit_code, signal and reason. 128 + n is the shell's spelling of signal n; SIGKILL is only 'killed'."""
    if signal is None and code is not None and code > 128 and code - 128 in SIGNALS:
        signal = SIGNALS[code - 128]
    fields: dict[str, Any] = {}
    if code is not None:
        fields["exit_code"] = code
    if signal is not None:
        fields["signal"] = signal
        fields["reason"] = _REASONS.get(signal, "crashed")
    elif code:
        fields["reason"] = "error"
    return fields


def short(text: str) -> str:
    """Text for a record: one line, bounded."""
    return " ".join(text.split())[:MAX_TEXT]
