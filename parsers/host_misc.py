"""Limits and settings of a host: locked memory, /dev/shm, NUMA balancing, CPUs, affinity, governor, clock source.

Formats: ulimit of bash and dash, /proc/PID/limits, df of coreutils and busybox, lscpu of util-linux 2.27 to 2.41,
taskset, numactl -s, cpupower, sysctl and sysfs files (alone, behind `grep -H` or pdsh prefixes, or after a prompt that
names them). A bare value counts only where the file name or the prompt says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence, sections

KIND = "host_misc"
TOPICS = ("host_state", "clocksource")

MAX_LINES = 500_000
"""Lines read of one source: such output is short, and a longer source is a job's log."""

_CLOCKS = (
    "tsc|tsc-early|hpet|acpi_pm|kvm-clock|hyperv_clocksource_tsc_page|hyperv_clocksource_msr|xen|arch_sys_counter|jiffies|"
    "refined-jiffies|pit|timebase|tod"
)
_GOVERNORS = "performance|powersave|schedutil|ondemand|conservative|userspace"
_ULIMIT = re.compile(
    r"^\s{0,4}(?:max locked memory|locked-in-memory address space[^\d]{0,20}|locked memory)\s{0,40}"
    r"(?:\((?:kbytes|KiB|kb), -l\)|\(kbytes\)|kbytes)?\s{1,40}(\d{1,18}|unlimited)\s*$"
)
_NOFILE = re.compile(
    r"^\s{0,4}(?:open files|nofiles?|file descriptors)\s{0,40}(?:\(-n\)|\(descriptors\))?\s{1,40}"
    r"(\d{1,18}|unlimited)\s*$"
)
_PROC_LIMIT = re.compile(
    r"^Max (locked memory|open files)\s{1,20}(\d{1,20}|unlimited)\s{1,30}(?:\d{1,20}|unlimited)\s{1,30}(?:bytes|files)"
)
_DF = re.compile(
    r"^\s{0,60}(?:\S{1,200}\s{1,40})?(\d{1,15}(?:[.,]\d{1,2})?[KMGTP]?)i?\s{1,30}(\d{1,15}(?:[.,]\d{1,2})?[KMGTP]?)i?\s{1,30}"
    r"(\d{1,15}(?:[.,]\d{1,2})?[KMGTP]?)i?\s{1,12}(?:\d{1,3}%|-)\s{1,8}/dev/shm\s*$"
)
_DF_HEADER = re.compile(r"\b(?:1K|1024|1M|1G|512)-blocks\b|\b1B-blocks\b")
_MOUNT = re.compile(r"/dev/shm\s.{0,120}\btmpfs\b.{0,200}\bsize=(\d{1,15})([kmgKMG]?)")
_NUMA_BALANCING = re.compile(r"(?:^|[\s/])(?:kernel[./])?numa_balancing\s{0,4}[=:]\s{0,4}([012])\s*$")
_CPUS = re.compile(r"^\s{0,4}CPU\(s\):\s{1,60}(\d{1,5})\s*$")
_LSCPU = re.compile(r"^\s{0,4}(?:On-line CPU\(s\) list|Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)):\s", re.M)
_AFFINITY_LIST = re.compile(
    r"(?:affinity list:|^\s{0,4}Cpus_allowed_list:)\s{0,4}([\d,-]{1,2000})\s*$|^physcpubind:\s{1,4}([\d ]{1,8000})$"
)
_AFFINITY_MASK = re.compile(r"affinity mask: (?:0x)?([0-9a-fA-F,]{1,400})\s*$")
_GOVERNOR = re.compile(
    rf'(?:scaling_governor\s{{0,2}}[:=]\s{{0,2}}({_GOVERNORS})\s*$|The governor "({_GOVERNORS})" may decide)'
)
_CLOCK_FILE = re.compile(rf"(current|available)_clocksource:\s{{0,2}}((?:{_CLOCKS})(?: (?:{_CLOCKS}))*)\s*$")
_CLOCK_LINE = re.compile(rf"^\s{{0,4}}((?:{_CLOCKS})(?: (?:{_CLOCKS}))*)\s*$")
_GOVERNOR_LINE = re.compile(rf"^\s{{0,4}}({_GOVERNORS})\s*$")
_VALUE_LINE = re.compile(r"^\s{0,4}(\d{1,18}|unlimited)\s*$")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_BLOCKS = {
    "1K-blocks": 1 / 1024,
    "1024-blocks": 1 / 1024,
    "1M-blocks": 1.0,
    "1G-blocks": 1024.0,
    "512-blocks": 1 / 2048,
}
_SURE = re.compile(
    r"^[ \t]{0,4}max locked memory\s|^Max locked memory\s|\d%\s{1,8}/dev/shm\s*$|current_clocksource:\w"
    r"|numa_balancing\s{0,4}[=:]\s{0,4}[012]\s*$"
    r"|^\s{0,4}On-line CPU\(s\) list:|current affinity (?:list|mask):|^\s{0,4}Cpus_allowed_list:\s|scaling_governor:\w"
    r'|The governor "\w{4,14}" may decide|^physcpubind: \d|/dev/shm type tmpfs|tmpfs.{1,80}/dev/shm\s*$',
    re.M,
)
_SUBJECTS = ("ulimit -l", "ulimit -n", "clocksource", "numa_balancing", "scaling_governor", "nproc")
_NAMES = re.compile(r"ulimit|memlock|clocksource|numa_balancing|governor|nproc", re.I)


