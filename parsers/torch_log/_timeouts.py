"""Watchdog time-outs of a log, and the process groups that their ranks name in other messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Evidence, Record

from ._head import Speaker

_MAX_KEPT = 50_000
_MAX_LINKS = 50_000


@dataclass(slots=True)
class _Timeout:
    fields: dict[str, Any]
    evidence: Evidence
    rank: int | None
    speaker: Speaker
    count: int = 0
    last_at: float | None = None
    groups: set[str] = field(default_factory=set[str])


class Timeouts:
    """`WorkNCCL(…)` records name no group. The same rank's status message about the same sequence number does.

    A group is attached only when exactly one group of that rank fits: sequence numbers count per group, and those of
    different or unknown groups cannot be compared.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], _Timeout] = {}
        self._groups: dict[tuple[int, int], set[str]] = {}

    def link(self, rank: int | None, seq: int | None, group: str | None) -> None:
        """The rank said that its watchdog fired on this sequence number of this group."""
        if rank is not None and seq is not None and group is not None and len(self._groups) < _MAX_LINKS:
            self._groups.setdefault((rank, seq), set()).add(group)

    def add(
        self, fields: dict[str, Any], evidence: Evidence, rank: int | None, speaker: Speaker,
        group: str | None, restated: bool,
    ) -> None:  # fmt: skip
        """Count a record. `restated`: the text repeats it as the reason of something else."""
        key = (rank, speaker.host, fields.get("seq"), fields["op"], fields.get("elapsed_ms"))
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _MAX_KEPT:
                return
            seen = self._seen[key] = _Timeout(fields, evidence, rank, speaker)
        else:
            seen.last_at = speaker.at
        if not restated:
            seen.count += 1
        if group is not None:
            seen.groups.add(group)

    def records(self) -> Iterator[tuple[tuple[Any, ...], Record]]:
        """(key, record) of each, with its group where one is sure."""
        for key, timeout in self._seen.items():
            groups = timeout.groups
            seq = timeout.fields.get("seq")
            if not groups and seq is not None and timeout.rank is not None:
                groups = self._groups.get((timeout.rank, seq), set())
            if len(groups) == 1:
                timeout.fields["group"] = next(iter(groups))
            yield key, Record(
                "torch_timeout", timeout.fields, (timeout.evidence,), timeout.speaker.at, timeout.speaker.host,
                timeout.rank, max(1, timeout.count), timeout.last_at,
            )  # fmt: skip
