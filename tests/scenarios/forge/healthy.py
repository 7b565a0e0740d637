"""Jobs with nothing wrong and much that looks wrong."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from random import Random

from . import bench, gpus, lossless, nics, overlays, pods, roce, torchlog
from .cluster import Host, Nic, build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl


@scenario("healthy-ib-h100-nvls")
def ib_h100(rng: Random, swapped: bool) -> Scenario:
    """Two H100 hosts on InfiniBand with NVLS and storage NICs beside, after a run that ended well."""
    cluster = build(rng, ("plover-r02-n03", "plover-r02-n04"), storage=True)
    start = epoch("2026-06-18 09:12:00")
    bundle = Bundle(start)
    env = {
        "NCCL_SOCKET_IFNAME": "=bond0", "NCCL_IB_TIMEOUT": "22",
        "NCCL_TOPO_DUMP_FILE": "/scratch/timeout-error-survey/topo.xml",
    }  # fmt: skip
    nccl = Nccl(cluster, env=env, nvls=True)
    began = start - 40 * 3600
    for host in cluster.hosts:
        name = host.name
        bundle.add(f"job/nccl.{name}.log", [*nccl.start(host, rng), *nccl.destroyed(host, rng)], host=name)
        bundle.add(f"{name}/gpu/nvidia-smi-topo-m.txt", gpus.topology(host, underlined=host.index == 1), host=name,
                   command="nvidia-smi topo -m")  # fmt: skip
        bundle.add(f"{name}/rdma/ibstat.txt", nics.ibstat(host), host=name, command="ibstat")
        before = nics.ib_counters(host, rng)
        after = nics.later(before, rng, seconds=30)
        for number, table in ((1, before), (2, after)):
            at = 10.0 if number == 1 else 40.0
            bundle.add(f"{name}/rdma/ib-counters.{number}.txt", nics.grep_counters(table), host=name, at=at, snapshot=number,
                       command="grep -H . /sys/class/infiniband/*/ports/*/{counters,hw_counters}/*")  # fmt: skip
    one = cluster.hosts[0]
    bundle.add(f"{one.name}/gpu/nvidia-smi-q.txt", gpus.full(cluster, one, rng, start, corrected={3: 2}), host=one.name,
               command="nvidia-smi -q")  # fmt: skip
    bundle.add(
        "job/all_reduce_perf-1node.txt",
        bench.all_reduce(cluster, cluster.hosts[:1], rng, peak=478.0),
        command="all_reduce_perf -b 8 -e 16G -f 2 -g 1",
    )
    bundle.add("job/train-survey.out", [
        *torchlog.header(began, cluster, one), *torchlog.steps(began + 300, rng, 60, 10),
        "[after training is done] datetime: 2026-06-18 08:57:51 ",
        f"[rank0]:{torchlog.glog('W', start - 900, 'ProcessGroupNCCL.cpp:1524')} Warning: WARNING: destroy_process_group() was not"
        " called before program exit, which can leak resources. For more info, please see"
        " https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())",
    ])  # fmt: skip
    surround(bundle, cluster, rng)
    return Scenario(bundle, Truth(exit=0))


@scenario("healthy-roce-a100")
def roce_a100(rng: Random, swapped: bool) -> Scenario:
    """Four A100 hosts on RoCE at work: flow control acts a little, as it should, and counters are not zero."""
    cluster = lossless.hosts(rng, ("whimbrel-11", "whimbrel-12", "whimbrel-13", "whimbrel-14"))
    bundle = Bundle(epoch("2026-11-19 14:05:00"))

    def moving(host: Host, nic: Nic) -> dict[str, object]:
        return {"rx_pause": {3: rng.uniform(0.001, 0.006)}, "tx_pause": {3: rng.uniform(0.0, 0.002)}}

    lossless.fabric(bundle, cluster, rng, moving=moving)
    for host in cluster.hosts:
        for nic in host.fabric():
            marks = rng.randrange(500000, 520000)
            for number in (1, 2):
                more = 41 * (number - 1)
                counted = roce.hw_counters(
                    nic, Random(f"{host.name}{nic.device}"), packet_seq_err=17, out_of_sequence=212, roce_adp_retrans=3,
                    np_cnp_sent=marks + more, np_ecn_marked_roce_packets=marks + more,
                )  # fmt: skip
                bundle.add(f"{host.name}/rdma/hw_counters.{nic.device}.t{number - 1}.txt", counted, host=host.name, snapshot=number,
                           at=20 + 30 * (number - 1), command=f"grep -H . /sys/class/infiniband/{nic.device}/ports/1/hw_counters/*")  # fmt: skip
    one = cluster.hosts[0]
    bundle.add(f"{one.name}/net/ethtool-g.ens1np0.txt", [
        "Ring parameters for ens1np0:", "Pre-set maximums:", "RX:\t\t8192", "RX Mini:\tn/a", "RX Jumbo:\tn/a", "TX:\t\t8192",
        "Current hardware settings:", "RX:\t\t1024", "RX Mini:\tn/a", "RX Jumbo:\tn/a", "TX:\t\t1024",
    ], host=one.name, command="ethtool -g ens1np0")  # fmt: skip
    bundle.add(f"{one.name}/clock/journal-ptp4l.txt", [
        f"ptp4l[{81000 + n}.110]: master offset {rng.randrange(-45, 46):10d} s2 freq  -{1100 + n} path delay       {rng.randrange(300, 306)}"
        for n in range(20)
    ], host=one.name, command="journalctl -u ptp4l")  # fmt: skip
    return Scenario(bundle, Truth(exit=0))


def cloud_nic(rng: Random, seconds: float) -> tuple[list[str], list[str]]:
    """`ethtool -S` of a cloud NIC (ena), twice: no allowance was exceeded in between, though some were long ago."""
    before = {
        "tx_timeout": 0, "wd_expired": 0, "interface_up": 1, "interface_down": 0, "admin_q_pause": 0,
        "bw_in_allowance_exceeded": 12, "bw_out_allowance_exceeded": 903, "pps_allowance_exceeded": 0,
        "conntrack_allowance_exceeded": 0, "linklocal_allowance_exceeded": 0, "queue_0_tx_cnt": rng.randrange(10**8, 10**9),
        "queue_0_tx_bytes": rng.randrange(10**12, 10**13), "queue_0_rx_cnt": rng.randrange(10**8, 10**9),
        "queue_0_rx_bytes": rng.randrange(10**12, 10**13), "queue_0_rx_bad_csum": 4, "queue_0_rx_page_alloc_fail": 0,
    }  # fmt: skip
    moved = int(6e9 * seconds)
    after = {
        n: v + (moved if n.endswith("bytes") else moved // 8000 if n.endswith("cnt") else 0) for n, v in before.items()
    }
    return tuple(["NIC statistics:", *(f"     {n}: {v}" for n, v in t.items())] for t in (before, after))  # type: ignore[return-value]


@scenario("healthy-tcp-cloud")
def tcp_cloud(rng: Random, swapped: bool) -> Scenario:
    """Three virtual machines without RDMA: TCP is all there is, and that is what they were ordered as."""
    cluster = build(
        rng, ("ip-10-77-1-21", "ip-10-77-1-34", "ip-10-77-1-35"), 4, model="a100", rails=0, subnet="10.77.1"
    )
    bundle = Bundle(epoch("2026-04-28 21:40:00"))
    nccl = Nccl(
        cluster,
        env={"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
        network="Socket",
        interface="ens5",
        gdr=False,
    )
    for host in cluster.hosts:
        name = host.name
        lines = [*torchlog.header(bundle.start - 4000, cluster, host), *nccl.start(host, rng),
                 *(torchlog.steps(bundle.start - 3000, rng, 25, 10, seconds=11.2) if host.index == 0 else [])]  # fmt: skip
        bundle.add(f"{name}/job/torchrun.log", lines, host=name, command="cat torchrun.log")
        for number, text in enumerate(cloud_nic(rng, 30)):
            bundle.add(
                f"{name}/net/ethtool-S.ens5.t{number}.txt",
                text,
                host=name,
                snapshot=number + 1,
                at=20 + 30 * number,
                command="ethtool -S ens5",
            )
        bundle.add(f"{name}/net/ethtool-k.ens5.txt", [
            "Features for ens5:", "rx-checksumming: on", "tx-checksumming: on", "\ttx-checksum-ipv4: on", "\ttx-checksum-ipv6: off [fixed]",
            "scatter-gather: on", "tcp-segmentation-offload: off [fixed]", "generic-segmentation-offload: on", "large-receive-offload: off [fixed]",
        ], host=name, command="ethtool -k ens5")  # fmt: skip
        bundle.add(
            f"{name}/net/ip-d-link.txt",
            pods.node_links(rng, host.ip, mtu=9001, overlay=False),
            host=name,
            command="ip -d link",
        )
        bundle.add(f"{name}/host/settings.txt", [
            f"user@{name}:~$ ulimit -l", "64", f"user@{name}:~$ cat /sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock",
            f"user@{name}:~$ cat /proc/sys/kernel/numa_balancing", "1",
        ], host=name)  # fmt: skip
    bundle.add("job/sacct.txt", [
        "JobID           JobName      State ExitCode ", "------------ ---------- ---------- -------- ",
        "5120           finetune    RUNNING      0:0 ", "5119           finetune  CANCELLED      0:0 ", "5101           finetune  COMPLETED      0:0 ",
    ], command="sacct --format=JobID,JobName,State,ExitCode")  # fmt: skip
    surround(bundle, cluster, rng, busy=True, skip=["limits"])
    return Scenario(bundle, Truth(exit=0))


@scenario("healthy-k8s-overlay-beside-rdma")
def k8s_beside_rdma(rng: Random, swapped: bool) -> Scenario:
    """Pods with RDMA devices on nodes with an overlay: restarts, drops and throttling of others, all harmless."""
    nodes = build(rng, ("kube-g21", "kube-g22", "kube-g23"), 4)
    bundle = Bundle(epoch("2026-09-29 10:00:00"))
    overlays.job(bundle, nodes, rng, network="IB", mtu=9000)
    group = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11aa.slice"
    for host in nodes.hosts:
        before = nics.ib_counters(host, rng)
        for number, table in ((1, before), (2, nics.later(before, rng, seconds=30, gbps=180))):
            bundle.add(f"{host.name}/rdma/ib-counters.{number}.txt", nics.grep_counters(table), host=host.name, snapshot=number,
                       at=20 + 30 * (number - 1), command="grep -H . /sys/class/infiniband/*/ports/*/{counters,hw_counters}/*")  # fmt: skip
            text = pods.cgroup(group, periods=0, usage=9_812_000_000 + 230_000_000 * (number - 1))
            bundle.add(f"{host.name}/cgroup/job.{number}.txt", text, host=host.name, snapshot=number, at=20 + 30 * (number - 1),
                       command=f"grep -H . /sys/fs/cgroup/{group}/{{cpu.max,cpu.stat,memory.max,memory.events}}")  # fmt: skip
    bundle.add("job/kubectl-get-pods.kube-system.txt", pods.pod_list(
        [("coredns-7c65d", "Running", "10.244.1.2", "kube-g21"), ("flannel-x2k9p", "Running", "10.88.4.20", "kube-g21"),
         ("fluent-bit-q8z", "Running", "10.244.2.9", "kube-g22"), ("prepull-8l2m", "Completed", "10.244.3.3", "kube-g23")],
        restarts=("0", "2 (31d ago)", "5 (9d ago)", "0")), command="kubectl get pods -n kube-system -o wide")  # fmt: skip
    return Scenario(bundle, Truth(exit=0))
