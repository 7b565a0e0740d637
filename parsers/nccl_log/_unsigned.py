"""Messages that lost their signature: the last error as torch raises it, a line quoted without its start, warnings of
aws-ofi-nccl's own programs, and NCCL before 2.3, which signed without the word NCCL.

They count only where no signed warning of the same log says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from diagnose.parsing import unprefix

from ._prefix import Head, Process, last_head
from ._warnings import shape

if TYPE_CHECKING:
    from ._ledger import Place
    from ._reader import Reader

LAST_ERROR = "Last error:"
_OLD = " WARN "
_TEXTS = (
    "Got completion ",
    "Test CUDA failure ",
    "Cuda failure common.cu:",
    "Duplicate GPU detected",
    "Multiple ranks are using the same GPU",
    "Failed to bind NVLink SHARP",
    "Mismatched NCCL version detected",
    "Mismatched collective detected",
    "Call to ibv_",
    "failed to extend /dev/shm/nccl-",
    "NET/OFI ",
    "socketProgress: Connection closed",
    "socketPollConnect: ",
    "socketStartConnect: ",
    "Net : Connect to ",
)
"""Texts that nothing but NCCL and its plugins print."""
GATES = (LAST_ERROR, *_TEXTS)
_NAMED = re.compile(r"NET/[A-Za-z_]{1,16} ?: ?$")
_OLD_FILE = re.compile(r"\S{1,60}\.(?:cu|cc|h|c):\d{1,5}$")
FIRST_NUMBER = 1 << 40
"""Beyond any pid, by whose negative other processes without a signature are numbered."""
MAX_HELD = 500
MAX_FRONT = 700
MAX_MESSAGE = 2_000


class Unsigned:
    """What was said without a signature, held until all signed warnings are known."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str | None, int | None], tuple[str, Place, Head]] = {}
        self._heads: dict[tuple[str | None, int | None], Head] = {}

    def collect(self, log: Reader, text: str) -> None:
        """Hold what a region says."""
        for literal in _TEXTS:
            if literal in text:
                for start in _starts(text, literal):
                    self._hold(log, text, _named_start(text, start), literal)
        if LAST_ERROR in text:
            for start in _starts(text, LAST_ERROR):
                self._last_error(log, text, start)
        if _OLD in text:
            for start in _starts(text, _OLD):
                self._old(log, text, start)

    def replay(self, log: Reader) -> None:
        """Hand on what no signed warning said; called once, at the end."""
        from ._dispatch import from_warning

        signed = [str(key[3]) for key in log.ledger.slots if key[0] == "nccl_warning" and len(key) > 3]
        for (said, _, _), (message, place, head) in self._held.items():
            if not any(other.startswith(said) for other in signed):
                from_warning(log, message, head, place)

    def _hold(self, log: Reader, text: str, start: int, literal: str) -> None:
        line = text.rfind("\n", 0, start) + 1
        front = text[max(line, start - MAX_FRONT) : start]
        if "NCCL WARN" in front or "NCCL INFO" in front or LAST_ERROR in front:
            return
        if literal == "NET/OFI " and "WARN" not in front:
            return
        self._keep(log, _rest(text, start), line, front)

    def _last_error(self, log: Reader, text: str, start: int) -> None:
        line = text.rfind("\n", 0, start) + 1
        message = _rest(text, start + len(LAST_ERROR)).strip()
        if not message:
            following = text.find("\n", start) + 1
            if not following:
                return
            line = following
            message = unprefix(_rest(text, following)).text.strip()
        if message:
            self._keep(log, message, line, text[line : line + MAX_FRONT])

    def _old(self, log: Reader, text: str, start: int) -> None:
        line = text.rfind("\n", 0, start) + 1
        front = text[max(line, start - MAX_FRONT) : start]
        signed = last_head(front)
        if signed is None or _OLD_FILE.fullmatch(front[signed.end() :].strip()) is None:
            return
        head = log.heads.find(front[signed.start() :])
        self._keep(log, _rest(text, start + len(_OLD)), line, front, head)

    def _keep(self, log: Reader, message: str, line: int, front: str, head: Head | None = None) -> None:
        told = unprefix(front + "|")
        said = shape(message.partition("\n")[0])
        key = (said, head.host if head else told.host, told.rank)
        if key in self._held or len(self._held) >= MAX_HELD:
            return
        place = log.place(line, front)
        _ = place.number
        self._held[key] = (message, place, head or self._speaker(log, told.host, told.rank))

    def _speaker(self, log: Reader, host: str | None, rank: int | None) -> Head:
        head = self._heads.get((host, rank))
        if head is None:
            number = -FIRST_NUMBER - len(self._heads)
            head = self._heads[host, rank] = Head(Process(host, None, number), None, None)
            if rank is not None:
                head.process.hints.add(rank)
                log.heads.processes["", number] = head.process
        return head


def _starts(text: str, literal: str) -> Iterator[int]:
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + len(literal))


def _named_start(text: str, start: int) -> int:
    """The start of `NET/IB : Got completion` rather than of its second half."""
    found = _NAMED.search(text[max(0, start - 24) : start])
    return start - len(found[0]) if found else start


def _rest(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : min(end if end >= 0 else len(text), start + MAX_MESSAGE)].rstrip()
