"""Tables of a diagnosis made flat, whatever shape a saved report brings: names, columns, rows of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from diagnose.report.safe import safe
from diagnose.report.view import listed, moment

_ROWS, _COLUMNS, _CELL, _GRIDS = 200, 40, 200, 40


@dataclass(frozen=True, slots=True)
class Grid:
    """A flat table; `hidden` rows are left out."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    hidden: int = 0


def grids(tables: Mapping[str, Any]) -> list[Grid]:
    """All tables: those with `rows`, one per stalled group, one per host's topology; lists and mappings of rows too."""
    found = [grid for name in sorted(tables) for grid in _grids(name, tables[name])]
    return [grid for grid in found if grid.rows][:_GRIDS]


def progress(tables: Mapping[str, Any]) -> list[Grid]:
    """Who stands where, one grid per stalled group."""
    found = [grid for grid in _grids("progress", tables.get("progress")) if grid.rows]
    return [replace(grid, name=grid.name.removeprefix("progress: ")) for grid in found]


def _grids(name: str, table: Any) -> Iterator[Grid]:
    title = name.replace("_", " ")
    if isinstance(table, list | tuple):
        yield _grid(title, list(cast(list[Any], table)))
    elif isinstance(table, Mapping):
        named = cast(Mapping[str, Any], table)
        groups, hosts, rows = (_items(named, key) for key in ("groups", "hosts", "rows"))
        for group in groups:
            what = [listed(group.get(key)) for key in ("group", "op", "seqs")]
            yield _grid(" ".join(filter(None, [f"{title}:", *what])), _items(group, "rows"), ("odd",))
        for host in hosts:
            yield _matrix(f"{title}: {listed(host.get('host'))}", host)
        if rows:
            dropped = named.get("rows_dropped")
            yield _grid(title, rows, dropped=dropped if isinstance(dropped, int) else 0)
        if not (groups or hosts or rows):
            yield _grid(title, [{"": k, **_row(v)} for k, v in sorted(named.items())])


def _items(mapping: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = mapping.get(key)
    return [_row(item) for item in cast(list[Any], value)] if isinstance(value, list | tuple) else []


def _row(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {"=": value}


def _grid(name: str, rows: list[Any], without: tuple[str, ...] = (), dropped: int = 0) -> Grid:
    shown = [_row(row) for row in rows[:_ROWS]]
    keys = {key for row in shown for key in row if key not in without}
    columns = tuple(sorted(keys, key=lambda key: (_rank(key), key)))[:_COLUMNS]
    cells = tuple(tuple(_cell(c, row.get(c)) for c in columns) for row in shown)
    return Grid(name, columns, cells, max(0, len(rows) - _ROWS) + dropped)


def _matrix(name: str, host: Mapping[str, Any]) -> Grid:
    columns = [_cell("", c) for c in cast(list[Any], host.get("columns") or [])][:_COLUMNS]
    rows = [
        (_cell("", row.get("name")), *(_cell("", c) for c in cast(list[Any], row.get("cells") or [])[:_COLUMNS]))
        for row in _items(host, "rows")
    ]
    return Grid(name, ("", *columns), tuple(rows))


_FIRST = ("", "at", "id", "severity", "ranks", "states", "note", "kind", "host", "rank", "metric", "value")


def _rank(key: str) -> int:
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def _cell(column: str, value: Any) -> str:
    if column == "at" and isinstance(value, int | float):
        return moment(value)
    return safe(listed(value), _CELL)
