"""`nvidia-smi --query-gpu=… --format=csv[,noheader][,nounits]` and `--query-compute-apps`.

Columns are known from the header, from the command when it stands in the text or with the source, and otherwise only
as far as the values speak for themselves. With `-l N` the rows repeat; see `_values.fold`.
"""

from __future__ import annotations

import re

from diagnose.model import Line
from diagnose.parsing import parse_time

from ._tree import Process
from ._values import Sample, as_boolean, as_number, failure, known, put, put_reasons

_UNIT = re.compile(r"\s*\[[^\]]{1,12}\]$")
_COMMAND = re.compile(r"--query-(?:gpu|compute-apps)=([\w.,]{2,2000})")

_COLUMNS: dict[str, str] = {
    "index": "index",
    "pci.bus_id": "bus_id",
    "gpu_bus_id": "bus_id",
    "name": "name",
    "gpu_name": "name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "serial": "serial",
    "gpu_serial": "serial",
    "driver_version": "driver",
    "vbios_version": "vbios",
    "inforom.img": "inforom",
    "pcie.link.gen.current": "pcie_gen",
    "pcie.link.gen.gpucurrent": "pcie_gen",
    "pcie.link.gen.max": "pcie_gen_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
    "utilization.gpu": "utilization_pct",
    "clocks.current.sm": "clock_sm_mhz",
    "clocks.sm": "clock_sm_mhz",
    "clocks.max.sm": "clock_sm_max_mhz",
    "clocks.applications.graphics": "clock_app_mhz",
    "clocks.applications.gr": "clock_app_mhz",
    "temperature.gpu": "temp_c",
    "power.draw": "power_w",
    "power.draw.instant": "power_w",
    "power.draw.average": "power_w",
    "power.limit": "power_limit_w",
    "enforced.power.limit": "power_limit_w",
    "power.default_limit": "power_default_w",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected_volatile",
    "ecc.errors.uncorrected.aggregate.total": "ecc_uncorrected_aggregate",
    "remapped_rows.pending": "remap_pending",
    "remapped_rows.failure": "remap_failed",
    "remapped_rows.uncorrectable": "remap_uncorrectable",
    "retired_pages.pending": "retired_pending",
    "fabric.state": "fabric_state",
    "fabric.status": "fabric_status",
    "persistence_mode": "persistence",
    "mig.mode.current": "mig",
    "memory.used": "memory_used_mib",
    "memory.total": "memory_total_mib",
}
_REASONS: dict[str, int] = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
_REASON_COLUMN = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w{2,40})")
_OTHERS = frozenset({
    "timestamp", "count", "pstate", "pid", "process_name", "used_gpu_memory", "used_memory", "gpu_serial",
    "compute_mode", "fan.speed", "utilization.memory", "memory.free", "memory.reserved", "temperature.memory",
})  # fmt: skip
_BUS_ID = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,40}")
_MASK = re.compile(r"0x[0-9A-Fa-f]{16}")
BARE_ROW = re.compile(
    r"(?:\d{1,3}, NVIDIA [^,\n]{2,60}|\d{1,3}, [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|"
    r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|GPU-[0-9a-f]{8}-[0-9a-f-]{20,30}|"
    r"[^,\n]{2,60}, [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|"
    r"\d{1,3}, GPU-[0-9a-f]{8}-[0-9a-f-]{20,30}|NVIDIA [^,\n]{2,60}, GPU-[0-9a-f]{8}-[0-9a-f-]{20,30}), \S"
)


def header(text: str) -> list[str] | None:
    """Column names of a header line, without units, or None when it is none."""
    if "," not in text or len(text) > 6_000:
        return None
    names = [_UNIT.sub("", cell.strip()).lower() for cell in text.split(",")]
    at_home = sum(n in _COLUMNS or n in _OTHERS or _REASON_COLUMN.fullmatch(n) is not None for n in names)
    dotted = sum("." in n or "_" in n for n in names)
    return names if at_home >= 2 and at_home * 2 >= len(names) and dotted and at_home > len(names) - 8 else None


def read(lines: list[Line], command: str | None) -> tuple[list[Sample], list[Process], list[Line]]:
    """Samples, processes, and rows that do not fit their header."""
    names = _from_command(command)
    samples: list[Sample] = []
    processes: list[Process] = []
    misfits: list[Line] = []
    for line in lines:
        text = line.text.strip()
        if "," not in text:
            continue
        asked = _from_command(text) if "--query-" in text else None
        found = asked or header(text)
        if found:
            names = found
            continue
        cells = [c.strip() for c in text.split(",")]
        if names and len(cells) == len(names) and _plausible(names, cells):
            if "pid" in names:
                process = _process(dict(zip(names, cells, strict=True)), line)
                if process and len(processes) < 1_000:
                    processes.append(process)
            else:
                samples.append(_sample(names, cells, line))
        elif BARE_ROW.match(text) or (names and samples and _torn(names, cells)):
            if names:
                misfits.append(line)
            else:
                samples.append(_guess(cells, line))
    return samples, processes, misfits


