"""The collector as one file, `diagnose-collect.pyz`: this folder alone. The same sources give the same bytes."""

import io
import os
import zipfile

NAME = "diagnose_collect"
LEFT_OUT = ("__main__.py", "pyz.py")
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import sys

if sys.version_info < (3, 6):
    sys.exit("diagnose-collect needs Python 3.6 or newer; this is " + sys.version.split()[0])
if __name__ == "__main__":
    from %s.command import main

    sys.exit(main(%r))
"""


def program(version: str) -> bytes:
    """The whole file; any python3 from 3.6 on runs it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", (_MAIN % (NAME, version)).encode("utf-8"))
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py") and name not in LEFT_OUT:
                with open(os.path.join(folder, name), "rb") as handle:
                    _add(archive, NAME + "/" + name, handle.read())
    return _SHEBANG + buffer.getvalue()


def build(target: str, version: str) -> None:
    """Write the file, executable; an old one is replaced at once."""
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    with open(target + ".part", "wb") as handle:
        handle.write(program(version))
    os.chmod(target + ".part", 0o755)
    os.rename(target + ".part", target)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)
