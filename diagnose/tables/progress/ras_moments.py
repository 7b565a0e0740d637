"""Moments at which RAS was asked. The same answer met again, without a sign of another time, is one moment."""

from __future__ import annotations

import re
from collections import defaultdict

from diagnose.model import Fact

Moment = tuple[float, str, int]  # time, source, snapshot within it

_COPY = re.compile(r"(?: \([0-9]{1,3}\)|[ ._-]{1,3}copy\b.{0,12}|\.bak|\.orig|~)(?=\.|$)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,20}")
_OF_ANSWER = ("ras_comm", "ras_count", "ras_missing")
OF_FILE = 1000
"""Numbers of answers between which time is known to have passed are so far apart."""
_APART = frozenset({"at", "snapshot", "host", "rank"})


def moment(o: Fact) -> Moment:
    """When and where an observation was made."""
    at, snapshot = o.fields.get("at"), o.fields.get("snapshot")
    return (
        float(at) if isinstance(at, int | float) else 0.0,
        o.evidence[0].source if o.evidence else "",
        int(snapshot) if isinstance(snapshot, int) else 0,
    )


def without_copies(seen: list[Fact]) -> list[Fact]:
    """Observations without those of an answer pasted twice or of a copied file.

    Answers with the same content are one when RAS gives them one time, or when nothing tells their times and they come
    from one file or from files whose names tell no order.
    """
    answers: dict[Moment, list[str]] = defaultdict(list)
    for o in seen:
        if o.kind in _OF_ANSWER:
            told = sorted((k, str(v)) for k, v in o.fields.items() if k not in _APART)
            answers[moment(o)].append(f"{o.kind} {told}")
    kept: dict[tuple[str, ...], list[Moment]] = defaultdict(list)
    copies: set[Moment] = set()
    for when in sorted(answers):
        alike = kept[tuple(sorted(answers[when]))]
        if any(_same(when, other) for other in alike):
            copies.add(when)
        else:
            alike.append(when)
    return [o for o in seen if moment(o) not in copies] if copies else seen


def _same(a: Moment, b: Moment) -> bool:
    """Whether nothing says that two answers of the same content were given at two times."""
    together = a[2] // OF_FILE == b[2] // OF_FILE
    if a[0] != b[0]:
        return False
    if a[1] == b[1]:
        return together
    return a[0] != 0.0 or (together and _unordered(_name(a[1]), _name(b[1])))


def _unordered(one: str, other: str) -> bool:
    """Whether two names of files tell no order: they are equal, or differ by no number."""
    return one == other or _NUMBER.findall(one) == _NUMBER.findall(other)


def _name(source: str) -> str:
    return _COPY.sub("", source.rsplit("/", 1)[-1])
