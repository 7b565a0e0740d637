"""`nvidia-smi topo -m`, `-mp` and `-p2p`: the matrix of GPU and NIC relations.

Format: drivers 384 to 595. Cells are separated by tabs natively; pastes turn them into spaces, glue cells together and
wrap rows, so rows are read by tokens and never by offsets. A row counts only if its `X` stands in its own column.
NIC columns carry device names up to driver 510 and `NICn` with a legend after that; without the legend `NICn` stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyparsing as pp

from diagnose.model import Line, Record, Source
from diagnose.parsing import unprefix

from ._records import matrix_records, p2p_records
from ._relations import GPU, Matrix, Row

KIND = "nvidia_smi_topo"
TOPICS = ("gpu_topology", "gpu_p2p")


MAX_COLUMNS = 256
"""More GPUs and NICs than any host has; longer lines are no header."""

_MAX_WRAPS = 16

_RELATIONS = r"NV\d{1,2}|NODE|SYS|SOC|PIX|PXB|PHB|N/A|ERR|X"
_STATUSES = r"OK|CNS|GNS|TNS|NS|DR|U|N/A|X"
_SNIFF = re.compile(r"\bGPU\d+[ \t|\u00a0]+(?:NV\d{1,2}|NODE|SYS|SOC|PHB|PXB|PIX|X|OK|CNS|GNS|TNS|NS)(?=[ \t|\u00a0])")
_ROW = re.compile(rf"\s*([A-Za-z][\w.@-]*)\s+(?:(?:{_RELATIONS})+|{_STATUSES})(?=\s|$)")
_STYLE = re.compile(r"(?:\x1b|\^\[|\\x1b|\\u001b|\\033)?\[\d{0,2}m")
_HOST = re.compile(r"([A-Za-z0-9][\w.-]{0,62}):\s?(.*)", re.DOTALL)
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s+([\w.@-]+)\s*$")
_FRAGMENT = re.compile(r"[A-Z0-9,/ \t-]+")
_P2P = re.compile(r"topo\s+(?:-p2p|--p2pstatus)\s+([rwnap])\b")

_COLUMN = pp.Regex(r"GPU\d+|NIC\d+|mlx\d_(?:bond_)?\d+|(?!CPU\b|NUMA\b|GPU\b|ID\b)[A-Za-z](?=[\w.@-]*\d)[\w.@-]*")
_TAIL = pp.Regex(r"CPU(?:\s+Aff\w*)?|NUMA(?:\s+Aff\w*)?|GPU(?:\s+NU\w*(?:\s+I\w*)?)?")
_CUT = pp.Regex(r"(?:GP?|NIC?|N|NUM?|CP?)(?=\s*$)")
_HEADER = (
    pp.Group(pp.OneOrMore(_COLUMN))("columns")
    + pp.Group(pp.ZeroOrMore(_TAIL))("tail")
    + pp.Optional(_CUT)
    + pp.StringEnd()
)
_LABEL = pp.Regex(r"[A-Za-z][\w.@-]*")


def _row_grammar(cell: str) -> pp.ParserElement:
    return _LABEL("label") + pp.Group(pp.ZeroOrMore(pp.Regex(cell)))("cells") + pp.rest_of_line("rest")


_MATRIX_ROW = _row_grammar(_RELATIONS)
_P2P_ROW = _row_grammar(rf"(?:{_STATUSES})(?=\s|$)")


def sniff(head: str, name: str) -> float:
    """Sure when a row of a matrix is seen; look-alikes of other vendors (XGMI, PCIE, HCCS) do not match."""
    if "GPU0" not in head and "GPU1" not in head:
        return 0.0
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """Records of every matrix in the text; lines of several hosts (pdsh, srun -l) may be interleaved."""
    streams: dict[tuple[str | None, int | None], _Stream] = {}
    for line in lines:
        if not streams and "GPU" not in line.text and "topo" not in line.text:
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
    if text[:1] in "\t" or GPU.match(text):
        return None, None, text
    prefix = unprefix(text)
    m = _HOST.match(prefix.text)
    if (
        m
        and not m.group(1).startswith("NIC")
        and ((m.group(1), prefix.rank) in known or GPU.match(m.group(2).lstrip()))
    ):
        return m.group(1), prefix.rank, m.group(2)
    return prefix.host, prefix.rank, prefix.text


class _Stream:
    """The lines of one host, in order."""

    def __init__(self, source: Source, host: str | None) -> None:
        self.source = source
        self.host = host
        self.matrix: Matrix | None = None
        self.operation: str | None = None

    def feed(self, line: Line, text: str) -> Iterator[Record]:
        stripped = text.strip()
        if "topo" in text and (m := _P2P.search(text)):
            self.operation = m.group(1)
        is_row = _ROW.match(text)
        matrix = self.matrix
        if is_row and (
            GPU.fullmatch(is_row.group(1))
            or (matrix and (is_row.group(1) in matrix.columns or not (matrix.header or matrix.closed)))
        ):
            if matrix is None or matrix.closed:
                yield from self.finish()
                matrix = self.matrix = Matrix(None, [], 0)
            self._add_row(matrix, line, text)
            return
        if not is_row and GPU.match(stripped) and (header := _header(text)):
            if matrix and matrix.header and not matrix.rows and (joined := self._wrapped_header(matrix, line, text)):
                self.matrix = joined
                return
            yield from self.finish()
            self.matrix = Matrix(Row(text, [line]), header[0], header[1], self.operation)
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
    def _add_row(matrix: Matrix, line: Line, text: str) -> None:
        row = Row(text, [line])
        row.read(_MATRIX_ROW)
        if not row.cells or len(row.cells) == 1:
            status = Row(text, [line])
            status.read(_P2P_ROW)
            row = status if len(status.cells) > len(row.cells) else row
        matrix.rows.append(row)

    @staticmethod
    def _continue_row(matrix: Matrix, line: Line, text: str) -> None:
        """Join a line that the terminal wrapped; a cell may be split in its middle."""
        last = matrix.rows[-1]
        if len(last.lines) > _MAX_WRAPS:
            return
        complete = bool(matrix.columns) and len(last.cells) >= len(matrix.columns)
        tight = not complete or text[:1] in ",-" or last.text.rstrip()[-1:] in (",", "-")
        joined = Row(last.text + ("" if tight else " ") + text, [*last.lines, line])
        joined.read(_MATRIX_ROW)
        if complete or len(joined.cells) > len(last.cells):
            matrix.rows[-1] = joined

    @staticmethod
    def _wrapped_header(matrix: Matrix, line: Line, text: str) -> Matrix | None:
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
        return Matrix(Row(joined, [*matrix.header.lines, line]), header[0], header[1], matrix.operation)

    @staticmethod
    def _read_legend(matrix: Matrix, text: str) -> None:
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
        build = p2p_records if matrix.is_p2p else matrix_records
        for record in build(matrix, self.source):
            yield Record(record.kind, record.fields, record.evidence, host=self.host)


def _header(text: str) -> tuple[list[str], int] | None:
    """Columns and number of tail titles of a header line, or None."""
    try:
        found = _HEADER.parse_string(text.strip())
    except pp.ParseException:
        return None
    columns = list(found["columns"])
    if len(columns) > MAX_COLUMNS or len(set(columns)) < len(columns):
        return None
    return columns, len(found["tail"])
