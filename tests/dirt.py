"""What people do to logs before somebody reads them: cuts, wraps, quotes, prefixes, torn and mixed streams."""

from __future__ import annotations

import json
import random
import re
import textwrap
from collections.abc import Callable

PREFIX_HOST = "curlew-09"
"""The host that added prefixes name where the text names none."""

Mutation = Callable[[str], bytes]

_NCCL_HOST = re.compile(r"(?m)^(?:.{0,80}?[ :\]>])?([A-Za-z][\w.-]{0,60}):\d{1,8}:\d{1,8} \[-?\d")


def host_in(text: str) -> str:
    """The one host that NCCL lines name, else the host of the added prefixes."""
    found = set(_NCCL_HOST.findall(text))
    return found.pop() if len(found) == 1 else PREFIX_HOST


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


def each(change: Callable[[str], str]) -> Mutation:
    return lambda text: ("\n".join(change(line) for line in _lines(text)) + "\n").encode()


def _numbered(form: str) -> Mutation:
    return lambda text: ("\n".join(form.format(n, line) for n, line in enumerate(_lines(text), 1)) + "\n").encode()


def _hosted(form: str) -> Mutation:
    def change(text: str) -> bytes:
        host = host_in(text)
        return ("\n".join(form.format(host, line) for line in _lines(text)) + "\n").encode()

    return change


def tail(text: str, count: int = 200) -> bytes:
    """The last lines only."""
    return ("\n".join(_lines(text)[-count:]) + "\n").encode()


def head_and_tail(text: str, count: int = 20) -> bytes:
    """Both ends with a mark between."""
    lines = _lines(text)
    if len(lines) <= 2 * count:
        count = max(1, len(lines) // 3)
    return ("\n".join([*lines[:count], "[...]", *lines[-count:]]) + "\n").encode()


def wrapped(text: str, width: int) -> bytes:
    """As a terminal breaks lines."""
    pieces = [line[at : at + width] for line in _lines(text) for at in range(0, max(1, len(line)), width)]
    return ("\n".join(pieces) + "\n").encode()


def word_wrapped(text: str, width: int = 76) -> bytes:
    """As a mail program breaks lines."""
    found: list[str] = []
    for line in _lines(text):
        found += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    return ("\n".join(found) + "\n").encode()


def quoted(text: str) -> bytes:
    """As an answer to a mail quotes."""
    return each(lambda line: "> " + line)(text)


def mixed_ends(text: str) -> bytes:
    """Line feeds, with and without carriage returns."""
    return "".join(line + ("\r\n" if n % 3 else "\n") for n, line in enumerate(_lines(text))).encode()


def docker_json(text: str) -> bytes:
    """As dockerd's json-file driver stores them."""
    return "".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": f"2026-03-19T21:20:{n % 60:02d}.123456789Z"}) + "\n"
        for n, line in enumerate(_lines(text))
    ).encode()


def loki_json(text: str) -> bytes:
    """As logcli and Promtail print them with `--output=jsonl`."""
    host = host_in(text)
    return "".join(
        json.dumps({"labels": {"host": host}, "line": line, "timestamp": "2026-03-19T21:20:09Z"}) + "\n"
        for line in _lines(text)
    ).encode()


def ansible(text: str) -> bytes:
    """As `debug: var=out.stdout_lines` shows them."""
    lines = ",\n".join("        " + json.dumps(line) for line in _lines(text))
    return f'ok: [{PREFIX_HOST}] => {{\n    "out.stdout_lines": [\n{lines}\n    ]\n}}\n'.encode()


def interleaved(text: str, other: str) -> bytes:
    """Two logs line by line."""
    mine, theirs = _lines(text), _lines(other)
    found: list[str] = []
    for n in range(max(len(mine), len(theirs))):
        found += mine[n : n + 1] + theirs[n : n + 1]
    return ("\n".join(found) + "\n").encode()


