"""Hosts that starve, kill or misroute a job."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from random import Random

from . import pods, stalls, torchlog
from .cluster import build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl
from .torchlog import Collective


@scenario("host-throttled")
def throttled(rng: Random, swapped: bool) -> Scenario:
    """A CPU quota throttles the job on one host; another one was throttled weeks ago and is not now."""
    cluster = build(rng, ("siskin-1", "siskin-2", "siskin-3"), 4)
    guilty, decoy = (cluster.hosts[0], cluster.hosts[2]) if swapped else (cluster.hosts[1], cluster.hosts[0])
    bundle = Bundle(epoch("2026-07-21 09:00:00"))
    group = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7f31.slice"
    for host in cluster.hosts:
        periods = rng.randrange(2_000_000, 3_000_000)
        old = 1100 if host is decoy else 40 if host is guilty else 0
        for number in (1, 2):
            later = number - 1
            now = 104 * later if host is guilty else 0
            text = pods.cgroup(
                group, quota="800000 100000" if host is guilty else "6400000 100000", periods=periods + 300 * later,
                throttled=old + now, throttled_usec=old * 70_000 + now * 61_000, usage=9_812_000_000 + 230_000_000 * later,
            )  # fmt: skip
            bundle.add(f"{host.name}/cgroup/cpu.{number}.txt", text, host=host.name, at=10 + 30 * later, snapshot=number,
                       command=f"grep -H . /sys/fs/cgroup/{group}/{{cpu.max,cpu.stat,memory.max,memory.events}}")  # fmt: skip
    bundle.add(
        "job/train.log", torchlog.steps(bundle.start - 900, rng, 20, 4000, seconds=6.8), command="tail -20 train.log"
    )
    surround(bundle, cluster, rng, busy=True)
    rule = "host/cfs-throttling"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=["stall/*", "link/*", "rdma/*", "gpu/*", "clock/*", "perf/*"],
        subjects={rule: {"host": [guilty.name]}},
        evidence={rule: [bundle.at(f"{guilty.name}/cgroup/cpu.2.txt", "nr_throttled")]},
        first=[[guilty.name], [f"{guilty.name}/cgroup/cpu.2.txt:"], ["next"]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("oom-killed-rank")
def oom(rng: Random, swapped: bool) -> Scenario:
    """The kernel killed a rank for lack of memory; the others wait for it."""
    cluster = build(rng, ("merlin-a1", "merlin-a2", "merlin-a4"), 4)
    started, killed = epoch("2026-10-30 00:12:00"), epoch("2026-10-30 02:51:39")
    lost = 11 if swapped else 4
    guilty = cluster.host_of(lost)
    pid = cluster.pid_of(lost)
    bundle = Bundle(killed + 700)
    group = "/system.slice/slurmstepd.scope/job_90412/step_0/user/task_1"
    said = [
        (killed - 1, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        (killed, f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_90412,mems_allowed=0-1,oom_memcg=/system.slice/slurmstepd.scope/job_90412,task_memcg={group},task=python3,pid={pid},uid=2041"),
        (killed, f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:712844112kB, anon-rss:498120344kB, file-rss:91220kB, shmem-rss:20480kB, UID:2041 pgtables:991204kB oom_score_adj:0"),
    ]  # fmt: skip
    paths = stalls.missing(bundle, cluster, rng, lost, work=Collective(seq=88017), started=started, killed=killed,
                           dmesg={guilty.name: said})  # fmt: skip
    rule = "host/oom-kill"
    there = bundle.at(f"{guilty.name}/kernel/dmesg-T.txt", "oom-kill:constraint")
    others = [h.name for h in cluster.hosts if h is not guilty]
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["stall/missing-rank-crashed"],
        absent=["rdma/*", "link/*", "gpu/*", "clock/*", "stall/undetermined"],
        subjects={rule: {"host": [guilty.name]}, "stall/missing-rank-crashed": {"rank": [str(lost)]}},
        evidence={rule: [there], "stall/missing-rank-crashed": [bundle.at(paths[guilty.name], "exitcode  : -9")]},
        first=[[guilty.name, "python3"], [f"{guilty.name}/kernel/dmesg-T.txt:"], [guilty.name]],
        never=others,
    ))  # fmt: skip


@scenario("gdr-missing")
def gdr_missing(rng: Random, swapped: bool) -> Scenario:
    """On one host NCCL finds no way to let NICs read GPU memory."""
    cluster = build(rng, ("linnet-r05-n01", "linnet-r05-n02", "linnet-r05-n04"), 4)
    guilty = cluster.hosts[2 if swapped else 0]
    bundle = Bundle(epoch("2026-08-03 19:30:00"))
    nccl = Nccl(cluster, env={"NCCL_SOCKET_IFNAME": "bond0"}, no_gdr_hosts=(guilty.name,), channels=4)
    paths = {h.name: bundle.add(f"job/nccl.{h.name}.log", nccl.start(h, rng), host=h.name) for h in cluster.hosts}
    bundle.add(
        "job/train.log", torchlog.steps(bundle.start - 900, rng, 20, 700, seconds=5.2), command="tail -20 train.log"
    )
    surround(bundle, cluster, rng, busy=True)
    rule = "gdr/not-used"
    last = guilty.ranks[-1]
    there = bundle.at(paths[guilty.name], f"Channel 00/0 : {last}[3] ->")
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["gdr/disabled-reported"],
        absent=["stall/*", "link/*", "rdma/*", "gpu/*", "clock/*", "perf/*", "init/*"],
        subjects={rule: {"host": [guilty.name]}},
        evidence={rule: [there]},
        first=[[guilty.name], [paths[guilty.name] + ":", "NET/IB"], ["next"]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip
