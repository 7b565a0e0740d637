"""Tells text from other things, and names those: what a file that no parser reads seems to be."""

from __future__ import annotations

import re

SAMPLE = 1 << 16

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "an ELF program or library"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF media file"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O file"),
    (b"!<arch>\n", "a static library"),
    (b"\xd4\xc3\xb2\xa1", "a packet capture"),
    (b"\xa1\xb2\xc3\xd4", "a packet capture"),
    (b"\x0a\x0d\x0d\x0a", "a packet capture (pcapng)"),
    (b"LPKSHHRH", "a systemd journal (export it with journalctl -o short-iso-precise)"),
    (b"PERFILE2", "a perf.data file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive (not unpacked: use tar.gz or zip)"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data (not unpacked: use gzip or xz)"),
    (b"\x04\x22\x4d\x18", "LZ4-compressed data (not unpacked: use gzip or xz)"),
    (b"Rar!", "a RAR archive (not unpacked: use tar.gz or zip)"),
    (b"GGUF", "a GGUF model"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?[\x80-\xff}\]\(cX\x8cNK\x00-\x7f]", re.DOTALL)
_ODD = bytes(b for b in range(32) if b not in b"\t\n\r\x07\x08\x0c\x1b\0")


def binary_note(head: bytes) -> str | None:
    """What a file that is no text seems to be, from its first 64 KiB (UTF-16 is text); None for text."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return f"not text: {name}"
    if head.startswith(b"\x80") and _PICKLE.match(head):
        return "a Python pickle; never opened"
    if not any(head):
        return "holds only NUL bytes"
    solid = head.replace(b"\0", b"")
    odd = len(solid) - len(solid.translate(None, _ODD))
    broken = solid[:-4].decode("utf-8", "replace").count("\ufffd") if not solid.isascii() else 0
    if odd + broken > 0.15 * len(solid):
        return "not text: binary data of an unknown kind"
    return None


def text_note(text: str) -> str:
    """What a text that no parser claimed seems to be."""
    start = text[:200_000]
    if re.match(r"\s*(?:\{\s*\"|\[\s*\{\s*\")", start):
        return "JSON of a kind that no parser reads"
    return "no parser reads this format"


def document_note(head: bytes) -> str | None:
    """What a zip file is when it is no archive of evidence, from its first member's name; None otherwise."""
    name = head[30:200]
    if name.startswith((b"[Content_Types].xml", b"mimetype")):
        return "not text: an office document"
    if b"/data.pkl" in name or name.startswith(b"data.pkl"):
        return "not text: a PyTorch checkpoint; never opened"
    if name.startswith(b"META-INF/"):
        return "not text: a Java archive"
    return None
