"""The shape of a dump: its top-level keys and process groups, whatever the version. Unknown keys are not looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_ENTRIES = 50_000
MAX_GROUPS = 4_000
MAX_MEMBERS = 1 << 20
MAX_MEMBERS_TEXT = 6_000
MAX_BITS = 256
"""Whole numbers of more bits are not written out."""
_LIST = re.compile(r"\s*\[[\d,\s]*\]\s*")


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One process group as the dump lists it; `members` are global ranks in group order, empty when unknown."""

    name: str
    desc: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dump:
    """The parts of a dump that are read."""

    version: str
    entries: list[Any]
    groups: Mapping[str, GroupInfo]
    status: Mapping[int, Mapping[str, Any]]


def shape(raw: object) -> Dump:
    """The parts of a loaded dump; ValueError when it is none."""
    if isinstance(raw, list):  # torch 2.2 wrote the entries alone
        raw = {"entries": raw}
    if not isinstance(raw, dict) or not ("entries" in raw or "pg_status" in raw or "pg_config" in raw):
        raise ValueError("plain data, but no flight-recorder dump")
    entries = raw.get("entries", [])
    if not isinstance(entries, list):
        raise ValueError("a flight-recorder dump whose entries are no list")
    if entries and not any(isinstance(e, dict) and "profiling_name" in e for e in entries[:50]):
        raise ValueError("plain data with entries, but not those of a flight recorder")
    version = raw.get("version")
    return Dump(
        version if isinstance(version, str) else "1.0", entries[-MAX_ENTRIES:], _groups(raw.get("pg_config")),
        _status(raw.get("pg_status")),
    )  # fmt: skip


def _groups(config: object) -> dict[str, GroupInfo]:
    found: dict[str, GroupInfo] = {}
    if not isinstance(config, dict):
        return found
    for key, value in list(config.items())[:MAX_GROUPS]:
        if not isinstance(value, dict) or not isinstance(key, str):
            continue
        desc = value.get("desc")
        found[key[:200]] = GroupInfo(
            key[:200], desc[:200] if isinstance(desc, str) else "", members(value.get("ranks"))
        )
    return found


_seen: dict[str, tuple[int, ...]] = {}


def members(ranks: object) -> tuple[int, ...]:
    """Global ranks of a group: a list, or a list written as text."""
    if isinstance(ranks, str):
        known = _seen.get(ranks)
        if known is None and _LIST.fullmatch(ranks):
            numbers = ranks.strip()[1:-1].split(",") if ranks.strip() != "[]" else []
            known = tuple(int(n) for n in numbers if n.strip())
            if len(known) > MAX_MEMBERS or max(known, default=0) > MAX_MEMBERS:
                known = ()
            if len(_seen) > 200:
                _seen.clear()
            _seen[ranks] = known
        return known or ()
    if isinstance(ranks, list) and all(type(r) is int and 0 <= r <= MAX_MEMBERS for r in ranks[:MAX_MEMBERS]):
        return tuple(ranks[:MAX_MEMBERS])
    return ()


def _status(status: object) -> dict[int, Mapping[str, Any]]:
    found: dict[int, Mapping[str, Any]] = {}
    if isinstance(status, dict):
        for key, value in list(status.items())[:MAX_GROUPS]:
            if isinstance(value, dict) and short(key, 12).isdecimal():
                found[int(short(key, 12))] = value
    return found


def short(value: object, limit: int) -> str:
    """Text and numbers as text of at most `limit` characters; anything else, whatever it holds, as a mark."""
    if isinstance(value, str):
        return value[:limit]
    if value is None or isinstance(value, bool | float):
        return str(value)[:limit]
    if isinstance(value, int):
        return str(value)[:limit] if value.bit_length() < MAX_BITS else "a huge number"[:limit]
    return "[?]"


_folded: dict[tuple[int, ...], str] = {}


def fold_steps(ranks: tuple[int, ...]) -> str:
    """Ranks in their order as runs: `0-7`, `0-56:8`, `3`; '' when that would be too long."""
    known = _folded.get(ranks)
    if known is None:
        if len(_folded) > 200:
            _folded.clear()
        known = _folded[ranks] = _fold(ranks)
    return known


def _fold(ranks: Sequence[int]) -> str:
    parts: list[str] = []
    n, length = 0, 0
    while n < len(ranks):
        end = n + 1
        step = ranks[end] - ranks[n] if end < len(ranks) else 0
        while step > 0 and end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - n < 3 and step != 1:
            end = n + 1
        run = str(ranks[n]) if end == n + 1 else f"{ranks[n]}-{ranks[end - 1]}" + ("" if step == 1 else f":{step}")
        parts.append(run)
        length += len(run) + 1
        if length > MAX_MEMBERS_TEXT:
            return ""
        n = end
    return ",".join(parts)


def common(groups: Iterable[GroupInfo]) -> set[int]:
    """Ranks that belong to every group with known members."""
    found: set[int] | None = None
    for members_ in sorted((g.members for g in groups if g.members), key=len):
        found = set(members_) if found is None else found.intersection(members_)
        if len(found) <= 1:
            break
    return found or set()
