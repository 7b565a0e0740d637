"""Builds `diagnose-collect.pyz`: the collector as one file that runs wherever there is a python3."""

from __future__ import annotations

import io
import zipfile
from importlib import resources

ROOM = "diagnose_collect"
_MAIN = """\
import sys

from {room}.command import main

sys.exit(main({version!r}))
"""


def build(version: str) -> bytes:
    """The file's content, the same for the same sources. Its first line lets it be made executable."""
    data = io.BytesIO(b"#!/usr/bin/env python3\n")
    data.seek(0, io.SEEK_END)
    with zipfile.ZipFile(data, "a", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN.format(room=ROOM, version=version).encode("ascii"))
        folder = resources.files("diagnose") / "collect"
        for item in sorted(folder.iterdir(), key=lambda i: i.name):
            if item.name.endswith(".py") and item.name != "__main__.py":
                _add(archive, f"{ROOM}/{item.name}", item.read_bytes())
    return data.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)
