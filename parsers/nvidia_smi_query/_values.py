"""What nvidia-smi's values mean, whichever output prints them.

Unavailable values (`N/A`, `[N/A]`, `[Not Supported]`, the deprecation sentence …) are unknown; `ERR!`, `GPU is lost`,
`Unknown Error` and `GPU requires reset` become the GPU's `error`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from diagnose.model import Line

_UNAVAILABLE = re.compile(
    r"\[?(?:N/?A|Not Supported|Not Found|Insufficient Permissions|Requested functionality has been deprecated|"
    r"Unknown|None specified|Not Active/NA)\]?\.?",
    re.I,
)
_FAILED = re.compile(r"\[?((?:GPU is lost|Unknown Error|GPU requires reset|ERR!)[^\]]{0,80})\]?", re.I)
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,9})?")

INTEGERS = frozenset({
    "index", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max", "ecc_uncorrected_volatile",
    "ecc_uncorrected_aggregate", "remap_uncorrectable",
})  # fmt: skip
NUMBERS = frozenset({
    "utilization_pct", "clock_sm_mhz", "clock_sm_max_mhz", "clock_app_mhz", "temp_c", "temp_slowdown_c", "power_w",
    "power_limit_w", "power_default_w", "memory_used_mib", "memory_total_mib",
})  # fmt: skip
BOOLEANS = frozenset({"remap_pending", "remap_failed", "retired_pending", "persistence", "mig"})

REASON_BITS: dict[str, int] = {
    "idle": 0x1,
    "applications clocks setting": 0x2,
    "sw power cap": 0x4,
    "hw slowdown": 0x8,
    "sync boost": 0x10,
    "sw thermal slowdown": 0x20,
    "hw thermal slowdown": 0x40,
    "hw power brake slowdown": 0x80,
    "display clock setting": 0x100,
}
"""Clocks event (throttle) reasons by label, and their bits in the `.active` mask (nvml.h)."""


@dataclass(slots=True)
class Sample:
    """One reading of one GPU: the fields of kind `gpu`, its first line, its time if printed, and its telling lines."""

    fields: dict[str, str | int | float | bool]
    first: Line
    at: float | None = None
    telling: list[Line] = field(default_factory=list[Line])


def known(text: str | None) -> str | None:
    """The value, or None when nvidia-smi says that it has none."""
    if text is None:
        return None
    text = text.strip()
    return None if not text or text == "-" or _UNAVAILABLE.fullmatch(text) else text


def failure(text: str | None) -> str | None:
    """Why the driver could not read a value of this GPU, or None."""
    m = _FAILED.fullmatch(text.strip()) if text else None
    return m.group(1) if m else None


def as_number(text: str | None) -> float | None:
    """Leading number of a value; units are known from the field."""
    text = known(text)
    m = _NUMBER.match(text) if text else None
    return float(m.group()) if m else None


def as_boolean(text: str | None) -> bool | None:
    """Yes/No, Enabled/Disabled, On/Off, Active/Not Active, True/False, 1/0."""
    word = (known(text) or "").lower().rstrip("*")
    if word in ("yes", "enabled", "on", "active", "true", "1"):
        return True
    return False if word in ("no", "disabled", "off", "not active", "false", "0") else None


def put(fields: dict[str, str | int | float | bool], name: str, text: str | None) -> None:
    """Set a field from its printed value; an unavailable value leaves it unknown, a failed one sets `error`."""
    failed = failure(text)
    if failed:
        fields.setdefault("error", failed)
        return
    if name in INTEGERS or name in NUMBERS:
        number = as_number(text)
        if number is not None and math.isfinite(number) and (number >= 0 or name.startswith("temp")):
            fields[name] = int(number) if name in INTEGERS else number
    elif name in BOOLEANS:
        flag = as_boolean(text)
        if flag is not None:
            fields[name] = flag
    else:
        value = known(text)
        if value is not None:
            fields[name] = normal_bus_id(value) if name == "bus_id" else value[:200]


def normal_bus_id(text: str) -> str:
    """`00000000:1B:00.0` and `0000:1b:00.0` as `0000:1b:00.0`."""
    text = text.lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}" if len(domain) == 8 and domain.startswith("0000") else text


def put_reasons(fields: dict[str, str | int | float | bool], bits: int) -> None:
    """The clocks event reasons as mask and as the flags that rules ask for.

    0x8 (HW slowdown) accompanies both thermal (0x40) and power-brake (0x80) slowdown, so it tells a brake only alone.
    """
    fields["throttle_bits"] = bits
    fields["throttle_thermal"] = bool(bits & 0x60)
    fields["throttle_brake"] = bool(bits & 0x80) or bits & 0x48 == 0x8
    fields["throttle_app_clocks"] = bool(bits & 0x2)
    fields["idle"] = bool(bits & 0x1)


def fold(samples: list[Sample]) -> list[Sample]:
    """One sample per GPU of those that were read in a loop.

    The last reading counts, except: temperature and power are the highest seen, clocks event reasons are all that
    were ever active (idle only if always idle), and an error once seen stays.
    """
    folded: dict[object, Sample] = {}
    for n, sample in enumerate(samples):
        f = sample.fields
        key = f.get("bus_id") or f.get("uuid") or f.get("index", ("row", n))
        seen = folded.get(key)
        if seen is None:
            folded[key] = sample
            continue
        old = seen.fields
        merged = {**old, **f}
        for name in ("temp_c", "power_w"):
            if name in old and name in f:
                merged[name] = max(float(old[name]), float(f[name]))
        if "throttle_bits" in old and "throttle_bits" in f:
            idle = int(old["throttle_bits"]) & int(f["throttle_bits"]) & 1
            put_reasons(merged, (int(old["throttle_bits"]) | int(f["throttle_bits"])) & ~1 | idle)
        folded[key] = Sample(merged, sample.first, sample.at or seen.at, sample.telling)
    return list(folded.values())
