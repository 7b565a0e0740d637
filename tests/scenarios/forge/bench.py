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
