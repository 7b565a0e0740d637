"""RoCE fabrics whose flow control is set up wrongly, or does its work because of somebody."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from . import roce, torchlog
from .cluster import Cluster, Host, Nic, build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl

SECONDS = 30.0
INNOCENT = ["fabric/*", "link/*", "rdma/*", "gpu/*", "perf/*", "clock/*", "stall/*", "host/*"]


def fabric(
    bundle: Bundle, cluster: Cluster, rng: Random, *, priority: int = 3, env: Mapping[str, Mapping[str, str]] | None = None,
    pfc: Callable[[Host, Nic], Sequence[int]] | None = None, trust: Callable[[Host, Nic], str] | None = None,
    moving: Callable[[Host, Nic], Mapping[str, object]] | None = None, narrow: Mapping[str, Mapping[str, tuple[str, str]]] | None = None,
) -> None:  # fmt: skip
    """Everything that is read of a RoCE job: QoS, links, counters twice, PCIe, NCCL and training output, per host and NIC."""
    tc = str((priority * 8 + 2) << 2)
    usual = {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_GID_INDEX": "3", "NCCL_IB_TC": tc}
    for host in cluster.hosts:
        name = host.name
        nccl = Nccl(cluster, env=(env or {}).get(name, usual), talkative=1, version="2.26.2+cuda12.4")
        bundle.add(f"job/nccl.{name}.log", nccl.start(host, rng), host=name)
        bundle.add(f"{name}/rdma/ibdev2netdev.txt", roce.devices(host), host=name, command="ibdev2netdev")
        bundle.add(
            f"{name}/pci/lspci-vvv.txt",
            roce.lspci(host, narrow=(narrow or {}).get(name)),
            host=name,
            command="lspci -vvv",
        )
        for nic in host.fabric():
            on = pfc(host, nic) if pfc else (priority,)
            state = trust(host, nic) if trust else "dscp"
            bundle.add(
                f"{name}/qos/mlnx_qos.{nic.netdev}.txt",
                roce.qos(on, state),
                host=name,
                command=f"mlnx_qos -i {nic.netdev}",
            )
            bundle.add(
                f"{name}/net/ethtool.{nic.netdev}.txt", roce.link(nic), host=name, command=f"ethtool {nic.netdev}"
            )
            before = roce.counters(rng, priority)
            how = {"tx_priority": priority, **(moving(host, nic) if moving else {})}
            after = roce.later(before, rng, seconds=SECONDS, gbps=150.0, **how)  # type: ignore[arg-type]
            for number, table in ((0, before), (1, after)):
                bundle.add(f"{name}/net/ethtool-S.{nic.netdev}.t{number}.txt", roce.statistics(table), host=name, snapshot=number + 1,
                           at=20 + SECONDS * number, command=f"ethtool -S {nic.netdev}")  # fmt: skip
    bundle.add(
        "job/train.log", torchlog.steps(bundle.start - 900, rng, 20, 8120, seconds=3.1), command="tail -20 train.log"
    )
    surround(bundle, cluster, rng, busy=True)


def hosts(rng: Random, names: Sequence[str], *, rails: int = 2) -> Cluster:
    """A100 hosts with RoCE."""
    return build(rng, names, 4, link="RoCE", model="a100", subnet="10.91.7", rails=rails)


@scenario("pfc-wrong-priority")
def wrong_priority(rng: Random, swapped: bool) -> Scenario:
    """One host lost NCCL_IB_TC: its RDMA rides in priority 0, which nothing protects."""
    cluster = hosts(rng, ("quail-b01", "quail-b02", "quail-b03", "quail-b04"))
    guilty = cluster.hosts[3 if swapped else 1]
    bundle = Bundle(epoch("2026-05-28 10:20:00"))
    fabric(bundle, cluster, rng, priority=5, env={guilty.name: {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_GID_INDEX": "3"}},
           moving=lambda host, nic: {"tx_priority": 0, "rx_priority": 5} if host is guilty else {})  # fmt: skip
    rule = "lossless/traffic-in-wrong-priority"
    nics = [n.netdev for n in guilty.fabric()]
    there = [bundle.at(f"{guilty.name}/net/ethtool-S.{n}.t1.txt", "tx_prio0_bytes") for n in nics]
    return Scenario(bundle, Truth(
        roots=[rule, rule, "nccl/env-differs-across-ranks"],
        absent=[*INNOCENT, "lossless/pfc-mismatch", "lossless/slow-receiver"],
        subjects={rule: {"host": [guilty.name], "nic": nics}},
        evidence={rule: there},
        first=[[guilty.name, nics[0]], [there[0]], ["next"]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("pfc-off-on-one-host")
def pfc_off(rng: Random, swapped: bool) -> Scenario:
    """One NIC of one host has no priority under flow control."""
    cluster = hosts(rng, ("rail-c11", "rail-c12", "rail-c13", "rail-c14"))
    guilty = cluster.hosts[0 if swapped else 2]
    nic = guilty.fabric()[0 if swapped else 1]
    bundle = Bundle(epoch("2026-03-02 22:41:00"))
    fabric(bundle, cluster, rng, pfc=lambda host, n: () if n is nic else (3,))
    rule = "lossless/pfc-mismatch"
    there = bundle.at(f"{guilty.name}/qos/mlnx_qos.{nic.netdev}.txt", "enabled")
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*INNOCENT, "lossless/slow-receiver", "lossless/traffic-in-wrong-priority"],
        subjects={rule: {"host": [guilty.name], "nic": [nic.netdev]}},
        evidence={rule: [there]},
        first=[[guilty.name, nic.netdev], [there], ["next"]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("pfc-trust-mode")
def trust_mode(rng: Random, swapped: bool) -> Scenario:
    """One host trusts VLAN priorities, so what it receives and sends counts as priority 0."""
    cluster = hosts(rng, ("snipe-d1", "snipe-d2", "snipe-d3", "snipe-d4"), rails=1)
    guilty = cluster.hosts[3 if swapped else 0]
    nic = guilty.fabric()[0]
    bundle = Bundle(epoch("2026-10-06 07:05:00"))
    fabric(bundle, cluster, rng, trust=lambda host, n: "pcp" if host is guilty else "dscp",
           moving=lambda host, n: {"tx_priority": 0, "rx_priority": 0} if host is guilty else {})  # fmt: skip
    rule = "lossless/trust-mode-pcp"
    there = bundle.at(f"{guilty.name}/qos/mlnx_qos.{nic.netdev}.txt", "trust state: pcp")
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["lossless/traffic-in-wrong-priority"],
        absent=[*INNOCENT, "lossless/slow-receiver", "lossless/pfc-mismatch"],
        subjects={rule: {"host": [guilty.name], "nic": [nic.netdev]}},
        evidence={rule: [there]},
        first=[[guilty.name, nic.netdev], [there], ["next"]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


@scenario("pfc-two-hosts-differ")
def two_hosts_differ(rng: Random, swapped: bool) -> Scenario:
    """Two hosts, two settings: they differ, and nothing says who is wrong."""
    names = ("dunlin-e7", "dunlin-e8") if swapped else ("dunlin-e4", "dunlin-e5")
    cluster = hosts(rng, names, rails=1)
    bundle = Bundle(epoch("2026-01-22 16:10:00"))
    other = cluster.hosts[0 if swapped else 1]
    fabric(bundle, cluster, rng, pfc=lambda host, n: (4,) if host is other else (3,),
           moving=lambda host, n: {"tx_priority": 4, "rx_priority": 4} if host is other else {})  # fmt: skip
    rule = "lossless/pfc-mismatch"
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*INNOCENT, "lossless/slow-receiver", "lossless/trust-mode-pcp"],
        subjects={rule: {"host": list(names)}},
        evidence={rule: [bundle.at(f"{n}/qos/mlnx_qos.ens1np0.txt", "enabled") for n in names]},
        first=[[*names], ["mlnx_qos.ens1np0.txt"], ["next"]],
        exit=0,
    ))  # fmt: skip


@scenario("pfc-slow-receiver")
def slow_receiver(rng: Random, swapped: bool) -> Scenario:
    """One host cannot drain its NIC because its PCIe link trained at half speed and width, and pauses everybody."""
    cluster = hosts(rng, ("avocet-01", "avocet-02", "avocet-03", "avocet-04", "avocet-05", "avocet-06"), rails=1)
    guilty = cluster.hosts[1 if swapped else 4]
    nic = guilty.fabric()[0]
    bundle = Bundle(epoch("2026-11-03 13:12:00"))
    share = 0.44 if swapped else 0.37

    def moving(host: Host, n: Nic) -> dict[str, object]:
        if host is guilty:
            return {"tx_pause": {3: share}, "rx_buffer_passed_thres_phy": 88120, "outbound_pci_stalled_wr": 64,
                    "outbound_pci_stalled_wr_events": 19}  # fmt: skip
        return {"rx_pause": {3: rng.uniform(0.17, 0.22)}}

    fabric(bundle, cluster, rng, moving=moving, narrow={guilty.name: {nic.device: ("16GT/s", "x8")}})
    bundle.add("job/ticket.txt", [
        "Steps take three times as long since this morning. Nearly all nodes report pause frames from the fabric.",
        "Proposal: lower the ECN thresholds on the leaf and retune PFC. Please confirm.",
    ])  # fmt: skip
    rule = "topo/pcie-degraded"
    there = bundle.at(f"{guilty.name}/pci/lspci-vvv.txt", "(downgraded)")
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["lossless/slow-receiver"],
        may=["lossless/buffer-pressure"],
        absent=[*INNOCENT, "lossless/fabric-incast", "lossless/ecn-ineffective", "lossless/pfc-storm", "lossless/pfc-mismatch"],
        subjects={rule: {"host": [guilty.name]}, "lossless/slow-receiver": {"host": [guilty.name], "nic": [nic.netdev]}},
        evidence={rule: [there], "lossless/slow-receiver": [
            bundle.at(f"{guilty.name}/net/ethtool-S.{nic.netdev}.t1.txt", "tx_prio3_pause_duration"),
        ]},
        first=[[guilty.name, f"{nic.bus}:00"], [f"{guilty.name}/pci/lspci-vvv.txt:"], [guilty.name]],
        never=[h.name for h in cluster.hosts if h is not guilty],
    ))  # fmt: skip


CONTRACT = """\
# What this site has agreed with its fabric team.

