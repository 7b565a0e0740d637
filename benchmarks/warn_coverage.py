"""How many of NCCL's WARN and ATTN messages are recognised whole, and filed in a named area by their text alone.

`warn_coverage.py TABLE [--sample N --seed S] [--other]`: TABLE is tab-separated with a header naming at least id,
level, first_version_seen, last_version_seen, source_file, template_shape and component; shapes are format strings with
{int} {hex} {str} {float} {char}. Each message is filled with invented values and printed in every form of line that its
versions know.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from diagnose import packs
from diagnose.model import Block, Digest, Record, Source

BATCH = 150
"""Lines read together: fewer than the number at which the parser starts to fold processes."""
STRINGS = ("mlx5_3", "192.0.2.17<41234>", "Connection refused", "AllReduce", "/tmp/thing-Ab12Cd", "eth0")
NEUTRAL = ("something",)
"""For the areas: the words of the message alone shall decide."""


class Row(NamedTuple):
    """One template of the table."""

    id: str
    level: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    file: str
    shape: str
    plugin: bool


class Line(NamedTuple):
    """One message as printed, and what must come out."""

    row: Row
    text: str
    host: str
    pid: int
    device: int
    message: str


class _Filler:
    """Invented values for the placeholders of a shape, fresh ones for every placeholder."""

    def __init__(self, dice: random.Random, strings: tuple[str, ...]) -> None:
        self.dice = dice
        self.strings = strings

    def value(self, kind: str) -> str:
        """A value of that kind."""
        if kind == "int":
            return str(self.dice.randrange(1, 9_000))
        if kind == "hex":
            return f"0x{self.dice.getrandbits(44):x}"
        if kind == "float":
            return f"{self.dice.uniform(0, 400):.2f}"
        return "x" if kind == "char" else self.dice.choice(self.strings)


def version(text: str) -> tuple[int, ...]:
    """`2.30.7` as (2, 30, 7); () when unknown."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def rows(table: Path) -> list[Row]:
    """The WARN and ATTN templates."""
    with table.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                r["id"],
                r["level"],
                version(r["first_version_seen"]),
                version(r["last_version_seen"]),
                r["source_file"],
                r["template_shape"],
                r["component"] != "nccl",
            )
            for r in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if r["level"] in ("WARN", "ATTN")
        ]


def fill(shape: str, dice: random.Random, strings: tuple[str, ...] = STRINGS) -> str:
    """The shape with values instead of placeholders; `\\n` and `\\t` become real."""
    filler = _Filler(dice, strings)
    text = re.sub(r"\{(int|hex|str|float|char)\}", lambda m: filler.value(m.group(1)), shape)
    return text.replace("{{", "{").replace("}}", "}").replace("\\n", "\n").replace("\\t", "\t").rstrip()


def forms(row: Row, number: int, dice: random.Random) -> Iterator[Line]:
    """The message in every form of line that NCCL of its versions, or its plugin, prints."""
    host, pid, device = f"node-{number % 97:02d}", 100_000 + number, dice.randrange(8)
    message = fill(row.shape, dice)
    sign = f"{host}:{pid}:{pid + dice.randrange(1, 900)} [{device}]"
    file = re.sub(r"^src/", "", row.file) or "misc/socket.cc"
    places = [f"{file}:{dice.randrange(20, 2_000)}"]
    if row.plugin:
        places.append(f"int plugin_call(struct state*, void**):{dice.randrange(20, 900)}")
        stamped = True
    else:
        if row.last >= (2, 30, 7):
            places = [f"{places[0]} (someFunction)"] + (places if row.first < (2, 30, 7) else [])
        stamped = row.last >= (2, 26)
    for place in places:
        yield Line(row, f"{sign} {place} NCCL {row.level} {message}", host, pid, device, message)
        if stamped:
            for stamp in ("[2026-11-30 17:24:40] ", "2026-11-30T17:24:40.123456 ", "[rank3]: "):
                yield Line(row, f"{stamp}{sign} {place} NCCL {row.level} {message}", host, pid, device, message)


def read(parser: ModuleType, lines: list[Line]) -> dict[int, list[Record]]:
    """The warnings that the parser finds in the lines, by pid."""
    text = "\n\n".join(line.text for line in lines)
    found: dict[int, list[Record]] = {}
    for item in parser.scan([Block(1, text)], Source(id="t", path="t.log")):
        for record in item.records() if isinstance(item, Digest) else (item,):
            if record.kind == "nccl_warning":
                found.setdefault(int(str(record.fields.get("pid", -1))), []).append(record)
    return found


def same(line: Line, record: Record) -> bool:
    """Whether the record is the line, with host, pid, device and text whole."""
    fields = record.fields
    return (record.host, fields.get("pid"), fields.get("cuda_dev"), fields.get("level"), fields.get("text")) == (
        line.host, line.pid, line.device, line.row.level, line.message,
    )  # fmt: skip


def main() -> int:
    """Command line; exit code 1 when a share is below what is wanted."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("table", type=Path)
    options.add_argument("--sample", type=int, default=0, help="print so many classified messages, chosen at random")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--other", action="store_true", help="print the messages that no area claims")
    told = options.parse_args()
    folder = packs.builtin("parsers")
    parser = next(module for module in packs.load_parsers() if module.KIND == "nccl_log")
    areas = importlib.import_module(f"{parser.__name__}._areas")
    dice = random.Random(told.seed)
    table = rows(told.table)
    lines: list[Line] = []
    for row in table:
        lines.extend(forms(row, len(lines), dice))
    numbered = [_numbered(line, number) for number, line in enumerate(lines)]
    lost: list[Line] = []
    for at in range(0, len(numbered), BATCH):
        batch = numbered[at : at + BATCH]
        found = read(parser, batch)
        lost += [line for line in batch if not any(same(line, record) for record in found.get(line.pid, ()))]
    filed = [(areas.area_of(fill(row.shape, dice, NEUTRAL)), row) for row in table]
    other = [row for area, row in filed if area == areas.OTHER]
    recognised, named = 1 - len(lost) / len(numbered), 1 - len(other) / len(table)
    print(f"parsers: {folder}")
    print(f"{len(table)} messages, {len(numbered)} lines: {recognised:.2%} recognised with host, pid, device and text")
    print(f"{named:.2%} in a named area, of {len({a for a, _ in filed} - {areas.OTHER})} areas")
    for area, count in Counter(area for area, _ in filed).most_common():
        print(f"  {count:5d} {area}")
    for line in lost[:20]:
        print(f"lost: {line.text[:220]!r}")
    if told.other:
        for row in other:
            print(f"other: {row.shape[:160]}")
    for area, row in dice.sample(filed, min(told.sample, len(filed))):
        print(f"{area:13s} {row.shape[:150]}")
    return 0 if recognised == 1 and named >= 0.9 else 1


def _numbered(line: Line, number: int) -> Line:
    """The line with a pid of its own, so that equal texts are not folded."""
    pid = 100_000 + number
    return line._replace(text=line.text.replace(f":{line.pid}:", f":{pid}:", 1), pid=pid)


if __name__ == "__main__":
    sys.exit(main())
