"""How NCCL's data travels on each host: encapsulated paths, and the retry window of the verbs transport."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from diagnose.model import Fact, FactBase, Value

OVERLAY_TYPES = ("vxlan", "ipip", "geneve", "gre", "wireguard")

DEFAULT_TIMEOUT_EXPONENT = ((2, 23, 20), (2, 14, 18), (0, 0, 14))
"""Default of NCCL_IB_TIMEOUT from a version on (NCCL user guide, environment variables)."""
DEFAULT_RETRY_COUNT = 7


def derive(base: FactBase) -> Iterator[Fact]:
    """`overlay_path` and `ib_window` facts."""
    yield from _overlay_paths(base)
    yield from _ib_windows(base)


def _by_host(base: FactBase, kind: str) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = defaultdict(list)
    for o in base.observations:
        if o.kind == kind and "host" in o.fields:
            found[str(o.fields["host"])].append(o)
    return found


def _overlay_paths(base: FactBase) -> Iterator[Fact]:
    """Hosts with an encapsulating device whose NCCL data uses TCP (or RDMA beside it).

    A pod goes by its own name and has only its end of a veth: the overlay is that of the nodes in the bundle.
    """
    networks, devices = _by_host(base, "nccl_network"), _by_host(base, "nccl_net_device")
    interfaces = _by_host(base, "ip_interface")
    of_nodes = [i for host, links in sorted(interfaces.items()) if host not in networks for i in _overlays(links)]
    for host, links in sorted(interfaces.items()):
        transports = {str(n.fields["transport"]) for n in networks.get(host, ())}
        if not transports:
            continue
        used = next((d for d in devices.get(host, ()) if d.fields.get("network") == "Socket"), None)
        data = str(used.fields["device"]) if used else ""
        carrier = next((i for i in links if i.fields["device"] == data), None)
        overlays = _overlays(links)
        if not overlays and carrier is not None and carrier.fields.get("type") == "veth":
            overlays = [o for o in of_nodes if o.fields.get("mtu") == carrier.fields.get("mtu")] or of_nodes
        if not overlays or ("socket" in transports and not _through_overlay(data, carrier)):
            continue
        overlay = max(overlays, key=lambda i: i.fields.get("type") == "vxlan")
        siblings = interfaces[str(overlay.fields["host"])]
        underlay = next((i for i in siblings if i.fields["device"] == overlay.fields.get("parent")), None)
        fields: dict[str, Value] = {
            "host": host, "device": data or "rdma", "overlay": overlay.fields["device"],
            "overlay_type": overlay.fields["type"], "rdma": "socket" not in transports,
        }  # fmt: skip
        mtu = (carrier or overlay).fields.get("mtu")
        if mtu is not None:
            fields["mtu"] = mtu
        if underlay is not None:
            fields["underlay"] = underlay.fields["device"]
            if "mtu" in underlay.fields:
                fields["underlay_mtu"] = underlay.fields["mtu"]
        evidence = [*(used.evidence[:1] if used else ()), *overlay.evidence[:1]]
        if not used:
            evidence = [*networks[host][0].evidence[:1], *evidence]
        yield Fact("", "overlay_path", fields, tuple(evidence))


def _overlays(links: list[Fact]) -> list[Fact]:
    return [i for i in links if i.fields.get("type") in OVERLAY_TYPES and i.fields.get("up") is not False]


def _through_overlay(device: str, carrier: Fact | None) -> bool:
    """A pod's interface (veth, or the overlay device itself) leads into the overlay; a host's own NIC does not."""
    if carrier is not None:
        return carrier.fields.get("type") in (*OVERLAY_TYPES, "veth")
    return device.startswith(("flannel", "cilium", "vxlan", "tunl", "cali", "weave", "wg"))


def _ib_windows(base: FactBase) -> Iterator[Fact]:
    """4.096 µs · 2^exponent · (retries + 1 tries are not counted: NCCL's guide gives exponent × count)."""
    variables, versions = _by_host(base, "nccl_env"), _by_host(base, "nccl_version")
    rdma_hosts = {
        str(o.fields["host"]) for o in base.observations
        if o.kind == "nccl_network" and o.fields.get("transport") == "rdma" and "host" in o.fields
    }  # fmt: skip
    watchdogs = [
        float(o.fields["timeout_ms"]) / 1e3 for o in base.observations  # type: ignore[arg-type]
        if o.kind == "torch_timeout" and "timeout_ms" in o.fields
    ]  # fmt: skip
    for host in sorted(rdma_hosts | variables.keys()):
        found = {str(v.fields["name"]): v for v in variables.get(host, ())}
        timeout, retries = found.get("NCCL_IB_TIMEOUT"), found.get("NCCL_IB_RETRY_CNT")
        if timeout is None and retries is None and host not in rdma_hosts:
            continue
        exponent = _whole(timeout)
        if exponent is None:
            exponent = _default_exponent(versions.get(host, []))
        if exponent is None:
            continue
        count = _whole(retries)
        count = DEFAULT_RETRY_COUNT if count is None else count
        infinite = exponent <= 0 or exponent >= 32
        fields: dict[str, Value] = {
            "host": host, "timeout_exponent": exponent, "retry_count": count, "infinite": infinite,
            "from_env": timeout is not None or retries is not None,
        }  # fmt: skip
        if not infinite:
            fields["window_s"] = 4.096e-6 * 2**exponent * count
        if watchdogs:
            fields["watchdog_s"] = min(watchdogs)
        yield Fact("", "ib_window", fields, tuple(e for v in (timeout, retries) if v for e in v.evidence[:1]))


def _whole(variable: Fact | None) -> int | None:
    value = variable.fields.get("number") if variable else None
    return int(value) if isinstance(value, int | float) else None


def _default_exponent(versions: list[Fact]) -> int | None:
    for fact in versions:
        parts = str(fact.fields["version"]).split(".")
        if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit():
            version = (int(parts[0]), int(parts[1]))
            return next(e for major, minor, e in DEFAULT_TIMEOUT_EXPONENT if version >= (major, minor))
    return None
