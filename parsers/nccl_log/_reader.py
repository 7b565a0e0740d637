"""Walks over the blocks of a log and hands each message to those who understand it.

Work follows the information: one compiled search finds the messages, the bulk (channels, collectives) is counted
where it stands, messages that say nothing to us are passed over inside the search, and a message that a host has
said before is only counted again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagnose.model import Block, Digest, Record, Source
from diagnose.parsing import Prefix

from . import _dispatch, _messages_init, _messages_ranks, _messages_socket, _warnings
from ._comms import Comms, Stream
from ._ledger import Ledger, Place
from ._libfabric import libfabric_lines
from ._prefix import HEAD, Head, Heads, Process, time_of

_PASS_OVER = (
    r"Channel |Ring |Tree|NVLS (?:Tree|Head|comm)|Setting affinity|ncclTopo|threadThresholds|P2P Chunk|Check P2P|"
    r"\[Proxy|New proxy|Connect(?:ion|ed) to proxy|Allocated |proxyProgress|Received and|Dumping|===|  |\+ |"
    r"CPU/|GPU/|NIC/|NET/\d|PCI/|NVS/|Paths|NET/IB: (?:Dev|IbDev|NCCL Dev|\w{1,60}: (?:QP|Pre|Set ECE|IbDev|Flush))|"
    r"Mem |Cuda [AHC]|CUDA Host|CUMEM|UDS|cudaDriver|CC |Symmetric|"
    r"Imported|register|Loading|KV |Type |Intra|DMA-BUF is (?!available)|"
    r"Socket handshake|Stack size|MNNVL busId|ncclCollNet|Tuning|Profiler|Host Calloc"
)
_CHANNEL = (
    r"Channel \d{1,4}(?:/\d{1,4})? : (\d{1,7})\[[^\]\n]{0,20}\] -> (\d{1,7})\[[^\]\n]{0,20}\] "
    r"(?:\[\w{1,8}\] )?via ((?:NET|COLLNET)/[^/\n]{1,40}/\S{1,80}|P2P/\S{1,60}|SHM\S{0,40}|direct shared)"
)
_LEVELS = r"(WARN |ATTN |DIAG |CALL |TRACE |version \d)"
_CALL = r"\w{1,40}: opCount [^\n]{60,260}? comm (0x[0-9a-f]{1,16}) "
MESSAGE = re.compile(rf"NCCL (?:INFO (?:{_CHANNEL}|{_CALL}|(?!{_PASS_OVER})())|{_LEVELS})", re.ASCII)
"""Every message worth a look: 1–3 a channel, 4 a call's communicator, 5 any other INFO, 6 the level of the rest."""
CALL = re.compile(
    r"\n(?:\[[^\]\n]{1,40}\][: ] ?|\d{1,5}: )?([^\s:\[\]]{1,255}:\d{1,10}:\d{1,10} \[-?\d{1,20}\] )NCCL INFO "
    r"\w{1,40}: opCount [^\n]{60,300} comm (0x[0-9a-f]{1,16}) ",
    re.ASCII,
)
"""A cleanly signed call: 1 the signature, 2 the communicator. When all calls of a block are such, no other search sees them."""
REST = re.compile(rf"NCCL (?:INFO (?!\w{{1,40}}: opCount )(?:{_CHANNEL}|(?!{_PASS_OVER})()())|{_LEVELS})", re.ASCII)
"""As MESSAGE, without the calls."""
CALLS_TOGETHER = 4
"""So many blocks are kept before the last calls of each stream become text."""
_ANOTHER = re.compile(r"NCCL (?:INFO|WARN|ATTN|CALL|TRACE) ")
HELD_BACK = 16
"""So many lines of a block are read with the next one, so that messages of several lines stay whole."""
STEP = 4_096
MAX_MEMO = 40_000
MAX_RECORDS = 40_000


