"""A dump as lines of text, one per process group and one per entry: what evidence of it points at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._shape import Dump, fold_steps, shape, short


def rendered(raw: object) -> Iterator[str]:
    """Lines: the heading, the groups in the order listed, the entries in the order stored."""
    dump = shape(raw)
    yield heading(dump)
    for group in dump.groups.values():
        folded = fold_steps(group.members)
        ranks = f"ranks {folded}" if folded else f"{len(group.members)} ranks" if group.members else "members unknown"
        yield f"process group {group.name or '(unnamed)'} {group.desc}".rstrip() + f": {ranks}"
    for entry in dump.entries:
        yield entry_text(entry, dump)


def heading(dump: Dump) -> str:
    """First line."""
    return f"flight-recorder dump, version {dump.version[:20]}, {len(dump.entries)} entries"


def entry_line(dump: Dump, position: int) -> int:
    """Line number of the entry at `position`."""
    return 2 + len(dump.groups) + position


def entry_text(entry: Any, dump: Dump) -> str:
    """One entry in words."""
    if not isinstance(entry, dict):
        return "unreadable entry"
    pair = entry.get("process_group")
    group = (
        " ".join(short(p, 80) for p in pair[:2])
        if isinstance(pair, list | tuple)
        else short(entry.get("pg_id", "?"), 20)
    )
    number = (
        entry.get("p2p_seq_id") if entry.get("is_p2p") is True else entry.get("collective_seq_id", entry.get("seq_id"))
    )
    sizes = "".join(_size(s) for s in _some(entry.get("input_sizes")))
    dtypes = ",".join(d[:20] for d in _some(entry.get("input_dtypes")) if isinstance(d, str))
    state = short(entry.get("state"), 20)
    retired = " retired" if entry.get("retired") is True else ""
    name = short(entry.get("profiling_name"), 80)
    record = short(entry.get("record_id"), 20)
    return f"#{short(number, 20)} {name} {sizes} {dtypes} {state}{retired}, group {group}, record {record}"


def _some(value: Any) -> list[Any]:
    return value[:8] if isinstance(value, list) else []


def _size(value: Any) -> str:
    if not isinstance(value, list) or not all(type(n) is int for n in value[:16]):
        return "[?]"
    return "[" + ",".join(short(n, 20) for n in value[:16]) + "]"
