"""Bytes of a source as clean text: blocks, lines, excerpts, line counts. Needs nothing but the source itself.

Line feeds, carriage returns and the pair of them end a line alike, as in Python's text files and most editors; a
progress bar that redraws itself is a line for each redraw. A file that grows is read up to the size it had when the
bundle was opened; one that vanished raises OSError.
"""

from __future__ import annotations

import bisect
import codecs
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from diagnose.bundle.decoration import undecorated
from diagnose.model import Block, Line, Source
from diagnose.parsing import MAX_LINE, clean, unwrap_json

BLOCK = 4 << 20
WHOLE = 1 << 20
"""Sources up to this size are sniffed whole (bytes): what a person pastes is smaller."""
ENDS = 128 << 10
"""Of bigger ones the first and the last part of this size (bytes), and samples between."""
SAMPLES, SAMPLE = 6, 32 << 10
"""How many samples of a big source, evenly spread, and their size (bytes)."""
_HEAD = 1 << 16
_FIRST_LINES = 20
"""A JSON log shows itself in so many lines; the first may be torn or the words of a person."""
_MAX_EXCERPT_LINES = 2_000
_MAX_CARRY = 4 * MAX_LINE
"""Bytes of an unfinished line that are kept; more could not add a character before the cut."""

_CONTROLS = bytes(b for b in (*range(32), 127) if b not in b"\t\n\r")
_MARKS = re.compile(
    rb"\xc2[\x80-\xa0]|\xe2(?:\x80[\x8b\x8e\x8f\x93\x94\x98-\x9f\xaa-\xae]|\x81[\xa0\xa6-\xa9])|\xef\xbb\xbf"
)
_MARK_BYTES = (b"\xc2", b"\xe2", b"\xef\xbb\xbf")


def encoding_of(head: bytes) -> str:
    """`utf-8`, `utf-8-sig`, `utf-16-le`, `utf-16-be` or `utf-32`, from the mark or from where the NULs stand."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if head.startswith(mark):
            return name
    pairs = len(head) // 2
    if pairs >= 4:
        even, odd = head[0 : pairs * 2 : 2].count(0), head[1 : pairs * 2 : 2].count(0)
        if odd > 0.7 * pairs and even < 0.05 * pairs:
            return "utf-16-le"
        if even > 0.7 * pairs and odd < 0.05 * pairs:
            return "utf-16-be"
    return "utf-8"


def read_blocks(source: Source, size: int = BLOCK) -> Iterator[Block]:
    """Whole lines in blocks of about `size` bytes, without the last line end. OSError when the file is gone."""
    with _opened(source) as handle:
        yield from _blocks(handle, _form(handle), max(size, 4096), stop=source.size)


def read_lines(source: Source) -> Iterator[Line]:
    """All lines, numbered from 1. OSError when the file is gone."""
    for block in read_blocks(source, 1 << 18):
        number = block.first
        for text in block.text.split("\n"):
            yield Line(number, text)
            number += 1


def excerpt(source: Source, first: int, last: int, context: int = 3) -> list[Line]:
    """Lines `first` to `last` (1-based, inclusive) with `context` lines on both sides; at most 2,000 lines."""
    start, stop = max(1, first - context), last + context
    found: list[Line] = []
    for block in read_blocks(source):
        if block.first > stop or len(found) >= _MAX_EXCERPT_LINES:
            break
        if block.first + block.text.count("\n") < start:
            continue
        for number, text in enumerate(block.text.split("\n"), block.first):
            if start <= number <= stop:
                found.append(Line(number, text))
    return found[:_MAX_EXCERPT_LINES]


def count_lines(source: Source) -> int:
    """Number of lines, without decoding when the encoding allows."""
    count, last = 0, b"\n"
    with _opened(source) as handle:
        for piece in _pieces(handle, _form(handle), BLOCK, stop=source.size):
            count += piece.count(b"\n")
            last = piece[-1:]
    return count + (last != b"\n")


def peek(source: Source) -> str:
    """What parsers sniff at: all of a text up to 1 MiB, else its ends and samples between."""
    if source.size <= WHOLE:
        return "\n".join(block.text for block in read_blocks(source))
    with _opened(source) as handle:
        form = _form(handle)
        stride = (source.size // (SAMPLES + 1)) & ~3
        parts = [(0, ENDS), *((n * stride, n * stride + SAMPLE) for n in range(1, SAMPLES + 1))]
        parts.append((source.size - ENDS - source.size % 4, source.size))
        texts = ["\n".join(block.text for block in _blocks(handle, form, ENDS, *part)) for part in parts]
    return "\n".join([texts[0], *(text.partition("\n")[2] for text in texts[1:])])


class LineReader:
    """Lines of a source by position: `reader[0:50]` are lines 1 to 50. A slice costs the slice, opening one pass."""

    def __init__(self, source: Source):
        self._source = source
        self._marks: list[tuple[int, int]] = [(0, 0)]  # lines before, byte offset of a line's start
        with _opened(source) as handle:
            self._form = _form(handle)
            if self._form.encoding == "utf-8":
                self._mark(handle)
        self._count = count_lines(source)

    def _mark(self, handle: BinaryIO) -> None:
        handle.seek(0)
        count = offset = 0
        carry = b""
        while raw := handle.read(BLOCK >> 4):
            raw = carry + raw
            end = raw.rfind(b"\n") + 1
            whole, carry = raw[:end], raw[end:]
            if whole:
                count += whole.count(b"\n")
                if b"\r" in whole:
                    count += whole.count(b"\r") - whole.count(b"\r\n")
                offset += end
                self._marks.append((count, offset))
            elif len(carry) > _MAX_CARRY:
                return

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: slice, /) -> list[Line]:
        start, stop, _ = index.indices(self._count)
        if start >= stop:
            return []
        before, offset = self._marks[bisect.bisect_right(self._marks, (start, sys.maxsize)) - 1]
        found: list[Line] = []
        with _opened(self._source) as handle:
            for block in _blocks(handle, self._form, BLOCK >> 4, offset, self._source.size, before + 1):
                if block.first > stop:
                    break
                texts = enumerate(block.text.split("\n"), block.first)
                found += [Line(number, text) for number, text in texts if start < number <= stop]
        return found


def _opened(source: Source) -> BinaryIO:
    return Path(source.location).open("rb", buffering=0)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a file is written: its encoding, and what unwraps each line (JSON logs, quotes, line numbers)."""

    encoding: str
    unwrap: Callable[[str], str] | None


