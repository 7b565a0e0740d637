"""Stalled jobs: who is missing, late, crashed, different, and who cannot be named."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from . import nics, torchlog
from .cluster import Cluster, Host, build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl
from .torchlog import Collective

ENV = {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_TIMEOUT": "22"}
NETWORK_AND_HOSTS = ["rdma/*", "link/*", "gpu/*", "clock/*", "host/*", "topo/*", "fabric/*"]


def logs(cluster: Cluster, rng: Random, started: float) -> dict[str, list[str]]:
    """The beginning of every host's training output: torchrun, NCCL, some steps on the last host."""
    nccl = Nccl(cluster, env=ENV)
    return {
        host.name: [
            *torchlog.header(started, cluster, host),
            *nccl.start(host, rng),
            *(torchlog.steps(started + 120, rng, 8, 4100) if host.index == len(cluster.hosts) - 1 else []),
        ]
        for host in cluster.hosts
    }


def store(bundle: Bundle, texts: Mapping[str, list[str]]) -> dict[str, str]:
    """Add the output of every host; returns its path by host."""
    return {
        name: bundle.add(f"{name}/job/torchrun.log", lines, host=name, command="cat /var/log/jobs/torchrun.log")
        for name, lines in texts.items()
    }


def waiting(text: list[str], host: Host, at: float, work: Collective, ranks: Iterable[int] | None = None) -> None:
    """Append the time-outs of the ranks of a host, and the end of its agent."""
    own = list(host.ranks if ranks is None else ranks)
    for rank in own:
        text += torchlog.timed_out(at, rank, work)
    text += torchlog.elastic_end(at + 3, host, own[0], -6, own[1:3])


def end_of_job(bundle: Bundle, cluster: Cluster, job: int) -> None:
    """What srun says when all agents have failed."""
    codes = {h.name: (h.index, 1) for h in cluster.hosts}
    bundle.add(f"job/slurm-{job}.out", torchlog.slurm_end(job, codes), command=f"cat slurm-{job}.out")


def missing(
    bundle: Bundle, cluster: Cluster, rng: Random, lost: int, *, work: Collective, started: float, killed: float,
    dmesg: Mapping[str, Sequence[tuple[float, str]]] | None = None, offsets_us: Mapping[str, float] | None = None,
    skip: Sequence[str] = (),
) -> dict[str, str]:  # fmt: skip
    """A rank that was killed and the others that wait; returns the path of every host's output."""
    texts = logs(cluster, rng, started)
    guilty = cluster.host_of(lost)
    for host in cluster.hosts:
        if host is guilty:
            texts[host.name] += torchlog.elastic_end(killed, host, lost, -9)
        else:
            waiting(texts[host.name], host, killed + 607, work)
    paths = store(bundle, texts)
    end_of_job(bundle, cluster, 81244 + cluster.hosts[0].pids[0] % 997)
    surround(bundle, cluster, rng, dmesg=dmesg, offsets_us=offsets_us, skip=skip)
    return paths


def missing_truth(bundle: Bundle, cluster: Cluster, paths: Mapping[str, str], lost: int) -> Truth:
    """What is to be said of `missing`."""
    rule, guilty = "stall/missing-rank-crashed", cluster.host_of(lost)
    others = [h.name for h in cluster.hosts if h is not guilty]
    there = paths[guilty.name]
    return Truth(
        roots=[rule],
        absent=NETWORK_AND_HOSTS,
        subjects={rule: {"rank": [str(lost)], "host": [guilty.name]}},
        evidence={rule: [
            bundle.at(there, "exitcode  : -9"), bundle.at(paths[others[0]], "Watchdog caught collective operation timeout"),
        ]},
        first=[[f"rank {lost} ", guilty.name], [bundle.at(there, "exitcode  : -9")], [f"on {guilty.name}"]],
        never=others,
    )  # fmt: skip


@scenario("stall-missing-rank")
def missing_rank(rng: Random, swapped: bool) -> Scenario:
    """One process is killed from outside; the other host waits for it until its watchdogs fire."""
    cluster = build(rng, ("heron-07", "heron-12"))
    started, killed = epoch("2026-05-12 02:40:11"), epoch("2026-05-12 03:04:02")
    lost = 3 if swapped else 13
    bundle = Bundle(killed + 700)
    paths = missing(bundle, cluster, rng, lost, work=Collective(seq=48213), started=started, killed=killed)
    return Scenario(bundle, missing_truth(bundle, cluster, paths, lost))


