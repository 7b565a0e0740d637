"""Measured figures compared: hardware lots, stragglers, GPUs against their siblings, clocks of the hosts.

The lot test is robust on purpose: medians, the pooled median absolute deviation *within* lots, and separation of most
members, so that one slow GPU in a lot is a straggler and not a lot. What coincides with the lot is named as confounder.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from diagnose.model import Evidence, Fact, FactBase, Value

MIN_MEMBERS = 3
"""Figures a lot (and the rest) must have at least (chosen by us: below, a median is one GPU's word)."""
MIN_DIFFERENCE = 0.05
"""Smallest relative difference that counts (chosen by us: 5 % is worth a warning)."""
MIN_ROBUST_Z = 3.0
"""Smallest difference in units of the spread within lots (chosen by us: the usual three sigma)."""
UNDER_LOAD_PCT = 50.0
"""GPU utilisation from which clocks are comparable; idle GPUs clock down by design."""
STRAGGLER_PCT = 5.0
"""A figure this much worse than the median of the others marks a straggler (3 % warns, 10 % is critical)."""

LOT_KINDS = ("part_number", "vbios", "inforom")


@dataclass(frozen=True)
class Figure:
    """One measured figure of one GPU or host; `better` is +1 when more is better, -1 when less is."""

    name: str
    host: str
    gpu: int | None
    value: float
    better: int
    evidence: tuple[Evidence, ...]
    rank: int | None = None


def derive(base: FactBase) -> Iterator[Fact]:
    """lot_effect, lot_inventory, straggler, gpu_deviation and clock_spread facts."""
    figures = list(_figures(base))
    gpus = [o for o in base.observations if o.kind == "gpu" and "host" in o.fields]
    effects = list(_lot_effects(base, figures, gpus))
    yield from effects
    yield from _lot_inventory(gpus)
    yield from _stragglers(figures, effects)
    yield from _gpu_deviations(gpus)
    yield from _clock_spread(base)


def _figures(base: FactBase) -> Iterator[Figure]:
    for o in base.observations:
        host, rank = str(o.fields.get("host", "")), o.fields.get("rank")
        if o.kind == "bench_gpu" and host:
            gpu = o.fields.get("gpu")
            yield Figure(str(o.fields.get("test", "gpu")), host, gpu if isinstance(gpu, int) else None,
                         _number(o, "value"), 1, o.evidence)  # fmt: skip
        elif o.kind == "bench_nccl" and host and o.fields.get("nodes", 1) == 1 and "busbw_gbps" in o.fields:
            yield Figure("busbw", host, None, _number(o, "busbw_gbps"), 1, o.evidence)
        elif o.kind == "bench_ib" and host and "avg_gbps" in o.fields:
            yield Figure("ib_write_bw", host, None, _number(o, "avg_gbps"), 1, o.evidence)
        elif o.kind == "train_step" and isinstance(rank, int):
            place = base.rank_host.get(rank, host)
            if place:
                yield Figure("step_time", place, None, _number(o, "median_s"), -1, o.evidence, rank)


def _number(fact: Fact, name: str) -> float:
    value = fact.fields[name]
    assert isinstance(value, int | float)
    return float(value)


# --- lots -------------------------------------------------------------------------------------------


def _lot_effects(base: FactBase, figures: list[Figure], gpus: list[Fact]) -> Iterator[Fact]:
    attributes = _attributes(base, gpus)
    by_figure: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        by_figure[figure.name].append(figure)
    for name, found in sorted(by_figure.items()):
        reported: set[frozenset[int]] = set()
        for lot_kind in LOT_KINDS:
            lots: dict[str, list[int]] = defaultdict(list)
            for index, figure in enumerate(found):
                lot = attributes.get((figure.host, figure.gpu), {}).get(lot_kind) or _uniform(
                    attributes, figure.host, lot_kind
                )
                if lot:
                    lots[lot].append(index)
            for lot, members in sorted(lots.items()):
                key = frozenset(members)
                effect = _effect(name, found, lot_kind, lot, members, lots)
                if effect is None or key in reported:
                    continue
                reported.add(key)
                effect["confounder"] = _confounder(attributes, found, members, lots)
                evidence = tuple(e for i in members[:3] for e in found[i].evidence[:1])
                yield Fact("", "lot_effect", effect, evidence)


def _effect(
    name: str, found: list[Figure], lot_kind: str, lot: str, members: list[int], lots: Mapping[str, list[int]]
) -> dict[str, Value] | None:
    """Fields of the effect when this lot is clearly worse than the rest, else None."""
    rest = [i for other, indices in lots.items() if other != lot for i in indices]
    if len(members) < MIN_MEMBERS or len(rest) < MIN_MEMBERS:
        return None
    better = found[members[0]].better
    values: Any = pd.Series([f.value * better for f in found])
    own, others = values[members], values[rest]
    middle, middle_rest = float(own.median()), float(others.median())
    slower = (middle_rest - middle) / abs(middle_rest) if middle_rest else 0.0
    if slower < MIN_DIFFERENCE:
        return None
    spreads: Any = pd.concat([(values[indices] - values[indices].median()).abs() for indices in lots.values()])
    pooled = max(1.4826 * float(spreads.median()), 0.002 * abs(middle_rest))
    robust_z = (middle_rest - middle) / pooled
    separated = float((own < float(others.quantile(0.25))).mean())
    if robust_z < MIN_ROBUST_Z or separated < 0.8:
        return None
    return {
        "lot_kind": lot_kind, "lot": lot, "other_lots": ", ".join(sorted(set(lots) - {lot})), "figure": name,
        "median": abs(middle), "median_rest": abs(middle_rest), "slower_pct": 100 * slower, "members": len(members),
        "members_rest": len(rest), "robust_z": robust_z,
        "hosts": ",".join(sorted({found[i].host for i in members})[:40]),
    }  # fmt: skip


_RACK = re.compile(r"(?:^|[-_])(r(?:ack)?\d+)(?=[-_]|n\d)|^([a-z]+\d+)[-_]")


def _attributes(base: FactBase, gpus: list[Fact]) -> dict[tuple[str, int | None], dict[str, str]]:
    """Per (host, GPU) and per (host, None): lots and everything that could explain a difference instead of a lot."""
    found: dict[tuple[str, int | None], dict[str, str]] = defaultdict(dict)
    firmware: dict[str, list[str]] = defaultdict(list)
    for o in base.observations:
        host = str(o.fields.get("host", ""))
        if not host:
            continue
        if o.kind in ("nic_driver", "rdma_port") and "firmware" in o.fields:
            firmware[host].append(str(o.fields["firmware"]))
        elif o.kind == "lldp_neighbour":
            found[host, None].setdefault("rack", str(o.fields["switch"]))
        elif o.kind == "kernel_event" and o.fields.get("event") == "thermal":
            found[host, None]["thermal"] = "yes"
    for host, versions in firmware.items():
        found[host, None]["nic_firmware"] = Counter(versions).most_common(1)[0][0]
    for gpu in gpus:
        host = str(gpu.fields["host"])
        index = gpu.fields.get("index")
        own = found[host, index if isinstance(index, int) else None]
        for name in (*LOT_KINDS, "driver", "pcie_gen_max", "pcie_width", "power_limit_w", "clock_app_mhz"):
            if name in gpu.fields:
                own[name] = str(gpu.fields[name])
        if gpu.fields.get("throttle_thermal") or gpu.fields.get("throttle_brake"):
            own["throttled"] = "yes"
        elif gpu.fields.get("throttle_app_clocks"):
            own["clocks"] = "locked"
    for host in {h for h, _ in found}:
        m = _RACK.search(host)
        if m:
            found[host, None].setdefault("rack", m.group(1) or m.group(2))
    return found


def _uniform(attributes: Mapping[tuple[str, int | None], Mapping[str, str]], host: str, name: str) -> str | None:
    """Value that every GPU of the host shares, or None."""
    values = {found[name] for (h, _), found in attributes.items() if h == host and name in found}
    return next(iter(values)) if len(values) == 1 else None


CONFOUNDERS = ("throttled", "thermal", "clocks", "power_limit_w", "clock_app_mhz", "pcie_width", "pcie_gen_max",
               "nic_firmware", "driver", "rack")  # fmt: skip


def _confounder(
    attributes: Mapping[tuple[str, int | None], Mapping[str, str]], found: list[Figure], members: list[int],
    lots: Mapping[str, list[int]],
) -> str:  # fmt: skip
    """First other property that separates the same members from the rest; 'none' when nothing known does."""
    inside = set(members)
    everyone = sorted(i for indices in lots.values() for i in indices)
    for name in CONFOUNDERS:
        values: dict[int, str] = {}
        for i in everyone:
            figure = found[i]
            value = attributes.get((figure.host, figure.gpu), {}).get(name)
            values[i] = value or _uniform(attributes, figure.host, name) or "-"
        own = {values[i] for i in inside}
        others = {values[i] for i in everyone if i not in inside}
        if own != {"-"} and not own & others:
            return name
    return "none"


def _lot_inventory(gpus: list[Fact]) -> Iterator[Fact]:
    for lot_kind in LOT_KINDS:
        counts: Counter[str] = Counter()
        names: dict[str, set[str]] = defaultdict(set)
        seen: set[tuple[Value | None, ...]] = set()
        for gpu in gpus:
            key = (gpu.fields["host"], str(gpu.fields.get("bus_id", gpu.fields.get("index"))).lower()[-7:])
            if lot_kind in gpu.fields and key not in seen:
                seen.add(key)
                counts[str(gpu.fields[lot_kind])] += 1
                names[str(gpu.fields.get("name", ""))].add(str(gpu.fields[lot_kind]))
        if len(names) == 1 and len(counts) > 1:
            lots = ", ".join(f"{lot} ({count})" for lot, count in counts.most_common(6))
            evidence = tuple(
                next(g for g in gpus if g.fields.get(lot_kind) == lot).evidence[0] for lot in list(counts)[:3]
            )
            yield Fact("", "lot_inventory", {"lot_kind": lot_kind, "lots": lots}, evidence)


# --- stragglers -------------------------------------------------------------------------------------


def _stragglers(figures: list[Figure], effects: list[Fact]) -> Iterator[Fact]:
    in_lot = {(str(e.fields["figure"]), h) for e in effects for h in str(e.fields["hosts"]).split(",")}
    by_figure: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        by_figure[figure.name].append(figure)
    for name, found in sorted(by_figure.items()):
        if len(found) < 4:
            continue
        values = [f.value for f in found]
        middle = median(values)
        spread = 1.4826 * median(abs(v - middle) for v in values)
        slow = [
            f for f in found
            if middle and f.better * (middle - f.value) / middle * 100 >= STRAGGLER_PCT
            and abs(f.value - middle) >= 4 * spread and (name, f.host) not in in_lot
        ]  # fmt: skip
        if len(slow) * 4 > len(found):
            continue
        for f in slow:
            subject = "rank" if f.rank is not None else "gpu" if f.gpu is not None else "host"
            label = {"rank": str(f.rank), "gpu": f"GPU{f.gpu}", "host": f.host}[subject]
            fields: dict[str, Value] = {
                "host": f.host, "subject": subject, "name": label, "figure": name, "value": f.value, "median": middle,
                "who": f.host if subject == "host" else f"{'rank ' if subject == 'rank' else ''}{label} on {f.host}",
                "slower_pct": f.better * (middle - f.value) / middle * 100, "others": len(found) - 1,
            }  # fmt: skip
            if f.rank is not None:
                fields["rank"] = f.rank
            elif f.gpu is not None:
                fields["gpu"] = label
            yield Fact("", "straggler", fields, f.evidence)


_SIBLING_METRICS = (
    ("clock_sm", "clock_sm_mhz", True), ("power_limit", "power_limit_w", False), ("pcie_width", "pcie_width", True),
    ("pcie_gen", "pcie_gen", True),
)  # fmt: skip


def _gpu_deviations(gpus: list[Fact]) -> Iterator[Fact]:
    """GPUs below the median of the same model, over the whole job; clocks and PCIe only where GPUs are under load."""
    for metric, field, needs_load in _SIBLING_METRICS:
        models: dict[str, list[Fact]] = defaultdict(list)
        for gpu in gpus:
            if field in gpu.fields and (not needs_load or _number_or(gpu, "utilization_pct", 0.0) >= UNDER_LOAD_PCT):
                models[str(gpu.fields.get("name", ""))].append(gpu)
        for found in models.values():
            if len(found) < 4:
                continue
            middle = median(_number(g, field) for g in found)
            for gpu in found:
                below = 100 * (middle - _number(gpu, field)) / middle if middle else 0.0
                if below >= 3.0:
                    fields: dict[str, Value] = {
                        "host": gpu.fields["host"], "gpu": f"GPU{gpu.fields.get('index', gpu.fields.get('bus_id'))}",
                        "metric": metric, "value": _number(gpu, field), "median": middle, "below_pct": below,
                        "siblings": len(found) - 1,
                    }  # fmt: skip
                    yield Fact("", "gpu_deviation", fields, gpu.evidence)


def _number_or(fact: Fact, name: str, default: float) -> float:
    value = fact.fields.get(name)
    return float(value) if isinstance(value, int | float) else default


def _clock_spread(base: FactBase) -> Iterator[Fact]:
    offsets: dict[str, tuple[float, Fact]] = {}
    for o in base.observations:
        if o.kind == "clock_tracking" and "host" in o.fields and "signed_offset_ms" in o.fields:
            offsets[str(o.fields["host"])] = (_number(o, "signed_offset_ms"), o)
    if len(offsets) < 2:
        return
    middle = median(value for value, _ in offsets.values())
    worst = max(offsets, key=lambda host: abs(offsets[host][0] - middle))
    spread = max(v for v, _ in offsets.values()) - min(v for v, _ in offsets.values())
    fields: dict[str, Value] = {"spread_ms": spread, "worst_host": worst, "host": worst, "hosts": len(offsets)}
    yield Fact("", "clock_spread", fields, offsets[worst][1].evidence)
