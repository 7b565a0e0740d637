"""Results of nccl-tests (`all_reduce_perf`, `alltoall_perf`, …), versions 2.0 to 2.19.

Columns differ by version and test (redop and root come and go, `error` became `#wrong`, `-I` adds four per placement),
so a row is read by what its heading promised. The figures are those of the largest size, the better of in-place and
out-of-place; GB/s are 1e9 bytes per second. The printed average is a mean over all sizes and no measure of the links.
Without a name in the text the operation follows from busbw/algbw, as far as that is unique.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence, is_gap, unprefix

KIND = "nccl_tests"
TOPICS = ("benchmark_nccl",)
READS_PREFIXES = True

_OPS = "all_reduce|all_gather|reduce_scatter|alltoallv|alltoall|broadcast|reduce|sendrecv|gather|scatter|hypercube"
_PROGRAM = re.compile(rf"\b({_OPS})_perf\b")
_START = re.compile(r"# nThreads?:? \d{1,5} nGpus:? \d{1,5} ")
_RANK = re.compile(
    r"#\s{1,8}Rank\s{1,8}(\d{1,7})\s{1,8}(?:Group\s{1,8}\d{1,7}\s{1,8})?Pid\s{1,12}\d{1,9}\s{1,8}on\s{1,60}(\S{1,64})\s{1,8}"
    r"device\s{1,8}\d{1,3}\s{1,8}\[[^\]]{1,20}\]\s{0,8}(.{0,80})"
)
_HEADING = re.compile(r"#\s{1,12}size\s{1,20}count\s{1,20}type\s")
_ROW = re.compile(r"(?:\d{1,6}:\s)?\s{0,20}(\d{1,15})\s{1,20}(\d{1,15})\s{1,20}([a-z]\w{1,20})\s{1,40}(\S.{4,400})")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s{1,8}:\s{0,4}(\d{1,7}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?)")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s{1,4}:\s{0,4}(\d{1,15})\s{1,4}(OK|FAILED)")
_FAILURE = re.compile(r"(?:([\w.-]{1,63}): )?Test NCCL failure (\S{1,200}:\d{1,6}) '([^\n]{1,600})")
"""What a program prints when NCCL returns an error; behind the last ` / ` stands NCCL's last error (NCCL 2.13+)."""
_TAG = re.compile(r"\[\d{1,6}(?:,\d{1,6})?\](?:<std\w{3}>:?)?")
"""What mpirun --tag-output puts into a row at each flush."""
MAX_FAILURES = 1_000
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?")


@dataclass(slots=True)
class _Row:
    size: int
    algbw: float
    busbw: float
    line: Line


@dataclass(slots=True)
class _Run:
    """One table with what stood before and after it."""

    first: Line
    op: str | None = None
    ranks: set[int] = field(default_factory=set[int])
    zeroes: int = 0
    hosts: set[str] = field(default_factory=set[str])
    torn: bool = False
    """Lines were left out, so that ranks and hosts may be missing."""
    gpu: str | None = None
    rank_line: Line | None = None
    heading: str = ""
    reduces: bool = False
    best: _Row | None = None
    wrong: int | None = None
    wrong_line: Line | None = None
    peak: _Row | None = None
    """The size with the highest bus bandwidth; `best` is the best row of the largest size."""
    average: float | None = None
    average_line: Line | None = None