_HOST = re.compile(r"^([A-Za-z][\w.-]{0,61}\d[\w.-]{0,30}): {1,8}(?=\S)")


def sniff(head: str, name: str) -> float:
    """Sure on labelled values; likely on bare values whose prompt or file name says what they are."""
    if _SURE.search(head):
        return 0.9
    lone = head[:400].strip()
    if _NAMES.search(name) and lone and all(_bare(text) for text in lone.split("\n")[:8]):
        return 0.8
    if any(subject in head for subject in _SUBJECTS):
        lines = [part.split("\n", 6) for part in head.split("$ ")[1:2_000] + head.split("# ")[1:2_000]]
        for command, *rest in (x for x in lines if any(s in x[0] for s in _SUBJECTS)):
            if len(command) < 4_000 and any(_bare(text) for text in rest[:5]):
                return 0.7
    if (
        len(lone) < 200
        and lone.count("\n") < 4
        and all(_CLOCK_LINE.match(t) for t in lone.split("\n"))
        and len(lone) > 2
    ):
        return 0.7
    return 0.0


def _bare(text: str) -> bool:
    named = _HOST.match(text)
    text = text[named.end() :] if named else text
    return any(p.match(text) for p in (_VALUE_LINE, _CLOCK_LINE, _GOVERNOR_LINE))


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """Limits and settings, each distinct value once."""
    kept = [line for line in islice(lines, MAX_LINES) if len(line.text) < 10_000]
    seen: set[tuple[object, ...]] = set()
    short = sum(1 for line in kept if line.text.strip()) <= 8
    for section in sections(kept):
        hint = section.command or source.command or (source.name if short else "")
        for record in _section(section.lines, hint, source, short):
            key = (record.kind, record.host, *record.fields.values())
            if key not in seen and len(seen) < 200:
                seen.add(key)
                yield record


def _section(lines: tuple[Line, ...], hint: str, source: Source, short: bool) -> Iterator[Record]:
    lscpu = any(_LSCPU.match(line.text) for line in lines)
    unit: float | None = None
    clocks: dict[str, tuple[str, Line]] = {}
    for line in lines:
        named = _HOST.match(line.text)
        host = named.group(1) if named else None
        text = line.text[named.end() :] if named else line.text
        header = _DF_HEADER.search(text)
        if header:
            unit = _BLOCKS.get(header.group())
        m = _CLOCK_FILE.search(text) if "clocksource" in text else None
        if m:
            clocks[m.group(1)] = (m.group(2), line)
            continue
        m = _CLOCK_LINE.match(text) if named is None and (short or "clocksource" in hint) else None
        if m:
            words = m.group(1)
            clocks.setdefault("available" if " " in words or "current" in clocks else "current", (words, line))
            continue
        for record in (*_labelled(text, line, source, unit, lscpu), *_lone(text, line, source, hint)):
            yield replace(record, host=host) if host else record
    if "current" in clocks:
        current, line = clocks["current"]
        fields = drop_none(current=current, available=clocks["available"][0] if "available" in clocks else None)
        yield Record("clocksource", cast(Fields, fields), (evidence(source, line),))


