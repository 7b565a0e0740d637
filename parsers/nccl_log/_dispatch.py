"""Which reader understands a message: WARNs by their words, INFO by first word or by their words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.parsing import drop_none

from . import _messages_init, _messages_net
from ._ledger import Place, Slot
from ._messages_init import HANDLED, Handler
from ._messages_memory import cuda, shm
from ._messages_ranks import error_return, gpus, mismatch, ras
from ._messages_socket import connect, peer_closed
from ._messages_verbs import async_event, completion, verbs
from ._prefix import Head

if TYPE_CHECKING:
    from ._reader import Reader

_IBV_RETRY = "ibv_modify_qp failed"
_NO_INTERFACE = re.compile(r"(?:Bootstrap|NET/Socket) ?: no (?:socket )?interface (?:found|usable)", re.I)


def essence(message: str) -> str:
    """An INFO message without what differs between processes and says nothing, so that repetitions are only counted."""
    if message.startswith("GPU Direct RDMA Enabled for GPU"):
        return message[message.find("(") :]
    context = message.find(" context=0x")
    return message if context < 0 else message[:context]


def from_warning(log: Reader, message: str, head: Head, place: Place) -> None:
    """What a WARN says beyond being one; the first that understands it wins."""
    if message.startswith("NET/OFI"):
        _messages_net.ofi(log, message, head, place, alarm=True)
        return
    if "completion" in message and completion(log, message, head, place):
        return
    if ("async" in message or "GID table" in message) and async_event(log, message, head, place):
        return
    if "onnect" in message and connect(log, message, head, place, final=True):
        return
    if ("closed by" in message or "Call to" in message) and peer_closed(log, message, head, place):
        return
    if ("failure" in message or "Handle" in message or "handle" in message) and cuda(log, message, head, place):
        return
    if "_" in message and verbs(log, message, head, place):
        return
    if (
        "shared memory" in message or "/dev/shm" in message or "Call to" in message or "Could not map" in message
    ) and shm(log, message, head, place):
        return
    if mismatch(log, message, head, place) or gpus(log, message, head, place):
        return
    if message.startswith("Failed to open libibverbs"):
        log.ledger.note("nccl_net_absent", {"reason": "no_verbs_library"}, head, place)
    elif message.startswith("NET/IB : Unable to open device "):
        device = message[31:].split()[0][:64] if message[31:].split() else None
        fields = drop_none(call="ibv_open_device", error="other", device=device)
        log.ledger.note("nccl_verbs_error", fields, head, place, own=True, track=True)
    elif "RAS" in message:
        ras(log, message, head, place)
    elif "plugin" in message or "network" in message:
        _messages_net.plugin(log, message, head, place)
    elif message.startswith("NET/IB : No device found"):
        log.ledger.note("nccl_net_absent", {"reason": "no_device"}, head, place)
    elif _NO_INTERFACE.match(message):
        log.ledger.note("nccl_interface_absent", {"text": message}, head, place)


def other_info(log: Reader, message: str, head: Head, place: Place) -> list[Slot]:
    """INFO messages whose first word does not tell: settings, counts, retries, unwinding."""
    first = message[:1]
    if " -> " in message and error_return(log, message, head, place):
        return HANDLED
    if first.isupper() and " to " in message:
        slots = _messages_init.environment(log, message, head, place)
        if slots is not None:
            return slots
    if first.isdigit():
        slots = _messages_init.channel_count(log, message, head, place)
        if slots is not None:
            return slots
    if "connect" in message and connect(log, message, head, place, final=False):
        return HANDLED
    if "closed by" in message and peer_closed(log, message, head, place):
        return HANDLED
    if _IBV_RETRY in message and verbs(log, message, head, place):
        return HANDLED
    if " comm 0x" in message and log.comms.line(message, head, place):
        return HANDLED
    if "GPU Direct RDMA" in message:
        return _messages_net.gdr(log, message, head, place) or HANDLED
    if "async" in message:
        async_event(log, message, head, place)
    elif "NET/OFI" in message:
        return _messages_net.ofi(log, message, head, place) or HANDLED
    elif "lugin" in message:
        return _messages_net.plugin(log, message, head, place) or HANDLED
    elif "ismatch" in message or "already checked" in message:
        mismatch(log, message, head, place)
    elif message.startswith("Failed to open libibverbs"):
        log.ledger.note("nccl_net_absent", {"reason": "no_verbs_library"}, head, place)
    return HANDLED


def call(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Call to connect returned …, retrying` and `Call to ibv_modify_qp failed …, retrying`."""
    if message.startswith("Call to connect"):
        return HANDLED if connect(log, message, head, place, final=False) else None
    if message.startswith("Call to ibv_modify_qp"):
        return HANDLED if verbs(log, message, head, place) else None
    return None


def p2p(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """INFO about P2P that is off."""
    return HANDLED if gpus(log, message, head, place) else None


def ranks(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Rank r has n local Net devices (max m).` (2.30+), printed when they differ."""
    return HANDLED if mismatch(log, message, head, place) else None


def hint(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`HINT:` lines guess at causes; they are no evidence."""
    return HANDLED


INFO: dict[str, Handler] = {
    **_messages_init.INFO,
    **_messages_net.INFO,
    "Call": call,
    "P2P": p2p,
    "Could": p2p,
    "Rank": ranks,
    "RAS": ras,
    "HINT:": hint,
}
"""Handlers by the first word of an INFO message; empty list: understood; list of slots: may be counted unread."""
