"""Kernel log: dmesg, journalctl -k, /dev/kmsg and /var/log/messages, also behind prefixes of launchers and shippers.

One `kernel_event` per distinct incident (event, device, code, process …): the first line tells the fields, later ones
raise the count and the last time. Lines that merely continue an incident (call traces, RPC histories, AER details)
are not counted. A log without any such message yields `covered`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.model import Block, Digest, Line, Record, Source

from ._events import GATE
from ._log import Logs
from ._prefix import Head, spliced, split

KIND = "kmsg"
TOPICS = ("kernel_log",)
READS_PREFIXES = True

_STAMP = re.compile(
    r"\[\s{0,8}\d{1,9}\.\d{6}\] ?\S|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4}\] (?!\[)\S"
    r"|\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d \S|,\d{1,20},\d{1,20},[-c]|\b(?:kern|user|daemon)\s{0,4}:[a-z]{3,7}\s{0,4}: \S"
    r"| kernel(?:\[\d{1,7}\])?: "
)
"""What stands in every line of a kernel log somewhere before the message."""
_SURE = re.compile(
    r"NVRM: Xid \(|SXid \(PCI|oom-kill:constraint=|segfault at [0-9a-f]{1,16} ip |PCIe Bus Error: severity="
    r"|available PCIe bandwidth, limited by|Marking clocksource '"
    r"|[Oo]ut of memory(?: \([^)\n]{1,40}\))?: Kill(?:ed)? process \d"
    r"|async reg mr failed\. status -?\d|Failed to process command [A-Z_]{4,30} \(opcode \d"
    r"|mlx5_core: probe of [0-9a-f:.]{7,12} failed with error|nv_get_p2p_free_callback:"
    r"|detected NVSwitch (?:non-)?fatal error|: unknown parameter '[^'\n]{1,80}' ignored"
)
_CANDIDATES = 400
"""Lines with what looks like a stamp that are looked at before a text is no kernel log."""
_END = 1 << 16
"""Characters at the end of a block among which the last stamps are looked for."""


def sniff(head: str, name: str) -> float:
    """Sure with a kernel message of a known kind or several kernel stamps."""
    stamped = 0
    tried, done = 0, 0
    for hit in _STAMP.finditer(head):
        if hit.start() < done:
            continue
        start = head.rfind("\n", 0, hit.start()) + 1
        end = head.find("\n", hit.start())
        done = len(head) if end < 0 else end
        stamped += sum(split(part).stamped for part in spliced(head[start : min(done, start + 4_000)])[:3])
        tried += 1
        if stamped >= 3:
            return 0.9
        if tried == _CANDIDATES:
            break
    if _SURE.search(head):
        return 0.9 if stamped else 0.6
    return 0.6 if stamped and ("dmesg" in name or "kern" in name or "kmsg" in name) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record | Digest]:
    """The incidents of a kernel log as one digest per host."""
    logs = Logs(source)
    before = ""
    for line in lines:
        if GATE.search(line.text):
            logs.take(line, before)
        before = line.text
        head = _stamped(line.text, source)
        if head is not None:
            logs.ends(head)
    yield from logs.records()


def scan(blocks: Iterable[Block], source: Source) -> Iterator[Record | Digest]:
    """The same for a big log, read in blocks: only the lines that hold a literal of interest are looked at."""
    logs = Logs(source)
    for block in blocks:
        text, number, counted, done = block.text, block.first, 0, 0
        for hit in GATE.finditer(text):
            if hit.start() < done:
                continue
            start = text.rfind("\n", 0, hit.start()) + 1
            end = text.find("\n", hit.end())
            done = len(text) if end < 0 else end
            number += text.count("\n", counted, start)
            counted = start
            before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
            logs.take(Line(number, text[start:done]), before)
        heads = [head for line in text[-_END:].split("\n") if (head := _stamped(line, source)) is not None]
        for head in {(head.host, head.task): head for head in heads}.values():
            logs.ends(head)
    yield from logs.records()


def _stamped(line: str, source: Source) -> Head | None:
    """What stands before a message, where it is the head of a kernel log."""
    if _STAMP.search(line) is None:
        return None
    head = split(spliced(line)[-1], source.taken_at)
    return head if head.stamped else None