def _limit(name: str, value: str, line: Line, source: Source, factor: float = 1.0) -> Record:
    unlimited = value == "unlimited"
    number = None if unlimited else float(value) * factor
    fields = drop_none(
        name=name, value=value if factor == 1.0 else f"{number:g}" if number is not None else value,
        number=None if number is None else int(number) if number == int(number) else round(number, 3),
        unlimited=unlimited if name in ("memlock_kib", "nofile") else None,
    )  # fmt: skip
    return Record("host_limit", cast(Fields, fields), (evidence(source, line),))


def _labelled(text: str, line: Line, source: Source, unit: float | None, lscpu: bool) -> Iterator[Record]:
    """Values that say themselves what they are."""
    m = _ULIMIT.match(text)
    if m:
        yield _limit("memlock_kib", m.group(1), line, source)
    m = _NOFILE.match(text)
    if m:
        yield _limit("nofile", m.group(1), line, source)
    m = _PROC_LIMIT.match(text)
    if m:
        locked = m.group(1) == "locked memory"
        yield _limit("memlock_kib" if locked else "nofile", m.group(2), line, source, 1 / 1024 if locked else 1.0)
    if "/dev/shm" in text:
        yield from _shm(text, line, source, unit)
    m = _NUMA_BALANCING.search(text)
    if m:
        yield _limit("numa_balancing", m.group(1), line, source)
    m = _CPUS.match(text) if lscpu else None
    if m:
        yield _limit("cpus", m.group(1), line, source)
    m = _GOVERNOR.search(text)
    if m:
        yield _text("governor", m.group(1) or m.group(2), line, source)
    m = _AFFINITY_LIST.search(text)
    if m:
        count = _count(m.group(1) or m.group(2).strip().replace(" ", ","))
        if count:
            yield _limit("affinity_cpus", str(count), line, source)
    m = _AFFINITY_MASK.search(text)
    if m:
        bits = int(m.group(1).replace(",", "") or "0", 16).bit_count()
        if bits:
            yield _limit("affinity_cpus", str(bits), line, source)


def _text(name: str, value: str, line: Line, source: Source) -> Record:
    return Record("host_limit", {"name": name, "value": value}, (evidence(source, line),))


def _lone(text: str, line: Line, source: Source, hint: str) -> Iterator[Record]:
    """Bare values; the command or file name before them says what they are."""
    m = _GOVERNOR_LINE.match(text)
    if m and "governor" in hint:
        yield _text("governor", m.group(1), line, source)
    m = _VALUE_LINE.match(text)
    if m is None:
        return
    value = m.group(1)
    if "numa_balancing" in hint and value in ("0", "1", "2"):
        yield _limit("numa_balancing", value, line, source)
    elif "ulimit -n" in hint and "ulimit -l" not in hint:
        yield _limit("nofile", value, line, source)
    elif re.search(r"ulimit(?:\s-\w{1,6}){0,3}\s-\w?l|memlock|ulimit[-_.]?l?(?:\.t\d)?\.(?:txt|log|out)$", hint):
        yield _limit("memlock_kib", value, line, source)
    elif re.search(r"\bnproc\b", hint) and value.isdecimal() and int(value) < 10_000:
        yield _limit("cpus", value, line, source)


def _shm(text: str, line: Line, source: Source, unit: float | None) -> Iterator[Record]:
    m = _DF.match(text)
    if m:
        total, free = _mib(m.group(1), unit), _mib(m.group(3), unit)
        if total is not None and free is not None:
            yield _limit("shm_total_mib", f"{total:.10g}", line, source)
            yield _limit("shm_free_mib", f"{free:.10g}", line, source)
        return
    m = _MOUNT.search(text)
    if m:
        total = int(m.group(1)) * _MIB.get(m.group(2).upper(), 1 / 1024**2)
        yield _limit("shm_total_mib", f"{total:.10g}", line, source)


def _mib(text: str, unit: float | None) -> float | None:
    """A size of df in MiB: suffixed, or in the blocks that the heading named; bare numbers without heading are KiB."""
    factor = _MIB.get(text[-1])
    if factor is not None:
        return float(text[:-1].replace(",", ".")) * factor
    return float(text.replace(",", ".")) * (1 / 1024 if unit is None else unit)


def _count(text: str) -> int | None:
    """Number of CPUs in a list such as `0-3,8`; None for what is none."""
    total = 0
    for part in text.strip(",").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or len(first) > 6 or len(last) > 6:
            return None
        total += int(last or first) - int(first) + 1
    return total if total > 0 else None
