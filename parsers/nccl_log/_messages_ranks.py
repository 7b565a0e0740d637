"""What NCCL compares between ranks, P2P and NVLS that are off, RAS, error unwinding, diagnostics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.parsing import drop_none

from . import _addresses
from ._ledger import Place, Slot
from ._messages_init import HANDLED
from ._prefix import Head
from ._text import number_in, whole

if TYPE_CHECKING:
    from ._reader import Reader

_MISMATCHES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "version",
        re.compile(
            r"Mismatched NCCL version detected : rank (?P<ra>\d{1,7}) version "
            r"(?P<va>\S{1,40}) rank (?P<rb>\d{1,7}) version (?P<vb>\S{1,40})"
        ),
    ),
    (
        "version",
        re.compile(
            r"NCCL version mismatch with remote peer \S{1,260} "
            r"\(local: (?P<va>[^,]{1,40}), remote (?P<vb>[^)]{1,40})\)"
        ),
    ),
    (
        "git_version",
        re.compile(
            r"Mismatched NCCL git versions detected: rank (?P<ra>\d{1,7}) fingerprint "
            r"(?P<va>\w{1,20}), rank (?P<rb>\d{1,7}) fingerprint (?P<vb>\w{1,20})"
        ),
    ),
    (
        "net_device_count",
        re.compile(
            r"Detected mixed local (?:Net|CollNet) device counts "
            r"across ranks \(min (?P<va>\d{1,7}), max (?P<vb>\d{1,7})\)"
        ),
    ),
    (
        "net_device_count",
        re.compile(r"Rank (?P<ra>\d{1,7}) has (?P<va>\d{1,7}) " r"local Net devices \(max (?P<vb>\d{1,7})\)"),
    ),
    (
        "net_device_count",
        re.compile(
            r"Rank (?P<ra>\d{1,7}) requires NIC \S{1,20} but " r"that NIC is not available for rank (?P<rb>\d{1,7})"
        ),
    ),
    ("rank_duplicate", re.compile(r"Bootstrap Root : rank (?P<ra>\d{1,7}) of \d{1,7} ranks has already checked in")),
    ("rank_count", re.compile(r"Bootstrap Root : mismatch in rank count from procs (?P<va>\d{1,7}) : (?P<vb>\d{1,7})")),
    (
        "rank_count",
        re.compile(r"Bootstrap Root : mismatch in info from procs," r" nranks (?P<va>\d{1,7}) vs (?P<vb>\d{1,7})"),
    ),
    (
        "duplicate_gpu",
        re.compile(
            r"Duplicate GPU detected : rank (?P<ra>\d{1,7}) and rank "
            r"(?P<rb>\d{1,7}) both on CUDA device (?P<va>\w{1,20})"
        ),
    ),
    ("duplicate_gpu", re.compile(r"Multiple [Rr]anks (?:are|detected) using the same GPU")),
    (
        "message_size",
        re.compile(
            r"[Mm]essage truncated : receiv(?:ed|ing) " r"(?P<va>[\d,]{1,40}) bytes instead of (?P<vb>[\d,]{1,40})"
        ),
    ),
    (
        "message_size",
        re.compile(r"collective mismatch error,? local size " r"(?P<va>\d{1,20}) remote (?:size )?(?P<vb>\d{1,20})"),
    ),
    ("message_size", re.compile(r"Mismatched collective detected,.{1,80}around rank (?P<ra>\d{1,7})")),
    ("message_size", re.compile(r"posted incorrect receive info: size (?P<vb>-?\d{1,20})")),
    (
        "nvls_arena",
        re.compile(
            r"NVLS UB arena divergence: rank (?P<ra>\d{1,7}) allocated offset "
            r"(?P<va>\d{1,20}), rank (?P<rb>\d{1,7}) allocated offset (?P<vb>\d{1,20})"
        ),
    ),
    (
        "magic",
        re.compile(
            r"[Ss]ocket magic mismatch[^(]{0,300}\(peer "
            r"(?P<va>0x[0-9a-f]{1,16}) != expected (?P<vb>0x[0-9a-f]{1,16})"
        ),
    ),
    ("magic", re.compile(r"wrong type (?P<va>\d{1,5}) != (?P<vb>\d{1,5})")),
    ("magic", re.compile(r"with family (?P<va>\d{1,6}) is neither AF_INET")),
    ("magic", re.compile(r"wrong magic (?P<va>\w{1,20}) != (?P<vb>\w{1,20})")),
)
_MISMATCH_GATE = re.compile(
    r"[Mm]ismatch|mixed local|local Net devices|requires NIC|"
    r"checked in|Duplicate GPU|same GPU|truncated :|incorrect receive"
    r"|arena divergence|wrong magic|wrong type|neither AF_INET"
)


def mismatch(log: Reader, message: str, head: Head, place: Place) -> bool:
    """Something that NCCL compares between ranks differs."""
    if _MISMATCH_GATE.search(message) is None:
        return False
    for subject, pattern in _MISMATCHES:
        found = pattern.search(message)
        if found is None:
            continue
        told = {name: value for name, value in found.groupdict().items() if value is not None}
        if subject == "net_device_count" and told.get("va") is not None and told.get("va") == told.get("vb"):
            return True
        fields = drop_none(
            subject=subject,
            detail=message,
            rank_a=whole(told.get("ra")),
            rank_b=whole(told.get("rb")),
            value_a=told.get("va"),
            value_b=told.get("vb"),
        )
        key = (subject, *(told.get(name) for name in ("ra", "rb", "va", "vb")), log.shape(message))
        log.ledger.note("nccl_config_mismatch", fields, head, place, key, own=True, track=True)
        return True
    return False


_P2P: tuple[tuple[str, str], ...] = (
    ("disabled_on_nvlink", "P2P is disabled between NVLINK connected GPUs"),
    ("disabled_connected", "P2P is disabled between connected GPUs"),
    ("enable_failed", "Could not enable P2P between"),
    ("enable_failed", "failed to peer with device"),
)
_BIND = re.compile(r"(?:Failed to bind NVLink SHARP|NVLS Multicast bind of size)")
_CUDA_ERROR = re.compile(r"CUDA error (\d{1,6})")


_NVLS_FILE = re.compile(r"(?:^|/)nvls\.cc:\d")
_NVLS_CALL = re.compile(r"Cuda failure (?:(\d{1,6}) )?'([^'\n]{1,300})")


def nvls_call(log: Reader, message: str, file: str | None, head: Head, place: Place) -> None:
    """`transport/nvls.cc:N NCCL WARN Cuda failure N 'TEXT'`: multicast memory that could not be made or bound."""
    if file is None or _NVLS_FILE.search(file) is None:
        return
    found = _NVLS_CALL.match(message)
    if found is None or "out of memory" in message:
        return
    number = int(found.group(1)) if found.group(1) else None
    fields = drop_none(state="bind_failed", cuda_error=number, text=message)
    log.ledger.note("nccl_nvls", fields, head, place, ("bind_failed", number), own=True, track=True)


def gpus(log: Reader, message: str, head: Head, place: Place) -> bool:
    """P2P switched off, or NVLS memory that could not be bound."""
    if _BIND.match(message):
        number = number_in(_CUDA_ERROR, message)
        fields = drop_none(state="bind_failed", cuda_error=number, text=message)
        log.ledger.note("nccl_nvls", fields, head, place, ("bind_failed", number), own=True, track=True)
        return True
    for state, literal in _P2P:
        if literal in message:
            fields = {"state": state, "detail": message}
            log.ledger.note("nccl_p2p_state", fields, head, place, (state, message), track=True)
            return True
    return False


_RAS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("keepalive_error", re.compile(r"keep-alive timeout error[^\n]{0,80}? (?:with|from|to) (\S{1,260})")),
    ("keepalive_warning", re.compile(r"keep-alive timeout warning[^\n]{0,80}? (?:with|from|to) (\S{1,260})")),
    (
        "peer_dead",
        re.compile(
            r"declaring peer (\S{1,260}) as DEAD|connection from peer (\S{1,260}) "
            r"that is considered dead|RAS dead peer \d{1,7}: (\S{1,260})"
        ),
    ),
    ("peer_closed", re.compile(r"(?:with|from) (\S{1,260}) closed by peer")),
    ("port_busy", re.compile(r"failed to establish a client listening socket at (\S{1,260})")),
    ("negative_travel_time", re.compile(r"negative travel time")),
)


def ras(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """Lines of the RAS thread that speak about peers."""
    for event, pattern in _RAS:
        found = pattern.search(message)
        if found:
            peer = next((g for g in found.groups() if g), None)
            address = _addresses.peer(peer)[0] if peer else None
            fields = drop_none(event=event, peer=address, text=message)
            log.ledger.note("nccl_ras_event", fields, head, place, (event, address), track=True)
            return HANDLED
    return HANDLED


_RETURN = re.compile(r"(\S{1,120}:\d{1,6})(?: \([^)]{1,120}\))? -> (\d{1,3})(?: \[[\w ]{1,40}\])?$", re.ASCII)
_CODES = {1: "unhandled_cuda", 2: "system", 3: "internal", 4: "invalid_argument", 5: "invalid_usage", 6: "remote",
          8: "timeout"}  # fmt: skip
_IN_PROGRESS = (0, 7)


def error_return(log: Reader, message: str, head: Head, place: Place) -> bool:
    """`file.cc:12 -> 3`: only the innermost line of each unwinding."""
    found = _RETURN.match(message)
    if found is None:
        return False
    code = int(found.group(2))
    if code in _IN_PROGRESS or head.chain == code:
        return True
    head.chain = code
    fields = drop_none(code=code, code_name=_CODES.get(code), file=found.group(1))
    log.ledger.note("nccl_error_return", fields, head, place, own=True, track=True)
    return True


_DIAG_LEVEL = re.compile(r"\[(\w{1,12})\] ?")
_DIAG_CHECKS = ("net_bw", "p2p", "ecc", "nvlink", "xid", "sxid", "env")
_DIAG_FAULT = re.compile(
    r"mismatch|>\d{1,3}% off|uncorrected|inactive link|\bS?Xid \d|"
    r"failed|only \d{1,7}/\d{1,7}|differ|degraded|unable to complete",
    re.I,
)


def diagnostic(log: Reader, message: str, head: Head, place: Place) -> None:
    """`HOST:PID NCCL DIAG TEXT` (2.31+)."""
    if not message or message.startswith("==="):
        return
    found = _DIAG_LEVEL.match(message)
    level = found.group(1).lower() if found else "info"
    if level not in ("ok", "info"):
        level = "fault"
    text = message[found.end() :] if found else message
    if level == "info" and _DIAG_FAULT.search(text):
        level = "fault"
    check = next((name for name in _DIAG_CHECKS if text.lower().startswith(name.replace("_", " "))), "other")
    result = "problem" if level == "fault" else level
    fields = {"level": level, "check": check.removeprefix("s"), "result": result, "text": text}
    log.ledger.note("nccl_diagnostic", fields, head, place, track=True)
