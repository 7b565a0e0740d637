"""What the text of an exception or c10d message says: mismatches, barriers, the store, NCCL errors. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from diagnose.model import fold_ranks

from ._watchdog import squeeze

MAX_TEXT = 300
_MAX_WRAPPED = 40

Found = tuple[str, dict[str, Any], int | None]
"""(kind, fields, global rank that the text itself names as the speaker)."""


def messages(text: str) -> Iterator[Found]:
    """Everything that one message says. Fields may hold None for what it leaves out."""
    if "CollectiveFingerPrint(" in text or "Detected mismatch" in text:
        yield from fingerprint(text)
    if "monitoredBarrier" in text:
        yield from barrier(text)
    yield from store(text)
    yield from backend_error(text)


def first_line(text: str) -> str:
    """First line of a message, bounded."""
    return text.strip().split("\n", 1)[0].strip()[:MAX_TEXT]


# --- TORCH_DISTRIBUTED_DEBUG=DETAIL --------------------------------------------------------------------

_SIDE = re.compile(
    r"Rank(?P<rank>\d{1,6})isrunning(?:inconsistent)?collective:CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d{1,18}),?)?OpType=(?P<op>\w{1,40})"
    r"(?:,TensorShape=\[(?P<shape>[\d,]{0,400})\])?(?:,TensorDtypes=(?P<dtype>\w{1,200}))?"
)
_ASPECTS: tuple[tuple[str, str], ...] = (
    ("Sequencenumber:", "seq"),
    ("Optype:", "op"),
    ("Tensorshapes:", "shape"),
    ("Tensordtypes:", "dtype"),
)


def fingerprint(text: str) -> Iterator[Found]:
    """`Detected mismatch between collectives on ranks.` (torch 1.9+); nested brackets are read by key.

    Calls without tensors lack the comma after the number (torch 2.0 to 2.7): `SequenceNumber=1OpType=BARRIER`.
    """
    squeezed = squeeze(text)
    sides = list(_SIDE.finditer(squeezed))
    if not sides:
        return
    fields: dict[str, Any] = {"source_check": "fingerprint", "rank_other": None}
    for side, suffix in zip(sides[:2], ("", "_other"), strict=False):
        fields["seq" + suffix] = int(side["seq"]) if side["seq"] else None
        fields["op" + suffix] = side["op"]
        fields["shape" + suffix] = f"[{side['shape'].replace(',', ', ')}]" if side["shape"] is not None else None
        fields["dtype" + suffix] = side["dtype"]
    if len(sides) > 1:
        fields["rank_other"] = int(sides[1]["rank"])
    aspects = squeezed.partition("Collectivesdifferinthefollowingaspects:")[2]
    fields["differs"] = next((name for literal, name in _ASPECTS if literal in aspects), None) or _differing(fields)
    yield "torch_mismatch", fields, int(sides[0]["rank"])


def _differing(fields: dict[str, Any]) -> str:
    for _, name in _ASPECTS:
        here, there = fields.get(name), fields.get(name + "_other")
        if here is not None and there is not None and here != there:
            return name
    return "unknown"


# --- monitored barrier -----------------------------------------------------------------------------------

_BARRIER = re.compile(
    r"Ranks? (?P<ranks>\d{1,6}(?:, ?\d{1,6}){0,20000}) failed to pass monitoredBarrier(?: in (?P<ms>\d{1,12}) ms)?"
)


def barrier(text: str) -> Iterator[Found]:
    """`Ranks 3, 5 failed to pass monitoredBarrier in 2000 ms` (Gloo, rank 0 speaks)."""
    for m in _BARRIER.finditer(text):
        missing = fold_ranks(int(n) for n in m["ranks"].split(","))
        yield "torch_barrier", {"missing": missing, "waited_ms": float(m["ms"]) if m["ms"] else None}, None


# --- store and rendezvous ----------------------------------------------------------------------------------

_CLIENTS = re.compile(r"(?P<joined>\d{1,7})/(?P<world>\d{1,7}) clients joined")
_STORE_BARRIER = re.compile(
    r"store based barrier (?:to initialize process group )?(?:for |on )?(?:\d{1,9} seconds)?"
    r"(?:rank:? ?(?P<rank>\d{1,6}))?"
)
_WORLD = re.compile(r"world_size=(?P<world>\d{1,7}), ?(?:num_workers_joined|worker_count)=(?P<joined>\d{1,7})")
_CONNECT = re.compile(
    r"(?:connect to|connecting to) (?:any network address of )?"
    r"[\[(](?P<host>[^\s\],)]{1,255})\]?(?:,|:) ?(?P<port>\d{1,5})"
)
_REMOTE = re.compile(r"remote=\[?(?P<host>[^\s\],]{1,255})\]?:(?P<port>\d{1,5})")
_BIND = re.compile(
    r"failed to (?:bind|listen)[^\n]{0,40}? (?:to|on) \[?(?P<host>[^\s\]]{1,255}?)\]?:(?P<port>\d{1,5})\b"
)
_BROKEN = (
    "Connection reset by peer",
    "Connection was likely closed",
    "recvValue failed",
    "sendBytes failed",
    "Broken pipe",
)
_STORE_WORDS = ("c10d", "TCPStore", "Store", "store", "DistNetworkError", "socket.cpp")
_WHY: tuple[tuple[str, str], ...] = (
    ("refused", "refused"),
    ("No route to host", "no_route"),
    ("Network is unreachable", "no_route"),
    ("timed out", "timed_out"),
    ("Timeout", "timed_out"),
    ("timeout", "timed_out"),
)


def store(text: str) -> Iterator[Found]:
    """Time-outs and broken connections of the c10d store, and of torchrun's rendezvous."""
    event, fields, rank = _store_event(text)
    if event is None:
        return
    fields["event"] = event
    fields["text"] = first_line(text)
    peer = fields.get("peer")
    if peer:
        address, _, port = peer.rpartition(":")
        fields["peer_address"], fields["peer_port"] = address.strip("[]"), int(port)
        fields["peer_scope"] = scope_of(fields["peer_address"])
    yield "torch_store", fields, rank


