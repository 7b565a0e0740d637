"""What every parser test needs: load a parser from the pack, run it on text, hold records against the vocabulary."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from diagnose import packs
from diagnose.model import Block, Digest, Line, Record, Source
from diagnose.parsing import clean
from diagnose.vocabulary import vocabulary

FIXTURES = Path(__file__).parents[2] / "fixtures" / "parsers"


def load(kind: str) -> ModuleType:
    """The built-in parser of that kind."""
    folder = packs.builtin("parsers")
    file = folder / f"{kind}.py"
    return packs._load(file if file.is_file() else folder / kind / "__init__.py", folder)


def fixture(kind: str, name: str) -> str:
    """Text of a fixture, read as a bundle would hand it over."""
    return (FIXTURES / kind / name).read_bytes().decode("utf-8", "replace")


def lines_of(text: str) -> list[Line]:
    """Text as the lines that a parser is given."""
    parts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if parts and parts[-1] == "":
        parts.pop()
    return [Line(n, clean(part)) for n, part in enumerate(parts, 1)]


def run(parser: ModuleType, text: str, name: str = "x.txt", **told: object) -> list[Record]:
    """All records of a text, digests unfolded; every one conforms to the vocabulary and points inside the text."""
    source = Source(id=name, path=name, **told)  # type: ignore[arg-type]
    lines = lines_of(text)
    records: list[Record] = []
    scan = getattr(parser, "scan", None)
    if scan is not None:
        produced = scan([Block(1, "\n".join(line.text for line in lines))], source)
    else:
        produced = parser.parse(iter(lines), source)
    for item in produced:
        records.extend(item.records() if isinstance(item, Digest) else [item])
    for record in records:
        wrong = vocabulary().check(record.kind, record.fields)
        assert not wrong, wrong
        for e in record.evidence:
            assert 1 <= e.first <= e.last <= max(1, len(lines)), (record.kind, e.first, e.last)
    return records


def of(records: list[Record], kind: str) -> list[Record]:
    """The records of one kind."""
    return [r for r in records if r.kind == kind]
