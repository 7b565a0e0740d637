"""Messages about the network: devices, choice of network, plugins, GPUDirect RDMA, link speed, aws-ofi-nccl."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from diagnose.parsing import drop_none

from . import _addresses
from ._ledger import Place, Slot
from ._messages_init import HANDLED, Handler, _one
from ._prefix import Head

if TYPE_CHECKING:
    from ._reader import Reader

_IB_LIST = re.compile(r"\[(\d{1,3})\]([^\s:\[\]]{1,64}):(\d{1,3})/(\w{1,12})", re.ASCII)
_SOCKET_LIST = re.compile(r"\[(\d{1,3})\]([^\s:\[\]]{1,64}):([^\s<]{2,64})<(\d{1,5})>", re.ASCII)
_IB_DEVICE = re.compile(
    r"NET/IB: \[(\d{1,3})\] ([^\s:]{1,64}):[^\s:]{1,64}:(\d{1,3})/(\w{1,12}) provider=\S{1,40} speed=(\d{1,9})",
    re.ASCII,
)
_SPEED = re.compile(r"NET/IB : ([^\s:]{1,64}):\d{1,3} speed change detected: (\d{1,9}) -> (\d{1,9}) Mbps", re.ASCII)
_GDR_HCA = re.compile(
    r"NET/(.{1,60}?) : GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,4}) '([^']{1,80})'(?: \((.{1,80})\))?"
)
_GDR_PAIR = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for GPU (\S{1,20}) / "
    r"HCA (\S{1,20})(?: \(distance (\d{1,2}) ([<>]=?) (\d{1,2})\))?"
)
_DMABUF = re.compile(r"DMA-BUF is available on GPU device (\d{1,4})")
_SOCKETS = ("Socket", "FastSocket")
_RDMA = re.compile(r"IB|gIB|UCX|RDMA|ROCE|RoCE|Broadcom|BNXT|SHARP|MLX", re.ASCII)
_LOADED = re.compile(
    r"(?:\w{2,12}/Plugin: |Successfully )?[Ll]oaded (?:external )?(\w{1,12}) plugin (.{1,80}?)(?: \(v\d{1,3}\))?$"
    r"|(?:\w{2,12}/Plugin: )?Successfully loaded external ()plugin (.{1,80})$"
    r"|(?:\w{2,12}/Plugin: )?Using (tuner|profiler|env) plugin (.{1,80})$"
)
_FAILED = re.compile(
    r"Failed to initialize NET plugin (.{1,80})|External (?:network|"
    r"tuner|profiler|env) plugin (.{1,200}) is unsupported"
    r"|Error: network (.{1,60}) not found\.|(Failed to initialize any NET plugin)"
)
_NOT_FOUND = re.compile(r"Could not find: ?(\S{1,120}?)\.?(?:\s|$)|No plugin found \(([^)]{1,120})\)|[Pp]lugin load")
_PLUGIN_TYPES = {"NET/Plugin": "net", "TUNER/Plugin": "tuner", "ENV/Plugin": "env", "PROFILER/Plugin": "profiler"}
_INTERNAL = frozenset({"IB", "Socket"})


def network(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Using network NAME` (2.6+)."""
    if message.startswith("Using network "):
        name = message[14:].strip()
        if not name:
            return HANDLED
        fields = {"name": name, "transport": transport_of(name)}
        return _one(log.ledger.note("nccl_network", fields, head, place))
    return plugin(log, message, head, place)


def transport_of(name: str) -> str:
    """rdma, socket, efa or plugin, by the name NCCL prints for a network."""
    if name in _SOCKETS:
        return "socket"
    if "Libfabric" in name or name.startswith(("AWS", "OFI")):
        return "efa"
    return "rdma" if _RDMA.match(name) else "plugin"


