"""A take: one command whose output becomes one file of the bundle. Plain data; `executor` runs them."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

KIB, MIB = 1 << 10, 1 << 20
FIRST, ONCE, SECOND = "first", "once", "second"
"""Phases: the first snapshot, what is taken once, and the second snapshot."""


class Take(object):
    """What to run and how far it may go. `path` is below the host's folder, without the snapshot and `.txt`."""

    __slots__ = (
        "argv",
        "binary",
        "cap",
        "command",
        "extra",
        "lane",
        "limit",
        "otherwise",
        "path",
        "phase",
        "quiet",
        "suffix",
    )

    def __init__(
        self,
        path: str,
        argv: Sequence[str],
        lane: str,
        limit: float = 10.0,
        cap: int = 4 * MIB,
        command: Optional[str] = None,
        otherwise: Sequence[Sequence[str]] = (),
        binary: bool = False,
        quiet: bool = False,
        suffix: str = ".txt",
        **extra: Any,
    ) -> None:
        self.path = path
        self.argv = [str(a) for a in argv]
        self.lane = lane
        self.limit = limit
        self.cap = cap
        self.phase = ONCE
        self.command = command or shell_line(self.argv)
        self.otherwise = [list(o) for o in otherwise]
        self.binary = binary
        self.quiet = quiet
        self.suffix = suffix
        self.extra: Dict[str, Any] = extra

    def at(self, phase: str) -> "Take":
        """The same take in another phase."""
        copy = Take(
            self.path,
            self.argv,
            self.lane,
            self.limit,
            self.cap,
            self.command,
            self.otherwise,
            self.binary,
            self.quiet,
            self.suffix,
        )
        copy.extra = dict(self.extra)
        copy.phase = phase
        return copy

    def file_name(self) -> str:
        """Path below the host's folder: `net/ethtool-S.eth0.t0.txt`."""
        return self.path + {FIRST: ".t0", SECOND: ".t1"}.get(self.phase, "") + self.suffix

    def snapshot(self) -> Optional[int]:
        """1 or 2, or None for what is taken once."""
        return {FIRST: 1, SECOND: 2}.get(self.phase)


def twice(takes: Sequence[Take]) -> List[Take]:
    """Each take in both snapshots."""
    return [t.at(FIRST) for t in takes] + [t.at(SECOND) for t in takes]


_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_*{}")


def shell_line(argv: Sequence[str]) -> str:
    """A command as it would be typed."""
    return " ".join(a if a and all(c in _SAFE for c in a) else "'" + a.replace("'", "'\\''") + "'" for a in argv)


def grep(path: str, files: Sequence[str], lane: str, shown: str, limit: float = 10.0, cap: int = 4 * MIB) -> List[Take]:
    """Lines of many small files, each with its path before it (`PATH:line`); nothing when there are no files."""
    if not files:
        return []
    return [Take(path, ["grep", "-sH", "."] + list(files), lane, limit, cap, command="grep -H . " + shown, quiet=True)]


def safe_name(text: str) -> str:
    """Text as part of a file name."""
    return "".join(c if (c.isalnum() and ord(c) < 128) or c in "._-" else "_" for c in text)[:80].strip(".") or "x"


Missing = Tuple[str, str]
"""What is absent, and why."""
