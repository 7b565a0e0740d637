"""ethtool: link, driver, features, pause, coalescing, rings, channels, statistics, timestamping, FEC, module, flags.

Format: ethtool 4.x to 6.x, text and `--json`. Settings sections name their device in a header; `-S`, `-i` and `-m` do
not, so it comes, in this order, from the command typed before, the capture's command, the file name, the last header
of the same text, and else is called "nic".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagnose.model import Line, Record, Source

from ._reader import Reader, split_host

KIND = "ethtool"
TOPICS = ("nic_link", "nic_settings", "nic_counters", "nic_module")

_SURE = re.compile(
    r"^(?:[\w.-]{1,63}: )?[ \t]*(?:NIC statistics:|(?:Settings|Features|Private flags|Standard stats"
    r"|(?:Pause|Coalesce|Ring|Channel|Time stamping|FEC) parameters) for [\w.@:-]{1,40}:)[ \t]*$"
    r"|^driver: \S+[ \t]*\n(?:[^\n]*\n)?firmware-version:"
    r'|"(?:link-detected|supported-link-modes|tcp-segmentation-offload|autonegotiate|adaptive-rx|rx-max)": '
    r"|^[ \t]*Identifier[ \t]+: 0x[0-9a-f]{2} \(",
    re.MULTILINE,
)
_LIKELY = re.compile(
    r"^[ \t]{0,8}(?:queue_\d+_[rt]x_\w{2,40}|[rt]x_queue_\d+_\w{2,40}|[rt]x_prio\d_\w{2,40}|[rt]x_\w{0,40}_phy"
    r"|[rt]x_(?:packets|bytes)|\[\d+\]: [rt]x_\w{2,40}|[rt]x_priority_\d_xo(?:n|ff)(?:\.nic)?|port\.[rt]x_\w{2,40}"
    r"|rx_(?:out_of_buffer|missed_errors|no_buffer_count|total_ring_discards)|\w{2,12}_allowance_exceeded"
    r"|mac_[rt]x_\w{2,40}): \d{1,20}[ \t]*$"
    r"|^no stats available[ \t]*$|^ethtool: bad command line argument"
    r"|^Cannot get device \w{1,20} settings: "
    r"|^netlink error: (?:Operation not supported|No such device|Invalid argument)",
    re.MULTILINE,
)
_NOT_OURS = re.compile(r"^(?:[ \t]*lifespan: |[ \t]*(?:send_wrs|rdma_read_wrs): )", re.MULTILINE)


def sniff(head: str, name: str) -> float:
    """Sure with a section header; likely with a bare list of NIC counters or an error answer of ethtool."""
    if _SURE.search(head):
        return 0.9
    if _LIKELY.search(head) and not _NOT_OURS.search(head):
        return 0.6
    return 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """Records of every ethtool answer in the text; `host: ` prefixes (pdsh) separate interleaved hosts."""
    readers: dict[str | None, Reader] = {}
    for line in lines:
        host, text = split_host(line.text, readers)
        reader = readers.get(host)
        if reader is None:
            reader = readers[host] = Reader(source, host)
        yield from reader.feed(line, text)
    for reader in readers.values():
        yield from reader.close()
