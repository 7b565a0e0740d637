"""Messages of start-up: version, environment, bootstrap, communicators and their progress, channels, graphs, NVLS."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from diagnose.parsing import drop_none, unprefix

from . import _addresses
from ._ledger import Place, Slot
from ._prefix import Head

if TYPE_CHECKING:
    from ._reader import Reader

Handler = Callable[["Reader", str, Head, Place], "list[Slot] | None"]
HANDLED: list[Slot] = []

_VERSION = re.compile(
    r"(\d{1,2}\.\d{1,3}\.\d{1,3}[\w.:-]{0,60})(?:\+(cuda|hip)(\d{1,3}\.\d{1,3}\S{0,20}))?(.*)", re.ASCII
)
_RCCL = re.compile(
    r"RCCL version ?:? ?(\d{1,2}\.\d{1,3}\.\d{1,3})[\w.:-]{0,80}(?:\+hip(\d{1,3}\.\d{1,3}\S{0,20}))?", re.ASCII
)
_ENVIRONMENT = re.compile(r"([A-Z][A-Z0-9_]{2,80}) set (?:by environment )?to (.*)", re.ASCII)
_CONFIG = re.compile(r"Comm config (.{1,60}?) (?:re)?set to (.*)")
_NUMBER = re.compile(r"-?(?:\d{1,18}|0x[0-9a-fA-F]{1,15})\.?", re.ASCII)
_BOOTSTRAP = re.compile(
    r"(?:Bootstrap ?: |NET : )Using (?:interface )?(?:\[\d{1,3}\])?([^\s:]{1,64}):([0-9a-fA-F:.%\w]{2,64})<(\d{1,5})>"
)
_CHANNELS = re.compile(
    r"(\d{1,4}) coll channels, (?:\d{1,4} collnet channels, )?(?:(\d{1,4}) nvls channels, )?(\d{1,4}) p2p channels",
    re.ASCII,
)
_PATTERN = re.compile(
    r"Pattern (\d), crossNic \d{1,2}, nChannels (\d{1,4}), (?:bw|speed) (\d{1,6}\.\d{1,6})/(\d{1,6}\.\d{1,6}), "
    r"type (\w{1,10})/(\w{1,10})",
    re.ASCII,
)
_PATTERNS = {"1": "balanced_tree", "2": "split_tree", "3": "tree", "4": "ring", "5": "nvls", "6": "collnet"}
_NVLS = re.compile(r"NVLS multicast support is (not )?available on dev (\d{1,4})")
_COLLNET = re.compile(
    r"CollNet \d{1,4}(?:/\d{1,4})? : (\d{1,7}) \[\w{1,8}\] via (COLLNET/[^/]{1,40}/\S{1,40})", re.ASCII
)


def environment(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`NAME set by environment to VALUE` (whole numbers end with a dot) and `NAME set to VALUE`."""
    found = _ENVIRONMENT.match(message)
    if found is None:
        return None
    name, value = found.group(1), found.group(2).strip()
    fields: dict[str, Any] = {"name": name, "value": value}
    _number(fields)
    return _one(log.ledger.note("nccl_env", fields, head, place))