def _store_event(text: str) -> tuple[str | None, dict[str, Any], int | None]:
    if "clients joined" in text:
        m = _CLIENTS.search(text)
        return "clients_missing", {"joined": int(m["joined"]), "world": int(m["world"])} if m else {}, None
    if "Timed out initializing process group in store based barrier" in text:
        m, who = _WORLD.search(text), _STORE_BARRIER.search(text)
        counts = {"joined": int(m["joined"]), "world": int(m["world"])} if m else {}
        return "clients_missing", counts, int(who["rank"]) if who and who["rank"] else None
    if "RendezvousTimeoutError" in text:
        return "clients_missing", {}, None
    if "EADDRINUSE" in text or "ddress already in use" in text:
        if not any(word in text for word in ("server socket", "TCPStore", "c10d")):
            return None, {}, None
        return "bind_failed", {"peer": _address(_BIND, text), "error": "in_use"}, None
    if "client socket has timed out" in text or "client socket has failed to connect" in text:
        return "connect_failed", {"peer": _address(_CONNECT, text), "error": _why(text)}, None
    if "RendezvousConnectionError" in text or "connection to the C10d store has failed" in text:
        return "connect_failed", {"error": _why(text)}, None
    if "wait timeout after" in text:
        return "wait_timeout", {"peer": _address(_REMOTE, text), "error": "timed_out"}, None
    if not any(word in text for word in _STORE_WORDS):
        return (
            ("socket_timeout", {"error": "timed_out"}, None)
            if text.strip().endswith(" Socket Timeout")
            else (None, {}, None)
        )
    if "Socket Timeout" in text or "waitForInput" in text:
        return "socket_timeout", {"peer": _address(_REMOTE, text), "error": "timed_out"}, None
    if any(literal in text for literal in _BROKEN):
        return "broken", {"peer": _address(_REMOTE, text)}, None
    return None, {}, None


