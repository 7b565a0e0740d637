"""`nvidia-smi topo -m`, `-mp` and `-p2p`: the matrix of GPU and NIC relations.

Format: drivers 384 to 595. Cells are separated by tabs natively; pastes turn them into spaces, glue cells together and
wrap rows, so rows are read by tokens and never by offsets. A row counts only if its `X` stands in its own column.
NIC columns carry device names up to driver 510 and `NICn` with a legend after that; without the legend `NICn` stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyparsing as pp

from diagnose.model import Evidence, Line, Record, Source
from diagnose.parsing import evidence, problem, unprefix

KIND = "nvidia_smi_topo"
TOPICS = ("gpu_topology", "gpu_p2p")

DISTANCE = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Relations through PCIe, nearest first; NVLink (`NV#`) is nearer than all of them."""

LOCAL = ("PIX", "PXB")
MAX_RECORDS = 150
_MAX_WRAPS = 16

_RELATIONS = r"NV\d{1,2}|NODE|SYS|SOC|PIX|PXB|PHB|N/A|ERR|X"
_STATUSES = r"OK|CNS|GNS|TNS|NS|DR|U|N/A|X"
_SNIFF = re.compile(r"\bGPU\d+[ \t|\u00a0]+(?:NV\d{1,2}|NODE|SYS|SOC|PHB|PXB|PIX|X|OK|CNS|GNS|TNS|NS)(?=[ \t|\u00a0])")
_ROW = re.compile(rf"\s*([A-Za-z][\w.@-]*)\s+(?:{_RELATIONS}|{_STATUSES})(?!\w*[a-z])")
_STYLE = re.compile(r"(?:\x1b|\^\[|\\x1b|\\u001b|\\033)?\[\d{0,2}m")
_HOST = re.compile(r"([A-Za-z0-9][\w.-]{0,62}):\s?(.*)", re.DOTALL)
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s+([\w.@-]+)\s*$")
_GPU = re.compile(r"GPU\d+")
_FRAGMENT = re.compile(r"[A-Z0-9,/ \t-]+")
_P2P = re.compile(r"topo\s+(?:-p2p|--p2pstatus)\s+([rwnap])\b")

_COLUMN = pp.Regex(r"GPU\d+|NIC\d+|mlx\d_(?:bond_)?\d+|(?!CPU\b|NUMA\b|GPU\b|ID\b)[A-Za-z](?=[\w.@-]*\d)[\w.@-]*")
_TAIL = pp.Regex(r"CPU(?:\s+Aff\w*)?|NUMA(?:\s+Aff\w*)?|GPU(?:\s+NU\w*(?:\s+I\w*)?)?")
_HEADER = (
    pp.Group(pp.OneOrMore(_COLUMN))("columns") + pp.Group(pp.ZeroOrMore(_TAIL))("tail") + pp.StringEnd()
).leave_whitespace(recursive=False)
_LABEL = pp.Regex(r"[A-Za-z][\w.@-]*")


def _row_grammar(cell: str) -> pp.ParserElement:
    return _LABEL("label") + pp.Group(pp.ZeroOrMore(pp.Regex(cell)))("cells") + pp.rest_of_line("rest")


_MATRIX_ROW = _row_grammar(_RELATIONS)
_P2P_ROW = _row_grammar(rf"(?:{_STATUSES})(?=\s|$)")


@dataclass(slots=True)
class _Row:
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
class _Matrix:
    """A matrix being collected."""

    header: _Row | None
    columns: list[str]
    titles: int
    operation: str | None = None
    rows: list[_Row] = field(default_factory=list)
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


def sniff(head: str, name: str) -> float:
    """Sure when a row of a matrix is seen; look-alikes of other vendors (XGMI, PCIE, HCCS) do not match."""
    if "GPU0" not in head and "GPU1" not in head:
        return 0.0
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """Records of every matrix in the text; lines of several hosts (pdsh, srun -l) may be interleaved."""
    streams: dict[tuple[str | None, int | None], _Stream] = {}
    for line in lines:
        if "GPU" not in line.text and not streams:
            continue
        host, rank, text = _split(line.text, streams)
        stream = streams.get((host, rank))
        if stream is None:
            stream = streams[(host, rank)] = _Stream(source, host)
        yield from stream.feed(line, text)
    for stream in streams.values():
        yield from stream.finish()


