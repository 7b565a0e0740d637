"""Records of NCCL Inspector: one JSON object per completed collective, folded to one record per communicator and rank.

Format: plugins/profiler/inspector of NCCL 2.28 to 2.30, versions v4.0 and later. Only completed operations are written,
small ones are left out by default and old ones are overwritten, so gaps in the numbers mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence, problem

KIND = "nccl_inspector"
TOPICS = ("ras",)
LARGE = 1 << 20
MAX_STREAMS = 20_000


@dataclass(slots=True)
class _Stream:
    """What one rank completed in one communicator."""

    first: int
    last: int
    op: str
    fields: dict[str, Any]
    host: str | None
    line: Line
    records: int = 0
    micros: float = 0.0
    slowest: float = 0.0
    large: int = 0
    busbw: float = 0.0


def sniff(head: str, name: str) -> float:
    """0.9 for the keys of a record."""
    return 0.9 if '"coll_perf"' in head and '"coll_sn"' in head else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """`inspector_progress` records."""
    streams: dict[tuple[str, int], _Stream] = {}
    torn = 0
    last: Line | None = None
    for line in lines:
        if '"coll_perf"' not in line.text:
            continue
        try:
            found = json.loads(line.text)
        except (ValueError, RecursionError):
            torn, last = torn + 1, line
            continue
        if isinstance(found, dict):
            _take(streams, found, line)
    for (comm, rank), s in sorted(streams.items()):
        fields = {
            "comm_id": comm,
            "comm_rank": rank,
            "op": s.op,
            "seq": s.last,
            "first_seq": s.first,
            "records": s.records,
        }
        fields |= s.fields
        if s.records:
            fields |= {"exec_us": s.micros / s.records, "slowest_us": s.slowest}
        if s.large:
            fields["busbw_gbs"] = s.busbw / s.large
        yield Record("inspector_progress", fields, (evidence(source, s.line),), host=s.host)
    if torn and last is not None:
        yield problem(source, f"{torn} records of NCCL Inspector are torn", last)


def _take(streams: dict[tuple[str, int], _Stream], found: dict[str, Any], line: Line) -> None:
    header, about, coll = (_mapping(found.get(n)) for n in ("header", "metadata", "coll_perf"))
    comm, rank, seq = header.get("id"), _whole(header.get("rank")), _whole(coll.get("coll_sn"))
    if not isinstance(comm, str) or rank is None or seq is None:
        return
    comm = comm.lower()[:20] if comm.lower().startswith("0x") else f"0x{comm.lower()}"[:20]
    stream = streams.get((comm, rank))
    if stream is None:
        if len(streams) >= MAX_STREAMS:
            return
        host = about.get("hostname")
        told = {
            "size": _whole(header.get("n_ranks")),
            "nodes": _whole(header.get("nnodes")),
            "pid": _whole(about.get("pid")),
        }
        known = {k: v for k, v in told.items() if v is not None}
        short = host[:255] if isinstance(host, str) else None
        stream = streams[comm, rank] = _Stream(seq, seq, "", known, short, line)
    stream.first = min(stream.first, seq)
    if seq >= stream.last:
        stream.last, stream.line = seq, line
        stream.op = str(coll.get("coll"))[:40]
    micros = coll.get("coll_exec_time_us")
    if isinstance(micros, int | float) and not isinstance(micros, bool) and 0 <= micros < 1e15:
        stream.records += 1
        stream.micros += micros
        stream.slowest = max(stream.slowest, float(micros))
    size, busbw = _whole(coll.get("coll_msg_size_bytes")), coll.get("coll_busbw_gbs")
    if size is not None and size >= LARGE and isinstance(busbw, int | float) and 0 <= busbw < 1e9:
        stream.large += 1
        stream.busbw += busbw


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None
