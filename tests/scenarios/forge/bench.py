"""Benchmarks: nccl-tests (format: 2.17)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Sequence
from random import Random

from .cluster import Cluster, Host


def all_reduce(cluster: Cluster, hosts: Sequence[Host], rng: Random, *, peak: float) -> list[str]:
    """`all_reduce_perf` from 1 MiB to 16 GiB; `peak` is the bus bandwidth at the end, GB/s."""
    lines = [
        "# nccl-tests version 2.17.4 nccl-headers=22707 nccl-library=22707",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#", "# Using devices",
    ]  # fmt: skip
    ranks = sum(len(h.ranks) for h in hosts)
    number = 0
    for host in hosts:
        for local, gpu in enumerate(host.gpus):
            lines.append(
                f"#  Rank {number:2d} Group  0 Pid {host.pids[local] + 900:6d} on {host.name} device {local:2d} [0000:{gpu.bus}:00] {cluster.gpu}"
            )
            number += 1
    lines += [
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    seen: list[float] = []
    factor = 2 * (ranks - 1) / ranks
    size = 1 << 20
    while size <= 1 << 34:
        row = f"{size:12d}  {size // 4:12d}     float     sum      -1"
        for _ in range(2):
            bus = peak * size / (size + 2.2e8) * (1 + 2.2e8 / (1 << 34)) * rng.uniform(0.997, 1.003)
            seconds = size * factor / (bus * 1e9)
            row += f"  {seconds * 1e6:8.1f}  {size / seconds / 1e9:6.2f}  {bus:6.2f}      0"
            seen.append(bus)
        lines.append(row)
        size *= 2
    return [*lines, "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(seen) / len(seen):.3f} ", "#",
            "# Collective test concluded: all_reduce_perf", "#"]  # fmt: skip


def write_bw(host: Host, peer: Host, device: str, rng: Random, *, gbps: float, link: str = "IB") -> list[str]:
    """Client side of `ib_write_bw -D 10 --report_gbits` (format: perftest 6)."""
    return [
        f"$ ib_write_bw -d {device} -s 1048576 -D 10 -F --report_gbits {peer.name}",
        "-" * 87, "                    RDMA_Write BW Test", f" Dual-port       : OFF\t\tDevice         : {device}",
        " Number of qps   : 4\t\tTransport type : IB", " Connection type : RC\t\tUsing SRQ      : OFF", " PCIe relax order: ON",
        " TX depth        : 128", " CQ Moderation   : 1", " Mtu             : 4096[B]",
        f" Link type       : {'IB' if link == 'IB' else 'Ethernet'}", " Max inline data : 0[B]", " rdma_cm QPs\t : OFF",
        " Data ex. method : Ethernet", "-" * 87,
        f" local address: LID 0x{20 + host.index:02x} QPN 0x0011 PSN 0x{rng.getrandbits(24):06x} RKey 0x00022c VAddr 0x0055c82ad94000",
        f" remote address: LID 0x{20 + peer.index:02x} QPN 0x0012 PSN 0x{rng.getrandbits(24):06x} RKey 0x000383 VAddr 0x00562cc0b03000",
        "-" * 87, " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
        f" 1048576    {int(gbps * 598):<14d} 0.00               {gbps:<18.2f}   {gbps / 8388.608:.6f}", "-" * 87,
    ]  # fmt: skip


def nvbandwidth(cluster: Cluster, host: Host, values: Sequence[float], rng: Random) -> list[str]:
    """nvbandwidth 0.6: host to GPU, and the copy inside each GPU, whose figures are `values` (GB/s)."""
    head = "".join(f"{n:10d}" for n in range(len(values)))
    h2d = [rng.uniform(55.1, 55.5) for _ in values]

    def matrix(name: str, title: str, numbers: Sequence[float]) -> list[str]:
        return [
            f"Running {name}.", f"{title} bandwidth (GB/s)", "  " + head,
            " 0" + "".join(f"{v:10.2f}" for v in numbers), "", f"SUM {name} {sum(numbers):.2f}", "",
        ]  # fmt: skip

    return [
        "nvbandwidth Version: v0.6", "Built from Git version: v0.6", "", "CUDA Runtime Version: 12090",
        "CUDA Driver Version: 12090", "Driver Version: 575.57.08", "",
        *(f"Device {g.index}: {cluster.gpu} (00000000:{g.bus}:00)" for g in host.gpus), "",
        *matrix("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column)", h2d),
        *matrix("device_local_copy", "memcpy local GPU(column)", values),
    ]  # fmt: skip