@scenario("stall-late-rank")
def late_rank(rng: Random, swapped: bool) -> Scenario:
    """One rank sits in its data loader while the others wait; stacks of it and of a waiting rank are there."""
    cluster = build(rng, ("wren-a03", "wren-a04"), 4)
    started, fired = epoch("2026-03-19 20:02:40"), epoch("2026-03-19 21:30:08")
    late = 1 if swapped else 6
    witness = 5 if swapped else 2
    work = Collective(seq=9127, numel_in=67108864, numel_out=67108864)
    bundle = Bundle(fired - 240)
    texts = logs(cluster, rng, started)
    for host in cluster.hosts:
        text = texts[host.name]
        for rank in host.ranks:
            if rank == late:
                text += torchlog.behind(fired, rank, work.seq - 1, (late + 1) % cluster.world)
            else:
                text += torchlog.timed_out(fired, rank, work)
        text += torchlog.elastic_end(fired + 3, host, next(r for r in host.ranks if r != late), -6)
    paths = store(bundle, texts)
    stacks = {}
    for rank, frames in ((late, torchlog.IN_LOADER), (witness, torchlog.IN_COLLECTIVE)):
        host = cluster.host_of(rank)
        pid = cluster.pid_of(rank)
        stacks[rank] = bundle.add(
            f"{host.name}/python/py-spy.rank{rank}.txt", torchlog.stack(pid, frames, active=rank != late), host=host.name,
            command=f"py-spy dump --nonblocking --pid {pid}",
        )  # fmt: skip
    quiet_fabric(bundle, cluster, rng)
    surround(bundle, cluster, rng)
    rule, guilty = "stall/rank-blocked-in-host-code", cluster.host_of(late)
    return Scenario(bundle, Truth(
        roots=[rule],
        may=["storage/dataloader-starvation"],
        absent=NETWORK_AND_HOSTS,
        subjects={rule: {"rank": [str(late)], "host": [guilty.name]}},
        evidence={rule: [bundle.at(paths[guilty.name], "Last enqueued NCCL work: 9126"),
                         bundle.at(stacks[late], "__next__")]},
        first=[[f"rank {late} ", guilty.name], [bundle.at(paths[guilty.name], "Received a dump signal")], [guilty.name]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


def quiet_fabric(
    bundle: Bundle, cluster: Cluster, rng: Random, *, seconds: float = 30, **changed: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, int], str]:
    """RDMA counters of every host, twice; `changed` as counter -> host -> … adds what moved: `local_ack_timeout_err={host: {device: 40}}`."""
    paths: dict[tuple[str, int], str] = {}
    for host in cluster.hosts:
        before = nics.ib_counters(host, rng)
        own = {name: hosts.get(host.name, {}) for name, hosts in changed.items()}
        after = nics.later(before, rng, seconds=seconds, **own)
        for number, table in ((1, before), (2, after)):
            paths[host.name, number] = bundle.add(
                f"{host.name}/rdma/ib-counters.{number}.txt", nics.grep_counters(table), host=host.name, snapshot=number,
                at=20 + seconds * (number - 1), command="grep -H . /sys/class/infiniband/*/ports/*/{counters,hw_counters}/*",
            )  # fmt: skip
    return paths


@scenario("stall-crashed-rank")
def crashed_rank(rng: Random, swapped: bool) -> Scenario:
    """One rank ends with an exception of its own; the others find their connections closed or time out."""
    cluster = build(rng, ("tern-n21", "tern-n22", "tern-n23"), 4)
    started, crashed = epoch("2026-07-02 11:15:00"), epoch("2026-07-02 12:41:33")
    lost = 2 if swapped else 9
    guilty = cluster.host_of(lost)
    work = Collective(seq=23011, op="_ALLGATHER_BASE", numel_in=4194304, numel_out=50331648)
    bundle = Bundle(crashed + 800)
    texts = logs(cluster, rng, started)
    frames = [
        ("/srv/train/pretrain.py", 311, "<module>", "main()"),
        ("/srv/train/pretrain.py", 118, "next_batch", "batch = self.collate(next(self.shards))"),
        ("/srv/train/data/collate.py", 57, "collate", "tokens = sample['tokens'][: self.length]"),
    ]
    for host in cluster.hosts:
        if host is guilty:
            texts[host.name] += torchlog.traceback_of(lost, "KeyError: 'tokens'", frames)
            texts[host.name] += torchlog.elastic_end(crashed + 2, host, lost, 1)
        else:
            waiting(texts[host.name], host, crashed + 605, work)
    paths = store(bundle, texts)
    end_of_job(bundle, cluster, 77120)
    surround(bundle, cluster, rng)
    rule = "stall/missing-rank-crashed"
    there = paths[guilty.name]
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=NETWORK_AND_HOSTS,
        subjects={rule: {"rank": [str(lost)], "host": [guilty.name]}},
        evidence={rule: [bundle.at(there, "KeyError: 'tokens'")]},
        first=[[f"rank {lost} ", guilty.name], [bundle.at(there, "KeyError: 'tokens'")], [guilty.name]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("stall-mismatch")
def mismatch(rng: Random, swapped: bool) -> Scenario:
    """At one number of one group a rank runs another collective than the others."""
    cluster = build(rng, ("ibis-01", "ibis-02"), 4)
    started, fired = epoch("2026-02-11 08:00:31"), epoch("2026-02-11 09:11:50")
    odd = 0 if swapped else 5
    work = Collective(seq=771, numel_in=262144, numel_out=262144)
    other = (
        Collective(seq=771, op="BROADCAST", numel_in=16, numel_out=16) if swapped
        else Collective(seq=771, numel_in=131072, numel_out=131072)
    )  # fmt: skip
    bundle = Bundle(fired + 60)
    texts = logs(cluster, rng, started)
    for host in cluster.hosts:
        for rank in host.ranks:
            texts[host.name] += torchlog.timed_out(fired, rank, other if rank == odd else work)
        texts[host.name] += torchlog.elastic_end(fired + 3, host, host.ranks.start, -6)
    paths = store(bundle, texts)
    quiet_fabric(bundle, cluster, rng)
    surround(bundle, cluster, rng)
    rule, guilty = "stall/collective-mismatch", cluster.host_of(odd)
    there = bundle.at(paths[guilty.name], f"[Rank {odd}] Watchdog caught")
    said = "BROADCAST" if swapped else "131072"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*NETWORK_AND_HOSTS, "stall/undetermined", "stall/inflight-network"],
        evidence={rule: [there]},
        first=[[f"rank {odd} on {guilty.name}"], [there, said], ["torchfrtrace|next"]],
        subjects={rule: {"rank": [str(odd)]}},
    ))  # fmt: skip


