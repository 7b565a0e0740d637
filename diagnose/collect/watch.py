"""Waits for a live log to tell of a stall, or to fall silent, and returns then."""

import os
import re
import time
from typing import Callable, Dict, Optional, Sequence

POLL_S = 1.0
PIECE = 1 << 20

# Formats: PyTorch 1.13 to 2.14, NCCL 2.7 to 2.32, torchrun, Slurm.
ALARM = re.compile(
    rb"Watchdog caught collective operation timeout|failure detected by watchdog|watchdog got stuck"
    rb"|[Rr]eceived a (?:global )?(?:dump|timeout) signal|Heartbeat monitor timed out|Timeout at collective"
    rb"|Observed flight recorder dump signal|NCCL WARN |NCCL communicator was aborted|Connection closed by remote peer"
    rb"|DistBackendError|DistStoreError|Timed out waiting|monitoredBarrier in|store based barrier on rank"
    rb"|Root Cause \(first observed failure\)|DUE TO (?:TIME LIMIT|NODE FAILURE)"
)


class _Tail(object):
    """New bytes of one growing file, from its end on; survives truncation and a file that is not there yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.at = self._size() or 0
        self.inode = self._inode()
        self.rest = b""
        self.changed = time.monotonic()

    def _size(self) -> Optional[int]:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return None

    def _inode(self) -> Optional[int]:
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return None

    def alarm(self) -> Optional[str]:
        """The line that tells of trouble, if a new one does."""
        size, inode = self._size(), self._inode()
        if size is None:
            return None
        if size < self.at or inode != self.inode:
            self.at, self.inode, self.rest = 0, inode, b""
        if size == self.at:
            return None
        self.changed = time.monotonic()
        with open(self.path, "rb") as handle:
            handle.seek(self.at)
            piece = handle.read(PIECE)
        self.at += len(piece)
        lines = (self.rest + piece).split(b"\n")
        self.rest = lines.pop()[-4096:]
        for line in lines:
            if ALARM.search(line):
                return line.decode("utf-8", "replace").strip()[:300]
        return None


def wait(paths: Sequence[str], silence_s: float, say: Callable[[str], None], poll_s: float = POLL_S) -> str:
    """Return why it is time to collect. `silence_s` 0 waits for a message only; logs may appear later."""
    tails: Dict[str, _Tail] = {path: _Tail(path) for path in paths}
    say("watching %s" % ", ".join(paths))
    while True:
        for path, tail in tails.items():
            try:
                line = tail.alarm()
            except OSError as error:
                say("%s: %s" % (path, error.strerror))
                line = None
            if line is not None:
                return "%s: %s" % (path, line)
        quiet = min(time.monotonic() - tail.changed for tail in tails.values())
        if silence_s and quiet >= silence_s:
            return "no new line for %d s" % quiet
        time.sleep(poll_s)