def config(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Comm config NAME set to VALUE`: what the application asked for (2.17+)."""
    found = _CONFIG.match(message)
    if found is None:
        return None
    fields: dict[str, Any] = {"name": f"config {found.group(1)}", "value": found.group(2).strip()}
    _number(fields)
    return _one(log.ledger.note("nccl_env", fields, head, place))


def _number(fields: dict[str, Any]) -> None:
    value = fields["value"]
    if _NUMBER.fullmatch(value):
        value = value.removesuffix(".")
        fields["value"] = value
        fields["number"] = int(value, 0) if "x" in value else int(value)


def bootstrap(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Bootstrap : Using IF:ADDR<PORT>`; timings of the bootstrap are a progress marker."""
    if message.startswith("Bootstrap timings"):
        log.comms.mark(head, "Bootstrap timings", place)
        return HANDLED
    found = _BOOTSTRAP.match(message)
    if found is None:
        return None
    interface, address = found.group(1), found.group(2)
    fields = drop_none(
        interface=interface,
        address=address,
        scope=_addresses.scope(address),
        subnet=_addresses.subnet(address),
        interface_class=_addresses.interface_class(interface),
    )
    if head.host:
        log.addresses[address] = head.host
    return _one(log.ledger.note("nccl_bootstrap", fields, head, place))


def communicator(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`… comm 0x… rank … - Init START` and its kin."""
    return HANDLED if log.comms.line(message, head, place) else None


def timings(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Init timings …`."""
    return HANDLED if log.comms.timing(message, head) else None


def connected(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Connected all rings`, `Connected all trees`, `Connected NVLS tree`, `Connected binomial trees`."""
    if message.startswith(("Connected all", "Connected NVLS", "Connected bin")):
        log.comms.mark(head, message.split(",")[0][:40], place)
        return HANDLED
    return None


def channel_count(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`N coll channels, … N p2p channels, N p2p channels per peer`."""
    found = _CHANNELS.match(message)
    if found is None:
        return None
    log.comms.mark(head, "channels counted", place)
    fields: dict[str, Any] = {"coll": int(found.group(1)), "p2p": int(found.group(3))}
    if found.group(2):
        fields["nvls"] = int(found.group(2))
    nranks = getattr(head.current, "nranks", 0)
    if nranks:
        fields["nranks"] = nranks
    log.ledger.note("nccl_channel_count", fields, head, place)
    return HANDLED


def graph(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`Pattern P, crossNic c, nChannels n, bw a/b, type X/Y` (bandwidth per channel in GB/s)."""
    found = _PATTERN.match(message)
    if found is None:
        return None
    log.comms.mark(head, "graph search", place)
    fields = {
        "pattern": _PATTERNS.get(found.group(1), found.group(1)),
        "channels": int(found.group(2)),
        "bw_intra_gbps": float(found.group(3)),
        "bw_inter_gbps": float(found.group(4)),
        "type_intra": found.group(5),
        "type_inter": found.group(6),
    }
    return _one(log.ledger.note("nccl_graph", fields, head, place))


def nvls(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`NVLS multicast support is [not ]available on dev N`."""
    found = _NVLS.match(message)
    if found is None:
        return None
    state = "unavailable" if found.group(1) else "available"
    return _one(log.ledger.note("nccl_nvls", {"state": state, "text": message}, head, place, ("state", state)))


def collnet(log: Reader, message: str, head: Head, place: Place) -> list[Slot] | None:
    """`CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA`, counted as a channel."""
    found = _COLLNET.match(message)
    if found is None:
        return None
    log.comms.channel(head, (found.group(1), "", found.group(2)), place)
    return HANDLED


def version(log: Reader, message: str, head: Head, place: Place, raw: str) -> None:
    """`NCCL version X.Y.Z+cudaA.B`, signed, or bare as printed by rank 0 up to 2.21."""
    found = _VERSION.fullmatch(message)
    if found is None or found.group(4).strip():
        return
    if head.host is None and unprefix(raw + "|").text.strip(" |"):
        return
    flavour = "rccl" if found.group(2) == "hip" or log.rccl else "nccl"
    fields = drop_none(version=found.group(1), cuda=found.group(3), flavour=flavour)
    log.ledger.note("nccl_version", fields, head, place)


def rccl_version(log: Reader, text: str) -> None:
    """`RCCL version …` lines, which carry no signature."""
    log.rccl = True
    for found in _RCCL.finditer(text):
        line = text.rfind("\n", 0, found.start()) + 1
        raw = text[line : found.start()]
        fields = drop_none(version=found.group(1), cuda=found.group(2), flavour="rccl")
        log.ledger.note("nccl_version", fields, log.heads.find(raw), log.place(line, raw))


def _one(slot: Slot | None) -> list[Slot]:
    return [slot] if slot is not None else HANDLED


INFO: dict[str, Handler] = {
    "Bootstrap": bootstrap,
    "Bootstrap:": bootstrap,
    "NET": bootstrap,
    "Comm": config,
    "comm": communicator,
    "[Rank": communicator,
    "ncclCommInitRank": communicator,
    "ncclCommInitRankConfig": communicator,
    "ncclCommInitRankScalable": communicator,
    "ncclCommInitAll": communicator,
    "ncclCommSplit": communicator,
    "ncclCommShrink": communicator,
    "ncclCommGrow": communicator,
    "Init": timings,
    "Connected": connected,
    "Pattern": graph,
    "NVLS": nvls,
    "CollNet": collnet,
}
"""Handlers by the first word of an INFO message. Empty list: understood; list of slots: may be counted unread."""
