"""Numbers with units, as rules write them: `10s`, `4MiB`, `25GB/s`, `200Gbit/s`, `1.4GHz`, `5%`.

A quantity folds to its base unit (seconds, bytes, bytes per second, bits per second, hertz, a fraction of one), or,
when it meets a field whose name ends in a unit (`offset_ms`, `rate_gbps`, `cpu_pct`), to that unit.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from diagnose.model import Scalar

TIME, SIZE, BYTE_RATE, BIT_RATE, FREQUENCY, SHARE = "time", "size", "bytes/s", "bit/s", "frequency", "fraction"

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

UNITS: dict[str, tuple[str, Fraction]] = {
    "ns": (TIME, Fraction(1, 10**9)),
    "us": (TIME, Fraction(1, 10**6)),
    "µs": (TIME, Fraction(1, 10**6)),
    "ms": (TIME, Fraction(1, 10**3)),
    "s": (TIME, Fraction(1)),
    "m": (TIME, Fraction(60)),
    "min": (TIME, Fraction(60)),
    "h": (TIME, Fraction(3600)),
    "d": (TIME, Fraction(86400)),
    "%": (SHARE, Fraction(1, 100)),
    **{f"{p}B": (SIZE, Fraction(f)) for p, f in {**_DECIMAL, **_BINARY}.items()},
    **{f"{p}B/s": (BYTE_RATE, Fraction(f)) for p, f in {**_DECIMAL, **_BINARY}.items()},
    **{f"{p}bit/s": (BIT_RATE, Fraction(f)) for p, f in _DECIMAL.items()},
    **{f"{p}Hz": (FREQUENCY, Fraction(f)) for p, f in _DECIMAL.items()},
}
"""Unit -> its dimension and its size in the base unit of the dimension."""

NUMBER = r"\d{1,25}(?:\.\d{1,25})?(?:[eE][+-]?\d{1,2})?"
UNIT = "|".join(sorted((re.escape(u) for u in UNITS), key=len, reverse=True))
_QUANTITY = re.compile(rf"\s*([+-]?{NUMBER})\s*([^\s\d]\S*)?\s*\Z", re.ASCII)

_SUFFIXES: dict[str, tuple[str, Fraction]] = {
    "ns": (TIME, Fraction(1, 10**9)),
    "us": (TIME, Fraction(1, 10**6)),
    "ms": (TIME, Fraction(1, 10**3)),
    "s": (TIME, Fraction(1)),
    "seconds": (TIME, Fraction(1)),
    "bytes": (SIZE, Fraction(1)),
    "gbytes": (SIZE, Fraction(10**9)),
    "mib": (SIZE, Fraction(2**20)),
    "kib": (SIZE, Fraction(2**10)),
    "bps": (BYTE_RATE, Fraction(1)),
    "mbps": (BIT_RATE, Fraction(10**6)),
    "gbps": (BIT_RATE, Fraction(10**9)),
    "mhz": (FREQUENCY, Fraction(10**6)),
    "pct": (SHARE, Fraction(1, 100)),
    "share": (SHARE, Fraction(1)),
}


class Unit(NamedTuple):
    """A dimension and the size of the unit in the dimension's base unit."""

    dimension: str
    size: Fraction


class Quantity(NamedTuple):
    """A number as written, with its unit."""

    amount: Fraction
    unit: Unit

    @property
    def base(self) -> int | float:
        """Its value in the base unit of its dimension."""
        return _plain(self.amount * self.unit.size)

    def to(self, unit: Unit) -> int | float:
        """Its value in `unit`; ValueError when the dimensions differ (bits and bytes per second convert)."""
        value = self.amount * self.unit.size
        pair = (self.unit.dimension, unit.dimension)
        if pair == (BYTE_RATE, BIT_RATE):
            value *= 8
        elif pair == (BIT_RATE, BYTE_RATE):
            value /= 8
        elif pair[0] != pair[1]:
            raise ValueError(f"a {pair[0]} quantity does not fit a {pair[1]} field")
        return _plain(value / unit.size)


def quantity(number: str, unit: str) -> Quantity:
    """The quantity of a number's text and a unit; KeyError for a unit that does not exist."""
    return Quantity(Fraction(number), Unit(*UNITS[unit]))


def parse_scalar(value: Scalar) -> Scalar | Quantity:
    """A threshold's value: `5%` and `10s` become quantities, `12` a number, anything else stays as it is.

    ValueError when the text is a number with a unit that does not exist.
    """
    if not isinstance(value, str):
        return value
    found = _QUANTITY.match(value)
    if found is None:
        return value
    number, unit = found.groups()
    if unit is None:
        return _plain(Fraction(number))
    if unit not in UNITS:
        raise ValueError(f"unknown unit '{unit}' (known: {', '.join(UNITS)})")
    return quantity(number, unit)


def unit_of_field(name: str) -> Unit | None:
    """The unit that a field's name ends in. Bandwidths of NCCL (`busbw_gbps`, `algbw_gbps`) are bytes, others bits."""
    suffix = name.rsplit("_", 1)[-1]
    found = _SUFFIXES.get(suffix)
    if found is None:
        return None
    if suffix == "gbps" and re.search(r"(^|_|bus|alg)bw_", name):
        return Unit(BYTE_RATE, Fraction(10**9))
    return Unit(*found)


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
