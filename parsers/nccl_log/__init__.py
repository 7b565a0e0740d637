"""NCCL and RCCL logs: versions, environment, networks, communicators, transports, collectives, warnings and errors.

Format: the text of `NCCL_DEBUG` at WARN, INFO or TRACE, of NCCL 2.3 to 2.32 and RCCL, mixed with whatever else goes to
the same stream, and the messages of the aws-ofi-nccl and nccl-rdma-sharp plugins and of libfabric.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Block, Digest, Line, Record, Source

from ._prefix import HEAD
from ._reader import Reader
from ._unsigned import GATES as UNSIGNED
from ._unsigned import LAST_ERROR

KIND = "nccl_log"
TOPICS = ("nccl_init", "nccl_log")
READS_PREFIXES = True

BLOCK_CHARACTERS = 16_000_000
_MARK = re.compile(r"NCCL (?:INFO|WARN|ATTN|CALL|TRACE) ")
_PLAIN = re.compile(
    r"(?:^|\n)[^\n]{0,80}NCCL version \d+\.\d+\.\d+\S{0,20}\+(?:cuda|hip)|:\d{1,10} NCCL DIAG |\nRCCL version", re.ASCII
)
_LIBFABRIC = re.compile(r"libfabric:\d{1,10}:\d{1,20}:", re.ASCII)
_OLD = re.compile(r":\d{1,10}:\d{1,10} \[\d{1,3}\] (?:INFO NET|\S{1,60}\.(?:cu|cc|h|c):\d{1,5} WARN )", re.ASCII)
_TRIES = 40


def sniff(head: str, name: str) -> float:
    """0.9 with a signed message, 0.6 with one that lost its signature or a bare version line, else 0."""
    seen = False
    for tried, mark in enumerate(_MARK.finditer(head)):
        line = head.rfind("\n", max(0, mark.start() - 600), mark.start()) + 1
        if HEAD.search(head[max(line, mark.start() - 600) : mark.start()]):
            return 0.9
        seen = True
        if tried >= _TRIES:
            break
    if seen or _PLAIN.search(head):
        return 0.6
    if any(text in head for text in UNSIGNED) and (LAST_ERROR not in head or "NCCL" in head):
        return 0.5
    return 0.5 if _LIBFABRIC.search(head) or (":" in head and _OLD.search(head)) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """Read lines; runs of consecutive ones are gathered into blocks."""
    reader = Reader(source)
    for block in _blocks(lines):
        reader.read((block,))
    return reader.told(KIND)


def scan(blocks: Iterable[Block], source: Source) -> Iterator[Record | Digest]:
    """Read blocks of whole lines into one digest."""
    reader = Reader(source)
    reader.read(blocks)
    return reader.told(KIND)


def _blocks(lines: Iterable[Line]) -> Iterator[Block]:
    held: list[str] = []
    first, expected, size = 1, 1, 0
    for line in lines:
        if held and (line.number != expected or size > BLOCK_CHARACTERS):
            yield Block(first, "\n".join(held))
            held, size = [], 0
        if not held:
            first = line.number
        held.append(line.text)
        size += len(line.text) + 1
        expected = line.number + 1
    if held:
        yield Block(first, "\n".join(held))
