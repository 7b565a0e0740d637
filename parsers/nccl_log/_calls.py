"""COLL lines: of each communicator of each process the last few calls, and how many there were.

A log of gigabytes is mostly these lines, and only the last ones matter. A region of the log that holds nothing else
is therefore read from its end, until every stream known from the region before has turned up; the numbers of the
calls then prove that the lines left unread belong to the same streams, and are counted by difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from diagnose.model import Record

from ._comms import Comms
from ._ledger import evidence_of
from ._prefix import Head, Heads, time_of

CALL = re.compile(
    r"\n(?:\[[^\]\n]{1,40}\][: ] ?|\d{1,5}: )?(\S{5,280} \[-?\d{1,20}\]) NCCL INFO "
    r"\w{1,40}: opCount ([0-9a-f]{1,16}) [^\n]{60,300} comm (0x[0-9a-f]{1,16}) ",
    re.ASCII,
)
"""A cleanly signed call: 1 the signature, 2 its number in hexadecimal, 3 the communicator."""
_FIELDS = re.compile(
    r"(\w{1,40}): opCount ([0-9a-f]{1,16}) sendbuff \S{1,20} recvbuff \S{1,20} count (\d{1,20}) datatype (\d{1,3}) "
    r"op \d{1,20} root (-?\d{1,10}) comm (0x[0-9a-f]{1,16})(?: \[nranks=(\d{1,7})\])?",
    re.ASCII,
)
_GLUED = re.compile(r"([^\s:]{1,255}):(\d{1,9}):\d{1,9} \[-?\d{1,20}\] $", re.ASCII)
_OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "AlltoAll", "Gather", "Scatter",
               "Send", "Recv")  # fmt: skip
_TORN = re.compile(r"([A-Z][A-Za-z]{0,15})(:?|: (?:o[pCount]{0,6}|opCount [^\n]{0,260}))$")
_DATATYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
              "float8e4m3", "float8e5m2")  # fmt: skip
"""ncclDataType_t by number, NCCL 2.27."""
_CHUNK = 1 << 20
MAX_STREAMS = 20_000
MAX_TORN = 200
"""So many torn lines of a process are remembered, at most."""
MAX_SIGNATURES = 60_000
MAX_TAIL = 4
MAX_KEPT = 4_000
TAILS = ((256, MAX_TAIL), (2_048, 2))
"""Up to so many streams, so many last calls of each are handed on; of more, one."""

Kept = tuple[int, int, str]


class Stream:
    """The calls of one process in one communicator."""

    __slots__ = ("calls", "fresh", "head", "here", "last", "number", "pointer", "region", "tail")

    def __init__(self, pointer: str, head: Head) -> None:
        self.pointer = pointer
        self.head = head
        self.calls = 0
        self.tail: list[Kept] = []
        self.region = -1
        self.here = 0
        self.fresh: list[int] = []
        self.last: int | None = None
        self.number: int | None = None


class Calls:
    """All streams of a log."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self.streams: dict[tuple[int, str], Stream] = {}
        self.dropped = 0
        self.torn: dict[int, list[int]] = {}
        self._owners: dict[tuple[int | None, str], Head] = {}
        self._by_signature: dict[tuple[str, str], Stream] = {}
        self._region = 0
        self._touched: list[Stream] = []
        self._alive: list[Stream] = []
        self._held: tuple[str, int, list[tuple[Stream, list[int]]]] | None = None

    @property
    def keep(self) -> int:
        """How many last calls of each stream are handed on; falls as streams turn up."""
        return next((length for streams, length in TAILS if len(self.streams) <= streams), 1)

    def stream(self, head: Head, pointer: str) -> Stream | None:
        """The stream of that process and communicator; None when there are too many."""
        key = (head.process.number, pointer)
        stream = self.streams.get(key)
        if stream is None and len(self.streams) < MAX_STREAMS:
            stream = self.streams[key] = Stream(pointer, head)
            self._owners.setdefault((head.pid, pointer), head)
        return stream

    # --- a region cleanly signed ----------------------------------------------------------------------

    def region(self, text: str, first: int, lines: int, expected: int) -> bool:
        """Take in a region of `lines` lines of which `expected` are calls; False when not all are cleanly signed.

        `text` starts with a line end; `first` is the number of the line after it.
        """
        self._open()
        unexpected = 0
        region, by_signature = self._region, self._by_signature
        waiting = {id(stream) for stream in self._alive}
        pure = lines == expected and bool(waiting)
        found, end = 0, len(text)
        keep = self.keep
        while end > 0:
            start = text.rfind("\n", 0, max(end - _CHUNK, 1))
            matches = list(CALL.finditer(text, start, end))
            found += len(matches)
            for m in reversed(matches):
                signature, number, pointer = m.groups()
                stream = by_signature.get((signature, pointer)) or self._find(signature, pointer)
                if stream is None:
                    continue
                if stream.region != region:
                    self._enter(stream)
                    stream.last = int(number, 16)
                    unexpected += id(stream) not in waiting
                stream.here += 1
                if stream.here <= keep:
                    stream.fresh.append(m.start() + 1)
                    if stream.here == keep:
                        waiting.discard(id(stream))
            end = start
            if pure and end > 0 and not waiting and not unexpected and self._accounts_for(expected):
                self._hold(text, start, first + lines, keep)
                return True
        if found != expected:
            self._undo()
            return False
        self._close(text, first + lines)
        return True

    def _find(self, signature: str, pointer: str) -> Stream | None:
        stream = self.stream(self.heads.find(f"{signature} "), pointer)
        if stream is None:
            self.dropped += 1
        elif len(self._by_signature) < MAX_SIGNATURES:
            self._by_signature[(signature, pointer)] = stream
        return stream

    def _accounts_for(self, expected: int) -> bool:
        """Whether the numbers of the calls explain every line of the region."""
        if any(s.last is None or s.number is None or s.last - s.number < s.here for s in self._touched):
            return False
        if sum(s.last - s.number for s in self._touched) != expected:  # type: ignore[operator, misc]
            return False
        for stream in self._touched:
            stream.here = stream.last - stream.number  # type: ignore[operator]
        return True

    # --- any other region -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a region whose calls come one by one."""
        self._open()

    def one(self, head: Head, pointer: str, line: int) -> None:
        """A call in the line at that offset; one whose signature is torn off belongs to nobody."""
        if head is self.heads.nobody:
            return
        stream = self.stream(head, pointer)
        if stream is None:
            self.dropped += 1
            return
        if stream.region != self._region:
            self._enter(stream)
        stream.here += 1
        stream.fresh.append(line)
        if len(stream.fresh) > 64:
            del stream.fresh[:-MAX_TAIL]

    def glued(self, before: str, pointer: str) -> Head:
        """Who signs a call whose signature, at the end of `before`, is glued to the line in front of it."""
        m = _GLUED.search(before)
        owner = self._owners.get((int(m[2]), pointer)) if m else None
        known = m is not None and owner is not None and m[1].endswith((owner.host or "").split(".", 1)[0])
        return owner if known and owner is not None else self.heads.nobody

    def tear(self, head: Head, number: int) -> None:
        """A call of that process in the line of that number, whose end is torn off."""
        if head is not self.heads.nobody:
            lines = self.torn.setdefault(head.process.number, [])
            lines.append(number)
            if len(lines) > MAX_TORN:
                del lines[: -MAX_TORN // 2]

    def finish(self, text: str, first: int, lines: int) -> None:
        """End the region begun with `start`."""
        for stream in self._touched:
            stream.fresh.reverse()
        self._close(text, first + lines)

    # --- begin and end of a region ----------------------------------------------------------------------

    def _open(self) -> None:
        self._region += 1
        self._alive, self._touched = self._touched, []

    def _enter(self, stream: Stream) -> None:
        stream.region = self._region
        stream.here = 0
        stream.fresh = []
        stream.last = None
        self._touched.append(stream)

    def _undo(self) -> None:
        for stream in self._touched:
            stream.region = -1
            stream.here = 0
            stream.fresh = []
        self._touched = []

    def _close(self, text: str, after: int) -> None:
        """Count the calls of a region and keep the last ones; `after` is the number of the line after its end."""
        keep = self.keep
        self._release()
        _materialise(text, after, [(stream, stream.fresh[:keep]) for stream in self._touched], keep)
        self._count()

    def _hold(self, text: str, start: int, after: int, keep: int) -> None:
        """As `_close`, but the lines stay offsets into the end of the text: the next region most likely has newer ones.

        Every stream has `keep` of them here, so nothing that was held before is needed.
        """
        pairs = [(stream, [offset - start for offset in stream.fresh[:keep]]) for stream in self._touched]
        self._held = (text[start:], after, pairs)
        self._count()

    def _release(self) -> None:
        if self._held is not None:
            _materialise(*self._held, self.keep)
            self._held = None

    def _count(self) -> None:
        for stream in self._touched:
            stream.calls += stream.here
            stream.fresh = []
            stream.number = stream.last

    # --- telling ------------------------------------------------------------------------------------------

    def records(self, path: str, comms: Comms) -> Iterator[tuple[tuple[Any, ...], Record]]:
        """The last calls of each stream, with keys."""
        self._release()
        for (process, pointer), stream in sorted(self.streams.items(), key=_by_place):
            for number, kept in enumerate(stream.tail[-self.keep :]):
                torn = sum(line > kept[0] for line in self.torn.get(process, ()))
                record = _record(stream, kept, path, comms, torn)
                if record is not None:
                    yield ("nccl_collective", process, pointer, number), record


def _materialise(text: str, after: int, pairs: list[tuple[Stream, list[int]]], keep: int) -> None:
    """Append lines to the tails of streams, given their offsets, newest first.

    Lines are counted from the end of the text, where most of them lie; `after` is the number of the line after it.
    """
    wanted = sorted(((offset, i) for i, (_, offsets) in enumerate(pairs) for offset in offsets), reverse=True)
    news: list[list[Kept]] = [[] for _ in pairs]
    number, at = after, len(text)
    for offset, i in wanted:
        number -= text.count("\n", offset, at) + (at == len(text))
        at = offset
        end = text.find("\n", offset)
        end = min(end if end >= 0 else len(text), offset + MAX_KEPT)
        news[i].append((number, number, text[offset:end]))
    for (stream, _), kept in zip(pairs, news, strict=True):
        stream.tail = [*stream.tail, *reversed(kept)][-keep:]


def is_torn(message: str) -> bool:
    """Whether a message that is no whole call is the beginning of one."""
    m = _TORN.match(message)
    if m is None:
        return False
    return m[1] in _OPERATIONS if m[2] else any(name.startswith(m[1]) for name in _OPERATIONS)


def _by_place(item: tuple[tuple[int, str], Stream]) -> tuple[str, int, str]:
    stream = item[1]
    return stream.head.host or "", stream.head.pid or 0, stream.pointer


def _record(stream: Stream, kept: Kept, path: str, comms: Comms, torn: int) -> Record | None:
    found = None
    for candidate in _FIELDS.finditer(kept[2]):
        if candidate.group(6) == stream.pointer:
            found = candidate
    if found is None:
        return None
    datatype = int(found.group(4))
    fields: dict[str, Any] = {
        "comm": stream.pointer,
        "op": found.group(1),
        "op_count": int(found.group(2), 16),
        "elements": int(found.group(3)),
        "datatype": _DATATYPES[datatype] if datatype < len(_DATATYPES) else str(datatype),
        "root": int(found.group(5)),
        "calls": stream.calls,
    }
    if found.group(7):
        fields["nranks"] = int(found.group(7))
    if torn:
        fields["torn"] = torn
    comm = comms.open.get((stream.head.process.number, stream.pointer))
    if comm is not None:
        fields["comm_rank"] = comm.rank
        if comm.comm_id:
            fields["comm_id"] = comm.comm_id
    if stream.head.pid is not None:
        fields["pid"] = stream.head.pid
    return Record(
        "nccl_collective",
        fields,
        (evidence_of(path, kept),),
        at=time_of(kept[2][: found.start()]),
        host=stream.head.host,
        rank=comms.rank_of(stream.head if comm is None else comm.head),
    )