def _split(raw: str, known: dict[tuple[str | None, int | None], _Stream]) -> tuple[str | None, int | None, str]:
    """Launcher prefix and terminal styles off a line."""
    text = _STYLE.sub("", raw).replace("\u00a0", " ").replace("\u3000", " ")
    if text.lstrip()[:1] == "|":
        text = text.replace("|", " ")
    if text[:1] in "\t" or _GPU.match(text):
        return None, None, text
    prefix = unprefix(text)
    m = _HOST.match(prefix.text)
    if (
        m
        and not m.group(1).startswith("NIC")
        and ((m.group(1), prefix.rank) in known or _GPU.match(m.group(2).lstrip()))
    ):
        return m.group(1), prefix.rank, m.group(2)
    return prefix.host, prefix.rank, prefix.text


class _Stream:
    """The lines of one host, in order."""

    def __init__(self, source: Source, host: str | None) -> None:
        self.source = source
        self.host = host
        self.matrix: _Matrix | None = None
        self.operation: str | None = None

    def feed(self, line: Line, text: str) -> Iterator[Record]:
        stripped = text.strip()
        if "topo" in text and (m := _P2P.search(text)):
            self.operation = m.group(1)
        is_row = _ROW.match(text)
        matrix = self.matrix
        if is_row and (_GPU.fullmatch(is_row.group(1)) or (matrix and is_row.group(1) in matrix.columns)):
            if matrix is None or matrix.closed:
                yield from self.finish()
                matrix = self.matrix = _Matrix(None, [], 0)
            self._add_row(matrix, line, text)
            return
        if not is_row and _GPU.match(stripped) and (header := _header(text)):
            if matrix and matrix.header and not matrix.rows and (joined := self._wrapped_header(matrix, line, text)):
                self.matrix = joined
                return
            yield from self.finish()
            self.matrix = _Matrix(_Row(text, [line]), header[0], header[1], self.operation)
            return
        if matrix is None or not stripped:
            if matrix and matrix.rows and not stripped:
                matrix.closed = True
                matrix.legend_done = matrix.legend_done or matrix.pix_line
            return
        if not matrix.rows and matrix.header:
            self.matrix = self._wrapped_header(matrix, line, text) or matrix
        elif not matrix.closed and matrix.rows and _FRAGMENT.fullmatch(text):
            self._continue_row(matrix, line, text)
        else:
            self._read_legend(matrix, stripped)

    @staticmethod
    def _add_row(matrix: _Matrix, line: Line, text: str) -> None:
        row = _Row(text, [line])
        row.read(_MATRIX_ROW)
        if not row.cells or len(row.cells) == 1:
            status = _Row(text, [line])
            status.read(_P2P_ROW)
            row = status if len(status.cells) > len(row.cells) else row
        matrix.rows.append(row)

    @staticmethod
    def _continue_row(matrix: _Matrix, line: Line, text: str) -> None:
        """Join a line that the terminal wrapped; a cell may be split in its middle."""
        last = matrix.rows[-1]
        if len(last.lines) > _MAX_WRAPS:
            return
        complete = bool(matrix.columns) and len(last.cells) >= len(matrix.columns)
        tight = not complete or text[:1] in ",-" or last.text.rstrip()[-1:] in (",", "-")
        joined = _Row(last.text + ("" if tight else " ") + text, [*last.lines, line])
        joined.read(_MATRIX_ROW)
        if complete or len(joined.cells) > len(last.cells):
            matrix.rows[-1] = joined

    @staticmethod
    def _wrapped_header(matrix: _Matrix, line: Line, text: str) -> _Matrix | None:
        assert matrix.header is not None
        before = matrix.header.text
        if len(matrix.header.lines) > _MAX_WRAPS:
            return None
        words, more = before.split(), text.split()
        whole = _header(words[-1]) is not None and not text[:1].isspace() and _header(more[0]) is not None
        joined = before + (" " if whole else "") + text
        header = _header(joined)
        if header is None:
            return None
        return _Matrix(_Row(joined, [*matrix.header.lines, line]), header[0], header[1], matrix.operation)

    @staticmethod
    def _read_legend(matrix: _Matrix, text: str) -> None:
        matrix.closed = True
        if text.startswith("PIX"):
            matrix.pix_line = True
        elif text.startswith("NV#"):
            matrix.nv_line = True
        else:
            matrix.legend_done = matrix.legend_done or matrix.pix_line
            if m := _LEGEND.match(text):
                matrix.legend.setdefault(m.group(1), m.group(2))

    def finish(self) -> Iterator[Record]:
        matrix, self.matrix = self.matrix, None
        if matrix is None or not matrix.rows:
            return
        build = _p2p_records if matrix.is_p2p else _matrix_records
        for record in build(matrix, self.source):
            yield Record(record.kind, record.fields, record.evidence, host=self.host)


