"""The settings answers: plain, -i, -k, -a, -c, -g, -l, -T, --show-fec, --show-priv-flags.

`n/a` means that the driver did not report a value; it is unknown, not 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence, integer, problem

from . import _counters

FEATURES = (
    "rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload", "generic-segmentation-offload",
    "generic-receive-offload", "large-receive-offload", "receive-hashing", "ntuple-filters", "hw-tc-offload",
    "rx-gro-hw", "tx-udp_tnl-segmentation", "rx-udp_tunnel-port-offload", "tx-checksum-ip-generic",
)  # fmt: skip
"""Features that matter for TCP and overlay traffic; others only when they differ from what was asked for."""

_MODE = re.compile(r"\b(\d{2,7})base[A-Za-z]")
_FEATURE = re.compile(r"\s*([A-Za-z][\w-]*): (on|off)(?:\s+\[(fixed|requested on|requested off|not requested)\])?\s*$")

Fields = dict[str, str | int | float | bool]
KeyValue = tuple[str, str, Line]


def pairs(lines: Sequence[Line]) -> list[KeyValue]:
    """(key, value, line) of `key: value` lines; deeper indented lines without a key continue the value before."""
    found: list[KeyValue] = []
    for line in lines:
        key, colon, value = line.text.partition(":")
        if colon and not (found and line.text.startswith(" " * 20)):
            found.append((key.strip(), value.strip(), line))
        elif found:
            last = found[-1]
            found[-1] = (last[0], f"{last[1]} {line.text.strip()}"[:20_000], last[2])
    return found


def on_off(value: str) -> bool | None:
    """on/yes -> True, off/no -> False, anything else unknown."""
    return {"on": True, "yes": True, "off": False, "no": False}.get(value.lower())


def put(fields: Fields, name: str, value: str | int | float | bool | None) -> None:
    """Set a field when its value is known."""
    if value is not None:
        fields[name] = value


def fastest(modes: str) -> int | None:
    """Largest speed (Mb/s) of a list of link modes such as `400000baseCR4/Full`."""
    speeds = [int(speed) for speed in _MODE.findall(modes)]
    return max(speeds) if speeds else None


def link(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool DEV`."""
    fields: Fields = {"device": device}
    shown: list[Line] = []
    for key, value, line in pairs(lines):
        before = len(fields)
        if key == "Speed":
            m = re.match(r"(\d{1,9})Mb/s", value)
            put(fields, "speed_mbps", int(m.group(1)) if m else None)
        elif key == "Link detected":
            put(fields, "up", on_off(value.split(" ", 1)[0]))
            m = re.search(r"\((.*)\)", value)
            put(fields, "down_reason", str(m.group(1)) if m else None)
        elif key == "Duplex" and value in ("Full", "Half"):
            fields["duplex"] = value
        elif key == "Auto-negotiation":
            put(fields, "autoneg", on_off(value))
        elif key == "Port":
            fields["port"] = value
        elif key == "Lanes":
            put(fields, "lanes", integer(value))
        elif key == "Link Down Events":
            put(fields, "link_down_events", integer(value))
        elif key == "Supported link modes":
            put(fields, "max_supported_mbps", fastest(value))
        elif key == "Advertised link modes":
            put(fields, "max_advertised_mbps", fastest(value))
        if len(fields) > before:
            shown.append(line)
    if shown:
        shown.sort(key=lambda line: not line.text.lstrip().startswith(("Speed:", "Link detected:")))
        yield Record("nic_link", fields, tuple(evidence(source, line) for line in shown))


