"""Kit for parser writers: evidence, un-prefixing, sections, units, times. Stdlib only, no files, no clock.

Every log parser goes through `unprefix`, so that launcher prefixes are understood in one place.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from diagnose.model import MAX_EXCERPT, Evidence, Line, Record, Source

MAX_LINE = 32_768
"""Longer lines are cut: no known tool prints a meaningful one."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI … final
    r"|\x1b[\]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC … string terminator
    r"|\x1b[ -/]*[0-~]"  # other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Text without terminal escapes, control characters and direction marks; tabs stay. Linear time."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if not text.isprintable():
        text = _CONTROLS.sub("", text)
    return text


_MESSAGE_KEYS = ("log", "line", "message", "MESSAGE", "msg")
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "__REALTIME_TIMESTAMP", "labels", "stream")


def unwrap_json(text: str) -> str:
    """A JSON log record (`{"log": …, "stream": …, "time": …}`; docker, Loki, journal) as `time stream F text`.

    That is the line as containerd would have written it, for `unprefix` to read. Any other text comes back as it is.
    """
    if not text.startswith("{"):
        return text
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(record, dict) or not any(key in record for key in _TIME_KEYS):
        return text
    message = next((record[key] for key in _MESSAGE_KEYS if isinstance(record.get(key), str)), None)
    if message is None:
        return text
    message = clean(message.rstrip("\r\n").replace("\n", " ").replace("\r", " "))
    stamp = next((record[key] for key in _TIME_KEYS[:4] if isinstance(record.get(key), str)), None)
    if stamp is None or parse_time(stamp)[0] is None:
        return message
    stream = "stderr" if record.get("stream") == "stderr" else "stdout"
    return f"{stamp} {stream} F {message}"


# --- evidence ---------------------------------------------------------------------------------------


def evidence(source: Source, *lines: Line, spans: Sequence[tuple[int, int]] = ()) -> Evidence:
    """Evidence of consecutive lines; `spans` are columns of the first one."""
    first, last = lines[0], lines[-1]
    text = "\n".join(line.text.rstrip() for line in lines)[:MAX_EXCERPT]
    return Evidence(source.path, first.number, last.number, text, tuple(spans))


def problem(source: Source, text: str, *lines: Line) -> Record:
    """A `parse_problem` record for lines of a known format that cannot be read."""
    return Record("parse_problem", {"text": text}, (evidence(source, *lines),), host=source.host)


# --- launcher prefixes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the prefixes told: host, rank or task, time (epoch s; read as UTC when `zone` is False)."""

    text: str
    rank: int | None = None
    host: str | None = None
    at: float | None = None
    zone: bool = False
    offset: int = 0


_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("stamp", re.compile(rf"\s*\[?({_STAMP})\]?(?:\s+|(?=\S+:\d+:\d+ ))")),
    ("cri", re.compile(r"\s*(?:stdout|stderr) [FP] ")),
    ("mpi_rank", re.compile(r"\s*\[\d+,(\d{1,6})\]<(?:stdout|stderr|stddiag)>:\s?")),
    ("rank", re.compile(r"\s*\[?(?:default|rank|Rank )(\d{1,6})\]:\s?")),
    ("worker", re.compile(r"\s*\((?:[\w.]+ )?(?:pid|rank)=(\d{1,9})(?:, ip=([\w.:-]+))?\)\s?")),
    ("srun", re.compile(r"(\d{1,5}): (?=\S)")),
    ("pod", re.compile(r"\[pod/([a-z0-9.-]{1,120})/[a-z0-9.-]{1,63}\] ")),
    ("pdsh", re.compile(r"([A-Za-z][\w.-]{1,62}): (?=[\w.-]+:\d+:\d+ |\[rank\d|\[default\d|\[\d{4}-)")),
    (
        "editor",
        re.compile(
            r"\s{0,6}(?:\[(\d{1,7})\] (?=\[rank|\[default|\S+:\d+:\d+ )|\d{1,7}[|:\t] ?(?=\S+:\d+:\d+ |\[rank))"
        ),
    ),
)