def _header(text: str) -> tuple[list[str], int] | None:
    """Columns and number of tail titles of a header line, or None."""
    try:
        found = _HEADER.parse_string(text.strip())
    except pp.ParseException:
        return None
    columns = list(found["columns"])
    return (columns, len(found["tail"])) if len(set(columns)) == len(columns) else None


# --- from rows to relations ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Relations:
    """Relations by pair of labels, the row that told each, the tail cells of each row."""

    columns: list[str]
    pairs: dict[tuple[str, str], str] = field(default_factory=dict)
    where: dict[tuple[str, str], _Row] = field(default_factory=dict)
    tails: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, _Row] = field(default_factory=dict)
    problems: list[Record] = field(default_factory=list)

    def between(self, a: str, b: str) -> str | None:
        found = self.pairs.get((a, b)) or self.pairs.get((b, a))
        return found if found and (found in DISTANCE or found.startswith("NV")) else None

    def row_of(self, a: str, b: str) -> _Row:
        return self.where.get((a, b)) or self.where[(b, a)]


def _relate(matrix: _Matrix, source: Source) -> _Relations:
    """Assign cells to columns; rows whose cells cannot be assigned become problems and count for nothing."""
    labels = [row.label for row in matrix.rows]
    columns = matrix.columns
    result = _Relations(columns or labels)
    if not columns and any(len(r.cells) < len(labels) or r.cells[n] != "X" for n, r in enumerate(matrix.rows)):
        text = "topology matrix without its header: the columns cannot be told"
        result.problems.append(problem(source, text, *(r.lines[0] for r in matrix.rows)))
        result.columns = []
        return result
    position = {name: n for n, name in enumerate(result.columns)}
    short: list[_Row] = []
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


def _fits(result: _Relations, row: _Row, own: int) -> bool:
    """Whether a row cut at the right edge agrees with the complete rows."""
    if own < len(row.cells) and row.cells[own] != "X":
        return False
    if "X" in row.cells[:own] or "X" in row.cells[own + 1 :]:
        return False
    known = [(result.pairs.get((c, row.label)), cell) for c, cell in zip(result.columns, row.cells, strict=False)]
    return all(there is None or there == cell for there, cell in known)


def _accept(result: _Relations, row: _Row, count: int) -> None:
    result.rows[row.label] = row
    for column, cell in zip(result.columns, row.cells[:count], strict=False):
        if cell not in ("X", "N/A", "ERR"):
            result.pairs[(row.label, column)] = "SYS" if cell == "SOC" else cell
            result.where[(row.label, column)] = row


def _reject(result: _Relations, row: _Row, source: Source) -> None:
    text = f"row {row.label} of the topology matrix: cells cannot be assigned to columns"
    result.problems.append(problem(source, text, *row.lines))


def _check_symmetry(result: _Relations, source: Source) -> None:
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


# --- records ------------------------------------------------------------------------------------------


def _matrix_records(matrix: _Matrix, source: Source) -> Iterator[Record]:
    found = _relate(matrix, source)
    yield from found.problems
    gpus = [c for c in found.columns if _GPU.fullmatch(c)]
    nics = [c for c in found.columns if not _GPU.fullmatch(c)]
    if not gpus or not found.rows:
        return
    names = {nic: matrix.legend.get(nic, nic) for nic in nics}
    best: dict[str, tuple[str, list[str]] | None] = {}
    for gpu in gpus:
        best[gpu] = _best_nics(found, gpu, nics)
        row = found.rows.get(gpu)
        if row is not None:
            yield Record("topo_gpu", _gpu_fields(gpu, best[gpu], names, found.tails.get(gpu, []), matrix.titles),
                         (_shown(row, source),))  # fmt: skip
    yield Record("topo_summary", _summary_fields(matrix, found, gpus, nics, best), _matrix_evidence(matrix, source))
    links = [] if matrix.pcie_only else [(a, b) for n, a in enumerate(gpus) for b in gpus[n + 1 :]]
    to_nics = [(a, b) for a in gpus for b in nics]
    if len(links) + len(to_nics) + len(gpus) + 1 > MAX_RECORDS:
        to_nics = [(a, b) for a, b in to_nics if found.between(a, b) in LOCAL]
    for a, b in links + to_nics:
        relation = found.between(a, b)
        if relation is not None:
            fields: dict[str, str | int | float | bool] = {"a": a, "b": names.get(b, b), "relation": relation}
            if names.get(b, b) != b:
                fields["label"] = b
            yield Record("topo_link", fields, (_shown(found.row_of(a, b), source),))


