"""Walks over the blocks of a log and hands each message to those who understand it.

Work follows the information: one compiled search finds the messages, the bulk (channels, collectives) is counted
where it stands, messages that say nothing to us are passed over inside the search, and a message that a host has
said before is only counted again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from diagnose.model import Block, Digest, Record, Source
from diagnose.parsing import Prefix

from . import _dispatch, _messages_init, _messages_ranks, _messages_socket, _warnings
from ._calls import Calls, is_torn
from ._comms import Comms
from ._ledger import Ledger, Place, Slot
from ._libfabric import libfabric_lines
from ._prefix import HEAD, Head, Heads, Process, time_of
from ._unsigned import Unsigned

_PASS_OVER = (
    r"Channel |Ring |Tree|NVLS (?:Tree|Head|comm)|Setting affinity|ncclTopo|threadThresholds|P2P Chunk|Check P2P|"
    r"\[Proxy|New proxy|Connect(?:ion|ed) to proxy|Allocated |proxyProgress|Received and|Dumping|===|  |\+ |"
    r"CPU/|GPU/|NIC/|NET/\d|PCI/|NVS/|Paths|NET/IB: (?:Dev|IbDev|NCCL Dev|\w{1,60}: (?:QP|Pre|Set ECE|IbDev|Flush))|"
    r"Mem |Cuda [AHC]|CUDA Host|CUMEM|UDS|cudaDriver|CC |Symmetric|"
    r"Imported|register|Loading|KV |Type |Intra|DMA-BUF is (?!available)|"
    r"Socket handshake|Stack size|MNNVL busId|ncclCollNet|Tuning|Profiler|Host Calloc|"
    r"RAS client listening|Initialized NET|Assigned NET"
)
_CHANNEL = (
    r"(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? : (\d{1,7})(?:\[[^\]\n]{0,20}\])? -> (\d{1,7})(?:\[[^\]\n]{0,20}\])? "
    r"(?:\[\w{1,8}\] )?via ((?:NET|COLLNET)/[^/\n]{1,40}/\S{1,80}|P2P/\S{1,60}|SHM\S{0,40}|direct shared)"
)
_LEVELS = r"(WARN |ATTN |DIAG |CALL |TRACE |version \d)"
_CALL = r"\w{1,40}: opCount [^\n]{60,260}? comm (0x[0-9a-f]{1,16}) "
MESSAGE = re.compile(rf"NCCL (?:INFO (?:{_CHANNEL}|{_CALL}|(?!{_PASS_OVER})())|{_LEVELS})", re.ASCII)
"""Every message worth a look: 1–3 a channel, 4 a call's communicator, 5 any other INFO, 6 the level of the rest."""
REST = re.compile(rf"NCCL (?:INFO (?!\w{{1,40}}: opCount )(?:{_CHANNEL}|(?!{_PASS_OVER})()())|{_LEVELS})", re.ASCII)
"""As MESSAGE, without the calls."""
REGION = 24_000_000
"""Blocks are gathered to so many characters."""
_ANOTHER = re.compile(r"NCCL (?:INFO|WARN|ATTN|CALL|TRACE) ")
HELD_BACK = 16
"""So many lines of a block are read with the next one, so that messages of several lines stay whole."""
FIRST_FEW = 50
"""Where no message says anything, so many are asked who signs them."""
STEP = 4_096
LEAST_SIGNATURE = 6
MAX_SIGNATURE = 700
MAX_MESSAGE = 6_000
MAX_KEPT = 4_000
"""Least and longest text in front of a message, longest message and longest line kept, in characters."""
MAX_MEMO = 60_000
MAX_RECORDS = 80_000


