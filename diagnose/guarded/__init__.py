"""Reads binary sources in a child process with limits on memory and time: hostile bytes may kill the child, not us.

One child serves many sources; it is started when first needed, and anew after it died. What comes back is JSON.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from diagnose.model import Evidence, Record, Source

MEMORY_BYTES = 3 << 30
"""Address space of the child: a dump of 100 MB becomes about 1.5 GB of Python objects."""
BASE_SECONDS = 20.0
BYTES_PER_SECOND = 2 << 20
"""Time limit of a source: 20 s and 1 s per 2 MiB, fifty times what a sound file needs."""
PATIENCE_SECONDS, IMPATIENT_SECONDS = 60.0, 2.0
"""When sources have used up so many seconds until their limits, the next ones get fewer: the sum stays bounded."""
MAX_BYTES = 512 << 20
MAX_ANSWER = 256 << 20
"""Bytes of an answer: text of 2 million lines, or the records of a job of 100,000 ranks."""

_CHILD = Path(__file__).resolve().parent / "child.py"


class Unreadable(Exception):
    """The parser could not read the source, or the child ran into its limits."""


class Guard:
    """One child process. Not for use by several threads at once."""

    def __init__(self, memory: int = MEMORY_BYTES, seconds: float | None = None) -> None:
        self._memory, self._seconds = memory, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lost = 0.0

    def scan(self, parser: ModuleType, source: Source) -> tuple[list[Record], int]:
        """Records of a source, and the number of lines that it has as text. Raises Unreadable."""
        answer = self._ask(parser, source, "scan")
        try:
            return [_record(item) for item in answer["records"]], int(answer["lines"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise Unreadable("its answer makes no sense") from None

    def render(self, parser: ModuleType, source: Source) -> list[str]:
        """The source as lines of text. Raises Unreadable."""
        lines = self._ask(parser, source, "render").get("text")
        return [str(line) for line in lines] if isinstance(lines, list) else []

    def close(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                try:
                    if stream:
                        stream.close()
                except BrokenPipeError:
                    continue

    def _ask(self, parser: ModuleType, source: Source, what: str) -> dict[str, Any]:
        if source.size > MAX_BYTES:
            raise Unreadable(f"{source.size >> 20} MiB are more than the {MAX_BYTES >> 20} MiB read of a binary file")
        job = {
            "what": what, "parser": str(parser.__file__), "location": source.location, "id": source.id,
            "path": source.path, "size": source.size,
        }  # fmt: skip
        process = self._started()
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        base = BASE_SECONDS if self._lost < PATIENCE_SECONDS else IMPATIENT_SECONDS
        seconds = self._seconds or base + source.size / BYTES_PER_SECOND
        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            stdin, stdout = _pipes(process)
            stdin.write(json.dumps(job).encode() + b"\n")
            stdin.flush()
            line = stdout.readline(MAX_ANSWER)
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if late.is_set() or not line.endswith(b"\n"):
            self.close()
        if not line.endswith(b"\n"):
            why = "the reading process ended"
            if len(line) == MAX_ANSWER:
                why = "what it holds is too much"
            elif late.is_set():
                self._lost += seconds
                why = f"it took longer than {seconds:.0f} s"
            raise Unreadable(f"not read: {why}")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise Unreadable("not read: its answer makes no sense")
        if "error" in answer:
            raise Unreadable(str(answer["error"])[:300])
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            root = str(_CHILD.parents[2])
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", str(_CHILD), root, str(self._memory)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                )  # fmt: skip
            except OSError as error:
                raise Unreadable(f"the reading process could not start: {error}") from None
        return self._process


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin and process.stdout
    return process.stdin, process.stdout


def packed(record: Record) -> list[Any]:
    """A record as JSON values."""
    lines = [[e.source, e.first, e.last, e.text, [list(s) for s in e.spans]] for e in record.evidence]
    return [record.kind, dict(record.fields), lines, record.at, record.host, record.rank, record.count, record.last_at]


def _record(item: Sequence[Any]) -> Record:
    kind, fields, lines, at, host, rank, count, last_at = item
    evidence = tuple(Evidence(s, first, last, text, tuple(map(tuple, spans))) for s, first, last, text, spans in lines)
    return Record(kind, fields, evidence, at, host, rank, count, last_at)


_shared: list[Guard] = []


def shared() -> Guard:
    """The child of this process."""
    if not _shared:
        _shared.append(Guard())
        atexit.register(_shared[0].close)
    return _shared[0]
