"""RAS status as JSON: several documents in one text are several snapshots; a cut or damaged one gives what it holds."""

from __future__ import annotations

import bisect
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from diagnose.model import MAX_RANK, MAX_WORLD, Line, Record, Source, fold_ranks
from diagnose.parsing import evidence, parse_time, problem

from ._limits import MAX_COUNT, OF_FILE

# NCCL 2.28.9 leaves out the comma between two members of an object in `missing_ranks`.
_NO_COMMA = re.compile(r'(["\d}\]]|true|false|null)(\s{1,40})(?="[\w ]{1,40}"\s{0,4}:)')
_START = re.compile(r"^[ \t]*\{[ \t]*$|\{\s{0,40}\"nccl_version\"", re.MULTILINE)
MAX_TEXT = 256 << 20
MAX_COUNTS = 60


def parse_json(lines: list[Line], source: Source) -> Iterator[Record]:
    """`ras_comm`, `ras_count`, `ras_rank`, `ras_missing`, `ras_error` records."""
    text = "\n".join(line.text for line in lines)
    if len(text) > MAX_TEXT:
        yield problem(source, "RAS status of more than 256 MiB", lines[0])
        return
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.text) + 1)
    for snapshot, (offset, document, whole) in enumerate(_documents(text), OF_FILE * (source.snapshot or 0)):
        at = lines[min(bisect.bisect_right(starts, offset) - 1, len(lines) - 1)]
        if not whole:
            yield problem(source, "RAS status as JSON is cut off or damaged; what could be read was", at)
        yield from _Document(text, offset, lines, starts, source, snapshot).records(document)


