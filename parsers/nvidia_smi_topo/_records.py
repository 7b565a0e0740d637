"""From relations to records: one per GPU, one for the matrix, one per link; peer-to-peer status."""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.model import Evidence, Record, Source
from diagnose.parsing import evidence, problem

from ._relations import DISTANCE, GPU, Matrix, Relations, Row, relate

LOCAL = ("PIX", "PXB")
MAX_RECORDS = 150


def matrix_records(matrix: Matrix, source: Source) -> Iterator[Record]:
    found = relate(matrix, source)
    yield from found.problems
    gpus = [c for c in found.columns if GPU.fullmatch(c)]
    nics = [c for c in found.columns if not GPU.fullmatch(c)]
    if not gpus or not found.rows:
        return
    whole = matrix.header is None or matrix.titles > 0
    names = {nic: matrix.legend.get(nic, nic) for nic in nics}
    best: dict[str, tuple[str, list[str]] | None] = {}
    for gpu in gpus:
        best[gpu] = _best_nics(found, gpu, nics)
        row = found.rows.get(gpu)
        if row is not None:
            fields = _gpu_fields(gpu, best[gpu] if whole else None, names, found.tails.get(gpu, []), matrix.titles)
            if not whole:
                del fields["nic_count"]
            yield Record("topo_gpu", fields, (_shown(row, source),))
    if whole:
        summary = _summary_fields(matrix, found, gpus, nics, best)
        if any(best.values()):
            summary["nic_map"] = _nic_map(best, names)
        yield Record("topo_summary", summary, _matrix_evidence(matrix, source))
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


def _nic_map(best: dict[str, tuple[str, list[str]] | None], names: dict[str, str]) -> str:
    """Near NICs of each GPU, then the GPUs that have none, by how far their nearest is."""
    said: list[str] = []
    far: dict[str, list[str]] = {}
    for gpu, found in best.items():
        if found is not None and found[0] in LOCAL:
            said.append(f"{gpu}-{','.join(names[nic] for nic in found[1])} {found[0]}")
        elif found is not None:
            far.setdefault(found[0], []).append(gpu)
    return "; ".join([*said, *(f"{','.join(gpus)} only {relation}" for relation, gpus in far.items())])


def _best_nics(found: Relations, gpu: str, nics: list[str]) -> tuple[str, list[str]] | None:
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
    matrix: Matrix, found: Relations, gpus: list[str], nics: list[str], best: dict[str, tuple[str, list[str]] | None]
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
    if len(nics) > 1 and len(gpus) > 1 and pcie:
        fields["flat"] = set(pcie) in ({"PIX"}, {"PHB"})
    return fields


def _distance(relation: str) -> tuple[int, str]:
    return (DISTANCE.index(relation) + 1 if relation in DISTANCE else 0, relation)


def p2p_records(matrix: Matrix, source: Source) -> Iterator[Record]:
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


def _shown(row: Row, source: Source) -> Evidence:
    return evidence(source, *row.lines)


def _matrix_evidence(matrix: Matrix, source: Source) -> tuple[Evidence, ...]:
    """The GPU rows, those without a NIC behind their own PCIe switch first, and the header."""
    rows = [row for row in matrix.rows[:32] if GPU.fullmatch(row.label)]
    rows.sort(key=lambda row: any(cell in LOCAL for cell in row.cells))
    header = (_shown(matrix.header, source),) if matrix.header else ()
    return (*(_shown(row, source) for row in rows), *header)
