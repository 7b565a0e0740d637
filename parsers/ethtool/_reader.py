"""Cuts a text into the answers of single ethtool queries and hands each to its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from diagnose.model import Line, Record, Source
from diagnose.parsing import parse_ctime, parse_time, problem

from . import _counters, _json, _module, _settings

UNKNOWN_DEVICE = "nic"
"""Device of an answer when neither content, command nor file name tells it."""

MAX_LINES = 20_000
MAX_JSON_LINES = 20_000

MAX_LISTS = 60
"""Readings of one device's statistics that are kept of one text: the first and the last ones."""

_HEADER = re.compile(
    r"\s*(Settings|Features|Pause parameters|Coalesce parameters|Ring parameters|Channel parameters"
    r"|Time stamping parameters|FEC parameters|Private flags|Standard stats) for ([\w.@:-]{1,40}):\s*$"
)
_COMMAND = re.compile(
    r"(?:^|[\s$#>+=;])ethtool(?P<options>(?:\s{1,4}-{1,2}[\w-]{1,30}){0,4})\s{1,4}([A-Za-z][\w.@-]{0,39})(?=\s*(?:$|[;|&<>#])|(?P<more>\s))"
)
_BANNER = re.compile(r"==> (\S+) <==")
_ERROR = re.compile(
    r"\s*(?:netlink error: |Cannot get |no stats available|No data available|ethtool: bad command line"
    r"|No module EEPROM|JSON output not available|ethtool: parameter)"
)
_NOISE = re.compile(r"\s*(?:netlink error: |Cannot get |For more information run ethtool)")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,62}): ?(.*)", re.DOTALL)
_KEY = re.compile(r"\s*[A-Za-z][^:\n]{0,70}:|\s{8,}\S|\s+\S+\s*$")
_ECHOED = re.compile(r"(?:[=#*-]{1,20}\s*)?((?:eth|en[opsx]|ib|bond|p\d+p)[\w.]{1,20})\s*:?(?:\s*[=#*-]{1,20})?")
_STAMP = re.compile(r"\d{4}-[\d:.,TZ+ -]{15,31}")
_FEATURE = re.compile(r"\s*[a-z][\w-]{2,60}:?\s+(?:on|off)\b")
_SNAPSHOT = re.compile(r"((?:e[nt]|ib|bond|mlx|p\d)[\w@-]*)\.\d$")
_FILE = re.compile(
    r"ethtool(?:[-_. ]{1,3}(?:show-fec|show-priv-flags|show-module|module|include-statistics|[A-Za-z](?=[-_. ]|$)))*"
    r"(?:[-_. ]+([A-Za-z][\w@.-]*))?"
)

_READERS: dict[str, Callable[[Sequence[Line], str, Source], Iterator[Record]]] = {
    "Settings": _settings.link,
    "driver": _settings.driver,
    "Features": _settings.features,
    "Pause parameters": _settings.pause,
    "Coalesce parameters": _settings.coalesce,
    "Ring parameters": _settings.ring,
    "Channel parameters": _settings.channels,
    "Time stamping parameters": _settings.timestamping,
    "FEC parameters": _settings.fec,
    "Private flags": _settings.private_flags,
    "counters": _counters.statistics,
    "Standard stats": _counters.standard,
    "module": _module.module,
}
_SPANS_BLANKS = ("Coalesce parameters", "counters", "module", "Standard stats")

_GOES_ON = ("Settings", "Features")
"""Answers whose lines are told from others even behind a blank line."""


def _typed(text: str) -> str | None:
    """The interface of an ethtool command in a line; prose about ethtool is none."""
    m = _COMMAND.search(text)
    if m is None or (m.group("more") and not m.group("options")):
        return None
    return m.group(2).split("@")[0]


def _time(text: str) -> float | None:
    """A line that is nothing but a time: ISO, or what `date` prints (its zone is not understood, UTC is)."""
    stripped = text.strip()
    if not 19 <= len(stripped) <= 36 or ":" not in stripped:
        return None
    if stripped[0].isdigit():
        return parse_time(stripped)[0] if _STAMP.fullmatch(stripped) else None
    words = stripped.split()
    if len(words) == 6 and words[4] in ("UTC", "GMT"):
        return parse_ctime(" ".join([*words[:4], words[5]]))
    return None


def split_host(text: str, known: Collection[str | None]) -> tuple[str | None, str]:
    """A pdsh-like `host: ` prefix off a line that starts an answer, or that continues a known host's."""
    if ": " not in text[:66]:
        return None, text
    m = _HOST.match(text)
    if m and (m.group(1) in known or _starts(m.group(2))):
        return m.group(1), m.group(2)
    return None, text


def _starts(text: str) -> bool:
    return text.strip() == "NIC statistics:" or _HEADER.match(text) is not None


def device_of_file(name: str) -> str | None:
    """`ethtool-S.eth2.t0.txt` -> eth2; `ethtool-S.txt` -> None."""
    stem = re.sub(r"(?:\.(?:txt|log|out|json))+$", "", name)
    stem = re.sub(r"\.t\d{1,3}$", "", stem)
    m = _FILE.fullmatch(stem)
    if m is None or m.group(1) is None or m.group(1).lower() in ("before", "after", "all"):
        return None
    cut = _SNAPSHOT.fullmatch(m.group(1))
    return cut.group(1) if cut else m.group(1)


@dataclass(slots=True)
class _Block:
    """Lines of one answer."""

    kind: str
    device: str
    first: Line
    lines: list[Line] = field(default_factory=list)
    error: Line | None = None
    gap: bool = False
    """A blank line came, as a pager or a chat leaves it; what goes on then must look like this answer."""


