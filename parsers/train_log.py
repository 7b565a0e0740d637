"""Step times out of training logs, summed up per rank.

Phrasings read: Megatron (`iteration 500/ 10000 | … elapsed time per iteration (ms): 812.3`), `step 120 | time 1.23s`,
`step_time=1.2`, DeepSpeed and MosaicML throughput lines, JSON lines and Python dicts, and tqdm bars of Lightning and
Hugging Face (`120/5000 [02:10<1:25:11, 1.05s/it]`), whose times are averages.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from diagnose.model import Block, Evidence, Line, Record, Source
from diagnose.parsing import evidence, unprefix

KIND = "train_log"
TOPICS = ("train_log",)
READS_PREFIXES = True

_UNIT = r"(?P<unit>\s?(?:ms|msec|milliseconds|us|s|sec|secs|seconds))?"
_VALUE = r"(?P<value>\d{1,9}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?)"
_NAMES = (
    r"elapsed time per (?:iteration|step)|(?:time|seconds|secs?|ms) ?(?:per|/) ?(?:iteration|iter|step|batch|it)"
    r"|(?:global_|train_|avg_|mean_)?(?:step|iter|iteration|batch)[ _-]?(?:time|duration|latency)(?:_(?:ms|s|sec))?"
    r"|(?:time|duration)_per_(?:step|iteration|iter|batch)(?:_(?:ms|s|sec))?|perf/step_time|timing/step"
)
_TIME = re.compile(
    rf"(?<![\w/])['\"]?(?P<name>{_NAMES})['\"]?\s?(?:\((?P<bracket>ms|s|sec|seconds)\))?\s?(?:[:=]\s?|\s){_VALUE}{_UNIT}(?![\w.])",
    re.IGNORECASE,
)
_SHORT = re.compile(
    rf"(?<![\w/])(?:time|dt|took|elapsed)\s?(?:[:=]\s?|\s)\(?{_VALUE}(?P<unit>\s?(?:ms|s|sec|secs|seconds))(?![\w.])",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?<![\w/])['\"]?(?:global_?step|step|iteration|iter|batch)['\"]?\s{0,12}[:=#\[]?\s{0,12}(?P<step>\d{1,10})\b",
    re.IGNORECASE,
)
_METER = re.compile(
    rf"\bTime:?\s{{1,4}}{_VALUE}\s{{1,3}}\(\s{{0,4}}\d{{1,9}}\.\d{{1,6}}\)"
)  # torchvision's AverageMeter, s
_BAR = re.compile(
    r"(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?:\d{1,4}:)?\d\d?:\d\d<[^,\]]{1,20}, *"
    r"(?P<value>\d{1,7}\.\d{1,4})(?P<unit>s/it|it/s)"
)
_OTHER_BARS = re.compile(
    r"\b(?:load|map|download|fetch|token|filter|generat|valid|eval|sav|sanity|test|predict|captur|compil|writ|upload|pack)",
    re.IGNORECASE,
)
_TAG_RANK = re.compile(r"\b(?:global_)?rank[ =:_]{0,2}(?P<rank>\d{1,6})\b", re.IGNORECASE)
_JSON_RANK = re.compile(r"[\"'](?:global_)?rank[\"']: ?(?P<rank>\d{1,6})\b")
_LOCAL = re.compile(r"\[default(\d{1,4})\]:")
_TAG_COLUMNS = 80
_GATES = ("tep", "iter", "TEP", "Iter", "it/s", "s/it", "atch", "Time")

_MAX_SAMPLES = 4_000_000
_MAX_STREAMS = 20_000
_MAX_TRIED = 5_000
_MAX_COLUMNS = 2_000


@dataclass(slots=True)
class _Stream:
    """Times (s) of one rank; `bar`: they are averages of a progress bar, kept only while no logged time is known."""

    first: Evidence
    last: Line
    bar: bool
    times: array[float] = field(default_factory=lambda: array("d"))
    last_step: int | None = None


def sniff(head: str, name: str) -> float:
    """0.9 when three lines tell step times, 0.5 for one or two."""
    found = tried = 0
    for text in head.split("\n"):
        if not any(gate in text for gate in _GATES):
            continue
        tried += 1
        found += any(True for _ in _samples(text[:_MAX_COLUMNS]))
        if found >= 3:
            return 0.9
        if tried > _MAX_TRIED:
            break
    return 0.5 if found else 0.0


def scan(blocks: Iterable[Block], source: Source) -> Iterator[Record]:
    """One `train_step` per rank; bounded by the number of ranks and of steps."""
    streams: dict[tuple[int | None, int | None], _Stream] = {}
    room = _MAX_SAMPLES
    for block in blocks:
        number = block.first - 1
        for text in block.text.split("\n"):
            number += 1
            if not any(gate in text for gate in _GATES):
                continue
            for seconds, step, bar in _samples(text):
                speaker = _speaker(text)
                stream = streams.get(speaker)
                if stream is None:
                    if len(streams) >= _MAX_STREAMS:
                        continue
                    line = Line(number, text)
                    stream = streams[speaker] = _Stream(evidence(source, line), line, bar)
                if stream.bar and not bar:
                    line = Line(number, text)
                    stream = streams[speaker] = _Stream(evidence(source, line), line, bar)
                if bar and (not stream.bar or step == stream.last_step):
                    continue
                if room > 0:
                    room -= 1
                    stream.times.append(seconds)
                stream.last = Line(number, text)
                if step is not None:
                    stream.last_step = step
    for (rank, _), stream in streams.items():
        yield _summary(rank, stream, source)


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """As `scan`, for lines."""
    return scan((Block(line.number, line.text) for line in lines), source)


def _samples(text: str) -> Iterator[tuple[float, int | None, bool]]:
    """(seconds, step, from a progress bar) that one line tells."""
    m = _TIME.search(text) or _METER.search(text)
    if m is None:
        m = _SHORT.search(text)
        if m is not None and _STEP.search(text) is None:
            m = None
    if m is not None:
        seconds = _seconds(m)
        step = _STEP.search(text)
        if seconds is not None:
            yield seconds, int(step["step"]) if step else None, False
        return
    for bar in _BAR.finditer(text):
        value = float(bar["value"])
        if value > 0 and _OTHER_BARS.search(text, max(0, bar.start() - 80), bar.start()) is None:
            yield (value if bar["unit"] == "s/it" else 1.0 / value), int(bar["done"]), True


def _seconds(m: re.Match[str]) -> float | None:
    groups = m.groupdict()
    name = (groups.get("name") or "").lower()
    unit = (groups.get("bracket") or groups.get("unit") or "").strip().lower()
    if not unit:
        unit = "ms" if name.endswith("_ms") or name.startswith("ms") else "s"
    value = float(m["value"])
    if unit == "us":
        value /= 1e6
    elif unit.startswith("m"):
        value /= 1e3
    return value if 0 < value < 1e6 else None


def _speaker(text: str) -> tuple[int | None, int | None]:
    """(global rank, local rank) that a line's prefix, its JSON or a tag near its start tells."""
    prefix = unprefix(text)
    local = _LOCAL.search(text, 0, prefix.offset + 1)
    if local is not None and "[rank" not in text[: prefix.offset]:
        return None, int(local.group(1))
    if prefix.rank is not None:
        return prefix.rank, None
    m = _JSON_RANK.search(text) or _TAG_RANK.search(prefix.text, 0, _TAG_COLUMNS)
    return (int(m["rank"]) if m else None), None


def _summary(rank: int | None, stream: _Stream, source: Source) -> Record:
    times = sorted(stream.times)
    count = len(times)
    fields: dict[str, int | float] = {
        "steps": count,
        "median_s": round((times[(count - 1) // 2] + times[count // 2]) / 2, 6),
        "min_s": round(times[0], 6),
        "max_s": round(times[-1], 6),
    }
    if count >= 20:
        fields["p99_s"] = round(times[min(count - 1, int(count * 0.99))], 6)
    if stream.last_step is not None:
        fields["last_step"] = stream.last_step
    shown = (
        (stream.first,) if stream.last.number == stream.first.last else (stream.first, evidence(source, stream.last))
    )
    return Record("train_step", fields, shown, rank=rank)