@scenario("stall-inflight-network")
def inflight_network(rng: Random, swapped: bool) -> Scenario:
    """Every rank is in the collective; one NIC lost its port, its peers retry until the verbs give up."""
    cluster = build(rng, ("gull-r11", "gull-r12", "gull-r14", "gull-r15"), 4)
    started, lost = epoch("2026-08-20 13:50:02"), epoch("2026-08-20 15:20:44")
    guilty = cluster.hosts[0 if swapped else 2]
    rail = 3 if swapped else 1
    nic = guilty.fabric()[rail]
    work = Collective(seq=130551, numel_in=201326592, numel_out=201326592)
    bundle = Bundle(lost + 640)
    texts = logs(cluster, rng, started)
    nccl = Nccl(cluster)
    victim = guilty.ranks[rail]
    texts[guilty.name] += nccl.warn(
        victim, f"NET/IB : {nic.device}:1 Got async error event: port error", "transport/net_ib.cc:128"
    )
    reporters: list[Host] = []
    for host in cluster.hosts:
        if host is not guilty:
            reporters.append(host)
            peer = f"{guilty.ip}<{rng.randrange(40000, 60000)}>"
            texts[host.name] += nccl.warn(
                host.ranks[rail], f"NET/IB: Got completion from peer {peer} with status=12 opcode=0 len=0 vendor err 129 (Send)"
                f" localGid fe80::{host.index + 1}:{rail} remoteGids fe80::{guilty.index + 1}:{rail} hca {nic.device}",
                "transport/net_ib.cc:2243",
            )  # fmt: skip
    for host in cluster.hosts:
        waiting(texts[host.name], host, lost + 601, work)
    paths = store(bundle, texts)
    moved = {h.name: {nic.device: 60 + 7 * h.index} for h in reporters}
    quiet_fabric(bundle, cluster, rng, local_ack_timeout_err=moved)
    down = (lost - 1, f"mlx5_core 0000:{nic.bus}:00.0 {nic.netdev}: Link down")
    surround(bundle, cluster, rng, dmesg={guilty.name: [down]})
    rule = "link/down"
    there = bundle.at(paths[guilty.name], "Got async error event: port error")
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["rdma/retry-exceeded", "stall/inflight-network"],
        may=["link/down-in-kernel-log", "rdma/ack-timeouts", "stall/link-down-meanwhile", "stall/undetermined"],
        absent=["gpu/*", "clock/*", "host/*", "stall/missing-rank-crashed"],
        subjects={rule: {"host": [guilty.name], "nic": [nic.device]}},
        evidence={rule: [there, bundle.at(f"{guilty.name}/kernel/dmesg-T.txt", "Link down")]},
        first=[[guilty.name, nic.device], [there], [guilty.name]],
        never=[h.name for h in reporters],
    ))  # fmt: skip


