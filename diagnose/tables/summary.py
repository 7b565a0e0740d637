"""What the views show beside the findings: the job in a few numbers, and bounded tables of JSON values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from diagnose.model import Fact, FactBase, Finding
from diagnose.tables.progress.table import progress_table

MAX_ROWS = 200
"""Rows kept per table; what is beyond is counted in `rows_dropped`."""


def job(base: FactBase, facts: Sequence[Fact]) -> dict[str, Any]:
    """Nodes, ranks, GPUs, when the stall began (epoch s) and versions, as far as known.

    Where the place of every rank is known, hosts without ranks (the nodes below pods, login hosts) are not counted.
    """
    versions: dict[str, list[str]] = {}
    for name, kind, field in (("nccl", "nccl_version", "version"), ("driver", "gpu", "driver")):
        found = sorted({str(o.fields[field]) for o in base.observations if o.kind == kind and field in o.fields})
        if found:
            versions[name] = found[:8]
    gpus = {(o.fields.get("host"), str(o.fields.get("bus_id", o.fields.get("index"))).lower()[-7:])
            for o in base.observations if o.kind == "gpu"}  # fmt: skip
    placed = base.world is not None and len(base.rank_host) >= base.world
    hosts = set(base.rank_host.values()) if placed else base.hosts
    known: dict[str, Any] = {
        "nodes": len(hosts) or None, "ranks": base.world, "gpus": len(gpus) or None,
        "stalled_since": _stalled_since(base), "versions": versions or None,
    }  # fmt: skip
    return {name: value for name, value in known.items() if value is not None}


def _stalled_since(base: FactBase) -> int | None:
    """Earliest watchdog time-out minus the time it had waited."""
    starts = [
        float(at) - float(waited) / 1e3 for o in base.observations
        if o.kind == "torch_timeout" and isinstance(at := o.fields.get("at"), int | float)
        and isinstance(waited := o.fields.get("elapsed_ms"), int | float)
    ]  # fmt: skip
    return int(min(starts)) if starts else None


def summary(base: FactBase, facts: Sequence[Fact], findings: Sequence[Finding]) -> dict[str, Any]:
    """The tables of the report: progress, hosts_by_check, topology, timeline, counters, benchmarks."""
    tables: dict[str, Any] = {
        "progress": progress_table(base, facts), "hosts_by_check": _hosts_by_check(findings),
        "topology": _topology(base),
        "timeline": _timeline(findings, base), "counters": _counters(facts), "benchmarks": _benchmarks(base),
    }  # fmt: skip
    return {name: table for name, table in tables.items() if table}


def _bounded(rows: list[Any], name: str = "rows") -> dict[str, Any]:
    table: dict[str, Any] = {name: rows[:MAX_ROWS]}
    if len(rows) > MAX_ROWS:
        table["rows_dropped"] = len(rows) - MAX_ROWS
    return table if rows else {}


def _hosts_by_check(findings: Sequence[Finding]) -> dict[str, Any]:
    rows = [
        {"id": f.id, "severity": f.severity, "hosts": sorted({s.host or s.name for s in f.subjects
                                                             if s.host or s.kind == "host"})[:40]}
        for f in findings
    ]  # fmt: skip
    return _bounded([r for r in rows if r["hosts"]])


def _topology(base: FactBase) -> dict[str, Any]:
    """The GPU and NIC matrix of every host, as read."""
    cells: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for o in base.observations:
        if o.kind == "topo_link":
            host = str(o.fields.get("host", ""))
            cells[host][str(o.fields["a"]), str(o.fields["b"])] = str(o.fields["relation"])
    hosts: list[dict[str, Any]] = []
    for host, links in sorted(cells.items()):
        names = list(dict.fromkeys(n for pair in links for n in pair))[:40]
        rows = [
            {"name": a, "cells": ["X" if a == b else links.get((a, b), links.get((b, a), "")) for b in names]}
            for a in names
        ]  # fmt: skip
        hosts.append({"host": host, "columns": names, "rows": rows})
    shapes = Counter(str(h["rows"]) for h in hosts)
    odd_first = sorted(hosts, key=lambda h: (shapes[str(h["rows"])], h["host"]))
    return _bounded(odd_first[:32], "hosts") if hosts else {}


def _timeline(findings: Sequence[Finding], base: FactBase) -> dict[str, Any]:
    """Dated observations behind the findings, oldest first; times without a zone are ordered within a host only."""
    wanted = {(e.source, e.first): f.id for f in findings for e in f.evidence}
    rows: list[dict[str, Any]] = []
    for o in base.observations:
        at = o.fields.get("at")
        for e in o.evidence[:1]:
            if isinstance(at, int | float) and (e.source, e.first) in wanted:
                rows.append({
                    "at": float(at), "host": o.fields.get("host"), "rank": o.fields.get("rank"), "kind": o.kind,
                    "source": e.source, "line": e.first, "text": e.text[:200],
                })  # fmt: skip
    rows.sort(key=lambda r: (r["at"], str(r["host"]), r["source"], r["line"]))
    return _bounded(rows)


def _counters(facts: Iterable[Fact]) -> dict[str, Any]:
    rows = [_plain(f.fields) for f in facts if f.kind in ("nic_rate", "rdma_rate") and f.fields.get("delta")]
    rows.sort(key=lambda r: (str(r["metric"]), -float(r["value"]), str(r.get("host"))))
    return _bounded(rows)


def _benchmarks(base: FactBase) -> dict[str, Any]:
    kinds = ("bench_nccl", "bench_ib", "bench_gpu")
    return _bounded([{"kind": o.kind, **_plain(o.fields)} for o in base.observations if o.kind in kinds])


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