def sniff(head: str, name: str) -> float:
    """Sure on the heading or summary of a run, and on the message with which one fails."""
    if "# nThread" in head or "# Avg bus bandwidth" in head or _HEADING.search(head) or _FAILURE.search(head):
        return 0.9
    return 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `bench_nccl` per table, not `complete` when cut or failed; one `bench_error` per distinct failure."""
    run: _Run | None = None
    failures: set[tuple[str | None, str]] = set()
    named = _PROGRAM.search(source.command or "") or _PROGRAM.search(source.name)
    op = named.group(1) if named else None
    for line in lines:
        text = line.text
        if run is not None and is_gap(text):
            run.torn = True
            continue
        if "Test NCCL failure" in text and len(failures) < MAX_FAILURES:
            yield from _failure(line, source, failures)
        if "_perf" in text:
            m = _PROGRAM.search(text)
            if m and (run is None or run.average is None or "concluded" not in text):
                op = m.group(1)
                if run is not None and run.best is None and "concluded" not in text:
                    run.op = op
        in_table = run is not None and bool(run.heading) and run.average is None
        message = unprefix(text).text if "#" in text or (in_table and text[:1] != " ") else text
        if "#" in message:
            if run is None and _AVERAGE.search(message):
                run = _Run(line, op)
            starts = _START.search(message) or (run is None and (_RANK.search(message) or _HEADING.search(message)))
            if starts and (run is None or run.average is not None):
                if run is not None:
                    yield _record(run, source)
                run = _Run(line, op)
            if run is not None:
                _comment(run, message, line)
        elif run is not None and run.heading:
            _row(run, message, line)
    if run is not None:
        yield _record(run, source)


def _failure(line: Line, source: Source, seen: set[tuple[str | None, str]]) -> Iterator[Record]:
    """`HOST: Test NCCL failure FILE:LINE 'RESULT / LAST ERROR'`; every process of a host prints the same."""
    m = _FAILURE.search(line.text)
    if m is None:
        return
    result, _, last = m.group(3).rstrip().removesuffix("'").partition(" / ")
    result = result.strip().removesuffix("(run with NCCL_DEBUG=INFO for details)").strip()
    host = unprefix(line.text).host if m.group(1) in (None, "localhost") else m.group(1)
    if not result or (host, result) in seen:
        return
    seen.add((host, result))
    fields = drop_none(result=result, last_error=last.strip() or None, file=m.group(2))
    yield Record("bench_error", cast(Fields, fields), (evidence(source, line),), host=host)


def _comment(run: _Run, text: str, line: Line) -> None:
    m = _RANK.search(text)
    if m:
        rank = int(m.group(1))
        run.ranks.add(rank)
        run.zeroes += rank == 0
        run.hosts.add(m.group(2))
        run.gpu = run.gpu or m.group(3).strip() or None
        run.rank_line = run.rank_line or line
        return
    if _HEADING.search(text):
        run.heading = text
        return
    m = _AVERAGE.search(text)
    if m:
        run.average, run.average_line = float(m.group(1)), line
        return
    m = _OUT_OF_BOUNDS.search(text)
    if m and int(m.group(1)):
        run.wrong = max(run.wrong or 0, int(m.group(1)))
        run.wrong_line = run.wrong_line or line


def _row(run: _Run, text: str, line: Line) -> None:
    if "[" in text:
        text = _TAG.sub(" ", text)
    m = _ROW.match(text)
    if m is None:
        return
    cells = m.group(4).split()
    if cells[0][0].isalpha() and cells[0] != "N/A":
        run.reduces = run.reduces or cells[0] != "none"
        del cells[0]
    width = 8 if "i_min" in run.heading else 4
    if " root " in run.heading and cells and re.fullmatch(r"-?\d{1,7}", cells[0]) and len(cells) % width == 1:
        del cells[0]
    size = int(m.group(1))
    for start in (0, width):
        block = cells[start : start + width]
        if len(block) < 4 or not all(_NUMBER.fullmatch(c) for c in block[:3]):
            continue
        algbw, busbw = float(block[1]), float(block[2])
        if not (math.isfinite(algbw) and math.isfinite(busbw)):
            continue
        if block[3].isdecimal() and len(block[3]) < 16:
            run.wrong = (run.wrong or 0) + int(block[3])
            if int(block[3]):
                run.wrong_line = run.wrong_line or line
        best = run.best
        if best is None or size > best.size or (size == best.size and (busbw, algbw) > (best.busbw, best.algbw)):
            run.best = _Row(size, algbw, busbw, line)
        if run.peak is None or busbw > run.peak.busbw:
            run.peak = _Row(size, algbw, busbw, line)


def _operation(run: _Run) -> str:
    """The operation by the factor between bus and algorithm bandwidth, n ranks: 2(n-1)/n, (n-1)/n or 1."""
    n = len(run.ranks)
    if run.op:
        return run.op
    if run.best is None or n < 3 or run.best.algbw <= 0:
        return "unknown"
    factor = run.best.busbw / run.best.algbw
    if abs(factor - 2 * (n - 1) / n) < 0.02:
        return "all_reduce"
    if n < 50 and abs(factor - (n - 1) / n) < 0.02:
        return "reduce_scatter" if run.reduces else "alltoall or all_gather"
    return "unknown"


def _record(run: _Run, source: Source) -> Record:
    best = run.best
    fields = drop_none(
        op=_operation(run), ranks=None if run.torn else len(run.ranks) or None,
        nodes=None if run.torn else len(run.hosts) or None, gpu=run.gpu,
        max_bytes=best.size if best else None, busbw_gbps=best.busbw if best else None,
        algbw_gbps=best.algbw if best else None, avg_busbw_gbps=run.average, wrong=run.wrong,
        peak_busbw_gbps=run.peak.busbw if run.peak else None, peak_bytes=run.peak.size if run.peak else None,
        ranks_zero_headers=run.zeroes or None, complete=best is not None and run.average is not None,
    )  # fmt: skip
    rows = [best]
    if best is not None and run.peak is not None and best.busbw < run.peak.busbw / 2:
        rows.append(run.peak)
    telling = [run.wrong_line, *(row.line for row in rows if row), run.average_line, run.rank_line or run.first]
    grounds = {line.number: evidence(source, line) for line in telling if line is not None}
    whole = run.heading and not run.torn
    host = next(iter(run.hosts)) if len(run.hosts) == 1 and whole else None
    return Record(
        "bench_nccl", cast(Fields, fields), tuple(grounds.values()), host=None if host in ("localhost", None) else host
    )
