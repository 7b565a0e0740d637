"""CPU throttling of control groups: between two snapshots, or over the group's life."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from diagnose.model import Fact, FactBase, Value


def derive(base: FactBase) -> Iterator[Fact]:
    """One `cgroup_rate` per control group; an interval is preferred to the life."""
    groups: dict[tuple[Value, Value], list[Fact]] = defaultdict(list)
    quotas: dict[tuple[Value, Value], Value] = {}
    for o in base.observations:
        if o.kind == "cgroup_cpu" and "host" in o.fields:
            key = (o.fields["host"], o.fields["path"])
            if "nr_periods" in o.fields:
                groups[key].append(o)
            if "quota_cores" in o.fields:
                quotas[key] = o.fields["quota_cores"]
    for (host, path), seen in sorted(groups.items(), key=lambda item: str(item[0])):
        seen.sort(key=lambda o: _number(o, "nr_periods"))
        first, last = seen[0], seen[-1]
        interval = len(seen) > 1 and first.fields.get("snapshot") != last.fields.get("snapshot")
        base_line = first if interval else None
        periods = _number(last, "nr_periods") - (_number(base_line, "nr_periods") if base_line else 0)
        if periods <= 0:
            continue
        throttled = _number(last, "nr_throttled") - (_number(base_line, "nr_throttled") if base_line else 0)
        seconds = _number(last, "throttled_s") - (_number(base_line, "throttled_s") if base_line else 0)
        fields: dict[str, Value] = {
            "path": path, "periods": int(periods), "throttled": int(throttled), "share": max(0.0, throttled / periods),
            "throttled_s": seconds, "lifetime": not interval,
        }  # fmt: skip
        if host:
            fields["host"] = host
        if (host, path) in quotas:
            fields["quota_cores"] = quotas[host, path]
        yield Fact("", "cgroup_rate", fields, (*last.evidence, *(first.evidence if interval else ())))


def _number(fact: Fact, name: str) -> float:
    value = fact.fields.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