[qos]
priority = 5
dscp = 42
trust = "dscp"
lossless = true
"""


@scenario("pfc-contract")
def contract(rng: Random, swapped: bool) -> Scenario:
    """Three of four hosts protect priority 3, the site's contract says 5: the majority is wrong."""
    cluster = hosts(rng, ("plover-f1", "plover-f2", "plover-f3", "plover-f4"), rails=1)
    right = cluster.hosts[2 if swapped else 0]
    wrong = [h.name for h in cluster.hosts if h is not right]
    bundle = Bundle(epoch("2026-06-09 05:55:00"))
    bundle.beside["site.toml"] = CONTRACT
    fabric(bundle, cluster, rng, priority=5, pfc=lambda host, n: (5,) if host is right else (3,))
    rule = "lossless/pfc-mismatch"
    return Scenario(bundle, Truth(
        roots=[rule] * 3,
        consequences=["lossless/traffic-in-wrong-priority"],
        absent=[*INNOCENT, "lossless/slow-receiver"],
        subjects={rule: {"host": wrong}},
        evidence={rule: [bundle.at(f"{n}/qos/mlnx_qos.ens1np0.txt", "enabled") for n in wrong]},
        first=[["|".join(wrong)], [f"{wrong[0]}/qos/mlnx_qos.ens1np0.txt:"], ["next"]],
        never=[right.name],
        site="site.toml",
    ))  # fmt: skip
