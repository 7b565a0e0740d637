"""What the tests of the collector share: fake tools on PATH, processes that look like ranks, runs of the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]

# Maps a file that has the name of a library, as a rank would, and waits.
RANK = """
import mmap, sys, time
with open(sys.argv[1], "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
print("up", flush=True)
time.sleep(600)
"""


def tool(folder: Path, name: str, body: str) -> Path:
    """A program of that name, a shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_rank(folder: Path, library: str = "libnccl.so.2.21.5", **env: str) -> subprocess.Popen[bytes]:
    """A process that has `library` mapped and these variables; it is up when this returns."""
    file = folder / library
    if not file.exists():
        file.write_bytes(b"\0" * 4096)
    process = subprocess.Popen(
        [sys.executable, "-c", RANK, str(file)], env={**os.environ, **env}, stdout=subprocess.PIPE, cwd=folder
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def collect(
    *arguments: str, env: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run `diagnose collect` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "diagnose", "collect", *arguments], cwd=TOP, env={**os.environ, **(env or {})},
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip


def manifest(bundle: Path) -> dict:
    """The manifest of a folder or an archive."""
    if bundle.is_dir():
        return json.loads((bundle / "manifest.json").read_text())
    with tarfile.open(bundle) as archive:
        member = next(m for m in archive if m.name.endswith("/manifest.json"))
        file = archive.extractfile(member)
        assert file is not None
        return json.load(file)


def everything(bundle: Path) -> bytes:
    """All bytes of a folder or an archive, with names."""
    if bundle.is_dir():
        return b"".join(str(p).encode() + p.read_bytes() for p in sorted(bundle.rglob("*")) if p.is_file())
    with tarfile.open(bundle) as archive:
        return b"".join(m.name.encode() + (f.read() if (f := archive.extractfile(m)) else b"") for m in archive)
