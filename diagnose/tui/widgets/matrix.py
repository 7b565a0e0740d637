"""Matrix: devices of each host against each other, faults marked by place and glyph; or the same as a list of paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len

from ..grids import Cell, HostMatrix
from ..plain import shorten, wrap
from .lineview import MIN_WIDTH, LineView, Piece, Row

LEGEND: tuple[tuple[str, str], ...] = (
    ("NV#", "NVLink"), ("PIX", "one PCIe switch"), ("PXB", "several switches"), ("PHB", "host bridge"),
    ("NODE", "same NUMA node"), ("SYS", "across sockets"), ("!", "at fault"),
)  # fmt: skip


class Matrix(LineView):
    """One matrix per host, below each other. Enter on a faulty row goes to its finding."""

    def __init__(self, *, id: str | None = None, say: Callable[[str], str] = str) -> None:
        super().__init__(id=id)
        self.hosts: Sequence[HostMatrix] = ()
        self.faults: Mapping[tuple[str, str], str] = {}
        self.as_paths = False
        self._say = say
        self._lines: list[tuple[int | None, Row]] = []
        self._devices: list[tuple[str, str]] = []
        self._row_of: list[int] = []
        self._width = 0

    def show(self, hosts: Sequence[HostMatrix], faults: Mapping[tuple[str, str], str]) -> None:
        """Show matrices; `faults` maps (host, device in lower case) to the key of a finding."""
        self.hosts, self.faults = hosts, faults
        self._build()

    def next_view(self) -> None:
        """Matrix, or list of paths."""
        self.as_paths = not self.as_paths
        self._build()

    def finding_at_cursor(self) -> str | None:
        """Key of the finding about the device under the cursor."""
        if not self._devices:
            return None
        host, name = self._devices[self.cursor]
        return self.faults.get((host, name.lower()))

    def relayout(self) -> None:
        if not self.hosts:
            self._build()

    def _build(self) -> None:
        self._lines, self._devices, self._row_of = [], [], []
        for matrix in self.hosts:
            self._lines.append((None, [(f" {shorten(matrix.host, 60)}", "head")]))
            if self.as_paths:
                self._paths(matrix)
            else:
                self._matrix(matrix)
        if not self.hosts:
            text = self._say("No topology: it needs the output of nvidia-smi topo -m, or NCCL's graph dump.")
            width = max(MIN_WIDTH, self.view_size.width - 2)
            self._lines += [(None, [(" " + line, "muted")]) for line in wrap(text, width)]
        self._width = max((sum(cell_len(t) for t, _ in row) for _, row in self._lines), default=0) + 2
        self.content_changed()

    def _add(self, host: str, name: str, row: Row) -> None:
        self._row_of.append(len(self._lines))
        self._lines.append((len(self._devices), row))
        self._devices.append((host, name))

    def _is_faulty(self, host: str, name: str) -> bool:
        return (host, name.lower()) in self.faults

    def _label(self, host: str, name: str, size: int, right: bool = False) -> Piece:
        faulty = self._is_faulty(host, name)
        text = shorten(("!" if faulty else "") + name, size)
        pad = " " * (size - cell_len(text))
        return (pad + text if right else text + pad), "odd" if faulty else "label"

    def _matrix(self, matrix: HostMatrix) -> None:
        size = min(14, max((cell_len(n) for n in matrix.rows), default=4) + 1)
        cells = [cell_len(c.text) + 1 for row in matrix.cells for c in row]
        width = min(14, max([cell_len(c) + 1 for c in matrix.columns] + cells + [4]) + 1)
        head: list[Piece] = [(" " * (size + 2), "text")]
        head += [self._label(matrix.host, c, width, right=True) for c in matrix.columns]
        self._lines.append((None, head))
        for name, row in zip(matrix.rows, matrix.cells, strict=False):
            pieces: list[Piece] = [(" ", "text"), self._label(matrix.host, name, size)]
            pieces += [self._cell(cell, width) for cell in row]
            self._add(matrix.host, name, pieces)

    @staticmethod
    def _cell(cell: Cell, width: int) -> Piece:
        text = shorten(("!" if cell.odd else "") + cell.text, width - 1)
        token = (
            "odd" if cell.odd else "ok" if cell.text.startswith("NV") else "muted" if cell.text in ("X", "") else "text"
        )
        return " " * (width - cell_len(text)) + text, token

    def _paths(self, matrix: HostMatrix) -> None:
        for name, row in zip(matrix.rows, matrix.cells, strict=False):
            for column, cell in zip(matrix.columns, row, strict=False):
                if cell.text in ("X", "", "-") or column == name:
                    continue
                text = f" {name} → {cell.text} → {column}"
                odd = cell.odd or self._is_faulty(matrix.host, name) or self._is_faulty(matrix.host, column)
                self._add(matrix.host, name, [(shorten(text + ("  !" if odd else ""), 100), "odd" if odd else "text")])

    def row_count(self) -> int:
        return len(self._lines)

    def row_width(self) -> int:
        return self._width

    def row(self, y: int) -> Row:
        item, pieces = self._lines[y]
        return [("▌" if item is not None and item == self.cursor else " ", "key"), *pieces]

    def item_count(self) -> int:
        return len(self._devices)

    def item_rows(self, item: int) -> tuple[int, int]:
        return self._row_of[item], self._row_of[item]

    def item_at(self, y: int) -> int | None:
        return self._lines[y][0] if 0 <= y < len(self._lines) else None

    def legend(self) -> Row:
        """What the words in the cells mean."""
        pieces: list[Piece] = []
        seen = {c.text.rstrip("0123456789") for m in self.hosts for row in m.cells for c in row}
        for word, meaning in LEGEND:
            if word != "!" and word.rstrip("#") not in seen:
                continue
            pieces += [(f" {word} ", "odd" if word == "!" else "label"), (self._say(meaning) + " ", "muted")]
        return pieces
