"""nvidia-smi: `-q` (text, XML, sections), `--query-gpu` CSV, the plain table, `nvlink -s`/`-e`, `-L`, and its errors.

One `gpu` record per GPU and kind of output; of repeated readings (`-l`) see `_values.fold`. The GPU index is told only
where nvidia-smi prints it, or where a whole `-q` listing gives it by order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence, problem

from . import _csv, _nvlink, _table, _tree
from ._values import Sample, fold, normal_bus_id

KIND = "nvidia_smi_query"
TOPICS = ("gpu_state", "nvlink")

MAX_LINES = 500_000
"""Lines read of one source: more is a job's log with nvidia-smi output at its start, or a sampling of days."""

_SURE = re.compile(
    r"NVSMI LOG={3}|^\|\s*NVIDIA-SMI \d|<nvidia_smi_log>|^\s{0,4}GPU \d{1,3}: [^\n]{2,80} \(UUID: "
    r"|^\s{0,12}(?:HW Thermal Slowdown|[SD]RAM Uncorrectable|Remapping Failure Occurred)\s{1,40}: \S"
    r"|^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s*$"
    r"|^\|\s+\d{1,3}\s+\S[^|\n]{2,60}\s(?:On|Off|ERR!|N/A)\s+\|\s+[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:00\.0 ",
    re.M,
)
_FAILED = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu) ?(?:\d{1,3}: )?"
    r"(?P<bus>[0-9A-Fa-f:.]{7,20}): (?P<lost>.{3,120})"
    r"|(?P<failed>NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
    r"|Failed to initialize NVML: (?:Driver/library version mismatch|Unknown Error|GPU is lost|Driver Not Loaded))"
)
_CSV_HINT = re.compile(
    r"pci\.bus_id|gpu_bus_id|gpu_name|temperature\.gpu|utilization\.gpu|power\.draw|memory\.used"
    r"|clocks_(?:event|throttle)_reasons|pcie\.link|used_gpu_memory"
)


def sniff(head: str, name: str) -> float:
    """Sure on the marks of each output; likely on rows of a CSV without header."""
    if _SURE.search(head) or _FAILED.search(head):
        return 0.9
    for n, m in enumerate(_CSV_HINT.finditer(head)):
        start, end = head.rfind("\n", 0, m.start()) + 1, head.find("\n", m.end())
        line = head[start : end if end >= 0 else len(head)]
        if _csv.header(line) or "--query-" in line:
            return 0.9
        if n > 50:
            break
    rows = 0
    for line in head[:200_000].splitlines()[:400]:
        rows += _csv.BARE_ROW.match(line.strip()) is not None
    return 0.6 if rows else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """`gpu`, `gpu_process` and `nvlink_state` of every output found in the text."""
    kept = [line for line in islice(lines, MAX_LINES) if len(line.text) < 8_192]
    readings: list[Sample] = []
    processes: list[_tree.Process] = []
    listed, running, ends = _tree.read(kept)
    readings += fold(listed)
    processes += running
    tabled, running = _table.read(kept)
    readings += fold(tabled)
    processes += running
    samples, running, misfits = _csv.read(kept, source.command)
    readings += fold(samples)
    processes += running
    for sample in readings:
        if len(sample.fields) > 1 or "error" in sample.fields:
            yield _record(sample, source)
    yield from _failures(kept, source)
    yield from _nvlink.read(kept, source)
    for process in processes:
        bus_id = normal_bus_id(process.bus_id) if process.bus_id else None
        fields = drop_none(pid=process.pid, name=process.name, memory_mib=process.memory, bus_id=bus_id)
        yield Record("gpu_process", cast(Fields, fields), (evidence(source, process.line),))
    for line in ends:
        yield problem(source, "nvidia-smi -q lists fewer GPUs than it says are attached", line)
    for line in misfits[:5]:
        yield problem(source, "row of nvidia-smi CSV does not fit its header", line)


def _record(sample: Sample, source: Source) -> Record:
    grounds = tuple(evidence(source, line) for line in (sample.first, *sample.telling))
    return Record("gpu", sample.fields, grounds, at=sample.at)


def _failures(lines: list[Line], source: Source) -> Iterator[Record]:
    told: set[str] = set()
    for line in lines:
        m = _FAILED.search(line.text)
        if m is None or m.group() in told or len(told) > 64:
            continue
        told.add(m.group())
        error = (m["lost"] or m["failed"]).strip()
        fields = drop_none(bus_id=normal_bus_id(m["bus"]) if m["bus"] else None, error=error)
        yield Record("gpu", cast(Fields, fields), (evidence(source, line),))