class Reader:
    """Reads the lines of one host; at most one answer is held at a time."""

    def __init__(self, source: Source, host: str | None) -> None:
        self.source = source
        self.host = host
        told = source.command if source.command and "ethtool" in source.command else None
        self.of_source = (_typed(told) if told else None) or device_of_file(source.name)
        self.typed: str | None = None
        self.last: str | None = None
        self.block: _Block | None = None
        self.json: list[Line] = []
        self.error: Line | None = None
        self.answered = False
        self.at: float | None = None
        self.lists: dict[str, list[list[Record]]] = {}

    def feed(self, line: Line, text: str) -> Iterator[Record]:
        if self.json:
            yield from self._feed_json(line, text)
            return
        own = line if text is line.text else Line(line.number, text, line.at)
        if "ethtool" in text and (typed := _typed(text)):
            yield from self.finish()
            self.typed = typed
        elif text.startswith("==> ") and (m := _BANNER.match(text)):
            yield from self.finish()
            self.typed = device_of_file(m.group(1).rsplit("/", 1)[-1])
        elif m := _HEADER.match(text):
            yield from self.finish()
            device = self.last = str(m.group(2)).split("@", 1)[0]
            self.block = _Block(str(m.group(1)), device, line)
        elif text.strip() == "NIC statistics:":
            yield from self._open("counters", line)
        elif text.startswith("driver: "):
            yield from self._open("driver", line, own)
        elif "Identifier" in text and re.match(r"\s*Identifier\s+: 0x", text):
            yield from self._open("module", line, own)
        elif text.lstrip()[:3] in ("[ {", "[{", '[{"'):
            yield from self.finish()
            self.json = [own]
            yield from self._close_json(text)
        elif m := _ECHOED.fullmatch(text.strip()):
            yield from self.finish()
            self.typed = m.group(1)
        elif (at := _time(text)) is not None:
            yield from self.finish()
            self.at = at
        elif self.block is not None:
            yield from self._continue(line, own)
        elif _counters.COUNTER.match(text):
            self.block = _Block("counters", self._device(), line, [own])
        elif _ERROR.match(text):
            self.error = self.error or line

    def _device(self) -> str:
        return self.typed or self.of_source or self.last or UNKNOWN_DEVICE

    def _open(self, kind: str, line: Line, own: Line | None = None) -> Iterator[Record]:
        yield from self.finish()
        self.block = _Block(kind, self._device(), line, [own] if own else [])

    def _continue(self, line: Line, own: Line) -> Iterator[Record]:
        block, text = self.block, own.text
        assert block is not None
        if not text.strip():
            if block.kind in _GOES_ON:
                block.gap = bool(block.lines)
            elif block.kind not in _SPANS_BLANKS and block.lines:
                yield from self.finish()
        elif _NOISE.match(text) or _ERROR.match(text):
            block.error = block.error or line
        elif len(block.lines) >= MAX_LINES or not self._belongs(block, text):
            yield from self.finish()
            if _counters.COUNTER.match(text):
                self.block = _Block("counters", self._device(), line, [own])
        else:
            block.lines.append(own)

    @staticmethod
    def _belongs(block: _Block, text: str) -> bool:
        if block.gap and block.kind == "Settings" and text[:1] != "\t":
            return False
        if block.kind == "counters":
            return _counters.COUNTER.match(text) is not None or text.startswith("    ")
        if block.kind == "Features":
            return _FEATURE.match(text) is not None
        return _KEY.match(text) is not None

    def finish(self) -> Iterator[Record]:
        """Records of the answer held."""
        block, self.block = self.block, None
        if self.json:
            held, self.json = self.json, []
            yield problem(self.source, "ethtool JSON ends early", held[0], held[-1])
        if block is None:
            return
        lines = block.lines if len(block.lines) < MAX_LINES else block.lines[:MAX_LINES]
        error, self.error = block.error or self.error, None
        found = [replace(r, host=self.host, at=self.at) for r in _READERS[block.kind](lines, block.device, self.source)]
        said = bool(found)
        self.answered = self.answered or said
        if block.kind == "counters" and said:
            lists = self.lists.setdefault(block.device, [])
            if len(lists) >= MAX_LISTS:
                del lists[1]
            lists.append(found)
        else:
            yield from found
        if not said and block.kind not in ("counters", "driver", "module"):
            self.answered = True
            text = f"ethtool gave no {block.kind.lower()} for {block.device}"
            yield problem(self.source, text + (f": {error.text.strip()[:100]}" if error else ""), error or block.first)

    def close(self) -> Iterator[Record]:
        """Records of the last answer; an error message that is the whole text is reported as such."""
        yield from self.finish()
        for lists in self.lists.values():
            for number, records in enumerate(lists):
                for record in records:
                    if len(lists) > 1 and record.kind == "nic_counter":
                        record = replace(record, fields={**record.fields, "snapshot": number})
                    yield record
        if self.error is not None and not self.answered:
            yield problem(self.source, f"ethtool gave no data: {self.error.text.strip()[:120]}", self.error)

    def _feed_json(self, line: Line, text: str) -> Iterator[Record]:
        self.json.append(Line(line.number, text, line.at))
        if len(self.json) > MAX_JSON_LINES:
            self.json = []
            return
        yield from self._close_json(text)

    def _close_json(self, text: str) -> Iterator[Record]:
        if not text.rstrip().endswith("]") or text.rstrip().endswith("[ ]"):
            return
        lines, self.json = self.json, []
        for record in _json.answers(lines, self.source):
            self.answered = True
            yield Record(record.kind, record.fields, record.evidence, host=self.host)
