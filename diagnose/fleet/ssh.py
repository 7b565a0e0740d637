"""SSH: each host is a link of its own, opened by ClusterShell with the user's ssh and its configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import resources

from diagnose.fleet.engine import Link
from diagnose.fleet.visit import MAX_ARCHIVE, Visit

COLUMNS = 20_000
"""Width of base64 lines: ClusterShell's work is per line (76 columns take over ten times as long)."""
CLOSE_S = 20.0
SPARE_S = 40.0
"""What connecting and sending may take beyond the collector's own limit."""
PYTHONS = ("python3", "/usr/libexec/platform-python", "/usr/bin/python3")
OPTIONS = "-T -oLogLevel=ERROR -oServerAliveInterval=5 -oServerAliveCountMax=4 -oControlMaster=no -oRequestTTY=no"
# ControlMaster=no: an open master connection is used, but none is left behind that keeps our pipes open.


def far_command(python: str = "") -> str:
    """The command line at the far end, for any login shell."""
    return f"sh -c '{far_script(python)}'"


def far_script(python: str = "") -> str:
    """The same for `sh -c`: finds a Python, which reads its program from standard input. Without single quotes."""
    size = len(far_program())
    read = f'-I -c "import sys;exec(sys.stdin.buffer.read({size}))"'
    tried = " ".join((python,) if python else PYTHONS)
    found = f'for p in {tried}; do command -v "$p" >/dev/null 2>&1 && exec "$p" {read}; done'
    return f'{found}; echo "no python3 there" >&2; exit 127'


def far_program() -> bytes:
    """The text of `remote.py`."""
    return (resources.files("diagnose.fleet") / "remote.py").read_bytes()


def order(
    program: bytes,
    arguments: Sequence[str],
    name: str,
    limit_s: float,
    *,
    columns: int = COLUMNS,
    name_from: str = "",
    host_by_name: bool = False,
) -> bytes:
    """What goes to the far end: its program, one line that says what to do, the collector.

    Where one order goes to many hosts, `name_from` is the variable that tells each its name.
    """
    said = {
        "name": name, "name_from": name_from, "args": list(arguments), "size": len(program), "limit_s": limit_s,
        "sha256": hashlib.sha256(program).hexdigest(), "columns": columns, "cap": MAX_ARCHIVE, "input_stays": True,
        "host_by_name": host_by_name,
    }  # fmt: skip
    return far_program() + json.dumps(said).encode("ascii") + b"\n" + program


def links(visits: Sequence[Visit], program: bytes, arguments: Sequence[str], limit_s: float, python: str) -> list[Link]:
    """One link a host. `limit_s` is the collector's own limit in seconds."""
    command = far_command(python)
    return [
        Link(
            (visit,),
            order(program, [*arguments, "--host", visit.folder], visit.folder, limit_s + CLOSE_S),
            limit_s + CLOSE_S + SPARE_S,
            address=visit.name.replace("[", "").replace("]", ""),
            command=command,
        )
        for visit in visits
    ]
