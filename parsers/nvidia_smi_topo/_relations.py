"""From the rows of a matrix to relations between labels; what cannot be assigned is a problem, never a shift."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyparsing as pp

from diagnose.model import Line, Record, Source
from diagnose.parsing import problem

DISTANCE = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Relations through PCIe, nearest first; NVLink (`NV#`) is nearer than all of them."""

GPU = re.compile(r"GPU\d+")


@dataclass(slots=True)
class Row:
    """One logical row: physical lines joined, cells in the order read."""

    text: str
    lines: list[Line]
    label: str = ""
    cells: list[str] = field(default_factory=list)
    rest: str = ""

    def read(self, grammar: pp.ParserElement) -> None:
        found = grammar.parse_string(self.text)
        self.label, self.cells, self.rest = str(found["label"]), list(found["cells"]), str(found["rest"]).strip()


@dataclass(slots=True)
class Matrix:
    """A matrix being collected."""

    header: Row | None
    columns: list[str]
    titles: int
    operation: str | None = None
    rows: list[Row] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)
    closed: bool = False
    pix_line: bool = False
    nv_line: bool = False
    legend_done: bool = False

    @property
    def is_p2p(self) -> bool:
        return any(c in ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U") for r in self.rows[:2] for c in r.cells)

    @property
    def pcie_only(self) -> bool:
        """`-mp`: the legend is complete and does not explain NV#."""
        return self.legend_done and self.pix_line and not self.nv_line


@dataclass(slots=True)
class Relations:
    """Relations by pair of labels, the row that told each, the tail cells of each row."""

    columns: list[str]
    pairs: dict[tuple[str, str], str] = field(default_factory=dict)
    where: dict[tuple[str, str], Row] = field(default_factory=dict)
    tails: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    problems: list[Record] = field(default_factory=list)

    def between(self, a: str, b: str) -> str | None:
        found = self.pairs.get((a, b)) or self.pairs.get((b, a))
        return found if found and (found in DISTANCE or found.startswith("NV")) else None

    def row_of(self, a: str, b: str) -> Row:
        return self.where.get((a, b)) or self.where[(b, a)]


def relate(matrix: Matrix, source: Source) -> Relations:
    """Assign cells to columns; rows whose cells cannot be assigned become problems and count for nothing."""
    labels = [row.label for row in matrix.rows]
    columns = matrix.columns
    result = Relations(columns or labels)
    if not columns and any(len(r.cells) < len(labels) or r.cells[n] != "X" for n, r in enumerate(matrix.rows)):
        text = "topology matrix without its header: the columns cannot be told"
        result.problems.append(problem(source, text, *(r.lines[0] for r in matrix.rows)))
        result.columns = []
        return result
    position = {name: n for n, name in enumerate(result.columns)}
    short: list[Row] = []
    for row in matrix.rows:
        own = position.get(row.label)
        count = len(result.columns)
        if own is None or row.label in result.rows:
            continue
        if len(row.cells) < count:
            short.append(row)
            continue
        if row.cells[own] != "X" or "X" in row.cells[:own] + row.cells[own + 1 : count]:
            _reject(result, row, source)
            continue
        _accept(result, row, count)
        result.tails[row.label] = [*row.cells[count:], *row.rest.split()]
    for row in short:
        own = position[row.label]
        cut = not re.search(r"\d", row.rest)
        if cut and _fits(result, row, own):
            _accept(result, row, len(row.cells))
        else:
            _reject(result, row, source)
    _check_symmetry(result, source)
    return result


def _fits(result: Relations, row: Row, own: int) -> bool:
    """Whether a row cut at the right edge agrees with the complete rows."""
    if own < len(row.cells) and row.cells[own] != "X":
        return False
    if "X" in row.cells[:own] or "X" in row.cells[own + 1 :]:
        return False
    known = [(result.pairs.get((c, row.label)), cell) for c, cell in zip(result.columns, row.cells, strict=False)]
    return all(there is None or there == cell for there, cell in known)


def _accept(result: Relations, row: Row, count: int) -> None:
    result.rows[row.label] = row
    for column, cell in zip(result.columns, row.cells[:count], strict=False):
        if cell not in ("X", "N/A", "ERR"):
            result.pairs[(row.label, column)] = "SYS" if cell == "SOC" else cell
            result.where[(row.label, column)] = row


def _reject(result: Relations, row: Row, source: Source) -> None:
    text = f"row {row.label} of the topology matrix: cells cannot be assigned to columns"
    result.problems.append(problem(source, text, *row.lines))


def _check_symmetry(result: Relations, source: Source) -> None:
    """The matrix is symmetric by construction; where it is not, the paste is damaged and neither cell counts."""
    for (a, b), cell in list(result.pairs.items()):
        other = result.pairs.get((b, a))
        if other is not None and other != cell:
            result.problems.append(
                problem(
                    source, f"{a}-{b} reads {cell} in one row and {other} in the other", *result.where[(a, b)].lines
                )
            )
            del result.pairs[(a, b)], result.pairs[(b, a)]
