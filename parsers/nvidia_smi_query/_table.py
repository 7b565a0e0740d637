"""The table that plain `nvidia-smi` prints: three cells and two or three rows per GPU, then the processes.

Offsets moved between drivers (450 to 610), so rows are split at `|`. Names that the table cut (`…`) lose their dots.
"""

from __future__ import annotations

import re

from diagnose.model import Line
from diagnose.parsing import parse_ctime

from ._tree import MAX_PROCESSES, Process
from ._values import Sample, as_number, put

_BANNER = re.compile(r"NVIDIA-SMI [\d.]{3,20}\s+(?:Driver|KMD) Version: ([\d.]{3,20})")
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_LEFT = re.compile(r"(\d{1,3})\s+(\S.{0,60}?)\s+(On|Off|N/A|ERR!)")
_BUS = re.compile(r"([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+(?:On|Off|N/A)")
_TEMPERATURE = re.compile(r"(?:^|\s)(\d{1,3})C(?:\s|$)")
_POWER = re.compile(r"(\d{1,5}|N/A|ERR!|Unknown Error)\s?W?\s*/\s*(\d{1,5}|N/A|ERR!)\s?W?")
_MEMORY = re.compile(r"(\d{1,8})MiB\s*/\s*(\d{1,8})MiB")
_PROCESS = re.compile(
    r"(\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(\d{1,9})\s+(C|G|C\+G|M\+C|M\+C\+G)\s+(\S.{0,80}?)\s+"
    r"(?:(\d{1,8})MiB|N/A)"
)


def read(lines: list[Line]) -> tuple[list[Sample], list[Process]]:
    """GPUs and processes of all such tables in these lines."""
    samples: list[Sample] = []
    processes: list[Process] = []
    driver: str | None = None
    at: float | None = None
    row = 0
    for line in lines:
        text = line.text.strip()
        if not text.startswith("|"):
            m = _DATE.fullmatch(text)
            if m:
                at = parse_ctime(m.group())
            if not text.startswith("+"):
                row = 0
            continue
        cells = [c.strip() for c in text.strip("|").split("|")]
        if len(cells) == 3:
            left, bus = _LEFT.fullmatch(cells[0]), _BUS.fullmatch(cells[1])
            if left and bus:
                samples.append(_first_row(left, bus, cells[2], driver, line, at))
                row = 1
            elif row and samples:
                _later_row(samples[-1], cells, row, line)
                row = 0 if row == 2 else row + 1
        elif len(cells) == 1:
            row = 0
            banner = _BANNER.search(cells[0])
            if banner:
                driver = banner.group(1)
            process = _PROCESS.fullmatch(cells[0])
            if process and len(processes) < MAX_PROCESSES * 16:
                bus_ids = {s.fields.get("index"): s.fields.get("bus_id") for s in samples}
                bus_id = bus_ids.get(int(process.group(1)))
                processes.append(
                    Process(
                        int(process.group(2)), line, str(bus_id) if bus_id else None, process.group(4),
                        as_number(process.group(5)),
                    )
                )  # fmt: skip
    return samples, processes


def _first_row(
    left: re.Match[str], bus: re.Match[str], ecc: str, driver: str | None, line: Line, at: float | None
) -> Sample:
    fields: dict[str, str | int | float | bool] = {"index": int(left.group(1))}
    put(fields, "name", left.group(2).rstrip(".…").rstrip())
    put(fields, "persistence", left.group(3))
    put(fields, "bus_id", bus.group(1))
    put(fields, "ecc_uncorrected_volatile", ecc.rstrip("*") if ecc[:1].isdigit() or "ERR" in ecc else None)
    put(fields, "driver", driver)
    return Sample(fields, line, at)


def _later_row(sample: Sample, cells: list[str], row: int, line: Line) -> None:
    fields = sample.fields
    if row == 2:
        put(fields, "mig", cells[2] if cells[2].rstrip("*") in ("Enabled", "Disabled") else None)
        return
    if "ERR!" in cells[0] or "ERR!" in cells[2]:
        fields.setdefault("error", "ERR!")
    put(fields, "error", cells[1] if "GPU" in cells[1] or "Unknown" in cells[1] else None)
    temperature, power, memory = _TEMPERATURE.search(cells[0]), _POWER.search(cells[0]), _MEMORY.search(cells[1])
    if temperature:
        put(fields, "temp_c", temperature.group(1))
    if power:
        put(fields, "power_w", power.group(1))
        put(fields, "power_limit_w", power.group(2))
    if memory:
        put(fields, "memory_used_mib", memory.group(1))
        put(fields, "memory_total_mib", memory.group(2))
    if cells[2].split(None, 1)[0:1] and "%" in cells[2]:
        put(fields, "utilization_pct", cells[2].split("%", 1)[0].strip())
    sample.telling.append(line)
