"""NICs: ibstat and the sysfs counters of RDMA devices (formats: infiniband-diags, mlx5 counters)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Mapping
from random import Random

from .cluster import Host

Table = dict[str, dict[str, int]]
"""device -> `counters/name` or `hw_counters/name` -> value"""

MOVING = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets", "unicast_rcv_packets",
          "unicast_xmit_packets", "rx_write_requests")  # fmt: skip


def ibstat(host: Host) -> list[str]:
    """`ibstat` of all devices; the storage NICs are Ethernet, the second one of them is down by design."""
    lines: list[str] = []
    for n, nic in enumerate(host.nics):
        down = nic.storage and n == len(host.nics) - 1
        lines += [
            f"CA '{nic.device}'", "\tCA type: MT4129", "\tNumber of ports: 1", f"\tFirmware version: {nic.firmware}",
            "\tHardware version: 0", f"\tNode GUID: {nic.guid}", f"\tSystem image GUID: {nic.guid}", "\tPort 1:",
            f"\t\tState: {'Down' if down else 'Active'}", f"\t\tPhysical state: {'Disabled' if down else 'LinkUp'}",
            f"\t\tRate: {100 if down else nic.speed_gbps}", f"\t\tBase lid: {0 if nic.link != 'IB' else 200 + 16 * host.index + n}", "\t\tLMC: 0",
            f"\t\tSM lid: {1 if nic.link == 'IB' else 0}", "\t\tCapability mask: 0xa751e848", f"\t\tPort GUID: {nic.guid}",
            f"\t\tLink layer: {'InfiniBand' if nic.link == 'IB' else 'Ethernet'}",
        ]  # fmt: skip
    return lines


def ib_counters(host: Host, rng: Random) -> Table:
    """Counters of the compute fabric as they are after a month of good work: not all zero."""
    table: Table = {}
    for nic in host.fabric():
        data = rng.randrange(70, 90) * 10**13
        packets = data // 512
        table[nic.device] = {
            "counters/excessive_buffer_overrun_errors": 0, "counters/link_downed": 1, "counters/link_error_recovery": 0,
            "counters/local_link_integrity_errors": 0, "counters/port_rcv_data": data, "counters/port_rcv_errors": 0,
            "counters/port_rcv_packets": packets, "counters/port_xmit_data": data + 99171, "counters/port_xmit_discards": 0,
            "counters/port_xmit_packets": packets + 193, "counters/port_xmit_wait": rng.randrange(80, 99) * 10**7,
            "counters/symbol_error": 0, "hw_counters/duplicate_request": 0, "hw_counters/lifespan": 10,
            "hw_counters/local_ack_timeout_err": 0, "hw_counters/out_of_buffer": 0, "hw_counters/out_of_sequence": rng.randrange(6000, 9000),
            "hw_counters/packet_seq_err": 0, "hw_counters/req_cqe_error": 41288, "hw_counters/req_cqe_flush_error": 41288,
            "hw_counters/rnr_nak_retry_err": 0, "hw_counters/rx_write_requests": packets // 2,
        }  # fmt: skip
    return table


def later(table: Table, rng: Random, *, seconds: float, gbps: float = 0.0, **changed: Mapping[str, int]) -> Table:
    """The same some time later, moved by `gbps` of traffic; `changed` adds to counters: `local_ack_timeout_err={"mlx5_3": 40}`."""
    moved: Table = {}
    for device, counters in table.items():
        words = int(gbps * 1e9 / 8 * seconds / 4 * rng.uniform(0.98, 1.02))
        moved[device] = dict(counters)
        for name, value in counters.items():
            short = name.rpartition("/")[2]
            if short in MOVING:
                moved[device][name] = value + (words if short.endswith("_data") else words // 512)
            moved[device][name] += changed.get(short, {}).get(device, 0)
    return moved


def grep_counters(table: Table) -> list[str]:
    """`grep -H .` over the counter files."""
    return [
        f"/sys/class/infiniband/{device}/ports/1/{name}:{value}"
        for device, counters in table.items()
        for name, value in counters.items()
    ]
