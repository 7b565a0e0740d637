"""nvbandwidth: copies between host and GPU and within a GPU, per GPU.

Format: nvbandwidth 0.2 to 0.8, text output. A matrix with one row of hosts (`CPU(row) <-> GPU(column)`) gives `h2d` and
`d2h`, the device-local copies give `memory`; matrices between GPUs are left to the topology. GB/s are 1e9 bytes per
second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence

KIND = "nvbandwidth"
TOPICS = ("benchmark_nccl",)

_RUNNING = re.compile(r"^\s{0,4}Running (?:test \d{1,3}: )?([a-z][a-z0-9_]{4,60})\.\s*$")
_COLUMNS = re.compile(r"^\s{2,30}\d{1,3}(?:\s{1,20}\d{1,3}){0,71}\s*$")
_VALUES = re.compile(r"^\s{0,12}0\s{1,20}((?:(?:\d{1,7}\.\d{1,4}|N/A)\s{0,20}){1,72})$")
_TESTS = {
    "host_to_device_memcpy_ce": "h2d",
    "device_to_host_memcpy_ce": "d2h",
    "device_local_copy": "memory",
}


def sniff(head: str, name: str) -> float:
    """Sure on the version line or a matrix title with its unit."""
    if "nvbandwidth Version:" in head or ("bandwidth (GB/s)" in head and "memcpy " in head and "(row)" in head):
        return 0.9
    return 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `bench_gpu` per test and GPU."""
    test: str | None = None
    columns: list[int] = []
    for line in lines:
        text = line.text
        m = _RUNNING.match(text)
        if m:
            test, columns = _TESTS.get(m.group(1)), []
            continue
        if test is None:
            continue
        values = _VALUES.match(text) if columns else None
        if values:
            for gpu, value in zip(columns, values.group(1).split(), strict=False):
                if value != "N/A":
                    fields = {"gpu": gpu, "test": test, "value": float(value), "unit": "GB/s"}
                    yield Record("bench_gpu", fields, (evidence(source, line),))
            test = None
        elif _COLUMNS.match(text):
            columns = [int(c) for c in text.split()]
