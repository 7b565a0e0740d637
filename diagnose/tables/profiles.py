"""How a few NICs are set, in words: driver, speed, queues, rings, pause frames, hardware clock. No judgement.

Somebody who pastes the `ethtool` outputs of one NIC asks what stands out; with many NICs the comparisons answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from diagnose.model import Evidence, Fact, FactBase, Value

MAX_DEVICES = 6
SETTINGS = frozenset({"nic_driver", "nic_ring", "nic_queues", "nic_pause", "nic_timestamping"})
"""Kinds that are worth words of their own; speed alone is not."""

Fields = Mapping[str, Value]


def derive(base: FactBase) -> Iterator[Fact]:
    """`nic_profile` of each NIC, where there are few."""
    read: dict[tuple[str, str], dict[str, tuple[Fields, tuple[Evidence, ...]]]] = defaultdict(dict)
    for o in base.observations:
        if o.kind in _WORDS and "device" in o.fields:
            read[str(o.fields.get("host", "")), str(o.fields["device"])].setdefault(o.kind, (o.fields, o.evidence))
            if len(read) > MAX_DEVICES:
                return
    for (host, device), told in sorted(read.items()):
        words = [said for kind, say in _WORDS.items() if kind in told and (said := say(told[kind][0]))]
        if SETTINGS & told.keys() and words:
            fields: dict[str, Value] = {"device": device, "text": "; ".join(words)}
            if host:
                fields["host"] = host
            shown = [e for kind in _WORDS if kind in told for e in told[kind][1][:1]]
            yield Fact("", "nic_profile", fields, tuple(shown[:4]))


def _driver(f: Fields) -> str:
    firmware = f" with firmware {f['firmware']}" if f.get("firmware") else ""
    return f"driver {f['driver']}{firmware}" if f.get("driver") else ""


def _speed(f: Fields) -> str:
    if not isinstance(speed := f.get("speed_mbps"), int):
        return ""
    most = f.get("max_supported_mbps")
    return f"{speed} Mb/s" + (f" of {most} Mb/s" if isinstance(most, int) and most != speed else "")


def _queues(f: Fields) -> str:
    name = "combined" if "combined" in f else "rx"
    if f.get(name) is None:
        return ""
    n, most = f[name], f.get(f"{name}_max")
    words = "single queue" if n == 1 else f"{n} queues"
    return words + (f" (of {most})" if most is not None and most != n else " (all it has)" if most == n else "")


def _rings(f: Fields) -> str:
    pairs = [(name.upper(), f.get(name), f.get(f"{name}_max")) for name in ("rx", "tx")]
    return ", ".join(f"{name} ring {n} of {most}" for name, n, most in pairs if n is not None and most is not None)


def _pause(f: Fields) -> str:
    told = [f"{name.upper()} {'on' if f[name] else 'off'}" for name in ("rx", "tx") if name in f]
    return f"global pause {', '.join(told)}" if told else ""


def _clock(f: Fields) -> str:
    phc = f.get("phc")
    if phc is not None:
        return f"PTP hardware clock {phc}"
    return "PTP hardware clock: none" if f.get("hardware") is False else ""


_WORDS: Mapping[str, Callable[[Fields], str]] = {
    "nic_driver": _driver, "nic_link": _speed, "nic_queues": _queues, "nic_ring": _rings, "nic_pause": _pause,
    "nic_timestamping": _clock,
}  # fmt: skip
