"""`ethtool -m`: module readings of SFF-8472, SFF-8636 and CMIS modules.

Format: `\\t%-41s : value`; SFF-8636 writes `power(Channel 1)`, CMIS `power (Channel 1)`; alarm flags end in `: On`.
A dark lane prints `-inf dBm` or the module's floor and counts as `DARK_DBM`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence

DARK_DBM = -40.0
"""Stands for no light; modules print -inf or a floor of -40 dBm."""

_DARK_BELOW = -30.0
_POWER = re.compile(
    r"(?:Rcvr signal avg optical power|Receiver signal average optical power)\s*(?:\(Chan(?:nel)? (\d+)\))?$"
)
_DBM = re.compile(r"(-?inf|-?\d+(?:\.\d+)?) dBm")
_CELSIUS = re.compile(r"(-?\d+(?:\.\d+)?) degrees C")
_LANES = re.compile(r"\d(?:GBASE-|G |GAUI|00G )?[A-Z]*?(?:DR|SR|FR|LR|CR|ER)(\d)\b")
_FLAG = re.compile(r"\b(alarm|warning)\b", re.IGNORECASE)


def module(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """One `nic_module` record: temperature, receive power over the lanes in use, flags that are on."""
    fields: dict[str, str | int | float | bool] = {"device": device}
    flags: dict[str, list[str]] = {"alarm": [], "warning": []}
    power: dict[int, float] = {}
    shown: list[Line] = []
    media_lanes: int | None = None
    for line in lines[:2_000]:
        name, colon, value = line.text.partition(" : ")
        if not colon:
            continue
        key, value = " ".join(name.split()), value.strip()
        kept = len(fields) + len(power) + sum(map(len, flags.values()))
        if key == "Identifier":
            fields["identifier"] = re.sub(r"^0x[0-9a-f]+ ", "", value).strip("()")
        elif key == "Module temperature" and (t := _CELSIUS.search(value)):
            fields.setdefault("temp_c", float(t.group(1)))
        elif key == "Vendor name" and value:
            fields["vendor"] = value
        elif key == "Vendor PN" and value:
            fields["part_number"] = value
        elif (p := _POWER.match(key)) and (dbm := _DBM.search(value)):
            number = DARK_DBM if dbm.group(1).lstrip("-") == "inf" else float(dbm.group(1))
            power[int(p.group(1) or 1)] = max(number, DARK_DBM)
        elif value == "On" and (flag := _FLAG.search(key)):
            flags[flag.group(1).lower()].append(key)
        elif media_lanes is None and (lanes := _LANES.search(value)):
            media_lanes = int(lanes.group(1))
        if len(fields) + len(power) + sum(map(len, flags.values())) > kept:
            shown.append(line)
    used = _in_use(power, media_lanes)
    if used:
        fields["rx_power_min_dbm"], fields["rx_power_max_dbm"] = min(used), max(used)
        fields["lanes"] = len(used)
    if "temp_c" in fields or used or any(flags.values()):
        fields["alarms"], fields["warnings"] = ",".join(flags["alarm"]), ",".join(flags["warning"])
    if len(fields) > 1:
        yield Record("nic_module", fields, tuple(evidence(source, line) for line in shown[:32]))


def _in_use(power: dict[int, float], media_lanes: int | None) -> list[float]:
    """Readings of the lanes that the medium has: a CMIS module prints eight, a DR4 uses four."""
    ordered = [power[lane] for lane in sorted(power)]
    if media_lanes and media_lanes < len(ordered):
        return ordered[:media_lanes]
    half = len(ordered) // 2
    if half and all(p <= _DARK_BELOW for p in ordered[half:]) and all(p > _DARK_BELOW for p in ordered[:half]):
        return ordered[:half]
    return ordered