class Reader:
    """The state of one log while it is read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.heads = Heads()
        self.ledger = Ledger()
        self.comms = Comms(self.heads)
        self.calls = Calls(self.heads)
        self.unsigned = Unsigned()
        self.addresses: dict[str, str] = {}
        self.rccl = False
        self.shape = _warnings.shape
        self._text = ""
        self._first = 1
        self._index: list[int] = []
        self._memo: dict[tuple[str | None, str], tuple[list[Slot], str | None]] = {}
        self._following = ""
        self._foreign: dict[int, Head] = {}

    def read(self, blocks: Iterable[Block]) -> None:
        """Read all blocks, which follow one another, in order."""
        gathered: list[str] = []
        first, size = 1, 0
        for block in blocks:
            if not gathered:
                first = block.first
            gathered.append(block.text)
            size += len(block.text)
            if size >= REGION:
                lines = block.first + block.text.count("\n") + 1 - first - HELD_BACK
                kept = _take_last_lines(gathered)
                if kept is None:
                    continue
                text = "\n".join(gathered)
                gathered.clear()
                self._region(text, first, lines, kept)
                del text
                gathered, first, size = [kept], first + lines, len(kept)
        if gathered:
            text = "\n".join(["", *gathered])
            gathered.clear()
            self._region(text, first, text.count("\n"), "")

    # --- a region ---------------------------------------------------------------------------------------

    def _region(self, text: str, first: int, lines: int, following: str) -> None:
        """Read a region, which starts with a line end; `first` is the number of the line after it."""
        self._text, self._first, self._index, self._following = text, first, [], following
        calls = text.count(": opCount ")
        clean = bool(calls) and self.calls.region(text, first, lines, calls)
        if clean and calls == lines:
            return
        if "RCCL version" in text:
            _messages_init.rccl_version(self, text)
        if clean:
            self._messages(REST, text)
        elif "NCCL " in text:
            self.calls.start()
            self._messages(MESSAGE, text)
            self.calls.finish(text, first, lines)
        if "libfabric:" in text:
            libfabric_lines(self, text)
        self.unsigned.collect(self, text)
        self.comms.settle_marks()
        if not self.heads.processes:
            for m in itertools.islice(_ANOTHER.finditer(text), FIRST_FEW):
                self.heads.find(text[text.rfind("\n", 0, m.start()) + 1 : m.start()])

    def _messages(self, search: re.Pattern[str], text: str) -> None:
        heads, comms, channels = self.heads, self.comms, self.comms.channels
        find_head, by_text = heads.find, heads.by_text
        rfind = text.rfind
        line = seen_to = ended = 0
        for m in search.finditer(text):
            kind = m.lastindex
            start = m.start()
            newline = rfind("\n", seen_to, start)
            seen_to = start
            if newline >= 0:
                line = newline + 1
            elif start - ended < LEAST_SIGNATURE and text[start + 5] != "v":
                ended = m.end()
                continue
            ended = m.end()
            raw = text[line if start - line <= MAX_SIGNATURE else start - MAX_SIGNATURE : start]
            head = by_text.get(raw)
            if head is not None:
                raw = ""
            else:
                head = find_head(raw)
                if head is heads.nobody and newline < 0:
                    continue
            if kind == 3:
                key = (head.current, m.group(1, 2, 3))
                seen = channels.get(key)
                if seen is not None:
                    seen[0] += 1
                else:
                    comms.channel(head, key[1], self.place(line, ""))
            elif kind == 4:
                joined = text.rfind("NCCL INFO ", start + 5, m.end())
                if joined >= 0:
                    self.calls.tear(head, self.line_at(line)[0])
                    head = self.calls.glued(text[max(start, joined - MAX_SIGNATURE) : joined], m.group(4))
                self.calls.one(head, m.group(4), line)
            elif kind == 5:
                self._info(m.end(), line, raw, head)
            else:
                self._level(m.group(6), m.end(), line, raw, head)

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
            text[offset : min(end if end >= 0 else len(text), offset + MAX_KEPT)],
        )

    def place(self, line: int, raw: str) -> Place:
        """The line that starts at offset `line`; `raw` is its text in front of the message, "" without a time."""
        return Place(self.line_at, line, time_of(raw) if raw else None)

    def message(self, start: int) -> str:
        """Text from `start` to the end of the line, or to the next message spliced into it."""
        end = self._text.find("\n", start)
        return self._cut(self._text[start : min(end if end >= 0 else len(self._text), start + MAX_MESSAGE)])

    @staticmethod
    def _cut(message: str) -> str:
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
                head.belong(process)
            else:
                self.heads.processes[("", pid)] = head.process

    def _info(self, start: int, line: int, raw: str, head: Head) -> None:
        end = self._text.find("\n", start)
        message = self._text[start : min(end if end >= 0 else len(self._text), start + MAX_MESSAGE)]
        if is_torn(self._cut(message) if "NCCL " in message else message.rstrip()):
            self.calls.tear(head, self.line_at(line)[0])
            return
        key = (head.host, _dispatch.essence(message))
        known = self._memo.get(key)
        if known is not None:
            slots, marker = known
            for slot in slots:
                slot.again(head, None)
            if marker is not None:
                self.comms.mark(head, marker, self.place(line, ""))
            return
        whole, message = message, self._cut(message)
        place = self.place(line, raw)
        self.comms.marker = None
        handler = _dispatch.INFO.get(message.split(" ", 1)[0])
        slots = handler(self, message, head, place) if handler is not None else None
        if slots is None:
            slots = _dispatch.other_info(self, message, head, place)
        if slots and len(self._memo) < MAX_MEMO and len(whole.rstrip()) == len(message):
            self._memo[key] = (slots, self.comms.marker)

    def _level(self, level: str, start: int, line: int, raw: str, head: Head) -> None:
        if level in ("WARN ", "ATTN "):
            _warnings.warning(self, level.strip(), self.message(start), head, self.place(line, raw), raw, line)
        elif level == "DIAG ":
            _messages_ranks.diagnostic(self, self.message(start), self.heads.short(raw), self.place(line, raw))
        elif level.startswith("version"):
            _messages_init.version(self, self.message(start - 1), head, self.place(line, raw), raw)

    # --- the end ------------------------------------------------------------------------------------

    def told(self, kind: str) -> Iterator[Record | Digest]:
        """The digest of all that was read, and what is to be said beside it."""
        path = self.source.path
        self.unsigned.replay(self)
        self._identify()
        self.comms.settle()
        _messages_socket.leftovers(self)
        digest = Digest(kind, max_tallies=MAX_RECORDS)
        limit = digest.max_tallies
        dropped = dict(self.ledger.dropped)
        told = (
            self.ledger.records(path, self.comms.rank_of),
            self.comms.records(path),
            self.calls.records(path, self.comms),
        )
        for key, record in itertools.chain(*told):
            if len(digest.tallies) >= limit:
                dropped[record.kind] = dropped.get(record.kind, 0) + record.count
            else:
                digest.tallies[key] = record
        if self.comms.dropped or self.calls.dropped:
            dropped["communicators, calls or channels"] = self.comms.dropped + self.calls.dropped
        if dropped:
            digest.totals["tallies_dropped"] = float(sum(dropped.values()))
        if digest.tallies:
            yield digest
        if dropped:
            what = ", ".join(f"{count} of {name}" for name, count in sorted(dropped.items()))
            yield Record("parse_problem", {"text": f"more than can be kept; left out: {what}"})
        torn = sorted(n for lines in self.calls.torn.values() for n in lines)
        if torn:
            words = f"{len(torn)} lines of calls are torn (the last in line {torn[-1]}): what they call is not known"
            yield Record("parse_problem", {"text": words})
        for host in sorted({p.host for p in self.heads.processes.values() if p.host}):
            yield Record("covered", {"topic": "nccl_log"}, host=host)


def _take_last_lines(gathered: list[str]) -> str | None:
    """Take the last HELD_BACK lines off the last piece, put a line end before the first; None when it is too short."""
    last = gathered[-1]
    cut = len(last)
    for _ in range(HELD_BACK):
        cut = last.rfind("\n", 0, cut)
        if cut < 0:
            return None
    gathered[-1] = last[:cut]
    gathered.insert(0, "")
    return last[cut + 1 :]