def driver(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -i DEV`; believed only with a key that no other tool prints."""
    found = {key: (value, line) for key, value, line in pairs(lines)}
    name = found.get("driver", ("", None))[0]
    if not name or not found.keys() & {"firmware-version", "bus-info", "supports-statistics"}:
        return
    fields: Fields = {"device": device, "driver": name}
    shown = [found["driver"][1]]
    for key, to in (("version", "version"), ("firmware-version", "firmware"), ("bus-info", "bus_id")):
        value, line = found.get(key, ("", None))
        if value and line is not None:
            fields[to] = value
            shown.append(line)
    yield Record("nic_driver", fields, tuple(evidence(source, line) for line in shown if line is not None))


def features(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -k DEV`: features that matter, and those that differ from what was requested."""
    unreadable: list[Line] = []
    for line in lines:
        m = _FEATURE.match(line.text)
        if m is None:
            if line.text.strip():
                unreadable.append(line)
            continue
        name, state, note = m.groups()
        if name not in FEATURES and not (note or "").startswith("requested"):
            continue
        fields: Fields = {"device": device, "feature": name, "on": state == "on", "fixed": note == "fixed"}
        if note and note.startswith("requested"):
            fields["requested"] = note.endswith("on")
        yield Record("nic_feature", fields, (evidence(source, line),))
    if unreadable:
        yield problem(source, f"{len(unreadable)} feature lines of {device} cannot be read", unreadable[0])


def pause(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -a DEV`, with the statistics of `-I`. RX/TX off says nothing about PFC."""
    names = {
        "Autonegotiate": "autoneg", "RX": "rx", "TX": "tx",
        "RX negotiated": "rx_negotiated", "TX negotiated": "tx_negotiated",
    }  # fmt: skip
    fields: Fields = {"device": device}
    shown: list[Line] = []
    for key, value, line in pairs(lines):
        if key in names and (state := on_off(value)) is not None:
            fields[names[key]] = state
            shown.append(line)
        elif key in ("tx_pause_frames", "rx_pause_frames") and (count := integer(value)) is not None:
            yield _counters.record(device, key, count, (evidence(source, line),))
    if shown:
        yield Record("nic_pause", fields, (evidence(source, *shown),))


def coalesce(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -c DEV`."""
    fields: Fields = {"device": device}
    shown: list[Line] = []
    for line in lines:
        m = re.match(r"\s*Adaptive RX: (\S+)\s+TX: (\S+)", line.text)
        if m:
            put(fields, "adaptive_rx", on_off(m.group(1)))
            put(fields, "adaptive_tx", on_off(m.group(2)))
            shown.append(line)
            continue
        key, _, value = line.text.partition(":")
        if key.strip() in ("rx-usecs", "rx-frames", "tx-usecs", "tx-frames") and (n := integer(value)) is not None:
            fields[key.strip().replace("-", "_")] = n
            shown.append(line)
    if len(fields) > 1:
        yield Record("nic_coalesce", fields, tuple(evidence(source, line) for line in shown))


def _two_blocks(lines: Sequence[Line], wanted: dict[str, str]) -> tuple[Fields, list[Line]]:
    """Values of `Pre-set maximums:` (as NAME_max) and of `Current hardware settings:`."""
    fields: Fields = {}
    shown: list[Line] = []
    suffix: str | None = None
    for key, value, line in pairs(lines):
        if key.startswith("Pre-set maximum"):
            suffix = "_max"
        elif key.startswith("Current hardware"):
            suffix = ""
        elif key in wanted and suffix is not None and (n := integer(value)) is not None:
            fields[wanted[key] + suffix] = n
            shown.append(line)
    return fields, shown


def ring(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -g DEV`."""
    fields, shown = _two_blocks(lines, {"RX": "rx", "TX": "tx"})
    if fields:
        yield Record("nic_ring", {"device": device, **fields}, tuple(evidence(source, line) for line in shown))


def channels(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -l DEV`."""
    fields, shown = _two_blocks(lines, {"RX": "rx", "Combined": "combined"})
    if fields:
        yield Record("nic_queues", {"device": device, **fields}, tuple(evidence(source, line) for line in shown))


def timestamping(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool -T DEV`: the word before a `(SOF_…)` note is the capability."""
    fields: Fields = {"device": device}
    shown: list[Line] = []
    listing = False
    for line in lines:
        text = line.text.strip()
        if text == "Capabilities:":
            listing = True
            fields["hardware"] = False
            shown.append(line)
        elif text.startswith("PTP Hardware Clock:"):
            listing = False
            put(fields, "phc", integer(text.partition(":")[2]))
            shown.append(line)
        elif ":" in text:
            listing = False
        elif listing and text.split(" ", 1)[0] in ("hardware-transmit", "hardware-receive"):
            fields["hardware"] = True
            shown.append(line)
    if shown:
        yield Record("nic_timestamping", fields, tuple(evidence(source, line) for line in shown))


def fec(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool --show-fec DEV`, with the statistics of `-I`."""
    fields: Fields = {"device": device}
    shown: list[Line] = []
    for key, value, line in pairs(lines):
        if key.startswith(("Configured FEC encoding", "Supported/Configured FEC encoding")):
            fields["configured"] = value
            shown.append(line)
        elif key.startswith("Active FEC encoding"):
            fields["active"] = value
            shown.append(line)
        elif key in ("corrected_blocks", "uncorrectable_blocks", "corrected_bits"):
            count = integer(value.split(" ", 1)[0])
            if count is not None and count >= 0:
                yield _counters.record(device, f"fec_{key}", count, (evidence(source, line),))
    if shown:
        yield Record("nic_fec", fields, (evidence(source, *shown),))


def private_flags(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`ethtool --show-priv-flags DEV`."""
    for line in lines[:200]:
        name, colon, state = line.text.rpartition(": ")
        if colon and name.strip() and state.strip() in ("on", "off"):
            fields: Fields = {"device": device, "flag": name.strip()[:60], "on": state.strip() == "on"}
            yield Record("nic_private_flag", fields, (evidence(source, line),))
