"""Gathers what the messages say, joins what belongs together, and fills the digest at the end of the log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from diagnose.model import Digest, Evidence, Record, Scalar, Source, fold_ranks
from diagnose.parsing import parse_time, problem, unprefix

from ._exits import Exits
from ._head import Segment, Speaker, Years, group_of, rank_of, segments
from ._messages import continues, messages
from ._settings import backends, settings
from ._timeouts import Timeouts
from ._torchrun import called_process, closing_signal, death_signal
from ._traceback import HEADER, Raised, bare, cause_of, follow, read_trace
from ._watchdog import DESYNC_GATES, desync, event, squeeze, status, work
from ._window import Window

_MAX_WRAPPED = 12
_WRAP_COLUMNS = 60
_MAX_TEXT = 300
_MAX_TALLIES = 100_000
_MAX_DESYNC = 200
_MANY_RETRIES = 20

_PYTHON = re.compile(r"Command .{0,4}\[?[\"'][^\"']{0,300}python")
_DATED = re.compile(r"\W{0,2}(20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d)")
_MAX_UNDATED = 5_000

_DISTINCT = {
    "torch_store": ("event", "peer", "error", "joined", "world"),
    "torch_error": ("type", "nccl_version", "nccl_result", "last_error"),
}
_LONG = ("NCCL error", "NCCL Error", "NCCL version", "Detected mismatch")
_LAUNCHER = (
    "torch/distributed/run.py",
    "torch/distributed/elastic",
    "torch.distributed.elastic",
    "torchrun",
    "local_rank: ",
)
_RESTATED = ("terminated with exception", "what():")


class Collector:
    """State of one pass over a log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.digest = Digest("torch_log", max_tallies=_MAX_TALLIES)
        self.years = Years(time.gmtime(source.taken_at).tm_year if source.taken_at else None)
        self.done: set[int] = set()
        self.spoke = False
        self._timeouts = Timeouts()
        self._exits = Exits()
        self._torn: dict[tuple[int | None, str | None], tuple[Evidence, Speaker]] = {}
        self._ranks_with_exception: set[int | None] = set()
        self._launched = False
        self._retries: dict[str, int] = {}

    def read(self, window: Window) -> None:
        """Take in the gated lines of a window."""
        self.done = {n for n in self.done if n >= window.first}
        if self.years.year is None:
            dated = next((m for line in window.lines[:_MAX_UNDATED] if (m := _DATED.match(line))), None)
            self.years.see(parse_time(dated.group(1))[0] if dated else None)
        for index in window.hits:
            if window.first + index in self.done:
                continue
            for segment in segments(window.lines[index], self.years):
                self.segment(window, index, segment)

    def segment(self, window: Window, index: int, segment: Segment) -> None:
        """Take in one message."""
        text = segment.text
        if segment.origin or "torch" in text or "[rank" in window.lines[index]:
            self.spoke = True
        if any(literal in text or literal in segment.origin for literal in _LAUNCHER):
            self._launched = True
        if HEADER in text:
            if "exitcode" in text:
                self._use(window, self._exits.launcher(window, index, segment))
            self._traceback(window, index, segment)
        elif any(gate in text for gate in DESYNC_GATES):
            self._desync(window, index, segment)
        elif segment.origin.startswith("ProcessGroup") or "WorkNCCL(" in text or "ast enqueued" in text:
            self.spoke = True
            self._watchdog(window, index, segment)
            self._settings(window, index, segment)
            if "NCCL error" in text or "NCCL Error" in text:
                self._message(window, index, segment)
            elif "terminated with exception: CUDA error" in text:
                fields = {"type": "CUDAError", "text": text.partition("exception: ")[2].strip()[:_MAX_TEXT]}
                self.add(
                    "torch_error", fields, window.evidence(index), segment.speaker, self._rank(text, segment.speaker)
                )
        elif "exitcode" in text or "Root Cause" in text or "Failures:" in text:
            self._use(window, self._exits.launcher(window, index, segment))
        elif "exits with return code" in text:
            self._exits.deepspeed(window, index, segment)
        elif "Worker exit type: " in text:
            self._exits.ray(window, index, segment)
        elif "Fatal Python error: " in text:
            self._exits.fatal(window, index, segment)
        elif "closing signal" in text and (closed := closing_signal(text)):
            self.add("launcher_stop", closed, window.evidence(index), segment.speaker)
        elif "death signal" in text or "got signal: " in text:
            self._signal(window, index, segment)
        else:
            self._settings(window, index, segment)
            self._message(window, index, segment)

    def _rank(self, text: str, speaker: Speaker) -> int | None:
        """Global rank; with torchrun between, a task of srun is a node, so it tells none."""
        rank = rank_of(text, speaker)
        return None if self._launched and rank is not None and rank_of(text, speaker.without_task()) is None else rank

    def add(
        self,
        kind: str,
        fields: Mapping[str, Any],
        evidence: Evidence,
        speaker: Speaker,
        rank: int | None = None,
        key: tuple[Scalar | None, ...] | None = None,
    ) -> None:
        """Count a record; equal fields of one rank are one record unless `key` says what makes it distinct."""
        known = _known(fields)
        if key is None and kind in _DISTINCT:
            key = (rank, speaker.host, *(known.get(name) for name in _DISTINCT[kind]))
        distinct = key if key is not None else (rank, speaker.host, *(known.get(name) for name in sorted(known)))
        self.digest.add((kind, *distinct), Record(kind, known, (evidence,), speaker.at, speaker.host, rank))

    def finish(self) -> Digest:
        """The digest, with the watchdog records of the log joined to their process groups."""
        for registry in (self._timeouts, self._exits):
            for key, record in registry.records():
                self.digest.add((record.kind, *key), record)
        for (rank, host), (evidence, speaker) in self._torn.items():
            if rank not in self._ranks_with_exception:
                fields = {"type": "unknown", "message": "the traceback is cut off", "cause": "other"}
                record = Record("python_exception", fields, (evidence,), speaker.at, host, rank)
                self.digest.add(("python_exception", rank, host, "unknown"), record)
        if self.spoke and not any(key[0] != "parse_problem" for key in self.digest.tallies):
            self.digest.add(("covered", "torch_log"), Record("covered", {"topic": "torch_log"}))
        return self.digest

    # --- exceptions and messages ------------------------------------------------------------------------

    def _traceback(self, window: Window, index: int, segment: Segment) -> None:
        head, _, _ = segment.text.partition(HEADER)
        rank = self._rank("", segment.speaker)
        if "traceback" in head:
            reported = self._exits.rank_at(window.first + index)
            rank = reported if reported is not None else rank
        trace = read_trace(window, index, segment)
        if trace is None or trace.harmless:
            if trace is not None:
                self._use(window, trace.used)
            return
        if not trace.chain:
            where = (rank, segment.speaker.host)
            self._torn.setdefault(where, (window.evidence_of(trace.used), segment.speaker))
            return
        self._use(window, trace.used)
        evidence = window.evidence_of(trace.used)
        self._exception(trace.chain, evidence, segment.speaker, rank, trace.used[-1])

    def _exception(
        self, chain: list[Raised], evidence: Evidence, speaker: Speaker, rank: int | None, index: int
    ) -> None:
        final = chain[-1]
        self._exits.worker(final.message, evidence, speaker, rank)
        name = final.type.rsplit(".", 1)[-1]
        whole = f"{final.type}: {final.message}"
        if name in ("ChildFailedError", "SystemExit"):
            return
        if name == "CalledProcessError" and _PYTHON.search(final.message):
            self._exits.add(called_process(whole, index), evidence, speaker)
            return
        if name == "SignalException":
            signal = death_signal(whole)
            self.add("job_event", {"event": "sigterm", "text": f"launcher received {signal}"}, evidence, speaker)
            return
        for raised in chain:
            said = f"{raised.type}: {raised.message}"
            for kind, fields, who in messages(said):
                self.add(kind, fields, evidence, speaker, rank if rank is not None else who)
                rank = rank if rank is not None or kind != "torch_mismatch" else who
        fields = {
            "type": name,
            "message": final.message.split("\n", 1)[0][:_MAX_TEXT],
            "file": final.file,
            "line": final.line,
            "function": final.function,
            "cause": cause_of(chain),
            "chained_from": f"{chain[0].type}: {chain[0].message}".split("\n", 1)[0][:_MAX_TEXT]
            if len(chain) > 1
            else None,
        }
        self._ranks_with_exception.add(rank)
        key = (rank, speaker.host, name, squeeze(final.message)[:200], final.file, final.line)
        self.add("python_exception", fields, evidence, speaker, rank, key)

    def _message(self, window: Window, index: int, segment: Segment) -> None:
        """A message outside any traceback: a c10d line, or an exception line whose traceback is missing."""
        text = segment.text
        used: list[int] = []
        if segment.last and any(literal in text for literal in _LONG):
            text = text.rstrip()
            for following, more in follow(window, index, segment):
                if not more.strip() or not continues(text, more.strip()):
                    break
                text = f"{text}\n{more.strip()}"
                used.append(following)
            self._use(window, used)
        if text.startswith("terminate called"):
            return
        evidence = window.evidence_of([index, *used])
        rank = self._rank(text, segment.speaker)
        first, _, rest = text.partition("\n")
        raised = bare(first)
        found = list(messages(text))
        if raised and (found or segment.speaker.rank is not None or cause_of([raised]) in ("gpu_oom", "data")):
            raised.message += f"\n{rest}" if rest else ""
            self._exception([raised], evidence, segment.speaker, rank, index)
            return
        for kind, fields, who in found:
            if kind == "torch_store" and self._is_retry(fields, segment):
                continue
            self.add(kind, fields, evidence, segment.speaker, rank if rank is not None else who)

    def _is_retry(self, fields: dict[str, Any], segment: Segment) -> bool:
        """A client that starts before the server is refused until it is up: that is normal start-up."""
        if fields["event"] != "connect_failed" or "failed to connect" not in fields["text"]:
            return False
        peer = str(fields.get("peer"))
        self._retries[peer] = self._retries.get(peer, 0) + 1
        return fields.get("error") not in ("no_route", "timed_out") and self._retries[peer] != _MANY_RETRIES

    def _desync(self, window: Window, index: int, segment: Segment) -> None:
        rank = self._rank(segment.text, segment.speaker)
        group, _ = group_of(segment.text)
        pending: tuple[int, str] | None = None
        rows = [(index, segment.text)]
        for following, text in follow(window, index, segment):
            if not text.strip().startswith(("- ", "[", "#")) or len(rows) > _MAX_DESYNC:
                break
            rows.append((following, text))
        for at, text in rows:
            found, pending = desync(text, pending)
            for state, named, seq, op in found:
                ranks = fold_ranks(int(n) for n in named.split(",") if n.strip())
                if state == "timed_out" and rank is None:
                    rank = int(named)
                fields = {"state": state, "ranks": ranks, "seq": seq, "op": op}
                self.add(
                    "torch_desync",
                    fields,
                    window.evidence(at),
                    segment.speaker,
                    rank,
                    (rank, group, state, ranks, seq, op),
                )
        self._use(window, [at for at, _ in rows])

    def _settings(self, window: Window, index: int, segment: Segment) -> None:
        for name, value in settings(segment.text):
            fields = {"name": name, "value": value}
            self.add(
                "torch_debug",
                fields,
                window.evidence(index),
                segment.speaker,
                None,
                (segment.speaker.host, name, value),
            )
        for fields in (
            backends(segment.text) if "ackend" in segment.text or "init_process_group" in segment.text else ()
        ):
            self.add("torch_backend", fields, window.evidence(index), segment.speaker, None, tuple(fields.values()))

    # --- launcher ---------------------------------------------------------------------------------------

    def _signal(self, window: Window, index: int, segment: Segment) -> None:
        signal = death_signal(segment.text)
        if signal:
            fields = {"event": "sigterm", "text": f"launcher received {signal}"}
            self.add("job_event", fields, window.evidence(index), segment.speaker)

    def _use(self, window: Window, indices: Iterable[int]) -> None:
        """These lines were read as part of a record and shall not be read again."""
        self.done.update(window.first + i for i in indices)

    # --- watchdog and monitor -------------------------------------------------------------------------

    def _watchdog(self, window: Window, index: int, segment: Segment) -> None:
        text, last = self._unwrapped(window, index, segment)
        squeezed = squeeze(text)
        speaker = segment.speaker
        rank = self._rank(text, speaker)
        group, _ = group_of(text)
        evidence = window.evidence(index, last)
        if "WorkNCCL(" in squeezed:
            self._timeout(text, squeezed, evidence, rank, group, speaker)
        elif "Watchdogcaught" in squeezed and "timeout" not in squeezed:
            self._cut(window, index)
        found = status(squeezed)
        if found:
            self.add("torch_pg_status", {"group": group, **found}, evidence, speaker, rank)
            self._timeouts.link(rank, found.get("work_seq"), group)
        happened = event(squeezed)
        if happened:
            fields = {"event": happened[0], "from_rank": happened[1], "text": " ".join(text.split())[:_MAX_TEXT]}
            self.add("torch_heartbeat", fields, evidence, speaker, rank, (rank, speaker.host, group, *happened))

    def _timeout(
        self, text: str, squeezed: str, evidence: Evidence, rank: int | None, group: str | None, speaker: Speaker
    ) -> None:
        fields = work(squeezed)
        if fields is None:
            self.digest.add(
                ("parse_problem", "watchdog", evidence.first),
                Record("parse_problem", {"text": "watchdog record is cut off"}, (evidence,), host=speaker.host),
            )
            return
        if "timeout" not in squeezed and "elapsed_ms" not in fields:
            return
        restated = any(literal in text for literal in _RESTATED)
        self._timeouts.add(fields, evidence, rank, speaker, group, restated)

    def _cut(self, window: Window, index: int) -> None:
        record = problem(self.source, "watchdog record is cut off", window.line(index))
        self.digest.add(("parse_problem", "watchdog", window.first + index), record)

    def _unwrapped(self, window: Window, index: int, segment: Segment) -> tuple[str, int]:
        """The message, with the following lines that complete it where a terminal wrapped it, and its last index."""
        text = segment.text
        if not segment.last or _complete(squeeze(text)) or len(window.lines[index].rstrip()) < _WRAP_COLUMNS:
            return text, index
        joined = text.rstrip()
        for following in range(index + 1, min(index + _MAX_WRAPPED, len(window.lines))):
            more = unprefix(window.lines[following]).text
            if not more.strip() or any(s.origin or s.speaker.rank is not None for s in segments(more, Years(None))):
                break
            joined += more.rstrip()
            if _complete(squeeze(joined)):
                self._use(window, range(index + 1, following + 1))
                return joined, following
        return text, index


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _complete(squeezed: str) -> bool:
    """A watchdog or status message is whole."""
    fields = work(squeezed)
    if fields is not None and "elapsed_ms" in fields:
        return True
    found = status(squeezed)
    return found is not None and "last_completed" in found
