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
READS_PREFIXES = True

GATES = (
    "ProcessGroup",
    "WorkNCCL(",
    "ast enqueued",
    "Traceback (most recent",
    "Error: ",
    "CollectiveFingerPrint(",
    "monitoredBarrier",
    "imeout at collective",
    "To our best knowledge",
    "Snapshot of ranks",
    "c10d",
    "TCPStore",
    "clients joined",
    "store based barrier",
    "ocket Timeout",
    "wait timeout after",
    "client socket has",
    "NCCL error",
    "exitcode",
    "Root Cause",
    "Fatal Python error: ",
    "Failures:",
    "exits with return code",
    "Worker exit type: ",
    "death signal",
    "closing signal",
    "TORCH_",
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "distributed_timeout_minutes",
    "ackend",
    "init_process_group",
    "torch/distributed",
)

_SURE = re.compile(
    r"ProcessGroup(?:NCCL|Gloo|Wrapper)|WorkNCCL\(|CollectiveFingerPrint\(|monitoredBarrier|\[c10d\]|torch[./]distributed"
    r"|Root Cause \(first observed failure\)|Dist(?:Backend|Store|Network)Error"
    r"|Timeout at collective: |torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|DataLoader worker \(pid"
    r"|local_rank: \d{1,5} \(pid: |\[rank\d{1,6}\]:|store based barrier|clients joined|TORCH_NCCL_"
    r"|The server socket has failed to |ncclUniqueId from \["
    r"|:sigkill_handler\]|Worker exit type: (?:SYSTEM|USER)_ERROR|Worker exit type: NODE_OUT_OF_MEMORY"
    r"|(?:Error: |async )NCCL [Ee]rror(?: in)?(?::| \d:) "
)
_TRACEBACK = "Traceback (most recent call last)"
_TRAINING = re.compile(
    r"torch|train|cuda|epoch|\brank|deepspeed|megatron|lightning|transformers|\bjax\b", re.IGNORECASE
)
"""Words of a training job: tools on the host are written in Python too, and their tracebacks are not the job's."""
_BIG = 4 << 20


def sniff(head: str, name: str) -> float:
    """0.9 for messages of torch.distributed; 0.5 for the start of a log too big to tell where its end may hold them."""
    if _SURE.search(head):
        return 0.9
    if _TRACEBACK in head and _TRAINING.search(head):
        return 0.5
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
