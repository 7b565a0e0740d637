"""RAS status, monitor and diagnostics as text. A new `Job summary` or version heading begins a new snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from diagnose.model import MAX_RANK, MAX_WORLD, Line, Record, Source, fold_ranks
from diagnose.parsing import evidence, parse_time, problem, unprefix

from ._limits import MAX_COUNT, OF_FILE

_ROW = re.compile(
    r"\s*(?P<group>\d{1,9})\s+(?P<comms>\d{1,9})\s+(?P<nodes>[\d-]{1,19})\s+(?P<per_node>[\d-]{1,19})"
    r"\s+(?P<size>[\d-]{1,19})\s+(?P<ranks>\d{1,9})\s+(?P<status>[A-Z]{4,8}(?:,[A-Z]{4,8}){0,5})"
    r"\s+(?P<errors>[A-Z]{2,10}(?:,[A-Z]{2,10}){0,4})\s*$"
)
_COMM = re.compile(r"#(?P<group>\d{1,9}-\d{1,9}) \((?P<hash>[0-9a-fA-F]{1,16})\) (?P<what>[A-Z]{4,12})")
_COUNTS = re.compile(
    r"Communicator ranks have different"
    r" (?:(?P<op>\w{3,30}) operation counts|collective operation counts|(?P<status>status))"
)
_MANY = re.compile(
    r"(?P<n>\d{1,9}) ranks have (?:launched up to operation (?P<count>\d{1,20})|(?P<none>not launched any operations)"
    r"|status (?P<status>[A-Z]{2,12}))"
)
_RANK = re.compile(
    r"Rank (?P<rank>\d{1,9})"
    r"(?: has (?:launched up to operation (?P<count>\d{1,20})|(?P<none>not launched any operations)"
    r"|status (?P<status>[A-Z]{2,12}))| reported (?P<error>[\w ]{3,60}?))? -- "
    r"(?:(?:GPUs? (?P<gpu>[^m]{1,60}) )?managed by process (?P<pid>\d{1,9}) on node (?P<node>\S{1,255})"
    r"|\[process information not found\])"
)
_PROCESS = re.compile(r"Process (?P<pid>\d{1,9}) on node (?P<node>\S{1,255}) managing GPUs? (?P<gpu>.{1,80})$")
_MISSING = re.compile(r"Missing communicator data from (?P<n>\d{1,9}) (?P<of>rank|job process)")
_DEAD = re.compile(r"(?P<n>\d{1,9}) job process(?:es)? (?:is|are) considered dead")
_ERRORS = re.compile(r"(?P<phase>Initialization|Asynchronous) errors? on (?P<n>\d{1,9}) rank")
_REPORTED = re.compile(r"(?P<n>\d{1,9}) ranks reported (?P<error>[\w ]{3,60})$")
_TIMEOUTS = re.compile(r"Encountered (?P<n>\d{1,9}) communication timeouts?")
_EVENT = re.compile(r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?P<event>PEER_[A-Z_]{3,30}): (?P<text>.{1,500})$")
_EVENT_PEER = re.compile(r"Process (?P<pid>\d{1,9}) on node (?P<node>\S{1,255})")
_DIAG = re.compile(r"(?P<host>[\w.%-]{1,255}):(?P<pid>\d{1,9}) NCCL DIAG (?P<text>.{1,1000})$")
_VERSION = re.compile(r"NCCL version (?P<version>\d\S{2,40}) compiled with CUDA")

_CHECKS = (
    ("net_bw", "net bw"), ("p2p", "p2p"), ("ecc", "ecc"), ("nvlink", "nvlink"), ("xid", "xid"), ("xid", "sxid"),
    ("env", "env"), ("iommu", "iommu"), ("iommu", "ats"), ("driver", "driver"), ("gpu_model", "gpu model"),
)  # fmt: skip
_BAD = re.compile(r"off median|mismatch|uncorrected|inactive link|detected|differ|failed|error", re.IGNORECASE)
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b", re.ASCII)
_SLEEP = re.compile(r"\bsleep \d", re.ASCII)
MAX_LISTED = 20_000


class _Reader:
    """Reads one text; holds the section, the communicator and the count that rank lines belong to."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.snapshot = OF_FILE * (source.snapshot or 0)
        self._started = False
        self._sizes: dict[str, int] = {}
        self._section = ""
        self._comm = ""
        self._group = ""
        self._op: str | None = None
        self._pending: list[dict[str, Any]] = []
        self._error = ""
        self._doubtful: dict[str, Line] = {}
        self._clock = self._asked_at = ""
        self._slept = False

    def lines(self, lines: Iterable[Line]) -> Iterator[Record]:
        for line in lines:
            text = line.text
            if (m := _CLOCK.search(text)) and "] PEER_" not in text:
                self._clock = m[0]
            self._slept = self._slept or bool(_SLEEP.search(text))
            if "ommunicator" not in text and "ank" not in text and not self._gate(text):
                continue
            yield from self._line(line)
        yield from self._flush()
        for words, line in self._doubtful.items():
            yield problem(self._source, words, line)

    @staticmethod
    def _gate(text: str) -> bool:
        return (
            "rocess" in text or "NCCL" in text or "summary" in text or "PEER_" in text or "timeout" in text
            or text.strip() in ("DEAD", "INCOMPLETE", "TIMEOUT") or text.rstrip().endswith(_ENDS)
        )  # fmt: skip

    def _line(self, line: Line) -> Iterator[Record]:
        text = unprefix(line.text).text if " NCCL DIAG " not in line.text else line.text
        stripped = text.strip()
        m = _VERSION.match(stripped)
        if m or stripped == "Job summary":
            yield from self._flush()
            if m or not self._started:
                self._next_answer()
                self._started = bool(m) or self._started
            self._section = self._comm = self._error = ""
            self._op = None
            if m:
                self._started = True
                yield self._record("nccl_version", {"version": m["version"]}, line)
            return
        if stripped in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            yield from self._flush()
            self._section, self._comm = stripped, ""
            return
        m = _COMM.match(stripped)
        if m:
            yield from self._flush()
            self._comm, self._group, self._section, self._op = _hash(m["hash"]), m["group"], m["what"], None
            return
        m = _ROW.match(text)
        if m:
            yield self._row(m, line)
            return
        yield from self._details(stripped, line)

    def _next_answer(self) -> None:
        apart = self._slept or self._clock != self._asked_at
        if self._started:
            self.snapshot += OF_FILE if apart else 1
        self._asked_at = self._clock

    def _row(self, m: re.Match[str], line: Line) -> Record:
        size = m["size"]
        fields: dict[str, Any] = {
            "group": m["group"], "comms": int(m["comms"]), "ranks": int(m["ranks"]), "status": m["status"],
            "errors": m["errors"], "snapshot": self.snapshot,
        }  # fmt: skip
        if size.isdecimal() and int(size) > MAX_WORLD:
            self._doubtful.setdefault(f"a RAS communicator of {size} ranks is not believed", line)
        elif size.isdecimal():
            fields["size"] = self._sizes[m["group"]] = int(size)
        return self._record("ras_comm", fields, line)

    def _details(self, text: str, line: Line) -> Iterator[Record]:
        m = _COUNTS.match(text)
        if m:
            yield from self._flush()
            self._op, self._section = (
                m["op"] or ("" if not m["status"] else None),
                "STATUS" if m["status"] else "COUNTS",
            )
            return
        m = _MANY.match(text)
        if m:
            if m["status"]:
                yield from self._flush()
                self._error = m["status"]
                fields = {"error": m["status"], "phase": "status", "number": int(m["n"])}
                yield self._record("ras_error", self._with_comm(fields), line)
            elif self._counts(m, line):
                self._pending.append(
                    {"count": int(m["count"] or 0), "number": int(m["n"]), "ranks": [], "nodes": {}, "line": line}
                )
            return
        m = _RANK.match(text)
        if m:
            yield from self._rank(m, line)
            return
        m = _PROCESS.match(text)
        if m and self._section in ("DEAD", "INCOMPLETE"):
            fields = {
                "state": self._section.lower(),
                "pid": int(m["pid"]),
                "gpu": m["gpu"][:60],
                "node": m["node"],
                "snapshot": self.snapshot,
            }
            yield self._record("ras_missing", fields, line, m["node"])
            return
        yield from self._totals(text, line)

    def _totals(self, text: str, line: Line) -> Iterator[Record]:
        m = _MISSING.search(text) or _DEAD.search(text)
        if m:
            state = "dead" if "dead" in text else "incomplete"
            yield self._record("ras_missing", self._with_comm({"state": state, "number": int(m["n"])}), line)
            return
        m = _ERRORS.search(text)
        if m:
            self._section = "init" if m["phase"] == "Initialization" else "async"
            return
        m = _REPORTED.search(text)
        if m and self._section in ("init", "async"):
            self._error = m["error"]
            fields = {"error": m["error"], "phase": self._section, "number": int(m["n"])}
            yield self._record("ras_error", self._with_comm(fields), line)
            return
        m = _TIMEOUTS.search(text)
        if m:
            yield self._record("ras_timeout", {"number": int(m["n"]), "snapshot": self.snapshot}, line)
            return
        m = _EVENT.search(line.text)
        if m:
            yield self._event(m, line)
            return
        m = _DIAG.search(line.text)
        if m and not m["text"].startswith("==="):
            yield self._diagnostic(m, line)

    def _rank(self, m: re.Match[str], line: Line) -> Iterator[Record]:
        rank, node = int(m["rank"]), m["node"]
        if rank > MAX_RANK:
            self._doubtful.setdefault("RAS entries whose rank cannot be were left out", line)
        if rank > MAX_RANK or not self._counts(m, line):
            return
        place: dict[str, Any] = {"comm_rank": rank}
        if node:
            place |= {"node": node, "pid": int(m["pid"])}
        if m["count"] or m["none"]:
            self._pending.append(
                {
                    "count": int(m["count"] or 0),
                    "number": 1,
                    "ranks": [rank],
                    "nodes": {node: None} if node else {},
                    "line": line,
                }
            )
        elif m["status"]:
            yield self._record(
                "ras_error", self._with_comm({"error": m["status"], "phase": "status"} | place), line, node
            )
        elif m["error"]:
            phase = self._section if self._section in ("init", "async") else "async"
            yield self._record("ras_error", self._with_comm({"error": m["error"], "phase": phase} | place), line, node)
        elif self._section == "COUNTS" and self._pending:
            last = self._pending[-1]
            if len(last["ranks"]) < MAX_LISTED:
                last["ranks"].append(rank)
                if node:
                    last["nodes"][node] = None
        elif self._section == "INCOMPLETE":
            fields = self._with_comm({"state": "incomplete"} | place) | (
                {"gpu": m["gpu"].strip()[:60]} if m["gpu"] else {}
            )
            yield self._record("ras_missing", fields, line, node)
            return
        if node:
            fields = self._with_comm({"comm_rank": rank, "pid": int(m["pid"])})
            if m["gpu"]:
                fields["gpu"] = m["gpu"].strip()[:60]
            yield self._record("ras_rank", fields, line, node)

    def _counts(self, m: re.Match[str], line: Line) -> bool:
        """Whether the count of a line, where it has one, can be."""
        if int(m["count"] or 0) <= MAX_COUNT:
            return True
        self._doubtful.setdefault("RAS operation counts that cannot be were left out", line)
        return False

    def _flush(self) -> Iterator[Record]:
        for found in self._pending:
            fields = self._with_comm({"count": found["count"], "number": found["number"]})
            if self._op:
                fields["op"] = self._op
            if found["ranks"]:
                fields["ranks"] = fold_ranks(found["ranks"])
            if found["nodes"]:
                fields["hosts"] = ",".join(list(found["nodes"])[:40])
            yield self._record("ras_count", fields, found["line"])
        self._pending = []

    def _with_comm(self, fields: dict[str, Any]) -> dict[str, Any]:
        fields["snapshot"] = self.snapshot
        if self._comm:
            fields["comm_id"] = self._comm
            size = self._sizes.get(self._group.partition("-")[0])
            if size is not None and "phase" not in fields:
                fields["size"] = size
        return fields

    def _event(self, m: re.Match[str], line: Line) -> Record:
        fields: dict[str, Any] = {"event": m["event"], "text": m["text"][:300]}
        peer = _EVENT_PEER.search(m["text"])
        if peer:
            fields |= {"node": peer["node"], "pid": int(peer["pid"])}
        at, _ = parse_time(m["at"])
        return Record("ras_event", fields, (evidence(self._source, line),), at, peer["node"] if peer else None)

    def _diagnostic(self, m: re.Match[str], line: Line) -> Record:
        text = m["text"].strip()
        level = re.match(r"\[(OK|INFO|WARN|FAIL|ERROR)\] ?", text)
        words = text[level.end() :] if level else text
        low = words.lower()
        check = next((name for name, start in _CHECKS if low.startswith(start)), "other")
        if level and level[1] in ("OK", "INFO"):
            result = level[1].lower()
        else:
            result = "problem" if level or _BAD.search(words) else "info"
        fields = {"check": check, "result": result, "text": words[:400], "pid": int(m["pid"])}
        return Record("nccl_diagnostic", fields, (evidence(self._source, line),), host=m["host"])

    def _record(self, kind: str, fields: dict[str, Any], line: Line, host: str | None = None) -> Record:
        return Record(kind, fields, (evidence(self._source, line),), host=host)


_ENDS = ("OK", "MISMATCH", "ERROR", "INCOMPLETE")


def _hash(text: str) -> str:
    return f"0x{int(text, 16):x}"


def parse_text(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """All records of a text."""
    yield from _Reader(source).lines(lines)
