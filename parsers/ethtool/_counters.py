"""`ethtool -S`: which counters matter, and folding of per-ring ones.

Format: `     name: value` with value an unsigned 64-bit decimal; the name may hold blanks, colons and brackets, so the
last `: ` separates. Names as printed by mlx5, bnxt_en, ice, i40e, ixgbe, ena, gve, virtio_net, ionic (kernel 6.x).
A name absent is a feature off or too old, not zero; a counter of all ones is a driver's "not supported" and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from diagnose.model import Evidence, Line, Record, Source
from diagnose.parsing import evidence, problem

MAX_RING_RECORDS = 64
"""Rings listed one by one when they drop; more are only summed up."""

COUNTER = re.compile(r"\s{0,8}(?!\s)([\[\w][\w.\[\]#:@ -]{0,98}?): (-?\d{1,20})\s*$")
_UNKNOWN = 2**64 - 1

_RING = re.compile(
    r"\[(?P<a>\d{1,4})\]: (?P<na>\w+)"  # bnxt
    r"|(?P<qd>[rt]x)_queue_(?P<b>\d{1,4})_(?P<nb>\w+)"  # ice, ixgbe, virtio
    r"|queue_(?P<c>\d{1,4})_(?P<nc>[rt]x_\w+)"  # ena
    r"|(?P<pd>[rt]x)-(?P<d>\d{1,4})\.(?P<nd>[\w.]+)"  # i40e, sfc
    r"|(?P<md>[rt]x)(?P<e>\d{1,4})_(?P<ne>\w+)"  # mlx5, virtio 6.12
    r"|(?P<nf>[rt]x_\w+)\[(?P<f>\d{1,4})\]"  # gve
    r"|(?P<bd>[rt]x)q[#_]?(?P<g>\d{1,4})[_:] ?(?P<ng>\w+)"  # hns3, be2net
)
_RING_MATTERS = re.compile(
    r"discard|drop|err|miss|alloc_fail|no_buf|no_desc|empty_rx_ring|overflow|timeout|queue_stop|(?:^|_)(?:packets|pkts|bytes|cnt)$"
)
_RING_IGNORED = re.compile(
    r"xdp|irq|csum|dma_mapping|prepare_ctx|req_id|linearize|cqe_err|arfs|_ktls|tls_|lro_|tso_|cache_|cqe_comp|inner|tpa_|mcast|bcast"
)
_DROPS = re.compile(r"discard|drop")

_TOTALS = re.compile(
    r"(?:port\.)?[rt]x_(?:bytes|packets|unicast)(?:_phy|\.nic)?"
    r"|[rt]x_(?:total|good|ucast)_frames|[rt]x_vport_(?:unicast|rdma_unicast)_(?:bytes|packets)"
    r"|[rt]x_(?:bytes|packets)_pri\d|[rt]x_prio\d_(?:bytes|packets)|frames_[rt]x_pri_\d"
)
_MATTERS = re.compile(
    r"pause|pfc|xoff|prio\d_(?:\w*discard|marked)|discard|drop|errors?(?:_phy|\.nic)?$|_err(?:$|_)|crc|fcs|symbol|corrected"
    r"|uncorrect|_fec_|(?:^|[_.])missed|out_of_buffer|_oob$|no_buffer|nobuf|no_frags|no_dma|overrun|overflow|underrun"
    r"|oversize|ovrsz|mtu_err|out_of_range_len|jabber|link_down|link_fail|link_flap|^module_|_pci_|storm|rdma|ecn_|_ecn|cnp"
    r"|marked|allowance_exceeded|allowance_available|timeout|wd_expired|reset|_hang|hung|alloc_fail|alloc_err|steer_missed"
    r"|if_down|buffer_passed|queue_stopped|queue_dropped|local_faults|remote_faults|_srd_|recover$|err_lane|over_mru"
)
_IGNORED = re.compile(
    r"admin_q_pause|xdp|tls|ipsec|macsec|eee_|fdir|irq|_cos\d|bytes_phy$|prio\d_pause_transition|pri\d_[rt]x_transitions"
    r"|_xon|xon_2_xoff|netpoll|vlan|tpa_|arfs|rdma_multicast|rx_discard_bytes|_tcp_|ptp_cq|inner|illegal_bytes"
)
_KEPT = re.compile(
    r"rx_discard_packets_cos\d|[rt]x_vport_rdma_unicast_\w+|[rt]x_bytes_phy"
    r"|rx_(?:4096_to_8191|8192_to_10239)_bytes_phy|(?:port\.)?[rt]x_size_(?:1522|big)(?:\.nic)?"
)


def record(device: str, name: str, value: int, shown: tuple[Evidence, ...], ring: int | None = None) -> Record:
    """A `nic_counter` record."""
    fields: dict[str, str | int | float | bool] = {"device": device, "name": name, "value": value}
    if ring is not None:
        fields["ring"] = ring
    return Record("nic_counter", fields, shown)


def matters(name: str) -> bool:
    """Whether a counter can tell about loss, flow control, signal, PCIe, RDMA or volume."""
    if _TOTALS.fullmatch(name) or _KEPT.fullmatch(name):
        return True
    return _MATTERS.search(name) is not None and _IGNORED.search(name) is None


def ring_of(name: str) -> tuple[int, str, str] | None:
    """(ring, direction, counter) of a per-ring name, or None: `[3]: rx_discards` -> (3, rx, discards)."""
    m = _RING.fullmatch(name)
    if m is None:
        return None
    number = next(m.group(g) for g in "abcdefg" if m.group(g) is not None)
    base = next(m.group("n" + g) for g in "abcdefg" if m.group("n" + g) is not None)
    direction = m.group("qd") or m.group("pd") or m.group("md") or m.group("bd")
    if direction is None:
        direction, _, rest = base.partition("_")
        if direction not in ("rx", "tx") or not rest:
            return None
        base = rest
    elif base.startswith(direction + "_"):
        base = base[3:]
    return int(number), direction, base


class _Rings:
    """Sums of per-ring counters by (direction, counter), with the largest lines as evidence."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[tuple[int, int, str, Line]]] = {}

    def add(self, found: tuple[int, str, str], name: str, value: int, line: Line) -> None:
        ring, direction, base = found
        if _RING_MATTERS.search(base) and not _RING_IGNORED.search(base):
            self.values.setdefault((direction, base), []).append((ring, value, name, line))

    def records(self, device: str, plain: set[str], source: Source) -> Iterator[Record]:
        for (direction, base), rings in self.values.items():
            if f"{direction}_{base}" in plain:
                continue
            total = sum(value for _, value, _, _ in rings)
            largest = sorted(rings, key=lambda r: -r[1])[:3]
            shown = tuple(evidence(source, line) for _, _, _, line in sorted(largest, key=lambda r: r[3].number))
            yield record(device, f"{direction}_ring_{base}_sum", total, shown)
            if total and _DROPS.search(base) and len(rings) <= MAX_RING_RECORDS:
                for ring, value, name, line in rings:
                    yield record(device, name, value, (evidence(source, line),), ring)


