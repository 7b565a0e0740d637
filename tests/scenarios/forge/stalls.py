"""Stalled jobs: who is missing, late, crashed, different, and who cannot be named."""

from __future__ import annotations

from random import Random

from . import torchlog
from .cluster import Cluster, build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl

ENV = {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_TIMEOUT": "22"}


def logs(bundle: Bundle, cluster: Cluster, rng: Random, started: float) -> dict[str, list[str]]:
    """The beginning of every host's training output: torchrun, NCCL, some steps."""
    nccl = Nccl(cluster, env=ENV)
    return {
        host.name: [
            *torchlog.header(started, cluster, host),
            *nccl.start(host, rng),
            *(torchlog.steps(started + 120, rng, 8, 4100) if host.index == len(cluster.hosts) - 1 else []),
        ]
        for host in cluster.hosts
    }


def store(bundle: Bundle, texts: dict[str, list[str]]) -> dict[str, str]:
    """Add the output of every host; returns its path by host."""
    return {
        name: bundle.add(f"{name}/job/torchrun.log", lines, host=name, command="cat /var/log/jobs/torchrun.log")
        for name, lines in texts.items()
    }


@scenario("stall-missing-rank")
def missing_rank(rng: Random, swapped: bool) -> Scenario:
    """One process is killed from outside; the other host waits for it until its watchdogs fire."""
    names = ("heron-07", "heron-12")
    cluster = build(rng, names)
    started, killed = epoch("2026-05-12 02:40:11"), epoch("2026-05-12 03:04:02")
    fired = killed + 607
    lost = 3 if swapped else 13
    work = torchlog.Collective(seq=48213)
    bundle = Bundle(fired + 90)
    texts = logs(bundle, cluster, rng, started)
    guilty = cluster.host_of(lost)
    for host in cluster.hosts:
        if host is guilty:
            texts[host.name] += torchlog.elastic_end(killed, host, lost, -9)
            continue
        for rank in host.ranks:
            texts[host.name] += torchlog.timed_out(fired, rank, work)
        texts[host.name] += torchlog.elastic_end(fired + 3, host, host.ranks[2], -6, host.ranks[3:5])
    paths = store(bundle, texts)
    bundle.add("job/slurm-81244.out", torchlog.slurm_end(81244, {h.name: (h.index, 1) for h in cluster.hosts}),
               command="cat slurm-81244.out")  # fmt: skip
    surround(bundle, cluster, rng)
    there = paths[guilty.name]
    others = next(h for h in cluster.hosts if h is not guilty)
    rule = "stall/missing-rank-crashed"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=["rdma/*", "link/*", "gpu/*", "clock/*", "host/*"],
        subjects={rule: {"rank": [str(lost)], "host": [guilty.name]}},
        evidence={rule: [
            bundle.at(there, "exitcode  : -9"), bundle.at(paths[others.name], "Watchdog caught collective operation timeout"),
        ]},
        first=[[f"rank {lost}", guilty.name], [there + ":", "-9|SIGKILL"], [guilty.name]],
        never=[others.name],
    ))  # fmt: skip