def _why(text: str) -> str:
    return next((word for literal, word in _WHY if literal in text), "other")


def _address(pattern: re.Pattern[str], text: str) -> str | None:
    m = pattern.search(text)
    if m is None:
        return None
    host = m["host"].removeprefix("::ffff:").strip("[]")
    return f"[{host}]:{m['port']}" if ":" in host else f"{host}:{m['port']}"


def scope_of(host: str) -> str | None:
    """Scope of an address as `nccl_bootstrap.scope` has it; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "loopback" if host == "localhost" else None
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link_local"
    if address.version == 4 and address in ipaddress.ip_network("172.17.0.0/16"):
        return "docker_bridge"
    return "private" if address.is_private else "global"


# --- NCCL errors as torch raises them ------------------------------------------------------------------------

_DIST_ERROR = re.compile(r"\b(Dist(?:Backend|Store|Network|Queue)?Error)\b")
_NCCL_ERROR = re.compile(r"NCCL [Ee]rror(?: in)?(?::| \d)")
_GLOO_SIZES = re.compile(r"\bop\.(?:preamble\.)?\w{1,20} <= op\.nbytes\. \d{1,20} vs \d{1,20}")
"""gloo/transport/tcp/pair.cc: a peer announced more bytes than this rank's buffer holds."""
_VERSION = re.compile(r"NCCL version (\d{1,3}(?:\.\d{1,4}){1,2})")
_RESULT = re.compile(r"\b(nccl(?:System|UnhandledCuda|Internal|Remote|InvalidArgument|InvalidUsage)\w{0,12})\b")


_RESULTS_IN_WORDS = (
    ("unhandled system error", "ncclSystemError"),
    ("unhandled cuda error", "ncclUnhandledCudaError"),
    ("internal error", "ncclInternalError"),
    ("invalid usage", "ncclInvalidUsage"),
    ("invalid argument", "ncclInvalidArgument"),
    ("remote process exited", "ncclRemoteError"),
)
"""What ncclGetErrorString says, for those who print nothing else."""
_SOURCE_LINE = re.compile(r"\braise \w{1,60}\(|[\"']NCCL [Ee]rror: \{")


def backend_error(text: str) -> Iterator[Found]:
    """DistBackendError, DistStoreError, DistNetworkError, and the bare `NCCL error in:` of older versions."""
    named = _DIST_ERROR.search(text)
    if named is None and _NCCL_ERROR.search(text) is None:
        if "gloo/transport/" in text:
            kind = "GlooSizeMismatch" if _GLOO_SIZES.search(text) else "GlooError"
            yield "torch_error", {"type": kind, "text": first_line(text)}, None
        return
    if named is None and _SOURCE_LINE.search(text):
        return
    version, result = _VERSION.search(text), _RESULT.search(text)
    low = text.lower()
    in_words = next((name for words, name in _RESULTS_IN_WORDS if words in low), None)
    last = text.partition("Last error:")[2].strip()
    yield (
        "torch_error",
        {
            "type": named.group(1) if named else "DistBackendError",
            "nccl_version": version.group(1) if version else None,
            "nccl_result": result.group(1) if result else in_words,
            "last_error": " ".join(last.split())[:MAX_TEXT] or None,
            "text": first_line(text),
        },
        None,
    )


def continues(text: str, more: str) -> bool:
    """The speaker's line `more` belongs to the message: NCCL's result and last error, a wrapped fingerprint."""
    if "NCCL error" in text or "NCCL Error" in text or "NCCL version" in text:
        return text.endswith("Last error:") or more.startswith(("nccl", "Last error:"))
    if "Detected mismatch" not in text or "following aspects:" in text or text.count("\n") > _MAX_WRAPPED:
        return False
    return not more.startswith(("Traceback", "[", "File "))
