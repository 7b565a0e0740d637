"""Verbs: completions with errors, asynchronous events, calls that failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from diagnose.parsing import drop_none

from . import _addresses
from ._ledger import Place
from ._prefix import Head
from ._text import named, number_in, word_in

if TYPE_CHECKING:
    from ._reader import Reader

_WC = ("SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
       "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
       "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
       "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE")  # fmt: skip
"""ibv_wc_status by number (rdma-core verbs.h)."""
_COMPLETION = re.compile(
    r"Got completion (?:from peer (\S{1,255}) )?with (?:error|status)[= ](?:(IBV_WC_\w{1,40})\()?(\d{1,3})\)?", re.ASCII
)
_OPCODE = re.compile(r"opcode[= ](?:\w{1,40}\()?(\d{1,10})", re.ASCII)
_VENDOR = re.compile(r"vendor[_ ]err[= ](\d{1,10})", re.ASCII)
_LOCAL_GID = re.compile(r"local ?G[Ii][Dd] ([0-9a-fA-F:.]{2,64})")
_REMOTE_GID = re.compile(r"remote ?G[Ii][Dd]s? ?([0-9a-fA-F:.]{2,64})")
_HCA = re.compile(r"\bhca (\S{1,64})")


def completion(log: Reader, message: str, head: Head, place: Place) -> bool:
    """A verbs completion with an error: the forms of 2.3, 2.10, 2.20, 2.28 and 2.32, and the GIN and RMA variants."""
    found = _COMPLETION.search(message)
    if found is None:
        return False
    status = int(found.group(3))
    name = found.group(2) or (f"IBV_WC_{_WC[status]}" if status < len(_WC) else None)
    fields = drop_none(
        status=status,
        status_name=name,
        opcode=number_in(_OPCODE, message),
        vendor_error=number_in(_VENDOR, message),
        device=word_in(_HCA, message),
        local_gid=word_in(_LOCAL_GID, message),
        remote_gid=word_in(_REMOTE_GID, message),
    )
    key: tuple[Any, ...] = (status, fields.get("device"), fields.get("vendor_error"))
    if found.group(1):
        address, _, host = _addresses.peer(found.group(1))
        fields["peer"] = address
        host = host or log.addresses.get(address)
        if host:
            fields["peer_host"] = host
        key = (*key, address)
    log.ledger.note("nccl_completion_error", fields, head, place, key, own=True, track=True)
    return True


_ASYNC = re.compile(
    r"(?:NET/\w{1,12} ?: ?)?(?:([\w.-]{1,64}):(\d{1,3}) )?(Got async "
    r"(?:error )?event|async fatal event|Got non-fatal async event)"
)
_GID_CHANGE = re.compile(
    r"NET/IB ?: (?:\w{1,60}: )?(?:([\w.-]{1,64}):(\d{1,3}) )?GID table changed(?: on ([\w.-]{1,64}):(\d{1,3}))?"
)
_EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("port_error", re.compile(r"port error", re.I)),
    ("port_active", re.compile(r"port active", re.I)),
    ("device_fatal", re.compile(r"local catastrophic error|device fatal|fatal device", re.I)),
    ("qp_fatal", re.compile(r"\bQP\b|work queue|SRQ|\bCQ\b|WQ", re.I)),
    ("gid_change", re.compile(r"GID", re.I)),
    ("lid_change", re.compile(r"\bLID\b", re.I)),
    ("client_reregister", re.compile(r"re-?regist", re.I)),
)


def async_event(log: Reader, message: str, head: Head, place: Place) -> bool:
    """An asynchronous verbs event, with the text of `ibv_event_type_str`."""
    found = _ASYNC.search(message)
    if found is None:
        changed = _GID_CHANGE.match(message)
        if changed is None:
            return False
        device, port = changed.group(1) or changed.group(3), changed.group(2) or changed.group(4)
        fields = drop_none(device=device, port=int(port) if port else None, event="gid_change", text=message,
                           fatal=False)  # fmt: skip
        log.ledger.note("nccl_async_event", fields, head, place, ("gid_change", device, port), own=True, track=True)
        return True
    text = message[found.end() :].rpartition(": ")[2].strip() or message
    fatal = "fatal" in found.group(3) and "non-fatal" not in found.group(3)
    event = next((name for name, pattern in _EVENTS if pattern.search(text)), None)
    if event is None or (event == "qp_fatal" and not fatal and "error" not in text):
        event = (
            "qp_fatal" if fatal and (" on QP" in message or " on CQ" in message or " on SRQ" in message) else "other"
        )
    port = found.group(2)
    fields = drop_none(
        device=found.group(1), port=int(port) if port else None, event=event, text=text, fatal=fatal or None
    )
    key = (event, found.group(1), port, text)
    log.ledger.note("nccl_async_event", fields, head, place, key, own=True, track=True)
    return True


_VERBS = re.compile(
    r"(?:Call to )?((?:ibv|mlx5dv|wrap_ibv|doca_verbs)_\w{1,50})(?:\(\))? (?:failed|returned)(.{0,400})"
)
_VERBS_NUMBER = re.compile(r" with (\d{1,5}) ")
_ERRNO = re.compile(r"errno (\d{1,5})")
_ON_DEVICE = re.compile(r"on dev ([\w.-]{1,64})(?::\d{1,3})?")
_GID_INDEX = re.compile(r"local GID index (\d{1,5})")
_LOCAL = re.compile(r"local GID ([0-9a-fA-F:.]{2,64}(?![\w.:]))")
_REMOTE = re.compile(r"remote GID ([0-9a-fA-F:.]{2,64}(?![\w.:]))")
_REMOTE_DEVICE = re.compile(r"remote dev(?:ice)? ([\w.-]{1,64})")
_SYSTEM_ERRORS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("no_memory", re.compile(r"cannot allocate memory|out of memory|\berrno 12\b|with 12 ", re.I)),
    ("invalid_argument", re.compile(r"invalid argument|\berrno 22\b|with 22 ", re.I)),
    ("timed_out", re.compile(r"timed out|\berrno 110\b|with 110 ", re.I)),
    ("network_unreachable", re.compile(r"network is unreachable|\berrno 101\b|with 101 ", re.I)),
    ("no_route", re.compile(r"no route to host|\berrno 113\b|with 113 ", re.I)),
    ("bad_address", re.compile(r"bad address|\berrno 14\b|with 14 ", re.I)),
    ("no_device", re.compile(r"no such device|\berrno 19\b|with 19 ", re.I)),
    ("no_data", re.compile(r"no data available|\berrno 61\b|with 61 ", re.I)),
)
_ERRNO_OF = {"no_memory": 12, "invalid_argument": 22, "timed_out": 110, "network_unreachable": 101, "no_route": 113,
             "bad_address": 14, "no_device": 19, "no_data": 61}  # fmt: skip


def verbs(log: Reader, message: str, head: Head, place: Place) -> bool:
    """A verbs call that failed; from 2.24 `ibv_modify_qp` tells device, GIDs and retries."""
    found = _VERBS.search(message)
    if found is None:
        return False
    rest = found.group(2)
    error = named(_SYSTEM_ERRORS, rest)
    number = number_in(_ERRNO, rest)
    if number is None:
        number = number_in(_VERBS_NUMBER, rest)
    fields = drop_none(
        call=found.group(1),
        error=error,
        errno=number if number is not None else _ERRNO_OF.get(error),
        device=word_in(_ON_DEVICE, rest),
        local_gid=word_in(_LOCAL, rest),
        local_gid_index=number_in(_GID_INDEX, rest),
        remote_gid=word_in(_REMOTE, rest),
        remote_device=word_in(_REMOTE_DEVICE, rest),
        retrying=True if "retrying" in rest else None,
    )
    log.ledger.note("nccl_verbs_error", fields, head, place, own=True, track=True)
    return True
