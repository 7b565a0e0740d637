"""Dumps of PyTorch's flight recorder: what each process group of one rank last enqueued, started and completed.

Formats: dump versions 1.x to 2.10 (torch 2.2 to 2.14), pickle (`nccl_trace_rank_N`, `comm_lib_trace_rank_N`) and JSON
(`_dump_nccl_trace_json`, `_dump_fr_trace_json`). Names of files are not trusted: the rank is told by point-to-point
entries and by the groups, where they tell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from diagnose.model import Evidence, Record, Source
from diagnose.parsing.plain import load_json, load_pickle

from ._digest import digest
from ._render import rendered

KIND = "flight_recorder"
TOPICS = ("flight_recorder",)

_KEYS = (b"pg_config", b"pg_status", b"entries", b"profiling_name", b"record_id")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_NAME = re.compile(r"(?:^|[_.-])trace_rank_\d{1,7}(?:\.json)?$")
_NAME_OF_EMPTY = re.compile(_NAME.pattern + r"|^(?:fr|dump|trace)[_-]?(?:rank[_-]?)?\d{1,7}(?:\.(?:json|pickle|pkl))?$")
"""Dumps are renamed when collected; an empty file of such a name is one that could not be written or copied."""


def sniff_bytes(head: bytes, name: str) -> float:
    """0.9 for a pickle or JSON object with the keys of a dump in its first 64 KiB; 0.5 for what has the name of a dump
    and is empty, or has its keys in some other form: a rank left it, even if it cannot be read."""
    pickled = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    named = pickled
    found = sum(key in head for key in _KEYS) + (b"pg_config" in head and b"desc" in head and b"ranks" in head)
    if pickled or head.lstrip(_BLANK)[:1] in (b"{", b"["):
        if found >= 2 and (pickled or any(b'"' + key + b'"' in head for key in _KEYS)):
            return 0.9
    else:
        plain = head.replace(b"\0", b"")
        named = not head or sum(key in plain for key in _KEYS) > 1
    known = _NAME if head else _NAME_OF_EMPTY
    return 0.5 if named and known.search(name.rpartition("/")[2]) else 0.0


def scan_bytes(data: bytes, source: Source) -> Iterator[Record]:
    """One `fr_dump` and an `fr_group` per process group with more than one member. ValueError when unreadable."""
    dump, cut = _load(data)
    yield from digest(dump, cut, source)


def unread(source: Source) -> Iterator[Record]:
    """What is known of a dump that cannot be read: that its rank left one."""
    heading = "flight-recorder dump that cannot be read"
    fields = {"entries": 0, "groups": 0, "truncated": True, "unread": True}
    yield Record("fr_dump", fields, (Evidence(source.path, 1, 1, heading),))


def render_bytes(data: bytes, source: Source) -> Iterator[str]:
    """The dump as lines of text; evidence points at these."""
    dump, _ = _load(data)
    return rendered(dump)


def line_count(records: Sequence[Record]) -> int:
    """Lines of the dump as text: heading, groups, entries."""
    return next((1 + int(r.fields["groups"]) + int(r.fields["entries"]) for r in records if r.kind == "fr_dump"), 1)  # type: ignore[arg-type]


def _load(data: bytes) -> tuple[object, bool]:
    if not data:
        raise ValueError("an empty file")
    return load_pickle(data) if data[:1] == b"\x80" else load_json(data, ("entries",))