def _from_command(command: str | None) -> list[str] | None:
    m = _COMMAND.search(command) if command else None
    return m.group(1).lower().split(",") if m else None


_IDENTIFYING = frozenset({"index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid"})


def _torn(names: list[str], cells: list[str]) -> bool:
    """The start of a row whose end is missing: a GPU is told, and every whole cell fits its column."""
    whole = cells[:-1]
    told = names[: len(whole)]
    return len(whole) < len(names) and not _IDENTIFYING.isdisjoint(told) and _plausible(told, whole)


def _plausible(names: list[str], cells: list[str]) -> bool:
    """A row is no prose: identifying columns look like what they are, and no cell is a sentence."""
    for name, cell in zip(names, cells, strict=True):
        if len(cell) > 120:
            return False
        if known(cell) is None or failure(cell):
            continue
        field = _COLUMNS.get(name)
        if field == "bus_id" and not _BUS_ID.fullmatch(cell):
            return False
        if field == "uuid" and not cell.startswith(("GPU-", "MIG-")):
            return False
        if field == "index" and not cell.isdecimal():
            return False
        if name in ("temperature.gpu", "utilization.gpu", "pid", "memory.used") and as_number(cell) is None:
            return False
    return True


def _sample(names: list[str], cells: list[str], line: Line) -> Sample:
    fields: dict[str, str | int | float | bool] = {}
    at: float | None = None
    bits: int | None = None
    for name, cell in zip(names, cells, strict=True):
        field = _COLUMNS.get(name)
        if field is not None:
            if field in fields and name in ("power.draw.instant", "power.draw.average", "power.limit"):
                continue
            put(fields, field, cell)
        elif name == "timestamp":
            at = parse_time(cell.replace("/", "-"))[0]
        elif failure(cell):
            fields.setdefault("error", failure(cell) or cell)
        else:
            m = _REASON_COLUMN.fullmatch(name)
            if m and m.group(1) == "active" and re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", cell):
                bits = int(cell, 16) | (bits or 0)
            elif m and m.group(1) in _REASONS and as_boolean(cell) is not None:
                bits = (_REASONS[m.group(1)] if as_boolean(cell) else 0) | (bits or 0)
    if bits is not None:
        put_reasons(fields, bits)
        if not any(n.endswith((".active", ".gpu_idle")) for n in names):
            del fields["idle"]
    return Sample(fields, line, at)


def _guess(cells: list[str], line: Line) -> Sample:
    """Fields of a row without header: only what its form tells."""
    fields: dict[str, str | int | float | bool] = {}
    watts = [w for c in cells if c.endswith(" W") and (w := as_number(c)) is not None]
    mib = [m for c in cells if c.endswith(" MiB") and (m := as_number(c)) is not None]
    percent = [p for c in cells if c.endswith(" %") and (p := as_number(c)) is not None]
    if cells[0].isdecimal() and int(cells[0]) < 64:
        fields["index"] = int(cells[0])
    for cell in cells:
        failed = failure(cell)
        if failed:
            fields.setdefault("error", failed)
        elif _BUS_ID.fullmatch(cell):
            put(fields, "bus_id", cell)
        elif _UUID.fullmatch(cell):
            fields.setdefault("uuid", cell)
        elif cell.startswith(("NVIDIA ", "Tesla ")):
            fields.setdefault("name", cell)
        elif _MASK.fullmatch(cell):
            put_reasons(fields, int(cell, 16))
    if len(watts) == 2:
        fields["power_w"], fields["power_limit_w"] = min(watts), max(watts)
    if len(mib) == 2:
        fields["memory_used_mib"], fields["memory_total_mib"] = min(mib), max(mib)
    if len(percent) == 1:
        fields["utilization_pct"] = percent[0]
    return Sample(fields, line)


def _process(row: dict[str, str], line: Line) -> Process | None:
    if not row["pid"].isdecimal() or len(row["pid"]) > 9:
        return None
    memory = row.get("used_gpu_memory") or row.get("used_memory")
    bus = known(row.get("gpu_bus_id") or row.get("pci.bus_id"))
    return Process(int(row["pid"]), line, bus, known(row.get("process_name") or row.get("name")), as_number(memory))
