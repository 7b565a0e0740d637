"""Small RoCE settings: default traffic class (`cma_roce_tos`, sysfs `tc/N/traffic_class`) and ECN enable files.

Format: MLNX_OFED and inbox sysfs; `grep -H . FILE`, `FILE: value`, `==> FILE <==`, or a prompt that reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence

KIND = "roce_sysfs"
TOPICS = ("qos",)

_CLASS_FILE = re.compile(r"infiniband/([\w.-]{1,40})/tc/\d{1,3}/traffic_class\b")
_ECN_FILE = re.compile(r"net/([\w.@-]{1,40})/ecn/roce_(np|rp)/enable/([0-7])\b")
_TOS = re.compile(r"\bcma_roce_tos\b(?:.{0,40}-d\s*([\w.-]{1,40}))?")
_CLASS = re.compile(r"(?:\s*[:=])?\s*(?:Global tclass=)?(\d{1,3})\s*$")
_BIT = re.compile(r"(?:\s*[:=])?\s*([01])\s*$")
_SNIFF = re.compile(
    r"/tc/\d{1,3}/traffic_class\b|/ecn/roce_[nr]p/enable/[0-7]\b|\bcma_roce_tos -d|^Global tclass=\d", re.MULTILINE
)

UNKNOWN_DEVICE = "hca"


def sniff(head: str, name: str) -> float:
    """Sure with one of the file paths or the command."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """qos_traffic_class and qos_ecn."""
    pending: tuple[re.Match[str], bool, Line] | None = None
    for line in lines:
        text = line.text
        if (m := _CLASS_FILE.search(text)) or (m := _ECN_FILE.search(text)):
            is_class = m.re is _CLASS_FILE
            value = (_CLASS if is_class else _BIT).match(text, m.end())
            if value is not None:
                yield _record(m, is_class, value, source, line)
            else:
                pending = (m, is_class, line) if _open_end(text[m.end() :]) else None
        elif "cma_roce_tos" in text and (m := _TOS.search(text)):
            pending = (m, True, line)
        elif pending is not None:
            m, is_class, first = pending
            value = (_CLASS if is_class else _BIT).match(text)
            if value is not None:
                yield _record(m, is_class, value, source, first, line)
            pending = None
        elif text.startswith("Global tclass=") and (value := _CLASS.match(text)):
            fields = {"device": UNKNOWN_DEVICE, "traffic_class": int(value.group(1))}
            yield Record("qos_traffic_class", fields, (evidence(source, line),))


def _open_end(rest: str) -> bool:
    """Whether the value may follow on the next line."""
    return rest.strip() in ("", "<==", ":")


def _record(m: re.Match[str], is_class: bool, value: re.Match[str], source: Source, *lines: Line) -> Record:
    shown = (evidence(source, *lines),)
    if is_class:
        device = m.group(1) or UNKNOWN_DEVICE
        return Record("qos_traffic_class", {"device": device, "traffic_class": int(value.group(1))}, shown)
    fields = {"device": m.group(1), "role": m.group(2), "priority": int(m.group(3)), "on": value.group(1) == "1"}
    return Record("qos_ecn", fields, shown)