def ib(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """The `NET/IB` family: list of devices, single devices, absence, speed change, GPUDirect."""
    if message.startswith("NET/IB : Using "):
        return _ib_list(log, message, head, place)
    found = _IB_DEVICE.match(message)
    if found:
        index, name, port, layer, speed = found.groups()
        return _one(_device(log, "IB", name, int(port), layer, head, place, index=int(index), speed_mbps=int(speed)))
    if message.startswith("NET/IB : No device found"):
        return _one(log.ledger.note("nccl_net_absent", {"reason": "no_device"}, head, place))
    found = _SPEED.match(message)
    if found:
        fields = {"device": found.group(1), "from_mbps": int(found.group(2)), "to_mbps": int(found.group(3))}
        log.ledger.note("nccl_link_speed_change", fields, head, place, track=True)
        return HANDLED
    return gdr(log, message, head, place)


def _ib_list(log: Reader, message: str, head: Head, place: Place) -> list[Slot]:
    shown, _, rest = message.partition(";")
    ordering = True if "[RO]" in shown else None
    slots: list[Slot] = []
    names: list[str] = []
    layers: set[str] = set()
    for found in _IB_LIST.finditer(shown):
        name, port, layer = found.group(2), int(found.group(3)), found.group(4)
        names.append(f"{name}:{port}/{layer}")
        layers.add(layer)
        slots += _one(_device(log, "IB", name, port, layer, head, place, index=int(found.group(1)),
                              relaxed_ordering=ordering))  # fmt: skip
    if names and rest:
        fields = {
            "network": "IB",
            "devices": ",".join(sorted(names)),
            "count": len(names),
            "link_layers": ",".join(sorted(layers)),
        }
        slots += _one(log.ledger.note("nccl_net_list", fields, head, place))
    return slots


def _device(
    log: Reader, net: str, name: str, port: int, layer: str, head: Head, place: Place, **more: Any
) -> Slot | None:
    """One record per device of a host; the list and the line of the device itself complete each other."""
    fields = drop_none(network=net, device=name, port=port, link_layer=layer, **more)
    for variant in range(4):
        slot = log.ledger.find("nccl_net_device", head, (net, name, port, variant))
        if slot is None:
            return log.ledger.note("nccl_net_device", fields, head, place, (net, name, port, variant))
        if all(slot.fields.get(key, value) == value for key, value in fields.items()):
            slot.fields.update(fields)
            slot.again(head, None)
            return slot
    return None


def socket(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`NET/Socket : Using [0]IF:ADDR<0> …`."""
    if not message.startswith("NET/Socket : Using "):
        return gdr(log, message, head, place)
    slots: list[Slot] = []
    names: list[str] = []
    for found in _SOCKET_LIST.finditer(message):
        name, address = found.group(2), found.group(3)
        names.append(name)
        fields = {
            "network": "Socket",
            "device": name,
            "index": int(found.group(1)),
            "address": address,
            "interface_class": _addresses.interface_class(name),
        }
        slots += _one(log.ledger.note("nccl_net_device", fields, head, place))
        if head.host:
            log.addresses.setdefault(address, head.host)
    if names:
        fields = {"network": "Socket", "devices": ",".join(sorted(names)), "count": len(names)}
        slots += _one(log.ledger.note("nccl_net_list", fields, head, place))
    return slots


def gdr(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """GPUDirect RDMA per HCA, or per pair of GPU and HCA with the distance that decided; TCP never has it."""
    if "GPU Direct RDMA" not in message:
        return None
    found = _GDR_HCA.match(message)
    if found and found.group(1).strip() in _SOCKETS:
        return HANDLED
    if found:
        fields = drop_none(enabled=found.group(2) == "Enabled", device=found.group(4), reason=found.group(5))
        return _one(log.ledger.note("nccl_gdr", fields, head, place))
    found = _GDR_PAIR.search(message)
    if found:
        enabled = found.group(1) == "Enabled"
        distance = f"{found.group(4)} {found.group(5)} {found.group(6)}" if found.group(4) else None
        reason = "distance" if distance and not enabled else None
        fields = drop_none(enabled=enabled, distance=distance, reason=reason)
        if not enabled:
            fields |= {"gpu": found.group(2), "device": found.group(3)}
        return _one(log.ledger.note("nccl_gdr", fields, head, place))
    return None


def dmabuf(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`DMA-BUF is available on GPU device N` (2.13+)."""
    found = _DMABUF.match(message)
    if found is None:
        return None
    return _one(log.ledger.note("nccl_dmabuf", {"gpu": int(found.group(1))}, head, place))


def plugin(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """Net, tuner, env and profiler plugins: loaded, absent (normal unless one is expected) or failed."""
    found = _FAILED.search(message)
    if found:
        name = next((g for g in found.groups()[:3] if g), None)
        fields = drop_none(type=_type_of(message), state="failed", name=name, detail=message)
        return _one(log.ledger.note("nccl_plugin", fields, head, place))
    found = _LOADED.search(message)
    if found:
        kind, name = next((found.group(i), found.group(i + 1)) for i in (1, 3, 5) if found.group(i + 1))
        if name in _INTERNAL:
            return HANDLED
        fields = {"type": _type_of(message, kind), "state": "loaded", "name": name}
        return _one(log.ledger.note("nccl_plugin", fields, head, place))
    if "/Plugin" in message:
        found = _NOT_FOUND.search(message)
        if found:
            name = next((g for g in found.groups() if g), None)
            fields = drop_none(type=_type_of(message), state="not_found", name=name)
            return _one(log.ledger.note("nccl_plugin", fields, head, place))
        return HANDLED
    return None


def _type_of(message: str, word: str | None = None) -> str:
    for start, kind in _PLUGIN_TYPES.items():
        if message.startswith(start):
            return kind
    text = (word or message).lower()
    for kind in ("tuner", "profiler", "env"):
        if kind in text.split():
            return kind
    return "net"


_PROVIDER = re.compile(r"[Ss]elected [Pp]rovider is ([\w;-]{1,40})")
_OFI_EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "no_provider",
        re.compile(
            r"No eligible providers|Could(?:n't| not) find any optimal provider|Only EFA provider is supported|"
            r"Unable to find provider|fi_getinfo\(\) call failed"
        ),
    ),
    ("unsafe_proto", re.compile(r"may corrupt data|NCCL_PROTO was set to")),
    ("gdr_disabled", re.compile(r"GDR disabled|disabling GDR|GPUDirect (?:RDMA )?(?:is )?(?:not|disabled)")),
    ("request_error", re.compile(r"completed with error|fi_cq_readerr|remote write error")),
    (
        "setup_error",
        re.compile(r"Couldn't open|Creating new endpoint|Unable to (?:open|create)"),
    ),
    (
        "connect_error",
        re.compile(
            r"connect(?:ion)? (?:message|request|response|failed|" r"info)|insert (?:remote )?address|accept|listen|CM:"
        ),
    ),
)
_PEER_RANK = re.compile(r"(?:peer |remote |dst |src )?rank[: =]{1,2}(\d{1,7})", re.ASCII)


def ofi(log: Reader, message: str, head: Head, place: Place, *, alarm: bool = False) -> list[Slot] | None:
    """aws-ofi-nccl: INFO lines only where they say something; every WARN."""
    found = _PROVIDER.search(message)
    if found:
        fields = {"event": "provider", "provider": found.group(1), "text": message}
        return _one(log.ledger.note("nccl_ofi", fields, head, place))
    event = next((name for name, pattern in _OFI_EVENTS if pattern.search(message)), "other")
    if event == "no_provider":
        log.ledger.note("nccl_net_absent", {"reason": "no_provider"}, head, place)
    if not alarm and event not in ("no_provider", "unsafe_proto", "gdr_disabled"):
        return HANDLED
    peer = _PEER_RANK.search(message)
    fields = drop_none(event=event, text=message, peer_rank=int(peer.group(1)) if peer else None)
    key = (event, log.shape(message))
    return _one(log.ledger.note("nccl_ofi", fields, head, place, key, own=alarm, track=alarm))


INFO: dict[str, Handler] = {
    "Using": network,
    "NET/IB": ib,
    "NET/IB:": ib,
    "NET/Socket": socket,
    "GPU": gdr,
    "DMA-BUF": dmabuf,
    "NET/OFI": ofi,
    "Loaded": plugin,
    "Successfully": plugin,
    "Failed": plugin,
    "External": plugin,
    "NET/Plugin": plugin,
    "NET/Plugin:": plugin,
    "TUNER/Plugin": plugin,
    "TUNER/Plugin:": plugin,
    "ENV/Plugin:": plugin,
    "PROFILER/Plugin:": plugin,
    "PROFILER/Plugin": plugin,
}
"""Handlers by the first word of an INFO message."""