def statistics(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """The list after `NIC statistics:`, or a list without that header."""
    plain: dict[str, tuple[int, Line]] = {}
    rings = _Rings()
    unreadable: list[Line] = []
    for line in lines:
        m = COUNTER.match(line.text)
        if m is None:
            unreadable.append(line)
            continue
        name, value = m.group(1).strip(), int(m.group(2))
        if not 0 <= value < _UNKNOWN:
            continue
        found = ring_of(name)
        if found is not None:
            rings.add(found, name, value, line)
        else:
            plain.setdefault(name, (value, line))
    if not _is_nic(plain, rings):
        return
    for name, (value, line) in plain.items():
        if matters(name):
            yield record(device, name, value, (evidence(source, line),))
    yield from rings.records(device, set(plain), source)
    if unreadable:
        text = f"{len(unreadable)} lines of the statistics of {device} cannot be read"
        yield problem(source, text, unreadable[0])


def _is_nic(plain: dict[str, tuple[int, Line]], rings: _Rings) -> bool:
    """Whether a list of names and numbers is a NIC's: other tools print `name: number` too."""
    if rings.values:
        return True
    if plain.keys() & {"lifespan", "send_wrs", "rdma_read_wrs", "port_rcv_data"}:
        return False
    return any(
        re.match(r"(?:port\.)?[rt]x_|module_|outbound_pci|link_down_events|\w+_allowance_exceeded|.*_phy$", n)
        for n in plain
    )


def standard(lines: Sequence[Line], device: str, source: Source) -> Iterator[Record]:
    """`-S --groups`: `eth-mac-FramesLostDueToIntMACRcvError: 5`."""
    for line in lines:
        m = COUNTER.match(line.text)
        if m and re.search(
            r"Error|Lost|Jabber|Discard|Drop|Pause|Octets(?:Transmitted|Received)|Frames(?:Trans|Rec)", m.group(1)
        ):
            value = int(m.group(2))
            if 0 <= value < _UNKNOWN:
                yield record(device, m.group(1), value, (evidence(source, line),))
