"""Bytes of a source as clean text: blocks, lines, excerpts, line counts. Needs nothing but the source itself.

Lines are counted by line feeds, as `sed -n` and editors do. A carriage return inside a line (a redrawn progress bar)
starts a new `Line` or `Block` of the *same* number; redraws that were overwritten are dropped. A file with carriage
returns only is read with those as line ends. A file that grows is read up to the size it had when the bundle was
opened; one that vanished raises OSError.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from diagnose.model import Block, Line, Source
from diagnose.parsing import MAX_LINE, clean, unwrap_json

BLOCK = 4 << 20
WHOLE = 8 << 20
"""Sources up to this size are sniffed whole (bytes)."""
ENDS = 1 << 20
"""Of bigger ones the first and the last part of this size (bytes)."""
_MAX_EXCERPT_LINES = 2_000

_CONTROLS = bytes(b for b in (*range(32), 127) if b not in b"\t\n\r")
_MARKS = re.compile(rb"\xc2[\x80-\x9f]|\xe2(?:\x80[\x8e\x8f\xaa-\xae]|\x81[\xa6-\xa9])")
_MARK_BYTES = (b"\xc2", b"\xe2")


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
    with Path(source.location).open("rb", buffering=0) as handle:
        yield from _blocks(handle, source.size or None, max(size, 4096))


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
    with Path(source.location).open("rb", buffering=0) as handle:
        stream = _Stream(handle, source.size or None)
        for piece in stream.pieces(BLOCK):
            count += piece.count(b"\n")
            last = piece[-1:]
    return count + (last != b"\n")


def peek(source: Source) -> str:
    """What parsers sniff at: all of a text up to 8 MiB, else its first and last MiB."""
    if source.size <= WHOLE:
        return "\n".join(block.text for block in read_blocks(source))
    with Path(source.location).open("rb", buffering=0) as handle:
        head = next(_blocks(handle, ENDS, ENDS), Block(1, "")).text
        encoding = _Stream(handle, None).encoding
        start = source.size - ENDS
        handle.seek(start - start % 4)
        tail = "\n".join(block.text for block in _blocks(handle, ENDS, ENDS, encoding))
    return head + "\n" + tail.partition("\n")[2]


class _Stream:
    """UTF-8 pieces of a file of any encoding, line feeds as line ends, at most `limit` bytes of it."""

    def __init__(self, handle: BinaryIO, limit: int | None, encoding: str | None = None):
        position = handle.tell()
        if encoding is not None:
            self.head = b""
        else:
            handle.seek(0)
            self.head = handle.read(1 << 16)
            handle.seek(position)
        self.encoding = encoding or encoding_of(self.head)
        self._handle, self._limit = handle, limit
        self.bare_returns = b"\r" in self._in_utf8(self.head) and b"\n" not in self._in_utf8(self.head)

    def _in_utf8(self, raw: bytes) -> bytes:
        return raw if self.encoding.startswith("utf-8") else raw.decode(self.encoding, "replace").encode()

    def pieces(self, size: int) -> Iterator[bytes]:
        """Pieces of about `size` bytes, cut anywhere."""
        decoder = None
        if not self.encoding.startswith("utf-8"):
            decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        left = self._limit
        first = self._handle.tell() == 0
        while left is None or left > 0:
            raw = self._handle.read(size if left is None else min(size, left))
            if not raw:
                break
            if left is not None:
                left -= len(raw)
            if decoder is not None:
                raw = decoder.decode(raw).encode("utf-8", "replace")
            if first:
                raw = raw.removeprefix(codecs.BOM_UTF8)
                first = False
            if self.bare_returns:
                raw = raw.replace(b"\r", b"\n")
            if raw:
                yield raw


def _chunks(stream: _Stream, size: int) -> Iterator[tuple[bytes, bool]]:
    """Whole lines without the last line end, and whether that line ended (else the next chunk goes on with it)."""
    rest = b""
    skipping = False
    for piece in stream.pieces(size):
        if skipping:
            at = _first_end(piece)
            if at < 0:
                continue
            piece, skipping = piece[at:], False
        end = piece.rfind(b"\n")
        if end >= 0:
            yield (rest + piece[:end] if rest else piece[:end]), True
            rest = piece[end + 1 :]
            continue
        rest += piece
        if len(rest) > 4 * MAX_LINE:
            turn = rest.rfind(b"\r")
            if turn >= 0:
                yield rest[:turn], False
                rest = rest[turn + 1 :]
            if len(rest) > 4 * MAX_LINE:
                rest, skipping = rest[: 4 * MAX_LINE], True
    if rest:
        yield rest, False


def _first_end(piece: bytes) -> int:
    ends = [at for at in (piece.find(b"\n"), piece.find(b"\r")) if at >= 0]
    return min(ends, default=-1)


def _blocks(handle: BinaryIO, limit: int | None, size: int, encoding: str | None = None) -> Iterator[Block]:
    stream = _Stream(handle, limit, encoding)
    unwrap = _wrapper(stream.head)
    number = 1
    for raw, ended in _chunks(stream, size):
        if b"\r" in raw:
            raw = raw.replace(b"\r\n", b"\n").removesuffix(b"\r")
        text = _text(raw)
        if unwrap is not None:
            text = "\n".join(unwrap(line) for line in text.split("\n"))
        yield from _redraws(text, number) if "\r" in text else (Block(number, text),)
        number += text.count("\n") + ended


def _wrapper(head: bytes) -> Callable[[str], str] | None:
    """`unwrap_json` when the first line is a JSON log record (docker json-file, Loki, journal exports)."""
    if not head.startswith(b"{"):
        return None
    first = head.partition(b"\n")[0].decode("utf-8", "replace")
    return unwrap_json if unwrap_json(first) != first else None


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
            return "\n".join(_cut_line(line) for line in text.split("\n"))
        position = end + 1
    return text


def _cut_line(line: str) -> str:
    if len(line) <= MAX_LINE:
        return line
    if "\r" in line:
        return "\r".join(piece[:MAX_LINE] for piece in line.split("\r"))
    return line[:MAX_LINE]


def _redraws(text: str, number: int) -> Iterator[Block]:
    """Blocks of a text with carriage returns inside lines: each piece that stayed visible, under its line's number."""
    pending: list[str] = []
    first = number
    for line in text.split("\n"):
        if "\r" in line:
            pieces = _visible(line)
            for piece in pieces[:-1]:
                pending.append(piece)
                yield Block(first, "\n".join(pending))
                pending, first = [], number
            line = pieces[-1]
        pending.append(line)
        number += 1
    yield Block(first, "\n".join(pending))


def _visible(line: str) -> list[str]:
    pieces = [piece for piece in line.split("\r") if piece.strip()]
    return [piece for piece in pieces[:-1] if not _is_bar(piece)] + (pieces[-1:] or [""])


def _is_bar(piece: str) -> bool:
    """A tqdm redraw with nothing glued to it: `Epoch 0:  6%|██  | 32/500 [00:10<02:30,  3.1it/s]`."""
    return "%|" in piece and piece.rstrip().endswith("]") and " NCCL " not in piece and "ProcessGroup" not in piece
