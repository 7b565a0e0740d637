"""Sockets: connections that could not be made or were closed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from diagnose.parsing import drop_none

from . import _addresses
from ._ledger import Place
from ._prefix import Head
from ._text import named

if TYPE_CHECKING:
    from ._reader import Reader

_CONNECT = re.compile(
    r"(?:(?:^|[: ])[Cc]onnect to|PollConnect to) (\S{1,260}) (?:failed|returned)(?: with error)? ?:? ?(.*)"
)
_CONNECT_NAMELESS = re.compile(r"Call to connect failed ?: (.{1,120})")
_CONNECT_RETRY = re.compile(r"(?:Call to connect|(?:\w{1,60}: )?connect) returned (.{1,120}?),? (?:retrying|exceeded)")
_ATTEMPT = re.compile(r"retrying \((\d{1,9})/|after (\d{1,9}) attempts|retry count \((\d{1,9})\)", re.ASCII)
_SOCKET_ERRORS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("refused", re.compile(r"refused|\b111\b", re.I)),
    ("timed_out", re.compile(r"timed out|\b110\b|timeout", re.I)),
    ("no_route", re.compile(r"no route|\b113\b|host is down", re.I)),
    ("network_unreachable", re.compile(r"network is (?:unreachable|down)|\b101\b", re.I)),
    ("no_address", re.compile(r"assign requested address|\b99\b", re.I)),
)
UNKNOWN_ADDRESS = "unknown"


def connect(log: Reader, message: str, head: Head, place: Place, *, final: bool) -> bool:
    """A connection that could not be made; retries of one process to one peer are one record."""
    found = _CONNECT.search(message)
    if found is None:
        nameless = _CONNECT_NAMELESS.match(message)
        if nameless is not None:
            fields = {"peer_address": UNKNOWN_ADDRESS, "error": named(_SOCKET_ERRORS, nameless.group(1)),
                      "attempts": 1, "final": final}  # fmt: skip
            log.ledger.note("nccl_connect_error", fields, head, place, own=True, track=True)
            return True
        retry = _CONNECT_RETRY.match(message)
        if retry is None:
            return False
        kept = head.retries.setdefault(retry.group(1), [0, place, place])
        kept[0] += 1
        kept[2] = place
        _ = place.number
        return True
    address, port, _ = _addresses.peer(found.group(1))
    error = named(_SOCKET_ERRORS, found.group(2))
    attempt = _ATTEMPT.search(message)
    tried = int(next(g for g in attempt.groups() if g)) if attempt else 1
    earlier = 0
    for text in list(head.retries):
        if named(_SOCKET_ERRORS, text) == error:
            earlier += head.retries.pop(text)[0]
    fields = drop_none(
        peer_address=address, peer_port=port, peer_scope=_addresses.scope(address), error=error,
        text=found.group(2).strip()[:200] or None,
    )  # fmt: skip
    key = (address, port, error)
    slot = log.ledger.note("nccl_connect_error", fields, head, place, key, own=True, track=True)
    if slot is not None:
        slot.fields["attempts"] = max(slot.fields.get("attempts", 0), tried, slot.count + earlier)
        slot.fields["final"] = slot.fields.get("final", False) or final
    return True


def leftovers(log: Reader) -> None:
    """Retries whose peer was never named, of processes that finished no init after all."""
    for process in log.heads.processes.values():
        if any(comm.state != "started" for comm in process.comms):
            continue
        for head in process.heads.values():
            for text, (count, first, last) in head.retries.items():
                fields = {
                    "peer_address": UNKNOWN_ADDRESS,
                    "error": named(_SOCKET_ERRORS, text),
                    "attempts": count,
                    "final": False,
                }
                key = (UNKNOWN_ADDRESS, fields["error"])
                slot = log.ledger.note("nccl_connect_error", fields, head, first, key, own=True, track=True)
                if slot is not None and last is not first:
                    slot.again(head, last)
            head.retries = {}


_CLOSED = re.compile(r"Connection closed by remote peer(?: (\S{1,260}))?")
_CALL = re.compile(
    r"Call to (?:recv|send|read|write)(?: (?:from|to))?(?: (\S{1,260}<\d{1,5}>|\S{1,260}))? failed ?: (.{1,160})"
)


def peer_closed(log: Reader, message: str, head: Head, place: Place) -> bool:
    """The other side went away: nearly always a consequence."""
    reason = "closed"
    found = _CLOSED.search(message)
    if found is None:
        found = _CALL.search(message)
        if found is None:
            return False
        text = found.group(2).lower()
        if "timed out" in text or "110" in text:
            reason = "timed_out"
        elif "reset" in text or "broken pipe" in text or "104" in text or "32" in text:
            reason = "reset"
        else:
            return False
    fields: dict[str, Any] = {"reason": reason}
    if found.group(1):
        address, _, host = _addresses.peer(found.group(1))
        fields["peer_address"] = address
        host = host or log.addresses.get(address)
        if host:
            fields["peer_host"] = host
    key = (reason, fields.get("peer_address"))
    log.ledger.note("nccl_peer_closed", fields, head, place, key, own=True, track=True)
    return True
