"""`nvidia-smi -q` (whole or `-d` sections) and `nvidia-smi -q -x`.

Text: labels nest by indentation, the value follows the first ` : `, and the same label recurs in several sections, so
values are kept by path. XML is read line by line as nvidia-smi prints it: no entity or DTD is ever resolved.
Formats: drivers 450 to 595.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.model import Line
from diagnose.parsing import parse_ctime

from ._values import REASON_BITS, Sample, as_number, failure, known, put, put_reasons

_GPU = re.compile(r"^(?P<indent>\s{0,12}>?\s?)GPU (?P<bus>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_XML_GPU = re.compile(r'<gpu id="([0-9A-Fa-f:.]{10,20})">')
_XML_LEAF = re.compile(r"<([\w.]{1,80})>([^<]{0,400})</\1>")
_XML_OPEN = re.compile(r"<([A-Za-z][\w.]{0,79})(?: [^>]{0,120})?>\s*$")
_XML_CLOSE = re.compile(r"</([\w.]{1,80})>")
_SECTION = re.compile(
    r"^(?P<indent>\s{0,12})(?:Clocks (?:Event|Throttle) Reasons|ECC Errors|Remapped Rows|Retired Pages|Fabric)\s*$"
)
"""Sections that people cut out of `-q` without the heading of their GPU."""
_PREAMBLE = re.compile(r"^\s{0,12}(Timestamp|Driver Version|KMD Version|Attached GPUs)\s{1,60}: (.*)$")
_XML_PREAMBLE = {"timestamp": "Timestamp", "driver_version": "Driver Version", "attached_gpus": "Attached GPUs"}
MAX_PROCESSES = 64
MAX_TELLING = 12

_FIELDS: dict[str, tuple[str, ...]] = {
    "name": ("product name",),
    "uuid": ("gpu uuid", "uuid"),
    "serial": ("serial number", "serial"),
    "part_number": ("board part number",),
    "vbios": ("vbios version",),
    "inforom": ("inforom version/image version", "inforom version/img version"),
    "pcie_gen": ("gpu link info/pcie generation/current", "pci gpu link info/pcie gen/current link gen"),
    "pcie_gen_max": ("gpu link info/pcie generation/max", "pci gpu link info/pcie gen/max link gen"),
    "pcie_width": ("gpu link info/link width/current", "pci gpu link info/link widths/current link width"),
    "pcie_width_max": ("gpu link info/link width/max", "pci gpu link info/link widths/max link width"),
    "utilization_pct": ("utilization/gpu", "utilization/gpu util"),
    "clock_sm_mhz": ("clocks/sm", "clocks/sm clock"),
    "clock_sm_max_mhz": ("max clocks/sm", "max clocks/sm clock"),
    "clock_app_mhz": ("applications clocks/graphics", "applications clocks/graphics clock"),
    "temp_c": ("temperature/gpu current temp", "temperature/gpu temp"),
    "temp_slowdown_c": ("temperature/gpu slowdown temp", "temperature/gpu temp slow threshold"),
    "power_w": (
        "gpu power readings/power draw", "gpu power readings/instantaneous power draw",
        "gpu power readings/instant power draw", "gpu power readings/average power draw", "power readings/power draw",
    ),
    "power_limit_w": (
        "gpu power readings/current power limit", "power readings/enforced power limit", "power readings/power limit",
    ),
    "power_default_w": ("gpu power readings/default power limit", "power readings/default power limit"),
    "remap_pending": ("remapped rows/pending", "remapped rows/remapped row pending"),
    "remap_failed": ("remapped rows/remapping failure occurred", "remapped rows/remapped row failure"),
    "remap_uncorrectable": ("remapped rows/uncorrectable error", "remapped rows/remapped row unc"),
    "retired_pending": (
        "retired pages/pending page blacklist", "retired pages/pending blacklist", "retired pages/pending retirement",
    ),
    "fabric_state": ("fabric/state",),
    "fabric_status": ("fabric/status",),
    "persistence": ("persistence mode",),
    "mig": ("mig mode/current", "mig mode/current mig"),
    "memory_used_mib": ("fb memory usage/used",),
    "memory_total_mib": ("fb memory usage/total",),
}  # fmt: skip


def _tells(path: str, label: str, value: str) -> bool:
    """Whether a line is evidence of something other than normal work."""
    if value == "Active":
        return label not in ("idle", "sw power cap", "gpu idle") and "sw power cap" not in label
    if "uncorrectable" in label or "double bit" in path:
        return value.isdecimal() and value.strip("0") != ""
    if label in ("pending", "remapping failure occurred", "pending page blacklist"):
        return value == "Yes"
    return failure(value) is not None or (path in ("fabric/state", "fabric/status") and value in _FABRIC_TROUBLE)


_FABRIC_TROUBLE = ("In Progress", "Not Started")


@dataclass(slots=True)
class Process:
    """A process of the `Processes` section or table; memory in MiB."""

    pid: int
    line: Line
    bus_id: str | None = None
    name: str | None = None
    memory: float | None = None


@dataclass(slots=True)
class _Gpu:
    bus: str
    first: Line
    values: dict[str, str] = field(default_factory=dict[str, str])
    telling: list[Line] = field(default_factory=list[Line])
    processes: list[Process] = field(default_factory=list[Process])

    def add(self, path: str, value: str, line: Line) -> None:
        if len(self.values) < 2_000:
            self.values.setdefault(path, value)
        label = path.rsplit("/", 1)[-1]
        if len(self.telling) < MAX_TELLING and _tells(path, label, value):
            self.telling.append(line)
        if "processes" in path:
            if label in ("process id", "pid") and value.isdecimal() and len(self.processes) < MAX_PROCESSES:
                self.processes.append(Process(int(value), line, self.bus))
            elif self.processes and label in ("name", "process name") and self.processes[-1].name is None:
                self.processes[-1].name = known(value)
            elif self.processes and label in ("used gpu memory", "used memory"):
                self.processes[-1].memory = as_number(value)


def read(lines: list[Line]) -> tuple[list[Sample], list[Process], list[Line]]:
    """All GPUs described by `-q` output in these lines, text or XML; the last line read when GPUs are missing."""
    preamble: dict[str, str] = {}
    gpus: list[_Gpu] = []
    for gpu in _walk(lines, preamble):
        gpus.append(gpu)
    attached = as_number(preamble.get("Attached GPUs"))
    at = parse_ctime(preamble.get("Timestamp", ""))
    driver = preamble.get("Driver Version") or preamble.get("KMD Version")
    samples: list[Sample] = []
    for n, gpu in enumerate(gpus):
        fields = _fields(gpu)
        if attached is not None and attached > 0 and len(gpus) % int(attached) == 0:
            fields["index"] = n % int(attached)
        put(fields, "driver", driver)
        samples.append(Sample(fields, gpu.first, at, gpu.telling))
    missing = attached is not None and attached > 0 and len(gpus) % int(attached) != 0
    ends = [gpus[-1].telling[-1] if gpus[-1].telling else gpus[-1].first] if gpus and missing else []
    return samples, [p for gpu in gpus for p in gpu.processes], ends


def _walk(lines: list[Line], preamble: dict[str, str]) -> Iterator[_Gpu]:
    gpu: _Gpu | None = None
    base = 0
    xml = False
    stack: list[tuple[int, str]] = []
    tags: list[str] = []
    for line in lines:
        text = line.text
        m = _GPU.match(text) if "GPU " in text else None
        x = _XML_GPU.search(text) if "<gpu id" in text else None
        if m or x:
            if gpu is not None:
                yield gpu
            gpu = _Gpu(m["bus"] if m else x.group(1) if x else "", line)
            base, xml, stack, tags = len(m["indent"]) if m else 0, x is not None, [], []
        elif gpu is None and (cut := _SECTION.match(text)):
            gpu = _Gpu("", line)
            base, xml, stack, tags = len(cut["indent"]) - 1, False, [], []
            _text_line(gpu, base, stack, line)
        elif gpu is None or xml:
            if "<" in text:
                _xml_line(gpu, tags, line, preamble)
                if gpu is not None and "</gpu>" in text:
                    yield gpu
                    gpu, xml = None, False
            else:
                _preamble(text, preamble)
        elif not _text_line(gpu, base, stack, line) and text.strip():
            yield gpu
            gpu = None
            _preamble(text, preamble)
    if gpu is not None:
        yield gpu


def _preamble(text: str, preamble: dict[str, str]) -> None:
    m = _PREAMBLE.match(text)
    if m:
        preamble[m.group(1)] = m.group(2).strip()


def _text_line(gpu: _Gpu, base: int, stack: list[tuple[int, str]], line: Line) -> bool:
    """Take in a line below `GPU …`; False when it is not indented, so that it belongs to something else."""
    text = line.text.expandtabs()[:400]
    body = text[base:].lstrip() if base and text[:base].strip() == ">" else text.lstrip()
    indent = len(text) - len(body)
    if indent <= base or not body:
        return not body
    label, separator, value = body.partition(" : ")
    if not separator and body.rstrip().endswith(" :"):
        label, separator = body.rstrip()[:-2], ":"
    label = label.strip().lower()
    while stack and stack[-1][0] >= indent:
        stack.pop()
    path = "/".join([name for _, name in stack] + [label])
    if len(stack) < 12:
        stack.append((indent, label))
    if separator:
        gpu.add(path, value.strip(), line)
    return True


def _xml_line(gpu: _Gpu | None, tags: list[str], line: Line, preamble: dict[str, str]) -> None:
    text = line.text[:2_000]
    leaf = _XML_LEAF.search(text)
    if leaf:
        tag, value = leaf.group(1), leaf.group(2).strip()
        if gpu is None:
            if tag in _XML_PREAMBLE:
                preamble[_XML_PREAMBLE[tag]] = value
        else:
            gpu.add("/".join([*tags, tag.replace("_", " ").lower()]), value, line)
        return
    close = _XML_CLOSE.search(text)
    if close and tags and tags[-1] == close.group(1).replace("_", " ").lower():
        tags.pop()
        return
    opened = _XML_OPEN.search(text)
    if opened and gpu is not None and len(tags) < 12:
        tags.append(opened.group(1).replace("_", " ").lower())


def _fields(gpu: _Gpu) -> dict[str, str | int | float | bool]:
    by_tail: dict[str, str] = {}
    for path, value in gpu.values.items():
        by_tail.setdefault(path, value)
        if path.startswith(("pci/", "platforminfo/")):
            by_tail.setdefault(path.split("/", 1)[1], value)
    fields: dict[str, str | int | float | bool] = {}
    put(fields, "bus_id", gpu.bus)
    for name, paths in _FIELDS.items():
        for path in paths:
            value = by_tail.get(path)
            if value is not None:
                put(fields, name, value)
                if name in fields:
                    break
    _slowdown(fields, by_tail)
    _reasons(fields, by_tail)
    for scope in ("volatile", "aggregate"):
        total = _uncorrected(by_tail, f"ecc errors/{scope}/")
        if total is not None:
            fields[f"ecc_uncorrected_{scope}"] = total
    if "error" not in fields:
        failed = next((f for f in map(failure, gpu.values.values()) if f), None)
        if failed:
            fields["error"] = failed
    return fields


def _slowdown(fields: dict[str, str | int | float | bool], values: dict[str, str]) -> None:
    """Hopper and later print headroom instead of thresholds: slowdown = now + headroom - headroom at slowdown."""
    if "temp_slowdown_c" in fields or "temp_c" not in fields:
        return
    headroom = as_number(values.get("temperature/gpu t.limit temp") or values.get("temperature/gpu temp tlimit"))
    limit = as_number(
        values.get("temperature/gpu slowdown t.limit temp") or values.get("temperature/gpu temp slow tlimit threshold")
    )
    if headroom is not None and limit is not None:
        fields["temp_slowdown_c"] = float(fields["temp_c"]) + headroom - limit


def _reasons(fields: dict[str, str | int | float | bool], values: dict[str, str]) -> None:
    bits, seen = 0, False
    for path, value in values.items():
        if not path.startswith(("clocks event reasons/", "clocks throttle reasons/")):
            continue
        label = path.rsplit("/", 1)[-1]
        for start in ("clocks event reason ", "clocks throttle reason "):
            label = label.removeprefix(start)
        bit = REASON_BITS.get(_XML_REASONS.get(label, label))
        if bit is not None and value in ("Active", "Not Active"):
            seen = True
            bits |= bit if value == "Active" else 0
    if seen:
        put_reasons(fields, bits)


_XML_REASONS = {
    "gpu idle": "idle",
    "display clocks setting": "display clock setting",
}


def _uncorrected(values: dict[str, str], scope: str) -> int | None:
    """Sum of uncorrectable errors over the memories; `Double Bit` of Volta and older has its own total."""
    total: int | None = None
    for path, value in values.items():
        if not path.startswith(scope):
            continue
        rest = path[len(scope) :]
        if "uncorrectable" in rest or rest == "double bit/total" or rest == "double bit ecc/total":
            number = as_number(value)
            if number is not None:
                total = (total or 0) + int(number)
    return total
