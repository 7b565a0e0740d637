"""Compressed streams: which kind a file is, and bounded decompression of gz, bz2 and xz."""

from __future__ import annotations

import bz2
import lzma
import zlib
from pathlib import Path
from typing import Any, BinaryIO

MAGIC_LENGTH = 1024
DAMAGE = (EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What an Inflater raises on damaged data: EOFError when it is cut short."""
_PIECE = 1 << 20
_XZ_MEMORY = 256 << 20


def kind_of(head: bytes) -> str | None:
    """`gz`, `bz2`, `xz`, `zip` or `tar`, from the first KiB; None for anything else."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gz"
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bz2"
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return "zip"
    return "tar" if is_tar(head) else None


def is_tar(head: bytes) -> bool:
    """Whether the first 512 bytes are a tar header: by its mark, or by the checksum of the oldest form."""
    if len(head) < 512:
        return False
    if head[257:262] == b"ustar":
        return True
    try:
        told = int(head[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return head[0] != 0 and told == sum(head[:148]) + 8 * 32 + sum(head[156:512])


def holds_tar(location: Path, kind: str) -> bool:
    """Whether a gz, bz2 or xz file holds a tar; False when it is damaged. OSError when it cannot be read."""
    with location.open("rb") as handle:
        stream = Inflater(handle, kind)
        try:
            return is_tar(stream.fill(MAGIC_LENGTH))
        except DAMAGE:
            return False


class Inflater:
    """Decompressed bytes of a gz, bz2 or xz file, several streams in a row included; `packed` bytes taken so far.

    Unlike the standard readers it bounds the memory that an xz header may ask for.
    """

    def __init__(self, handle: BinaryIO, kind: str):
        self._handle = handle
        self._kind = kind
        self._engine = self._new_engine()
        self._input = b""
        self._back = b""
        self.packed = 0

    def _new_engine(self) -> Any:
        if self._kind == "gz":
            return zlib.decompressobj(wbits=31)
        if self._kind == "bz2":
            return bz2.BZ2Decompressor()
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def push_back(self, data: bytes) -> None:
        """Let the next reads begin with `data`."""
        self._back = data + self._back

    def fill(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end."""
        data = b""
        while len(data) < size and (piece := self.read(size - len(data))):
            data += piece
        return data

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, b"" at the end. EOFError when the data is cut short; the codec's own errors."""
        if size < 0:
            size = _PIECE
        if self._back:
            piece, self._back = self._back[:size], self._back[size:]
            return piece
        while True:
            if self._engine.eof:
                self._input = self._engine.unused_data or self._input
                self._input = self._input.lstrip(b"\0")
                if not self._input:
                    self._input = self._take().lstrip(b"\0")
                if not self._input:
                    return b""
                if self._kind != kind_of(self._input + b"\0" * 16) and not self._continues():
                    return b""
                self._engine = self._new_engine()
            if not self._input and (self._kind == "gz" or self._engine.needs_input):
                self._input = self._take()
                if not self._input:
                    raise EOFError
            try:
                piece = self._engine.decompress(self._input, size)
            except OSError as error:  # how bz2 reports damage
                raise ValueError(str(error)) from error
            self._input = self._engine.unconsumed_tail if self._kind == "gz" else b""
            if piece:
                return piece

    def _continues(self) -> bool:
        """Whether another stream of the same kind begins here; anything else is trailing garbage, as gzip has it."""
        if len(self._input) < 16:
            self._input += self._take()
        return kind_of(self._input) == self._kind

    def _take(self) -> bytes:
        raw = self._handle.read(1 << 16)
        self.packed += len(raw)
        return raw