def _documents(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """(offset, document, whole) of each."""
    position = text.find('"nccl_version"')
    position = text.rfind("{", 0, position) if position >= 0 else text.find("{")
    decoder = json.JSONDecoder()
    while 0 <= position < len(text):
        following = text.find('"nccl_version"', text.find('"nccl_version"', position) + 1)
        end = text.rfind("{", 0, following) if following >= 0 else len(text)
        part = text[position : max(end, position + 1)]
        found, whole = _one(decoder, part)
        if found is not None:
            yield position, found, whole
        position = end if following >= 0 else -1


def _one(decoder: json.JSONDecoder, part: str) -> tuple[dict[str, Any] | None, bool]:
    for text in (part, _NO_COMMA.sub(r"\1,\2", part)):
        try:
            found, _ = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            continue
        return (found, True) if isinstance(found, dict) else (None, True)
    return _salvaged(decoder, _NO_COMMA.sub(r"\1,\2", part)), False


def _salvaged(decoder: json.JSONDecoder, text: str) -> dict[str, Any] | None:
    """The heads of communicators and the rank objects before the cut."""
    found: dict[str, Any] = {"communicators": []}
    m = re.search(r'"nccl_version"\s{0,4}:\s{0,4}"([^"]{1,60})"', text)
    if m:
        found["nccl_version"] = m[1]
    heads = list(re.finditer(r'"hash"\s{0,4}:\s{0,4}"(0x[0-9a-fA-F]{1,16})"', text))
    for n, head in enumerate(heads):
        stop = heads[n + 1].start() if n + 1 < len(heads) else len(text)
        comm: dict[str, Any] = {"hash": head[1], "ranks": [], "missing_ranks": []}
        size = re.compile(r'"size"\s{0,4}:\s{0,4}(\d{1,9})').search(text, head.end(), stop)
        if size:
            comm["size"] = int(size[1])
        for name in ("ranks", "missing_ranks"):
            opening = re.compile(rf'"{name}"\s{{0,4}}:\s{{0,4}}\[').search(text, head.end(), stop)
            if opening:
                comm[name] = _objects(decoder, text, opening.end(), stop)
        found["communicators"].append(comm)
    return found if heads else None


def _objects(decoder: json.JSONDecoder, text: str, position: int, stop: int) -> list[Any]:
    items: list[Any] = []
    while True:
        while position < stop and text[position] in " \t\r\n,":
            position += 1
        if position >= stop or text[position] != "{":
            return items
        try:
            item, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return items
        items.append(item)


class _Document:
    """One status document; lines are found by looking on from the last place."""

    def __init__(
        self, text: str, offset: int, lines: list[Line], starts: list[int], source: Source, snapshot: int
    ) -> None:
        self._text, self._position = text, offset
        self._lines, self._starts, self._source, self._snapshot = lines, starts, source, snapshot
        self._at: float | None = None
        self._absurd: dict[str, None] = {}

    def records(self, document: dict[str, Any]) -> Iterator[Record]:
        stamp = document.get("timestamp")
        if isinstance(stamp, str):
            self._at = parse_time(stamp)[0]
        version = document.get("nccl_version")
        if isinstance(version, str):
            yield self._record("nccl_version", {"version": version[:60]}, '"nccl_version"', snapshot=False)
        comms = [c for c in _list(document.get("communicators")) if isinstance(c, dict)]
        for comm in comms:
            self._believable(comm)
        largest = max((_int(c.get("size")) or 0 for c in comms), default=0)
        named: set[int] = set()
        for comm in comms:
            yield from self._communicator(comm, largest, named)
        ras = document.get("ras")
        timeouts = _int(ras.get("timeouts_count")) if isinstance(ras, dict) else None
        if timeouts:
            yield self._record("ras_timeout", {"number": timeouts}, '"timeouts_count"')
        for words in list(self._absurd)[:4]:
            yield problem(self._source, words, self._lines[0])

    def _believable(self, comm: dict[str, Any]) -> None:
        """Take out of a communicator what cannot be: its size, ranks, operation counts."""
        size = comm.get("size")
        if size is not None and not (type(size) is int and 0 < size <= MAX_WORLD):
            self._doubt(f"a RAS communicator of {str(size)[:30]} ranks is not believed")
            del comm["size"]
        for name in ("ranks", "missing_ranks"):
            entries = [e for e in _list(comm.get(name)) if isinstance(e, dict)]
            comm[name] = [e for e in entries if e.get("rank") is None or _is(e["rank"], MAX_RANK)]
            if len(comm[name]) < len(entries):
                self._doubt("RAS entries whose rank cannot be were left out")
        for entry in comm["ranks"]:
            counts = entry.get("collective_counts")
            if isinstance(counts, dict) and not all(_is(n, MAX_COUNT) for n in counts.values()):
                entry["collective_counts"] = {op: n for op, n in counts.items() if _is(n, MAX_COUNT)}
                self._doubt("RAS operation counts that cannot be were left out")

    def _doubt(self, words: str) -> None:
        self._absurd.setdefault(words)

    def _communicator(self, comm: dict[str, Any], largest: int, named: set[int]) -> Iterator[Record]:
        raw = comm.get("hash")
        comm_id = raw.lower() if isinstance(raw, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", raw) else None
        size, ranks = _int(comm.get("size")), [r for r in _list(comm.get("ranks")) if isinstance(r, dict)]
        missing = [r for r in _list(comm.get("missing_ranks")) if isinstance(r, dict)]
        fields: dict[str, Any] = {"ranks": len(ranks), "missing": _int(comm.get("missing_ranks_count")) or len(missing)}
        if comm_id:
            fields["comm_id"] = comm_id
        if size is not None:
            fields["size"] = size
        statuses = {_status(r.get("status")) for r in ranks}
        counts = _counts(ranks)
        errors = [
            word for word, there in (
                ("INCOMPLETE", fields["missing"]), ("ERROR", any(_failed(r.get("status")) for r in ranks)),
                ("MISMATCH", len(statuses) > 1 or any(len(c) > 1 for c in counts.values())),
            ) if there
        ]  # fmt: skip
        fields |= {"status": ",".join(sorted(statuses)) or "UNKNOWN", "errors": ",".join(errors) or "OK"}
        yield self._record("ras_comm", fields, f'"{raw}"' if comm_id else '"hash"')
        base: dict[str, Any] = ({"comm_id": comm_id} if comm_id else {}) | ({"size": size} if size is not None else {})
        yield from self._numbers(base, counts, {_int(r.get("rank")): r for r in ranks})
        if size == largest or errors:
            yield from self._placement(base, ranks, named, size == largest)
        for entry in missing:
            yield self._missing(base, entry)
        for entry in ranks:
            error = _failed(entry.get("status"))
            rank = _int(entry.get("rank"))
            if error and rank is not None:
                shared = {k: v for k, v in base.items() if k == "comm_id"}
                yield self._record(
                    "ras_error",
                    shared | _place(entry) | {"error": error[1], "phase": error[0]},
                    f'"rank": {rank},',
                    entry,
                )

    def _numbers(
        self, base: dict[str, Any], counts: dict[str, dict[int, list[int]]], by_rank: dict[int | None, dict[str, Any]]
    ) -> Iterator[Record]:
        for op, groups in counts.items():
            for count, members in sorted(groups.items())[:MAX_COUNTS]:
                fields = base | {"op": op, "count": count, "number": len(members), "ranks": fold_ranks(members)}
                if len(groups) > 1 and len(members) <= 40:
                    nodes = dict.fromkeys(str(by_rank[r].get("host"))[:80] for r in members if r in by_rank)
                    fields["hosts"] = ",".join(nodes)
                yield self._record("ras_count", fields, f'"{op}": {count}')

    def _placement(
        self, base: dict[str, Any], ranks: list[dict[str, Any]], named: set[int], whole: bool
    ) -> Iterator[Record]:
        """Where the ranks run; ranks of the largest communicator are those of the job."""
        for entry in ranks:
            rank = _int(entry.get("rank"))
            if rank is not None and not (whole and rank in named):
                if whole:
                    named.add(rank)
                fields = base | {k: v for k, v in _place(entry).items() if k != "node"}
                yield self._record("ras_rank", fields, f'"rank": {rank},', entry, rank if whole else None)

    def _missing(self, base: dict[str, Any], entry: dict[str, Any]) -> Record:
        status = entry.get("status")
        dead = isinstance(status, dict) and status.get("considered_dead") is True
        fields = base | _place(entry) | {"state": "dead" if dead else "unresponsive"}
        return self._record("ras_missing", fields, f'"rank": {entry.get("rank")},', entry)

    def _record(
        self, kind: str, fields: dict[str, Any], needle: str, entry: dict[str, Any] | None = None,
        rank: int | None = None,
        *, snapshot: bool = True,
    ) -> Record:  # fmt: skip
        found = self._text.find(needle, self._position)
        if found >= 0 and kind == "ras_comm":
            self._position = found
        line = self._lines[min(bisect.bisect_right(self._starts, max(found, self._position)) - 1, len(self._lines) - 1)]
        if snapshot:
            fields["snapshot"] = self._snapshot
        host = entry.get("host") if entry else None
        own = host[:255] if isinstance(host, str) and host else None
        return Record(kind, fields, (evidence(self._source, line),), self._at, own, rank)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _int(value: Any) -> int | None:
    return value if type(value) is int and -1 <= value < 1 << 62 else None


def _place(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rank, pid, cuda, nvml = (_int(entry.get(n)) for n in ("rank", "pid", "cuda_dev", "nvml_dev"))
    if rank is not None:
        found["comm_rank"] = rank
    if pid is not None:
        found["pid"] = pid
    host = entry.get("host")
    if isinstance(host, str):
        found["node"] = host[:255]
    if cuda is not None and "gpu" not in found:
        found["gpu"] = str(cuda) if nvml is None else f"{cuda} (NVML {nvml})"
    return found


def _status(status: Any) -> str:
    if not isinstance(status, dict):
        return "UNKNOWN"
    if status.get("abort_flag") is True:
        return "ABORT"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "FINALIZE"
    return "RUNNING" if status.get("init_state") == 0 else "INIT"


def _failed(status: Any) -> tuple[str, str] | None:
    """(init or async, result) when a rank reports an error; result 7 is ncclInProgress."""
    if isinstance(status, dict):
        for phase, name in (("init", "init_state"), ("async", "async_error")):
            code = _int(status.get(name))
            if code not in (None, 0, 7):
                return phase, _RESULTS.get(code or 0, f"NCCL result {code}")
    return None


_RESULTS = {1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument",
            5: "Invalid usage", 6: "Remote process error"}  # fmt: skip


def _counts(ranks: list[dict[str, Any]]) -> dict[str, dict[int, list[int]]]:
    """Operation -> count -> ranks; operations that nobody called are left out."""
    found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for entry in ranks:
        rank, counts = _int(entry.get("rank")), entry.get("collective_counts")
        if rank is None or not isinstance(counts, dict):
            continue
        for op, count in list(counts.items())[:40]:
            if isinstance(op, str) and (n := _int(count)) is not None:
                found[op[:40]][n].append(rank)
    return {op: dict(groups) for op, groups in found.items() if set(groups) != {0}}