def _best_nics(found: _Relations, gpu: str, nics: list[str]) -> tuple[str, list[str]] | None:
    """Nearest relation of a GPU to the NICs; None when no NIC, or when a missing cell might be nearer."""
    known = {nic: relation for nic in nics if (relation := found.between(gpu, nic)) in DISTANCE}
    if not known:
        return None
    nearest = min(known.values(), key=DISTANCE.index)
    if len(known) < len(nics) and nearest not in LOCAL:
        return None
    return nearest, [nic for nic in nics if known.get(nic) == nearest]


def _gpu_fields(
    gpu: str, best: tuple[str, list[str]] | None, names: dict[str, str], tail: list[str], titles: int
) -> dict[str, str | int | float | bool]:
    fields: dict[str, str | int | float | bool] = {"gpu": gpu, "nic_count": len(names)}
    if best is not None:
        fields["best_nic_relation"] = best[0]
        fields["best_nics"] = ",".join(names[nic] for nic in best[1])
        if fields["best_nics"] != (printed := ",".join(best[1])):
            fields["best_columns"] = printed
    cells = tail if len(tail) == titles else [t for t in tail[:1] if "-" in t or "," in t]
    for name, cell in zip(("cpu_affinity", "numa"), cells, strict=False):
        if re.fullmatch(r"\d[\d,-]*", cell):
            fields[name] = cell
    return fields


def _summary_fields(
    matrix: _Matrix, found: _Relations, gpus: list[str], nics: list[str], best: dict[str, tuple[str, list[str]] | None]
) -> dict[str, str | int | float | bool]:
    fields: dict[str, str | int | float | bool] = {"gpus": len(gpus), "nics": len(nics)}
    judged = [b for b in best.values() if b is not None]
    if nics and len(judged) == len(gpus):
        far = [gpu for gpu, b in best.items() if b and b[0] not in LOCAL]
        fields["gpus_with_local_nic"] = len(gpus) - len(far)
        fields["gpus_without_local_nic"] = ",".join(far)
    peers = {(a, b): r for a in gpus for b in gpus if a != b and (r := found.between(a, b))}
    if not matrix.pcie_only and (peers or len(gpus) == 1):
        fields["nvlink_gpus"] = len({a for (a, _), r in peers.items() if r.startswith("NV")})
        distinct = set(peers.values())
        fields["links"] = ",".join(sorted(distinct, key=_distance))
    pcie = [r for a in gpus for b in found.columns if a != b and (r := found.between(a, b)) in DISTANCE]
    if nics and len(gpus) > 1 and pcie:
        fields["flat"] = len(set(pcie)) == 1
    return fields


def _distance(relation: str) -> tuple[int, str]:
    return (DISTANCE.index(relation) + 1 if relation in DISTANCE else 0, relation)


def _p2p_records(matrix: _Matrix, source: Source) -> Iterator[Record]:
    columns = matrix.columns or [row.label for row in matrix.rows]
    seen: dict[tuple[str, str], str] = {}
    for row in matrix.rows:
        own = columns.index(row.label) if row.label in columns else -1
        if own < 0 or len(row.cells) < len(columns) or row.cells[own] != "X":
            yield problem(source, f"row {row.label} of the peer-to-peer matrix: cells cannot be assigned", *row.lines)
            continue
        for column, cell in zip(columns, row.cells, strict=False):
            if cell in ("X", "N/A") or seen.get((column, row.label)) == cell:
                continue
            seen[(row.label, column)] = cell
            fields: dict[str, str | int | float | bool] = {"a": row.label, "b": column, "status": cell}
            if matrix.operation:
                fields["operation"] = matrix.operation
            yield Record("topo_p2p", fields, (_shown(row, source),))


def _shown(row: _Row, source: Source) -> Evidence:
    return evidence(source, *row.lines)


def _matrix_evidence(matrix: _Matrix, source: Source) -> tuple[Evidence, ...]:
    header = (_shown(matrix.header, source),) if matrix.header else ()
    return (*header, *(_shown(row, source) for row in matrix.rows[:32] if _GPU.fullmatch(row.label)))