def torn(text: str, other: str, seed: int = 7) -> bytes:
    """Two logs through one pipe, cut inside lines now and then."""
    rng = random.Random(seed)
    mine, theirs = "\n".join(_lines(text)) + "\n", "\n".join(_lines(other)) + "\n"
    found: list[str] = []
    while mine or theirs:
        size = rng.choice((80, 200, 512, 1024)) + rng.randrange(40)
        found += [mine[:size], theirs[:size]]
        mine, theirs = mine[size:], theirs[size:]
    return "".join(found).encode()


def _stamped(line: str) -> str:
    return f"2026-03-19T21:20:09.123456789Z {line}"


def _doubled(text: str) -> bytes:
    return "".join(line + "\n\n" for line in _lines(text)).encode()


MUTATIONS: dict[str, Mutation] = {
    "tail": tail,
    "tail-40": lambda text: tail(text, 40),
    "second-half": lambda text: tail(text, max(1, len(_lines(text)) // 2)),
    "head-and-tail": head_and_tail,
    "cut-mid-line": lambda text: text.encode()[: max(1, len(text.encode()) * 2 // 3)],
    "wrap-80": lambda text: wrapped(text, 80),
    "wrap-100": lambda text: wrapped(text, 100),
    "wrap-120": lambda text: wrapped(text, 120),
    "word-wrap-76": word_wrapped,
    "quoted": quoted,
    "quoted-wrap-78": lambda text: quoted(wrapped(text, 78).decode()),
    "fence": lambda text: b"Please see below\n\n```text\n" + text.encode() + b"\n```\n\nThanks\n",
    "indented": each(lambda line: "    " + line),
    "editor-tab": _numbered("{:6d}\t{}"),
    "editor-bar": _numbered("{:4d} | {}"),
    "editor-colon": _numbered("{}:{}"),
    "mixed-ends": mixed_ends,
    "utf-16": lambda text: text.encode("utf-16"),
    "tabs-to-blank": each(lambda line: line.replace("\t", " ")),
    "tabs-to-eight": each(lambda line: line.expandtabs(8)),
    "blanks-squeezed": each(lambda line: re.sub(r"[ \t]+", " ", line)),
    "left-stripped": each(str.lstrip),
    "no-break-spaces": each(lambda line: line.replace(" ", "\u00a0")),
    "double-spaced": _doubled,
    "html-escaped": each(lambda line: line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")),
    "srun": each(lambda line: "0: " + line),
    "mpirun": each(lambda line: "[1,0]<stdout>:" + line),
    "kubectl-prefix": each(lambda line: "[pod/train-0/worker] " + line),
    "kubectl-stamps": each(_stamped),
    "pdsh": _hosted("{}: {}"),
    "docker-compose": _hosted("{}  | {}"),
    "docker-json": docker_json,
    "syslog": _hosted("Mar 19 21:20:09 {} train[4711]: {}"),
    "journal-iso": _hosted("2026-03-19T21:20:09+0000 {} train[4711]: {}"),
    "journal-full": _hosted("Thu 2026-03-19 21:20:09 UTC {} train[4711]: {}"),
    "rfc-5424": _hosted("<14>1 2026-03-19T21:20:09.123456+00:00 {} train 4711 - - {}"),
    "mpirun-5": each(lambda line: "[1,0]<stdout>: " + line),
    "srun-of-pdsh": _hosted("{}: 0: {}"),
    "kubectl-prefix-stamps": each(lambda line: f"[pod/train-0/worker] {_stamped(line)}"),
    "github-actions": each(lambda line: f"train\tRun tests\t2026-03-19T21:20:09.1234567Z {line}"),
    "ts": each(lambda line: f"Mar 19 21:20:09 {line}"),
    "fabric": _hosted("[{}] out: {}"),
    "loki-json": loki_json,
    "ansible": ansible,
}
"""Ways to spoil one text."""
