"""Results of perftest's bandwidth tests (ib_write_bw, ib_read_bw, ib_send_bw), client and server side.

Format: perftest 4.x to 24.x. `MB/sec` and `MiB/sec` are 2^20 bytes per second, `Gb/sec` (--report_gbits) 1e9 bits. Of a
table over all sizes (-a) the size with the highest average counts. A peak of 0 (-D runs measure none) is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence

KIND = "ib_write_bw"
TOPICS = ("benchmark_ib",)

_TITLE = re.compile(r"\s(RDMA_Write|RDMA_Read|Send)( Bidirectional)? BW Test")
_TESTS = {"RDMA_Write": "ib_write_bw", "RDMA_Read": "ib_read_bw", "Send": "ib_send_bw"}
_DEVICE = re.compile(r"\bDevice\s{1,12}: ([\w.-]{1,40})")
_QPS = re.compile(r"Number of qps\s{1,8}: (\d{1,6})")
_MTU = re.compile(r"^\s{0,4}Mtu\s{1,16}: (\d{2,6})\[B\]")
_LINK_TYPE = re.compile(r"^\s{0,4}Link type\s{1,12}: (IB|Ethernet)")
_HEADING = re.compile(r"#bytes\s{1,12}#iterations\s{1,12}BW peak\[(\w{2,3})/sec\]\s{1,12}BW average\[(\w{2,3})/sec\]")
_ROW = re.compile(
    r"^\s{0,12}(\d{1,12})\s{1,20}(\d{1,12})\s{1,24}(\d{1,9}\.\d{1,9})\s{1,24}(\d{1,9}\.\d{1,9})(?:\s{1,24}\d{1,9}\.\d{1,9})?\s*"
    r"(?:\[rc=\d{1,3}\])?\s*$"
)
_REMOTE_GID = re.compile(r"GID: (?:00:){10}255:255:(\d{1,3}):(\d{1,3}):(\d{1,3}):(\d{1,3})\s*$")
_COMMAND = re.compile(r"\bib_(?:write|read|send)_bw\b(.{0,400})")
_CLIENT_PEER = re.compile(r"\s([A-Za-z0-9][\w.-]{1,62}|[0-9a-fA-F:]{3,45})\s*$")
_GPU = re.compile(
    r"--use_(?:cuda|rocm|cuda_bus_id)|cuMemAlloc|Picking (?:GPU|device No)|initializing CUDA|Using CUDA", re.I
)
_FACTORS = {"MB": 2**20 * 8 / 1e9, "MiB": 2**20 * 8 / 1e9, "Gb": 1.0, "GB": 8.0, "Mb": 1e-3, "KB": 2**10 * 8 / 1e9}


@dataclass(slots=True)
class _Run:
    """One test, from its title to the next."""

    first: Line
    test: str
    bidirectional: bool
    gpu: bool
    peer: str | None
    device: str | None = None
    qps: int | None = None
    mtu: int | None = None
    link_type: str | None = None
    heading: Line | None = None
    factor: float = 0.0
    remote: bool = False
    size: int = 0
    average: float | None = None
    peak: float | None = None
    row: Line | None = None


def sniff(head: str, name: str) -> float:
    """Sure on the title or the table of a bandwidth test."""
    return 0.9 if _TITLE.search(head) or _HEADING.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `bench_ib` per test that reached a result."""
    run: _Run | None = None
    gpu = bool(_GPU.search(source.command or ""))
    peer: str | None = None
    for line in lines:
        text = line.text
        command = _COMMAND.search(text) if "_bw" in text else None
        if command:
            m = _CLIENT_PEER.search(command.group(1))
            peer = m.group(1) if m and not _is_value(command.group(1), m.start(1)) else None
            gpu = "--use_cuda" in text or "--use_rocm" in text
        elif _GPU.search(text):
            gpu = True
            if run is not None and run.average is None:
                run.gpu = True
        title = _TITLE.search(text)
        if title:
            yield from _record(run, source)
            run = _Run(line, _TESTS[title.group(1)], title.group(2) is not None, gpu, peer)
        elif run is not None:
            _detail(run, text, line)
    yield from _record(run, source)


def _is_value(arguments: str, start: int) -> bool:
    """Whether the last word belongs to the option before it (`-s 65536`)."""
    words = arguments[:start].split()
    return bool(words) and words[-1].startswith("-") and "=" not in words[-1] and words[-1] not in _FLAGS


_FLAGS = ("-a", "-b", "-F", "--report_gbits", "-R", "-z", "-e", "--all", "--bidirectional", "-N", "-o")


def _detail(run: _Run, text: str, line: Line) -> None:
    if run.heading is not None:
        row = _ROW.match(text)
        if row:
            average = float(row.group(4)) * run.factor
            if run.average is None or average >= run.average:
                peak = float(row.group(3)) * run.factor
                run.size, run.average, run.peak, run.row = int(row.group(1)), average, peak or None, line
            return
    m = _HEADING.search(text)
    if m:
        run.heading, run.factor = line, _FACTORS.get(m.group(2), 0.0)
        return
    m = _DEVICE.search(text)
    if m and run.device is None:
        run.device = m.group(1)
    m = _QPS.search(text)
    if m:
        run.qps = int(m.group(1))
    m = _MTU.match(text)
    if m:
        run.mtu = int(m.group(1))
    m = _LINK_TYPE.match(text)
    if m:
        run.link_type = m.group(1)
    if "remote address" in text:
        run.remote = True
    m = _REMOTE_GID.search(text) if run.remote and run.peer is None else None
    if m:
        run.peer = ".".join(str(int(g)) for g in m.groups())


def _record(run: _Run | None, source: Source) -> Iterator[Record]:
    if run is None or run.average is None or run.row is None or run.factor == 0.0:
        return
    fields = drop_none(
        test=run.test, device=run.device, peer=run.peer, bytes=run.size, avg_gbps=round(run.average, 6),
        peak_gbps=None if run.peak is None else round(run.peak, 6), link_layer=run.link_type, gpu_memory=run.gpu,
        mtu=run.mtu, bidirectional=run.bidirectional, qps=run.qps,
    )  # fmt: skip
    yield Record("bench_ib", cast(Fields, fields), (evidence(source, run.first), evidence(source, run.row)))
