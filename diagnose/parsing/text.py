"""Clean text, JSON log records, evidence of lines."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from typing import Any

from diagnose.model import MAX_EXCERPT, Evidence, Line, Record, Source
from diagnose.parsing.values import integer, parse_time

_HOST_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,100}")
_LAST_MICROS = 7_258_118_400_000_000

MAX_LINE = 32_768
"""Longer lines are cut: no known tool prints a meaningful one."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI … final
    r"|\x1b[\]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC … string terminator
    r"|\x1b[ -/]*[0-~]"  # other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


_CURLY = str.maketrans({**dict.fromkeys("\u201c\u201d\u201e\u201f", '"'), **dict.fromkeys("\u2018\u2019\u201b", "'")})
_JOINED = re.compile(r"(?:(?<=\s)|^)\u2013(?=[a-z])|\u2013{2,2000}|\u2014{2,2000}", re.M)
"""Dashes that a chat joined: of options, and of lines drawn with them."""


def clean(text: str) -> str:
    """Text without terminal escapes, control characters, direction marks and characters without width; tabs stay.

    The no-break spaces of web pages and the curly quotes and joined dashes of chats become what was typed. Linear time.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if not text.isprintable():
        text = _CONTROLS.sub("", text).replace("\xa0", " ")
    if not text.isascii():
        text = _JOINED.sub(lambda m: "--" * len(m[0]), text.translate(_CURLY))
    return text


_MESSAGE_KEYS = ("log", "line", "message", "MESSAGE", "msg")
_STAMP_KEYS = ("time", "timestamp", "@timestamp", "ts")
_SHIPPED_KEYS = (*_STAMP_KEYS, "__REALTIME_TIMESTAMP", "labels", "stream")
_HOST_KEYS = ("host", "hostname", "node", "node_name", "nodename")


def unwrap_json(text: str) -> str:
    """A JSON log record (`{"log": …, "stream": …, "time": …}`; docker, Loki, Promtail, journal) as plain text.

    That is the line as containerd would have written it (`time stream F text`), with the host as Loki's labels show it
    (`{host="node07"} text`), or as journalctl shows it (`time host kernel: text`): for `unprefix` to read. Any other
    text comes back as it is.
    """
    if not text.startswith("{"):
        return text
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(record, dict) or not any(key in record for key in _SHIPPED_KEYS):
        return text
    message = next((record[key] for key in _MESSAGE_KEYS if isinstance(record.get(key), str)), None)
    if message is None:
        return text
    message = clean(message.rstrip("\r\n").replace("\n", " ").replace("\r", " "))
    if "__REALTIME_TIMESTAMP" in record or "_HOSTNAME" in record:
        return _of_journal(record, message)
    host = _host_label(record)
    if host is not None:
        message = f'{{host="{host}"}} {message}'
    stamp = next((record[key] for key in _STAMP_KEYS if isinstance(record.get(key), str)), None)
    if stamp is None or parse_time(stamp)[0] is None:
        return message
    stream = "stderr" if record.get("stream") == "stderr" else "stdout"
    return f"{stamp} {stream} F {message}"


def _host_label(record: dict[str, Any]) -> str | None:
    """The host among the labels of a record, where it is a name."""
    for labels in (record.get("labels"), record.get("stream"), record):
        if isinstance(labels, dict):
            for key in _HOST_KEYS:
                if isinstance(labels.get(key), str) and _HOST_NAME.fullmatch(labels[key]):
                    return labels[key]
    return None


def _of_journal(record: dict[str, Any], message: str) -> str:
    """A record of `journalctl -o json` as `-o short-iso` prints it."""
    parts: list[str] = []
    micros = integer(str(record.get("__REALTIME_TIMESTAMP", "")))
    if micros is not None and 0 < micros < _LAST_MICROS:
        at = datetime.datetime.fromtimestamp(micros // 1_000_000, datetime.UTC)
        parts.append(f"{at:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}+00:00")
    host, tag, pid = (record.get(key) for key in ("_HOSTNAME", "SYSLOG_IDENTIFIER", "_PID"))
    if isinstance(host, str) and _HOST_NAME.fullmatch(host):
        parts.append(host)
    if isinstance(tag, str) and _HOST_NAME.fullmatch(tag):
        parts.append(f"{tag}[{pid}]:" if isinstance(pid, str) and pid.isdecimal() else f"{tag}:")
    return " ".join((*parts, message))


def evidence(source: Source, *lines: Line, spans: Sequence[tuple[int, int]] = ()) -> Evidence:
    """Evidence of consecutive lines; `spans` are columns of the first one."""
    first, last = lines[0], lines[-1]
    text = "\n".join(line.text.rstrip() for line in lines)[:MAX_EXCERPT]
    return Evidence(source.path, first.number, last.number, text, tuple(spans))


def problem(source: Source, text: str, *lines: Line) -> Record:
    """A `parse_problem` record for lines of a known format that cannot be read."""
    return Record("parse_problem", {"text": text}, (evidence(source, *lines),), host=source.host)