@scenario("stall-gpu-hung")
def gpu_hung(rng: Random, swapped: bool) -> Scenario:
    """Every rank waits because the firmware processor of one GPU no longer answers."""
    cluster = build(rng, ("stork-101", "stork-102"))
    started, hung = epoch("2026-09-01 04:00:00"), epoch("2026-09-01 06:22:17")
    guilty = cluster.hosts[1 if swapped else 0]
    gpu = guilty.gpus[2 if swapped else 5]
    work = Collective(seq=64402)
    bundle = Bundle(hung + 700)
    texts = logs(cluster, rng, started)
    for host in cluster.hosts:
        waiting(texts[host.name], host, hung + 630, work)
    store(bundle, texts)
    where = f"PCI:0000:{gpu.bus}:00"
    pid = guilty.pids[gpu.index]
    said = [
        (hung, f"NVRM: GPU at {where}: {gpu.uuid}"),
        (hung, f"NVRM: Xid ({where}): 119, pid={pid}, name=python3, Timeout after 45s of waiting for RPC response from GPU{gpu.index} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x8)."),
        (hung + 45, f"NVRM: Xid ({where}): 119, pid={pid}, name=python3, Timeout after 45s of waiting for RPC response from GPU{gpu.index} GSP! Expected function 10 (FREE) (0xa55a0090 0x0)."),
        (hung + 46, f"NVRM: Rate limiting GSP RPC error prints for GPU at {where} (printing 1 of every 30).  The GPU likely needs to be reset."),
    ]  # fmt: skip
    quiet_fabric(bundle, cluster, rng)
    surround(bundle, cluster, rng, dmesg={guilty.name: said}, skip=["gpus"])
    rule = "gpu/gsp-or-internal-timeout"
    there = bundle.at(f"{guilty.name}/kernel/dmesg-T.txt", ": 119, pid=")
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["stall/gpu-kernel-hung"],
        may=["stall/undetermined"],
        absent=["rdma/*", "link/*", "clock/*", "stall/missing-rank-crashed"],
        subjects={rule: {"host": [guilty.name], "gpu": [f"0000:{gpu.bus}:00"]}},
        evidence={rule: [there]},
        first=[[guilty.name, f"{gpu.bus}:00"], [there, "119"], [guilty.name]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("stall-undetermined")
def undetermined(rng: Random, swapped: bool) -> Scenario:
    """Four of sixteen ranks' logs: they wait, and nobody can say for whom."""
    cluster = build(rng, ("crake-31", "crake-32", "crake-33", "crake-34"), 4)
    started, fired = epoch("2026-04-05 17:00:12"), epoch("2026-04-05 18:44:00")
    shown = cluster.hosts[2 if swapped else 1]
    work = Collective(seq=3390, op="_REDUCE_SCATTER_BASE", numel_in=33554432, numel_out=2097152)
    bundle = Bundle(fired + 60)
    text = logs(cluster, rng, started)[shown.name]
    waiting(text, shown, fired, work)
    paths = store(bundle, {shown.name: text})
    known = Cluster([shown], cluster.gpu, cluster.memory)
    surround(bundle, known, rng)
    for host in cluster.hosts:
        if host is not shown:
            bundle.absent.append(
                {"what": "/var/log/jobs/torchrun.log", "host": host.name, "reason": "host did not answer within 10 s"}
            )
    rule = "stall/undetermined"
    ranks = f"{shown.ranks.start}-{shown.ranks.stop - 1}"
    there = bundle.at(paths[shown.name], "Watchdog caught")
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*NETWORK_AND_HOSTS, "stall/missing-rank-crashed", "stall/rank-blocked-in-host-code", "stall/inflight-network"],
        subjects={rule: {"rank": [ranks]}},
        evidence={rule: [there]},
        first=[["cannot tell|cannot say|cannot decide", ranks], [there], []],
        asks=["py-spy", "ncclras"],
    ))  # fmt: skip
