"""Kubernetes: interfaces of nodes and pods, lists of pods, files of control groups (formats: iproute2 6, kubectl 1.30, cgroup v2)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Sequence
from random import Random

TAIL = "addrgenmode eui64 numtxqueues 1 numrxqueues 1 gso_max_size 65536 gso_max_segs 65535 "


def mac(rng: Random) -> str:
    """A locally administered address."""
    return "02:00:5e:" + ":".join(f"{rng.randrange(256):02x}" for _ in range(3))


def _loopback() -> list[str]:
    return [
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000",
        f"    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00 promiscuity 0 minmtu 0 maxmtu 0 {TAIL}",
    ]


def node_links(
    rng: Random, address: str, *, mtu: int = 1500, overlay_mtu: int | None = None, pods: int = 2, overlay: bool = True
) -> list[str]:
    """`ip -d link` of a node with flannel's VXLAN device, its bridge and the host ends of its pods."""
    inner = mtu - 50 if overlay_mtu is None else overlay_mtu
    lines = [
        *_loopback(),
        f"2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP mode DEFAULT group default qlen 1000",
        f"    link/ether {mac(rng)} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 9978 {TAIL}parentbus pci parentdev 0000:27:00.0 ",
        "3: docker0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state DOWN mode DEFAULT group default ",
        f"    link/ether {mac(rng)} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 65535 ",
        f"    bridge forward_delay 1500 hello_time 200 max_age 2000 ageing_time 30000 stp_state 0 {TAIL}",
    ]  # fmt: skip
    if not overlay:
        return lines
    lines += [
        f"7: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {inner} qdisc noqueue state UNKNOWN mode DEFAULT group default ",
        f"    link/ether {mac(rng)} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 65535 ",
        f"    vxlan id 1 local {address} dev eth0 srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum noudp6zerocsumtx noudp6zerocsumrx {TAIL}",
        f"8: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {inner} qdisc noqueue state UP mode DEFAULT group default qlen 1000",
        f"    link/ether {mac(rng)} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 65535 ",
        f"    bridge forward_delay 1500 hello_time 200 max_age 2000 ageing_time 30000 stp_state 0 {TAIL}",
    ]  # fmt: skip
    for n in range(pods):
        lines += [
            f"{20 + n}: veth{rng.getrandbits(32):08x}@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {inner} qdisc noqueue master cni0 state UP mode DEFAULT group default ",
            f"    link/ether {mac(rng)} brd ff:ff:ff:ff:ff:ff link-netnsid {n} promiscuity 1 minmtu 68 maxmtu 65535 ",
            "    veth ",
            f"    bridge_slave state forwarding priority 32 cost 2 hairpin on guard off root_block off fastleave off learning on flood on {TAIL}",
        ]  # fmt: skip
    return lines


def pod_links(rng: Random, *, mtu: int = 1450) -> list[str]:
    """`ip -d link` inside a pod: a veth whose other end is on the node."""
    return [
        *_loopback(),
        f"2: eth0@if20: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc noqueue state UP mode DEFAULT group default ",
        f"    link/ether {mac(rng)} brd ff:ff:ff:ff:ff:ff link-netnsid 0 promiscuity 0 minmtu 68 maxmtu 65535 ",
        f"    veth {TAIL}",
    ]  # fmt: skip


def pod_list(rows: Sequence[tuple[str, str, str, str]], *, restarts: Sequence[str] = ()) -> list[str]:
    """`kubectl get pods -o wide`; rows of (pod, status, address, node)."""
    lines = [
        "NAME             READY   STATUS      RESTARTS      AGE     IP             NODE          NOMINATED NODE   READINESS GATES"
    ]
    for n, (name, status, address, node) in enumerate(rows):
        ready = "1/1" if status == "Running" else "0/1"
        again = restarts[n] if n < len(restarts) else "0"
        lines.append(
            f"{name:16s} {ready}     {status:11s} {again:13s} 5h12m   {address:14s} {node:13s} <none>           <none>"
        )
    return lines


def cgroup(
    path: str,
    *,
    quota: str = "max 100000",
    periods: int = 0,
    throttled: int = 0,
    throttled_usec: int = 0,
    usage: int = 0,
    oom: int = 0,
) -> list[str]:
    """`grep -H .` over cpu.max, cpu.stat, memory.max and memory.events of one group."""
    base = f"/sys/fs/cgroup/{path}"
    return [
        f"{base}/cpu.max:{quota}", f"{base}/cpu.stat:usage_usec {usage}", f"{base}/cpu.stat:user_usec {usage * 9 // 10}",
        f"{base}/cpu.stat:system_usec {usage // 10}", f"{base}/cpu.stat:nr_periods {periods}", f"{base}/cpu.stat:nr_throttled {throttled}",
        f"{base}/cpu.stat:throttled_usec {throttled_usec}", f"{base}/memory.max:max", f"{base}/memory.events:low 0",
        f"{base}/memory.events:high 0", f"{base}/memory.events:max 0", f"{base}/memory.events:oom {oom}",
        f"{base}/memory.events:oom_kill {oom}",
    ]  # fmt: skip
