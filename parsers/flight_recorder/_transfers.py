"""Point-to-point operations of one process group: which are pending, and with whom.

A batch (`batch_isend_irecv`) is one operation on the GPU. PyTorch records each of its transfers without events, so
that they read `scheduled` for ever, and then one `coalesced` entry under the same number with the state of all of them.
"""

from __future__ import annotations

import re
from typing import Any

P2P = re.compile(r"(?:\w{1,20}:)?(?P<kind>send|recv) (?P<a>\d{1,7})(?:->|<-)(?P<b>\d{1,7})")
MAX_PAIRS = 64


class Transfers:
    """What is added up; `members` are the global ranks of the group."""

    __slots__ = ("_ends", "_finished_ends", "_members", "_open", "seen")

    def __init__(self, members: tuple[int, ...]) -> None:
        self._members = members
        self._open: dict[int, list[tuple[int, str, int]]] = {}
        self._ends: dict[int, int] = {}
        self._finished_ends = False
        self.seen = False

    def add(self, op: str, number: Any, finished: bool, position: int) -> int | None:
        """Takes an entry; the rank's own place in the group when the entry tells it."""
        self.seen = True
        if type(number) is not int:
            number = -1 - position
        m = P2P.match(op)
        if m is None:
            if finished:
                self._finished_ends = True
                self._open.pop(number, None)
            else:
                self._ends[number] = position
                self._open.setdefault(number, [])
            return None
        if not finished:
            peer = int(m["b"])
            peer = self._members[peer] if peer < len(self._members) else peer
            self._open.setdefault(number, []).append((position, m["kind"][0], peer))
        return int(m["a"])

    def pending(self) -> list[tuple[int, int, list[tuple[str, int]]]]:
        """Operations that did not complete, oldest first: position, number, its transfers as kind and global rank.

        Where the dump has batches, transfers without the end of theirs are those of completed ones, which dumps of
        active operations leave out.
        """
        batches = bool(self._ends) or self._finished_ends or any(len(found) > 1 for found in self._open.values())
        made: list[tuple[int, int, list[tuple[str, int]]]] = []
        for number, found in self._open.items():
            if not batches or number in self._ends:
                position = min((p for p, _, _ in found), default=self._ends.get(number, -1))
                made.append((position, max(number, -1), [(kind, peer) for _, kind, peer in found]))
        return sorted(made)

    def end(self, number: int, position: int) -> int:
        """Position of the entry that tells the state of the pending operation that begins at `position`."""
        return self._ends.get(number, position)
