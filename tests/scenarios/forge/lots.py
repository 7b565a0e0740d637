"""Differences between hardware lots, and differences that only look like one."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from . import bench, gpus, nics
from .cluster import Cluster, Host, build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario

OLD, NEW = "96.00.74.00.11", "96.00.A5.00.03"
OTHERS = ["stall/*", "link/*", "rdma/*", "clock/*", "topo/*", "lossless/*", "host/*"]


def measured(
    bundle: Bundle, cluster: Cluster, rng: Random, *, slower: Callable[[Host, int | None], float], lots: Mapping[str, str],
    firmware: Mapping[str, str] | None = None, benchmarks: bool = True,
) -> None:  # fmt: skip
    """Inventory and figures of every host; `slower` gives the loss of a host (None) or GPU as a share."""
    for host in cluster.hosts:
        name = host.name
        for gpu in host.gpus:
            gpu.vbios = lots[name]
        for nic in host.nics:
            nic.firmware = (firmware or {}).get(name, nic.firmware)
    for host in cluster.hosts:
        name = host.name
        bundle.add(f"{name}/rdma/ibstat.txt", nics.ibstat(host), host=name, command="ibstat")
        if host.index == 0:
            bundle.add(
                f"{name}/gpu/nvidia-smi-q.txt",
                gpus.full(cluster, host, rng, bundle.start),
                host=name,
                command="nvidia-smi -q",
            )
        if not benchmarks:
            continue
        values = [2610.0 * (1 - slower(host, g.index)) * rng.uniform(0.996, 1.004) for g in host.gpus]
        bundle.add(
            f"{name}/bench/nvbandwidth.txt",
            bench.nvbandwidth(cluster, host, values, rng),
            host=name,
            command="nvbandwidth",
        )
        peak = 476.0 * (1 - slower(host, None)) * rng.uniform(0.996, 1.004)
        bundle.add(f"{name}/bench/all_reduce_perf.txt", bench.all_reduce(cluster, [host], rng, peak=peak), host=name,
                   command="all_reduce_perf -b 1M -e 16G -f 2 -g 1")  # fmt: skip
        peer = cluster.hosts[(host.index + 1) % len(cluster.hosts)]
        bundle.add(f"{name}/bench/ib_write_bw.txt", bench.write_bw(host, peer, "mlx5_0", rng, gbps=rng.uniform(390.5, 393.5)),
                   host=name, command="ib_write_bw")  # fmt: skip
    surround(bundle, cluster, rng)


def racked(rng: Random, racks: Sequence[str]) -> Cluster:
    """Hosts named after their racks: `knot-r01-n03`."""
    return build(rng, [f"knot-{rack}-n{n + 2:02d}" for n, rack in enumerate(racks)], rails=2, subnet="10.60.3")


def lot_of(cluster: Cluster, members: Sequence[Host], own: str, rest: str) -> dict[str, str]:
    """VBIOS by host."""
    return {h.name: own if h in members else rest for h in cluster.hosts}


@scenario("lot-variance")
def variance(rng: Random, swapped: bool) -> Scenario:
    """Hosts of one VBIOS lot are nine per cent slower, in every rack and whatever else they have."""
    cluster = racked(rng, ("r01", "r02", "r01", "r02", "r03", "r03"))
    slow = [cluster.hosts[n] for n in ((0, 3, 5) if swapped else (1, 2, 4))]
    own, rest = (NEW, OLD) if swapped else (OLD, NEW)
    bundle = Bundle(epoch("2026-04-14 12:00:00"))
    measured(
        bundle,
        cluster,
        rng,
        slower=lambda host, gpu: 0.092 if host in slow else 0.0,
        lots=lot_of(cluster, slow, own, rest),
    )
    rule = "gpu/batch-variance"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*OTHERS, "perf/*", "gpu/lot-confounded"],
        subjects={rule: {"lot": [own]}},
        evidence={rule: [bundle.at(f"{h.name}/bench/all_reduce_perf.txt", " 17179869184    4294967296") for h in slow]},
        first=[[own], ["/bench/"], ["next"]],
        never=[rest],
    ))  # fmt: skip


@scenario("lot-is-a-rack")
def rack(rng: Random, swapped: bool) -> Scenario:
    """The slow lot stands in one rack: nothing tells the one from the other."""
    cluster = racked(rng, ("r07", "r07", "r07", "r09", "r09", "r09"))
    slow = cluster.hosts[3:] if swapped else cluster.hosts[:3]
    own, rest = (NEW, OLD) if swapped else (OLD, NEW)
    bundle = Bundle(epoch("2026-04-15 12:00:00"))
    measured(
        bundle,
        cluster,
        rng,
        slower=lambda host, gpu: 0.088 if host in slow else 0.0,
        lots=lot_of(cluster, slow, own, rest),
    )
    rule = "gpu/lot-confounded"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*OTHERS, "perf/*", "gpu/batch-variance"],
        subjects={rule: {"lot": [own]}},
        first=[[own], ["/bench/"], []],
        never=[rest],
        exit=0,
    ))  # fmt: skip


@scenario("lot-nic-firmware")
def nic_firmware(rng: Random, swapped: bool) -> Scenario:
    """The slow lot came with another NIC firmware."""
    cluster = racked(rng, ("r01", "r02", "r01", "r02", "r03", "r03"))
    slow = [cluster.hosts[n] for n in ((0, 3, 5) if swapped else (1, 2, 4))]
    own, rest = (NEW, OLD) if swapped else (OLD, NEW)
    bundle = Bundle(epoch("2026-04-16 12:00:00"))
    measured(bundle, cluster, rng, slower=lambda host, gpu: 0.07 if host in slow else 0.0, lots=lot_of(cluster, slow, own, rest),
             firmware={h.name: "28.36.1010" for h in slow})  # fmt: skip
    rule = "gpu/lot-confounded"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*OTHERS, "perf/*", "gpu/batch-variance"],
        subjects={rule: {"lot": [own]}},
        first=[[own], ["/bench/"], []],
        never=[rest],
        exit=0,
    ))  # fmt: skip


@scenario("lot-one-slow-gpu")
def one_slow_gpu(rng: Random, swapped: bool) -> Scenario:
    """One GPU is slow; its lot is not, although the lots are mixed."""
    cluster = racked(rng, ("r01", "r02", "r01", "r02", "r03", "r03"))
    guilty = cluster.hosts[4 if swapped else 2]
    index = 6 if swapped else 1
    lots = {h.name: OLD if h.index % 2 else NEW for h in cluster.hosts}
    bundle = Bundle(epoch("2026-04-17 12:00:00"))
    measured(bundle, cluster, rng, slower=lambda host, gpu: 0.14 if host is guilty and gpu == index else 0.0, lots=lots)
    rule = "perf/straggler-node"
    there = bundle.at(f"{guilty.name}/bench/nvbandwidth.txt", " 0   2", after="device_local_copy")
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*OTHERS, "gpu/*"],
        subjects={rule: {"host": [guilty.name], "gpu": [f"GPU{index}"]}},
        evidence={rule: [there]},
        first=[[guilty.name, f"GPU{index}"], [there], [guilty.name]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("lot-inventory-only")
def inventory_only(rng: Random, swapped: bool) -> Scenario:
    """Two lots in one job, and nothing was measured: nobody is to be blamed."""
    cluster = racked(rng, ("r01", "r02", "r01", "r02", "r03", "r03"))
    own, rest = (NEW, OLD) if swapped else (OLD, NEW)
    bundle = Bundle(epoch("2026-04-18 12:00:00"))
    measured(
        bundle,
        cluster,
        rng,
        slower=lambda host, gpu: 0.0,
        lots=lot_of(cluster, cluster.hosts[1:4], own, rest),
        benchmarks=False,
    )
    return Scenario(bundle, Truth(absent=["gpu/*", "perf/*"], exit=0))
