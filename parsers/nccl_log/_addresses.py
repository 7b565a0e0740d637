"""What an address or an interface name says about itself."""

from __future__ import annotations

import ipaddress
import re

_DOCKER = ipaddress.ip_network("172.17.0.0/16")
_CARRIER = ipaddress.ip_network("100.64.0.0/10")
_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("loopback", re.compile(r"lo\d*$")),
    ("docker", re.compile(r"docker|br-[0-9a-f]{12}$")),
    ("veth", re.compile(r"veth")),
    ("cni", re.compile(r"cali|cni|cilium|lxc|weave|kube|nodelocaldns|antrea|ovn-k8s|eni[0-9a-f]{8,}")),
    ("overlay", re.compile(r"flannel|vxlan|geneve|genev_sys|tunl|gre|ipip|erspan")),
    ("vpn", re.compile(r"tun\d|tap\d|wg|tailscale|zt|ppp|ipsec|utun|nordlynx")),
    ("bridge", re.compile(r"virbr|br[-\d]|bridge|lxdbr|incusbr|ovs|vmbr")),
)
PEER = re.compile(r"([^\s<>]{1,255})<(\d{1,5})>")
_MASKED = re.compile(r"(<[A-Za-z][\w -]{0,60}>[\w.-]{0,120})<(\d{1,5})>")
"""`host<port>` as NCCL prints a peer; the host is an address or a name."""


def scope(address: str) -> str | None:
    """global, private, link_local, loopback or docker_bridge; None when the text is no address."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").split("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return "loopback"
    if ip.is_link_local:
        return "link_local"
    if isinstance(ip, ipaddress.IPv4Address):
        if ip in _DOCKER:
            return "docker_bridge"
        if ip in _CARRIER:
            return "private"
        documentation = any(
            ip in ipaddress.ip_network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
        )
        return "global" if documentation or not ip.is_private else "private"
    return "private" if (int(ip) >> 121) == 0x7E else "global"


def subnet(address: str) -> str | None:
    """/24 (IPv4) or /64 (IPv6) prefix of an address; None when the text is no address."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").split("%")[0])
    except ValueError:
        return None
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))


def interface_class(name: str) -> str:
    """physical, docker, loopback, veth, cni, overlay, vpn or bridge, by the usual names."""
    for label, pattern in _CLASSES:
        if pattern.match(name):
            return label
    return "physical"


def peer(text: str) -> tuple[str, int | None, str | None]:
    """Peer text as (address or name, port, host name when it is a name)."""
    found = _MASKED.search(text) or PEER.search(text)
    name = found.group(1) if found else text.strip()
    port = int(found.group(2)) if found else None
    host = None if scope(name) is not None else name.split(".")[0]
    return name, port, host
