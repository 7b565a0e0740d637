"""`mlxlink -d DEV [-m] [-c] [-e]`: physical state, bit error rates, module and the tool's own verdict of a port.

Format: MFT 4.10 to 4.32, mstflint 4.14+: `Label   : value` lines under underlined titles. BER is written 15E-255 for
"none seen". Counters run since they were cleared. Which port a block is about stands only in the command typed, in a
heading such as `=== mlx5_0 ===`, in the capture's command or file name; else it is "nic", "nic-2", ….
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import cast

from diagnose.model import Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence, is_gap

KIND = "mlxlink"
TOPICS = ("link_phy", "nic_module")

UNKNOWN_DEVICE = "nic"
_DEVICE = (
    r"(?:/dev/mst/)?((?:mlx5|mt\d{4,5}|ibp|roce|rdma)[\w.]{1,40}"
    r"|(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
)
_COMMAND = re.compile(rf"\b(?:mlxlink|mstlink)\b[^\n]{{0,80}}?(?:-d|--device)[ =]{{1,4}}{_DEVICE}")
_HEADING = re.compile(rf"^[ \t]{{0,4}}[=#*-]{{2,40}} {{0,4}}{_DEVICE}\b[^\n]{{0,60}}$")
_NAMED = re.compile(rf"mlxlink[-._]{_DEVICE.replace('/dev/mst/', '')}")
_SNIFF = re.compile(
    r"^[ \t]{0,8}(?:Physical Counters and BER Info|(?:Effective|Raw) Physical BER[ \t]{1,40}: \d"
    r"|(?:Group|Status) Opcode[ \t]{1,40}: [\dN])",
    re.MULTILINE,
)
_BER = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)[eE](-\d{1,3})")
_COUNT = re.compile(r"\d{1,18}")
_MINUTES = re.compile(r"\d{1,12}(?:\.\d{1,6})?")
_TEMPERATURE = re.compile(r"(-?\d{1,3}(?:\.\d{1,3})?)")
_WIDTH = re.compile(r"(\d{1,2})x")
_SIGNS = frozenset({
    "Physical state", "Status Opcode", "Recommendation", "Symbol BER", "Effective Physical BER", "Raw Physical BER",
    "Link Down Counter", "Effective Physical Errors",
})  # fmt: skip
"""Labels that no other tool prints."""
_OURS = _SIGNS | {
    "State", "Speed", "Width", "FEC", "Time Since Last Clear [Min]", "Symbol Errors", "Link Error Recovery Counter",
    "Temperature [C]", "Vendor Name", "Vendor Part Number", "Identifier",
}  # fmt: skip
_STARTS = "State"
_TELLING = ("State", "Recommendation", "Symbol BER", "Effective Physical BER", "Link Down Counter", "Temperature [C]")
MAX_BLOCKS = 10_000


def sniff(head: str, name: str) -> float:
    """Sure with one of the tool's own labels."""
    return 0.9 if _SNIFF.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """`link_phy` and, with a module read, `nic_module` of each port."""
    told = _COMMAND.search(source.command or "") or _NAMED.search(source.name)
    device = told.group(1) if told else None
    block: dict[str, tuple[str, Line]] = {}
    blocks = 0
    for line in lines:
        text = line.text
        started = _COMMAND.search(text) if "link" in text else None
        started = started or (_HEADING.match(text) if text[:4].strip(" \t")[:1] in ("=", "#", "*", "-") else None)
        if started or is_gap(text):
            yield from _records(block, device, blocks, source)
            blocks += bool(block)
            block, device = {}, started.group(1) if started else None
            continue
        label, separator, value = text.partition(" : ")
        label, value = label.strip(), value.strip()[:200]
        if not separator or label not in _OURS:
            continue
        if label in block and (label == _STARTS or block[label][0] != value):
            yield from _records(block, device, blocks, source)
            blocks, block = blocks + 1, {}
        if blocks >= MAX_BLOCKS:
            return
        block[label] = value, line
    yield from _records(block, device, blocks, source)


def _records(
    block: dict[str, tuple[str, Line]], device: str | None, before: int, source: Source
) -> Iterator[Record]:  # fmt: skip
    said = {label: value for label, (value, _) in block.items() if value not in ("", "N/A")}
    if len(said) < 2 or not _SIGNS & said.keys():
        return
    name = device or (UNKNOWN_DEVICE if not before else f"{UNKNOWN_DEVICE}-{before + 1}")
    opcode, state = said.get("Status Opcode"), said.get("State")
    fields = drop_none(
        device=name, state=state.lower() if state else None, physical_state=said.get("Physical state"),
        speed=said.get("Speed"), width=_first(_WIDTH, said.get("Width")), fec=said.get("FEC"),
        opcode=int(opcode) if opcode and _COUNT.fullmatch(opcode) else None,
        recommendation=said.get("Recommendation"),
        symbol_errors=_first(_COUNT, said.get("Symbol Errors")), symbol_ber=_ber(said.get("Symbol BER")),
        effective_errors=_first(_COUNT, said.get("Effective Physical Errors")),
        effective_ber=_ber(said.get("Effective Physical BER")), raw_ber=_ber(said.get("Raw Physical BER")),
        link_down=_first(_COUNT, said.get("Link Down Counter")),
        recoveries=_first(_COUNT, said.get("Link Error Recovery Counter")),
        minutes=_number(_MINUTES, said.get("Time Since Last Clear [Min]")),
    )  # fmt: skip
    if len(fields) > 1:
        grounds = [block[label][1] for label in _TELLING if label in said] or [line for _, line in block.values()][:1]
        yield Record("link_phy", cast(Fields, fields), tuple(evidence(source, line) for line in grounds))
    temperature = _number(_TEMPERATURE, said.get("Temperature [C]"))
    if temperature is not None:
        module = drop_none(
            device=name, temp_c=temperature, vendor=said.get("Vendor Name"), part_number=said.get("Vendor Part Number"),
            identifier=said.get("Identifier"),
        )  # fmt: skip
        yield Record("nic_module", cast(Fields, module), (evidence(source, block["Temperature [C]"][1]),))


def _first(pattern: re.Pattern[str], text: str | None) -> int | None:
    m = pattern.match(text) if text else None
    return int(m.group(m.lastindex or 0)) if m else None


def _number(pattern: re.Pattern[str], text: str | None) -> float | None:
    m = pattern.match(text) if text else None
    return float(m.group()) if m else None


def _ber(text: str | None) -> float | None:
    """`3E-8` as a number; 15E-255, the tool's "none", as 0."""
    m = _BER.fullmatch(text) if text else None
    if m is None:
        return 0.0 if text == "0" else None
    exponent = int(m.group(2))
    return 0.0 if exponent < -100 else float(m.group(1)) * 10.0**exponent
