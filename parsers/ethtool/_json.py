"""`ethtool --json`: a list of objects with `ifname` (-k, -a, -c, -g, --show-fec since 5.x, plain since 6.14)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from diagnose.model import Evidence, Line, Record, Source
from diagnose.parsing import evidence, problem

from . import _counters
from ._settings import FEATURES, Fields, fastest


def answers(lines: Sequence[Line], source: Source) -> Iterator[Record]:
    """Records of one JSON answer; other tools' JSON gives none."""
    text = "\n".join(line.text for line in lines)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if '"ifname"' in text and any(
            key in text for key in ('"link-detected"', '"fixed"', '"autonegotiate"', '"rx-max"')
        ):
            yield problem(source, "ethtool JSON cannot be read", lines[0], lines[-1])
        return
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict) and isinstance(item.get("ifname"), str):
            yield from _answer(item, (evidence(source, lines[0], lines[-1]),), lines, source)


def _answer(
    item: dict[str, Any], whole: tuple[Evidence, ...], lines: Sequence[Line], source: Source
) -> Iterator[Record]:
    device = item["ifname"]
    if "link-detected" in item or "supported-link-modes" in item:
        yield Record("nic_link", _link(item, device), _shown(lines, source, "speed", "link-detected") or whole)
    elif isinstance(item.get("rx-checksumming"), dict) or isinstance(item.get("tx-checksumming"), dict):
        yield from _features(item, device, lines, source)
    elif "autonegotiate" in item and "rx" in item:
        yield from _pause(item, device, whole)
    elif "rx-max" in item and isinstance(item.get("rx"), int):
        fields: Fields = {"device": device}
        _copy(fields, item, int, {"rx": "rx", "rx-max": "rx_max", "tx": "tx", "tx-max": "tx_max"})
        yield Record("nic_ring", fields, whole)
    elif "adaptive-rx" in item or "rx-usecs" in item:
        fields = {"device": device}
        _copy(fields, item, bool, {"adaptive-rx": "adaptive_rx", "adaptive-tx": "adaptive_tx"})
        _copy(fields, item, int, {"rx-usecs": "rx_usecs", "rx-frames": "rx_frames", "tx-usecs": "tx_usecs",
                                  "tx-frames": "tx_frames"})  # fmt: skip
        yield Record("nic_coalesce", fields, whole)
    elif "active" in item and ("config" in item or "configured" in item):
        fields = {"device": device, "configured": _words(item.get("config", item.get("configured"))),
                  "active": _words(item["active"])}  # fmt: skip
        yield Record("nic_fec", fields, whole)


def _link(item: dict[str, Any], device: str) -> Fields:
    fields: Fields = {"device": device}
    _copy(fields, item, bool, {"link-detected": "up", "auto-negotiation": "autoneg"})
    _copy(fields, item, int, {"speed": "speed_mbps", "lanes": "lanes"})
    _copy(fields, item, str, {"port": "port"})
    if item.get("duplex") in ("Full", "Half"):
        fields["duplex"] = str(item["duplex"])
    for key, name in (("supported-link-modes", "max_supported_mbps"), ("advertised-link-modes", "max_advertised_mbps")):
        speed = fastest(_words(item.get(key)))
        if speed is not None:
            fields[name] = speed
    return fields


def _features(item: dict[str, Any], device: str, lines: Sequence[Line], source: Source) -> Iterator[Record]:
    for name, state in item.items():
        if not isinstance(state, dict) or not isinstance(state.get("active"), bool):
            continue
        active, fixed, requested = bool(state["active"]), state.get("fixed"), state.get("requested")
        differs = fixed is False and requested is (not active)
        if name not in FEATURES and not differs:
            continue
        fields: Fields = {"device": device, "feature": name, "on": active}
        if isinstance(fixed, bool):
            fields["fixed"] = fixed
        if differs:
            fields["requested"] = not active
        yield Record("nic_feature", fields, _shown(lines, source, name))


def _pause(item: dict[str, Any], device: str, whole: tuple[Evidence, ...]) -> Iterator[Record]:
    fields: Fields = {"device": device}
    _copy(fields, item, bool, {"autonegotiate": "autoneg", "rx": "rx", "tx": "tx"})
    negotiated, statistics = item.get("negotiated"), item.get("statistics")
    if isinstance(negotiated, dict):
        _copy(fields, negotiated, bool, {"rx": "rx_negotiated", "tx": "tx_negotiated"})
    yield Record("nic_pause", fields, whole)
    for name in ("tx_pause_frames", "rx_pause_frames"):
        value = statistics.get(name) if isinstance(statistics, dict) else None
        if isinstance(value, int) and value >= 0:
            yield _counters.record(device, name, value, whole)


def _copy(fields: Fields, item: dict[str, Any], kind: type, names: dict[str, str]) -> None:
    for key, name in names.items():
        if key in item and isinstance(item[key], kind) and isinstance(item[key], bool) == (kind is bool):
            fields[name] = item[key]


def _words(value: Any) -> str:
    return " ".join(str(v) for v in value[:200]) if isinstance(value, list) else str(value or "")


def _shown(lines: Sequence[Line], source: Source, *keys: str) -> tuple[Evidence, ...]:
    wanted = tuple(f'"{key}":' for key in keys)
    found = [line for line in lines if any(key in line.text for key in wanted)][:4]
    return tuple(evidence(source, line) for line in found or lines[:1])