def unprefix(text: str) -> Prefix:
    """Take launcher prefixes (srun, mpirun, torchrun, Ray, Kubernetes, pdsh, ISO stamps, editor numbers) off a line.

    They stack, so the search repeats until none matches. The remaining message starts at column `offset`.
    """
    rank: int | None = None
    host: str | None = None
    at: float | None = None
    zone = False
    offset = 0
    for _ in range(6):
        for name, pattern in _PREFIXES:
            m = pattern.match(text, offset)
            if m is None or m.end() == offset:
                continue
            if name == "stamp":
                at, zone = parse_time(m.group(1))
            elif name in ("mpi_rank", "rank", "srun"):
                rank = int(m.group(1))
            elif name == "worker":
                host = m.group(2) or host
            elif name in ("pod", "pdsh"):
                host = m.group(1)
            offset = m.end()
            break
        else:
            break
    return Prefix(text[offset:], rank, host, at, zone, offset)


# --- times and numbers --------------------------------------------------------------------------------

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


def parse_time(text: str) -> tuple[float | None, bool]:
    """ISO-like time as (epoch seconds, zone known). Without a zone it is read as UTC and ordered within a host only."""
    m = _TIME.match(text)
    if m is None:
        return None, False
    year, month, day, hour, minute, second = (int(g) for g in m.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 25 and minute < 60 and second < 62):
        return None, False
    at = calendar.timegm((year, month, day, hour, minute, second)) + (float("0." + m.group(7)) if m.group(7) else 0.0)
    zone = m.group(8)
    if zone and zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        at -= (1 if zone[0] == "+" else -1) * minutes * 60
    return at, bool(zone)


def parse_ctime(text: str) -> float | None:
    """`Sun Feb 23 16:24:18 2025` as epoch seconds (read as UTC), or None."""
    try:
        return float(calendar.timegm(time.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")))
    except ValueError:
        return None


_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")


def number(text: str | None) -> float | None:
    """First number of a text, or None. Thousands separators are not understood."""
    if text is None:
        return None
    m = _NUMBER.search(text)
    return float(m.group()) if m else None


def integer(text: str | None) -> int | None:
    """Whole text as a decimal or 0x integer, or None."""
    if text is None:
        return None
    text = text.strip()
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def drop_none(**fields: object) -> dict[str, object]:
    """The fields that are known."""
    return {name: value for name, value in fields.items() if value is not None}


# --- pasted terminals ---------------------------------------------------------------------------------

_PROMPT = re.compile(
    r"^(?:\[?[\w.-]+@[\w.-]+[^\n$#]{0,80}[$#]|[\w./~-]{0,60}[$#]|\+|==>|###?)\s+(?P<command>\S.*?)(?:\s+<==)?\s*$"
)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines that follow a shell prompt or banner; `command` is None before the first one."""

    command: str | None
    lines: tuple[Line, ...]


def sections(lines: Iterable[Line]) -> Iterator[Section]:
    """Split a pasted terminal by its prompts (`$ cmd`, `user@host:~# cmd`, `+ cmd`, `==> file <==`, `# cmd`)."""
    command: str | None = None
    pending: list[Line] = []
    for line in lines:
        m = _PROMPT.match(line.text[:300])
        if m:
            if pending or command:
                yield Section(command, tuple(pending))
            command, pending = m.group("command"), []
        else:
            pending.append(line)
    if pending or command:
        yield Section(command, tuple(pending))


_NAME_DEVICE = re.compile(
    r"^[\w]+(?:-[A-Za-z]{1,2}|-{1,2}[a-z][a-z-]+)?[.-](?P<device>[A-Za-z][\w@]*(?:\.\d+)?)(?:\.t?\d+)?(?:\.(?:txt|log|out|json))+$"
)


def device_from_name(name: str) -> str | None:
    """Device in a file name such as `ethtool-S.eth2.t0.txt` or `ethtool-S-ens3.txt`, or None."""
    m = _NAME_DEVICE.match(name)
    if m is None or m.group("device") in ("txt", "log", "json"):
        return None
    return re.sub(r"\.t\d+$", "", m.group("device"))


def device_from_command(command: str | None) -> str | None:
    """Last word of a command that is no option: the interface of `ethtool -S eth0`."""
    if not command:
        return None
    words = [w for w in command.split() if not w.startswith("-") and re.fullmatch(r"[\w.@:-]{1,40}", w)]
    return words[-1] if len(words) > 1 else None