def _form(handle: BinaryIO) -> _Form:
    head = handle.read(_HEAD)
    encoding = encoding_of(head)
    if not encoding.startswith("utf-8"):
        head = head.decode(encoding, "replace").encode()
    lines = _text(head.removeprefix(codecs.BOM_UTF8)).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if any(unwrap_json(line) != line for line in lines[:_FIRST_LINES]):
        return _Form(encoding, unwrap_json)
    return _Form(encoding, undecorated(lines[:-1] if len(head) >= _HEAD else lines))


def _pieces(handle: BinaryIO, form: _Form, size: int, start: int = 0, stop: int = 0) -> Iterator[bytes]:
    """UTF-8 pieces of about `size` bytes with line feeds, cut anywhere, of the bytes `start` to `stop` (0: the end)."""
    handle.seek(start)
    decoder = None
    if not form.encoding.startswith("utf-8"):
        decoder = codecs.getincrementaldecoder(form.encoding)("replace")
    left = stop - start if stop else sys.maxsize
    marked, returned = start == 0, b""
    while left > 0 and (raw := handle.read(min(size, left))):
        left -= len(raw)
        if decoder is not None:
            raw = decoder.decode(raw).encode("utf-8", "replace")
        if marked:
            raw, marked = raw.removeprefix(codecs.BOM_UTF8), False
        if returned or b"\r" in raw:
            raw = returned + raw
            returned = b"\r" if raw.endswith(b"\r") else b""
            raw = raw.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if raw:
            yield raw
    if returned:
        yield b"\n"


def _chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines, without the last line end. A last line that did not end comes with those before it."""
    ready: bytes | None = None
    rest: list[bytes] = []
    held = 0
    for piece in pieces:
        end = piece.rfind(b"\n")
        if end < 0:
            if held < _MAX_CARRY:  # the line will be cut long before
                rest.append(piece)
                held += len(piece)
            continue
        if ready is not None:
            yield ready
        ready = b"".join((*rest, piece[:end])) if rest else piece[:end]
        rest, held = [piece[end + 1 :]] if end + 1 < len(piece) else [], len(piece) - end - 1
    if rest:
        ready = b"".join(rest) if ready is None else b"".join((ready, b"\n", *rest))
    if ready is not None:
        yield ready


def _blocks(
    handle: BinaryIO, form: _Form, size: int, start: int = 0, stop: int = 0, number: int = 1
) -> Iterator[Block]:
    for raw in _chunks(_pieces(handle, form, size, start, stop)):
        text = _text(raw)
        if form.unwrap is not None:
            text = "\n".join(form.unwrap(line) for line in text.split("\n"))
        yield Block(number, text)
        number += text.count("\n") + 1


def _text(raw: bytes) -> str:
    dirty = any(control in raw for control in _CONTROLS)
    if not dirty and not raw.isascii():
        dirty = any(mark in raw for mark in _MARK_BYTES) and _MARKS.search(raw) is not None
    text = raw.decode("utf-8", "replace")
    if dirty:
        text = clean(text)
    return _cut(text) if len(text) > MAX_LINE else text


def _cut(text: str) -> str:
    """Lines over MAX_LINE characters cut. Hops over the text from line end to line end: no scan of all of it."""
    position, length = 0, len(text)
    while length - position > MAX_LINE:
        end = text.rfind("\n", position, position + MAX_LINE + 1)
        if end < 0:
            return "\n".join(line[:MAX_LINE] for line in text.split("\n"))
        position = end + 1
    return text
