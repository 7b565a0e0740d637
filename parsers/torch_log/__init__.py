"""PyTorch's own words in a job log: watchdog and process-group messages, store and backend errors, Python
tracebacks, launcher reports.

Formats: torch 1.7 to 2.14 (ProcessGroupNCCL, ProcessGroupWrapper, TCPStore, torchrun). Flight-recorder dumps are not
read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Block, Digest, Line, Record, Source

from ._collect import Collector
from ._window import blocks_of, windows

KIND = "torch_log"
TOPICS = ("torch_log", "process_exit")

GATES = ("ProcessGroup", "WorkNCCL(", "ast enqueued")

_SURE = re.compile(r"ProcessGroup(?:NCCL|Gloo|Wrapper)|WorkNCCL\(")
_BIG = 4 << 20


def sniff(head: str, name: str) -> float:
    """0.9 for messages of torch.distributed; 0.5 for the start of a log too big to tell where its end may hold them."""
    if _SURE.search(head):
        return 0.9
    if len(head) >= _BIG and ("[rank" in head or "NCCL INFO" in head or "iteration" in head or "step" in head):
        return 0.5
    return 0.0


def scan(blocks: Iterable[Block], source: Source) -> Iterator[Record | Digest]:
    """One digest, bounded whatever the log's length."""
    collector = Collector(source)
    for window in windows(blocks, source, GATES):
        collector.read(window)
    yield collector.finish()


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """As `scan`, for lines."""
    return scan(blocks_of(lines), source)
