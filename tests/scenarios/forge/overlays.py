"""Kubernetes jobs whose data does, or does not, travel through the overlay of the pods."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Mapping
from random import Random

from . import pods, torchlog
from .cluster import Cluster, build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl

OTHERS = ["stall/*", "link/*", "rdma/*", "gpu/*", "clock/*", "lossless/*", "host/*", "perf/*"]


def job(
    bundle: Bundle, nodes: Cluster, rng: Random, *, network: str, mtu: int = 1500, overlay_mtu: Mapping[str, int] | None = None,
    pod_name: str = "trainer",
) -> Cluster:  # fmt: skip
    """Nodes under their names, pods under theirs (`trainer-0` …), as `kubectl exec` and SSH see them."""
    inside = build(
        rng, [f"{pod_name}-{n}" for n in range(len(nodes.hosts))], len(nodes.hosts[0].ranks), subnet="10.244.3"
    )
    for pod, node in zip(inside.hosts, nodes.hosts, strict=True):
        pod.gpus, pod.nics, pod.pids = node.gpus, node.nics, [17 + n for n in range(len(node.pids))]
        pod.ip = f"10.244.{pod.index + 1}.{rng.randrange(5, 250)}"
    addresses = {pod.name: pod.ip for pod in inside.hosts}
    env = {"NCCL_SOCKET_IFNAME": "eth0"}
    nccl = Nccl(inside, env=env, network=network, interface="eth0", gdr=network == "IB", addresses=addresses)
    for pod, node in zip(inside.hosts, nodes.hosts, strict=True):
        lines = [*nccl.start(pod, rng), *(torchlog.steps(bundle.start - 2000, rng, 12, 300) if pod.index == 0 else [])]
        bundle.add(f"{pod.name}/job/pod.log", lines, host=pod.name, command=f"kubectl logs {pod.name}")
        bundle.add(f"{pod.name}/net/ip-d-link.txt", pods.pod_links(rng, mtu=mtu - 50), host=pod.name,
                   command=f"kubectl exec {pod.name} -- ip -d link")  # fmt: skip
        links = pods.node_links(rng, node.ip, mtu=mtu, overlay_mtu=(overlay_mtu or {}).get(node.name))
        bundle.add(f"{node.name}/net/ip-d-link.txt", links, host=node.name, command="ip -d link")
    rows = [(p.name, "Running", p.ip, n.name) for p, n in zip(inside.hosts, nodes.hosts, strict=True)]
    bundle.add("job/kubectl-get-pods.txt", pods.pod_list([*rows, ("prepare-data", "Completed", "10.244.1.4", nodes.hosts[0].name)]),
               command="kubectl get pods -o wide")  # fmt: skip
    surround(bundle, nodes, rng, busy=True)
    return inside


@scenario("overlay-data-path")
def data_path(rng: Random, swapped: bool) -> Scenario:
    """No RDMA device in the pods: the gradients go through VXLAN and the kernel's TCP."""
    stem = "kube-d" if swapped else "kube-b"
    nodes = build(rng, [f"{stem}{n}" for n in (11, 12)], 4, rails=0)
    bundle = Bundle(epoch("2026-05-05 15:00:00"))
    inside = job(bundle, nodes, rng, network="Socket", mtu=9000 if swapped else 1500,
                 pod_name="elastic" if swapped else "trainer")  # fmt: skip
    rule = "k8s/overlay-data-path"
    names = [p.name for p in inside.hosts]
    return Scenario(bundle, Truth(
        roots=[rule, rule],
        absent=OTHERS,
        subjects={rule: {"host": names, "interface": ["eth0"]}},
        evidence={rule: [bundle.at(f"{name}/job/pod.log", "NET/Socket : Using [0]eth0") for name in names]},
        first=[[names[0], "eth0"], [f"{names[0]}/job/pod.log:"], ["next"]],
    ))  # fmt: skip


@scenario("overlay-harmless")
def harmless(rng: Random, swapped: bool) -> Scenario:
    """The same overlay, with RDMA beside it: it carries the control plane only."""
    stem = "kube-e" if swapped else "kube-c"
    nodes = build(rng, [f"{stem}{n}" for n in (11, 12)], 4)
    bundle = Bundle(epoch("2026-05-06 15:00:00"))
    job(bundle, nodes, rng, network="IB", mtu=9000 if swapped else 1500)
    return Scenario(bundle, Truth(absent=[*OTHERS, "k8s/*", "init/*"], exit=0))


@scenario("overlay-wrong-mtu")
def wrong_mtu(rng: Random, swapped: bool) -> Scenario:
    """The overlay of one node is as large as the network below it."""
    nodes = build(rng, ("kube-f1", "kube-f2", "kube-f3"), 4)
    guilty = nodes.hosts[0 if swapped else 2]
    bundle = Bundle(epoch("2026-05-07 15:00:00"))
    job(bundle, nodes, rng, network="IB", mtu=9000, overlay_mtu={guilty.name: 9000})
    rule = "k8s/overlay-mtu"
    there = bundle.at(f"{guilty.name}/net/ip-d-link.txt", "flannel.1:")
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=[*OTHERS, "init/*"],
        subjects={rule: {"host": [guilty.name], "interface": ["flannel.1"]}},
        evidence={rule: [there]},
        first=[[guilty.name, "flannel.1"], [there], ["next"]],
        never=[n.name for n in nodes.hosts if n is not guilty],
    ))  # fmt: skip