class Reader:
    """The state of one log while it is read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.heads = Heads()
        self.ledger = Ledger()
        self.comms = Comms(self.heads)
        self.addresses: dict[str, str] = {}
        self.rccl = False
        self.shape = _warnings.shape
        self._text = ""
        self._first = 1
        self._index: list[int] = []
        self._memo: dict[tuple[str | None, str], list] = {}
        self._streams: dict[tuple[str, str], Stream] = {}
        self._texts: list[tuple[str, int]] = []
        self._following = ""
        self._foreign: dict[int, Head] = {}

    def read(self, blocks: Iterable[Block]) -> None:
        """Read all blocks, in order."""
        kept, kept_first = "", 1
        for block in blocks:
            if kept:
                text, first = f"{kept}\n{block.text}", kept_first
            else:
                text, first = block.text, block.first
            text = text.removesuffix("\n")
            cut = len(text)
            for _ in range(HELD_BACK):
                cut = text.rfind("\n", 0, cut)
                if cut < 0:
                    break
            if cut < 0:
                kept, kept_first = text, first
                continue
            kept = text[cut + 1 :]
            self._block(f"\n{text[:cut]}", first, kept)
            kept_first = first + text.count("\n", 0, cut) + 1
        if kept:
            self._block(f"\n{kept}", kept_first, "")
        self._settle_streams()

    # --- one block ----------------------------------------------------------------------------------

    def _block(self, text: str, first: int, following: str) -> None:
        """Read a block, which starts with a line end; `first` is the number of the line after it."""
        self._text, self._first, self._index, self._following = text, first, [], following
        if "RCCL version" in text:
            _messages_init.rccl_version(self, text)
        messages = text.count("NCCL ")
        if messages:
            calls = text.count(": opCount ")
            clean = bool(calls) and self._clean_calls(text, calls)
            if not clean or calls < messages:
                self._messages(REST if clean else MESSAGE, text)
        if "libfabric:" in text:
            libfabric_lines(self, text)
        self._texts.append((text, first))
        if len(self._texts) >= CALLS_TOGETHER:
            self._settle_streams()

    def _clean_calls(self, text: str, expected: int) -> bool:
        """Take in the calls of a block when every one of them is cleanly signed."""
        found = list(CALL.finditer(text))
        if len(found) != expected:
            return False
        streams = self._streams
        for m in found:
            key = m.group(1, 2)
            stream = streams.get(key) or self._stream(key)
            if stream is not None:
                stream.calls += 1
                stream.recent.append(m)
        return True

    def _stream(self, key: tuple[str, str]) -> Stream | None:
        stream = self.comms.stream(self.heads.find(key[0]), key[1])
        if stream is not None and len(self._streams) < MAX_MEMO:
            self._streams[key] = stream
        return stream

    def _messages(self, search: re.Pattern[str], text: str) -> None:
        heads, comms, channels = self.heads, self.comms, self.comms.channels
        find_head, by_text = heads.find, heads.by_text
        rfind = text.rfind
        for m in search.finditer(text):
            kind = m.lastindex
            start = m.start()
            line = rfind("\n", 0, start) + 1
            raw = text[line:start]
            head = by_text.get(raw) or find_head(raw)
            if kind == 3:
                key = (head.current, m.group(1, 2, 3))
                seen = channels.get(key)
                if seen is not None:
                    seen[0] += 1
                else:
                    comms.channel(head, key[1], self.place(line, ""))
            elif kind == 4:
                stream = comms.stream(head, m.group(4))
                if stream is not None:
                    stream.calls += 1
                    stream.recent.append(m)
            elif kind == 5:
                self._info(m.end(), line, raw, head)
            else:
                self._level(m.group(6), m.end(), line, raw, head)

    def _settle_streams(self) -> None:
        """Turn the last calls of each stream into numbered lines, before their blocks go."""
        keep = self.comms.tail_length
        touched = [stream for stream in self.comms.streams.values() if stream.recent]
        wanted: dict[int, list[tuple[int, Stream]]] = {}
        for stream in touched:
            for m in list(stream.recent)[-keep:]:
                wanted.setdefault(id(m.string), []).append((m.start(), stream))
            stream.recent.clear()
        for text, first in self._texts:
            number, at = first - 1, 0
            for offset, stream in sorted(wanted.get(id(text), ()), key=_by_offset):
                if text[offset] != "\n":
                    offset = text.rfind("\n", 0, offset)
                number += text.count("\n", at, offset + 1)
                at = offset + 1
                end = text.find("\n", at)
                stream.tail.append((number, number, text[at : end if end >= 0 else len(text)]))
        for stream in touched:
            del stream.tail[:-keep]
        self._texts = []

    def line_at(self, offset: int) -> tuple[int, str]:
        """Number and text of the line of this block that starts at `offset`."""
        text, index = self._text, self._index
        if not index:
            index.append(self._first - 1)
            for at in range(0, len(text), STEP):
                index.append(index[-1] + text.count("\n", at, at + STEP))
        step = offset // STEP
        end = text.find("\n", offset)
        return (
            index[step] + text.count("\n", step * STEP, offset),
            text[offset : end if end >= 0 else len(text)],
        )

    def place(self, line: int, raw: str) -> Place:
        """The line that starts at offset `line`; `raw` is its text in front of the message."""
        at = time_of(raw) if "20" in raw else None
        return Place(self.line_at, line, at)

    def message(self, start: int) -> str:
        """Text from `start` to the end of the line, or to the next message spliced into it."""
        end = self._text.find("\n", start)
        message = self._text[start : end if end >= 0 else len(self._text)]
        if "NCCL " in message and _ANOTHER.search(message):
            for head in HEAD.finditer(message):
                if _ANOTHER.search(message, head.end()):
                    message = message[: head.start()]
                    if message.endswith("] ") and message[-22:-19] == "[20":
                        message = message[:-22]
                    break
        return message.rstrip()

    def following(self, line: int) -> list[str]:
        """The next few lines after the line that starts at offset `line`."""
        end = self._text.find("\n", line)
        after = self._text[end + 1 : end + 1 + 8_192] if end >= 0 else ""
        lines = after.split("\n")[:HELD_BACK] if after else []
        if len(lines) < HELD_BACK and self._following and end + 1 + 8_192 >= len(self._text):
            lines += self._following.split("\n")[: HELD_BACK - len(lines)]
        return lines

    def foreign(self, pid: int, told: Prefix) -> Head:
        """Who signs with a pid alone; `told` is what a launcher put in front."""
        head = self._foreign.get(pid)
        if head is None:
            head = self._foreign[pid] = Head(Process(told.host, pid, -pid), None, None)
        if told.rank is not None:
            head.process.hints.add(told.rank)
        return head

    def _identify(self) -> None:
        for pid, head in self._foreign.items():
            process = self.heads.by_pid(pid)
            if process is not None:
                head.process = process
            else:
                self.heads.processes[("", pid)] = head.process

    def _info(self, start: int, line: int, raw: str, head: Head) -> None:
        message = self.message(start)
        known = self._memo.get((head.host, message))
        if known is not None:
            for slot in known:
                slot.again(head, None)
            return
        word = message.split(" ", 1)[0]
        place = self.place(line, raw)
        handler = _dispatch.INFO.get(word)
        slots = handler(self, message, head, place) if handler is not None else None
        if slots is None:
            _dispatch.other_info(self, message, head, place)
        elif slots and len(self._memo) < MAX_MEMO:
            self._memo[(head.host, message)] = slots

    def _level(self, level: str, start: int, line: int, raw: str, head: Head) -> None:
        if level in ("WARN ", "ATTN "):
            _warnings.warning(self, level.strip(), self.message(start), head, self.place(line, raw), raw, line)
        elif level == "DIAG ":
            _messages_ranks.diagnostic(self, self.message(start), self.heads.short(raw), self.place(line, raw))
        elif level.startswith("version"):
            _messages_init.version(self, self.message(start - 1), head, self.place(line, raw), raw)

    # --- the end ------------------------------------------------------------------------------------

    def digest(self, kind: str) -> tuple[Digest, list[Record]]:
        """All records, and what is to be said beside them."""
        path = self.source.path
        self._identify()
        self.comms.settle()
        _messages_socket.leftovers(self)
        digest = Digest(kind, max_tallies=MAX_RECORDS)
        limit = digest.max_tallies
        dropped = dict(self.ledger.dropped)
        for key, record in (*self.ledger.records(path, self.comms.rank_of), *self.comms.records(path)):
            if len(digest.tallies) >= limit:
                dropped[record.kind] = dropped.get(record.kind, 0) + record.count
            else:
                digest.tallies[key] = record
        beside: list[Record] = []
        if self.comms.dropped:
            dropped["communicators, calls or channels"] = self.comms.dropped
        if dropped:
            digest.totals["tallies_dropped"] = float(sum(dropped.values()))
            what = ", ".join(f"{count} of {name}" for name, count in sorted(dropped.items()))
            beside.append(Record("parse_problem", {"text": f"more than can be kept; left out: {what}"}))
        told = {record.host for record in digest.tallies.values()}
        silent = sorted({p.host for p in self.heads.processes.values() if p.host} - {h for h in told if h})
        beside.extend(Record("covered", {"topic": "nccl_log"}, host=host) for host in silent)
        return digest, beside


def _by_offset(found: tuple[int, Stream]) -> int:
    return found[0]
