"""RDMA counters in every form that is pasted: sysfs paths, `head`-style banners, name/value lists, `rdma statistic`,
`perfquery`, `ibqueryerrors`.

Format: kernel 4.x to 6.x `/sys/class/infiniband/DEV/ports/N/{counters,hw_counters}/NAME`, iproute2, infiniband-diags.
`lifespan` is a cache time, not a counter. `port_xmit_data` and `port_rcv_data` count words of 4 bytes, as printed.
A device that nothing names is called "hca". A list read more than once in one text is numbered as snapshots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import device_from_name, evidence, parse_time

KIND = "rdma_counters"
TOPICS = ("rdma_counters", "ib_counters")

UNKNOWN_DEVICE = "hca"
MAX_RECORDS = 100_000


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


IB_PORT_COUNTERS = _names(
    "VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors"
    " multicast_rcv_packets multicast_xmit_packets port_rcv_constraint_errors port_rcv_data port_rcv_errors"
    " port_rcv_packets port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors"
    " port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error unicast_rcv_packets"
    " unicast_xmit_packets"
)
"""Names of the `counters` folder (IB specification style)."""

KNOWN = IB_PORT_COUNTERS | _names(
    "out_of_sequence packet_seq_err implied_nak_seq_err local_ack_timeout_err duplicate_request rnr_nak_retry_err"
    " out_of_buffer np_ecn_marked_roce_packets np_cnp_sent rp_cnp_handled rp_cnp_ignored roce_adp_retrans"
    " roce_adp_retrans_to roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans req_cqe_error resp_cqe_error"
    " req_cqe_flush_error resp_cqe_flush_error req_remote_access_errors resp_remote_access_errors"
    " req_remote_invalid_request resp_local_length_error req_transport_retries_exceeded req_rnr_retries_exceeded"
    " rx_write_requests rx_read_requests rx_atomic_requests rx_dct_connect rx_icrc_encapsulated cc_rx_ce_pkts"
    " cc_rx_cnp_pkts cc_tx_cnp_pkts lifespan"  # mlx5
    " to_retransmits seq_err_naks_rcvd max_retry_exceeded rnr_naks_rcvd missing_resp oos_drop_count"
    " tx_cnp_pkts rx_cnp_pkts rx_ecn_marked_pkts rx_roce_discards tx_roce_discards rx_roce_errors"  # bnxt_re
    " cnpSent cnpHandled cnpIgnored RxECNMrkd ip4InDiscards tcpRetransSegs iwInRdmaWrites"  # irdma
    " rdma_read_wrs rdma_read_bytes rdma_read_wr_err send_wrs retrans_bytes retrans_pkts retrans_timeout_events"
    " impaired_remote_conn_events unresponsive_remote_events"  # EFA
    " rcvd_pkts sent_pkts out_of_seq_request rcvd_rnr_err send_rnr_err rcvd_seq_err retry_exceeded_err"
    " retry_rnr_exceeded_err completer_retry_err"  # rxe
)
"""Names that make a bare list recognisable; further names in such a list are taken as they are."""

_PATH = re.compile(
    r"(?:(?P<device>[A-Za-z][\w.-]{0,39})/)?(?:ports/(?P<port>\d{1,3})/)?(?P<folder>hw_counters|counters)/(?P<name>\w{2,60})"
)
_VALUE = re.compile(r"(?:\s*[:=])?\s*(\d{1,20})\s*$")
_LIST = re.compile(r"\s{0,8}([A-Za-z]\w{2,59})(?:\s*[:=]\s*|\s+)(\d{1,20})\s*$")
_STATISTIC = re.compile(r"link ([\w.-]{1,40})/(\d{1,3}) ((?:\w+ \d{1,20} )+)$")
_PERFQUERY = re.compile(r"# Port (?:extended )?counters: Lid (\d+) port (\d+)")
_DOTTED = re.compile(r"(\w{3,60}):\.{2,}(\d{1,20})\s*$")
_QUERY_HEAD = re.compile(r'Errors for (?:0x[0-9a-f]+ )?"([^"]{1,80})"')
_QUERY_PORT = re.compile(r"\s+GUID 0x[0-9a-f]+ port (\d+|ALL):((?: ?\[\w+ == \d+[^\]]*\])+)")
_QUERY_ITEM = re.compile(r"\[(\w+) == (\d{1,20})")
_BANNER = re.compile(r"==> (\S+)")
_STAMP = re.compile(r"\d{4}-[\d:.,TZ+ -]{15,31}")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,62}): (?=/sys/class/infiniband/)")
_WHERE = re.compile(r"/sys/class/infiniband/([\w.-]{1,40})(?:/ports/(\d{1,3}))?(?:/(hw_counters|counters))?")
_OPTION = re.compile(r"perfquery\b.*\s-C\s*([\w.-]{1,40})")
_SNIFF = re.compile(
    r"/(?:hw_counters|counters)/\w{2,60}(?:\s*[:=]\s*\d+|\s*<==|[ \t]+\d+)[ \t]*$"
    r"|^(?:hw_)?counters/\w{2,60}\s*[:=]\s*\d+[ \t]*$"
    r"|^link [\w.-]{1,40}/\d{1,3} \w+ \d+ \w+ \d+"
    r"|^# Port (?:extended )?counters: Lid \d|^Errors for (?:0x[0-9a-f]+ )?\""
    r'|^\s*"ifname": "[^"\n]{1,40}",\n\s*"port": \d+,\n\s*"\w+": \d+,\n',
    re.MULTILINE,
)
_SNIFF_LIST = re.compile(
    r"^[ \t]{0,8}(?:==> )?(?:"
    + "|".join(sorted(KNOWN - {"lifespan", "link_downed"}))
    + r")(?:[ \t]*[:=][ \t]*\d+|[ \t]+\d+| <==)[ \t]*$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Device, port and folder that the lines read so far tell."""

    device: str
    port: int | None = None
    folder: str | None = None
    at: float | None = None
    host: str | None = None


def sniff(head: str, name: str) -> float:
    """Sure with a counter path or a tool's line, likely with a bare list of known names."""
    if _SNIFF.search(head):
        return 0.9
    return 0.7 if _SNIFF_LIST.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterable[Record]:
    """`rdma_counter` records; `ib_counters` counts as covered when the `counters` folder was read."""
    found: list[Record] = []
    for record in _read(lines, source):
        if len(found) < MAX_RECORDS:
            found.append(record)
    yield from _numbered(found)
    if any(r.fields.get("family") == "port" for r in found):
        hosts = {r.host for r in found if r.fields.get("family") == "port"}
        for host in sorted(hosts, key=str):
            yield Record("covered", {"topic": "ib_counters"}, host=host)


def _numbered(found: list[Record]) -> Iterator[Record]:
    """The records, with a snapshot number where one text holds several readings of a counter."""
    counts: dict[tuple[Any, ...], int] = {}
    order: list[tuple[Record, tuple[Any, ...], int]] = []
    for record in found:
        key = (record.host, record.fields["device"], record.fields.get("port"), record.fields["name"])
        order.append((record, key, counts.get(key, 0)))
        counts[key] = counts.get(key, 0) + 1
    for record, key, number in order:
        yield replace(record, fields={**record.fields, "snapshot": number}) if counts[key] > 1 else record


def _read(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    told = (
        device_from_name(source.name)
        if re.match(r"(?:hw_)?counters|rdma|ib|infiniband|perfquery", source.name)
        else None
    )
    place = _Place(told if told and not re.fullmatch(r"(?:hw_)?counters|statistics?", told) else UNKNOWN_DEVICE)
    base = place
    pending: tuple[_Place, str, Line] | None = None
    held: list[Line] = []
    listing = False
    for line in lines:
        text = line.text
        if held:
            held.append(line)
            if text.rstrip().endswith("]") or len(held) > 20_000:
                yield from _json(held, place, source)
                held = []
            continue
        if pending is not None and (value := _VALUE.match(text)) and text.strip()[0].isdigit():
            at, name, first = pending
            yield from _one(at, name, value.group(1), source, first, line)
            pending = None
            continue
        if text.strip():
            pending = None
        if "counters/" in text and (m := _PATH.search(text)):
            place = _moved(place, m, text)
            value = _VALUE.match(text, m.end())
            if value:
                yield from _one(place, m.group("name"), value.group(1), source, line)
            elif text[m.end() :].strip() in ("", "<==", ":"):
                pending = (place, m.group("name"), line)
        elif text.startswith("link ") and (m := _STATISTIC.match(text.rstrip() + " ")):
            words = m.group(3).split()
            at = replace(place, device=m.group(1), port=int(m.group(2)), folder="hw_counters")
            for name, number in zip(words[::2], words[1::2], strict=False):
                yield from _one(at, name, number, source, line)
        elif text.startswith("# Port") and (m := _PERFQUERY.match(text)):
            device = base.device if base.device != UNKNOWN_DEVICE else f"lid {m.group(1)}"
            place = replace(place, device=device, port=int(m.group(2)), folder="counters", host=None)
        elif ":.." in text and (m := _DOTTED.match(text)):
            if m.group(1) not in ("PortSelect", "CounterSelect", "CounterSelect2"):
                yield from _one(replace(place, folder="counters"), m.group(1), m.group(2), source, line)
        elif text.startswith("Errors for ") and (m := _QUERY_HEAD.match(text)):
            place = _node(place, m.group(1))
        elif "GUID 0x" in text and (m := _QUERY_PORT.match(text)):
            if m.group(1) != "ALL":
                for name, number in _QUERY_ITEM.findall(m.group(2)):
                    at = replace(place, port=int(m.group(1)), folder="counters")
                    yield from _one(at, name, number, source, line)
        elif m := _WHERE.search(text):
            port = int(m.group(2)) if m.group(2) else None
            place = base = replace(place, device=m.group(1), port=port, folder=m.group(3), host=None)
        elif "perfquery" in text and (m := _OPTION.search(text)):
            place = base = replace(place, device=m.group(1))
        elif text.startswith(("[ {", "[{")):
            held = [line]
            if text.rstrip().endswith("]"):
                yield from _json(held, place, source)
                held = []
        elif (m := _BANNER.match(text)) and m.group(1) in KNOWN:
            pending = (place, m.group(1), line)
        elif _STAMP.fullmatch(text.strip()):
            place = replace(place, at=parse_time(text.strip())[0])
        elif m := _LIST.match(text):
            listing = m.group(1) in KNOWN or listing
            if listing:
                at = replace(place, folder=None) if m.group(1) in KNOWN else place
                yield from _one(at, m.group(1), m.group(2), source, line)
        elif text.strip():
            listing = False


def _moved(place: _Place, m: re.Match[str], text: str) -> _Place:
    """The place that a counter path names; a relative path keeps what is not said."""
    device = m.group("device")
    if device in ("ports", "infiniband", "class") or (device and m.start() and text[m.start() - 1] not in "/ \t'\"(>."):
        device = None
    if device and m.group("port") is None and "infiniband/" not in text[: m.start() + 12] and device.isdigit():
        device = None
    port = int(m.group("port")) if m.group("port") else (None if device else place.port)
    prefixed = _HOST.match(text)
    host = prefixed.group(1) if prefixed else None
    return replace(place, device=device or place.device, port=port, folder=m.group("folder"), host=host)


def _node(place: _Place, description: str) -> _Place:
    """A node of `ibqueryerrors`: `host HCA-1` names host and adapter, a switch only itself."""
    host, _, adapter = description.partition(" ")
    if re.fullmatch(r"(?:HCA-\d+|mlx\d_\d+|ibp\w+)", adapter):
        return replace(place, device=adapter, host=host)
    return replace(place, device=description, host=None)


def _one(place: _Place, name: str, value: str, source: Source, *lines: Line) -> Iterator[Record]:
    if name == "lifespan":
        return
    folder = place.folder or ("counters" if name in IB_PORT_COUNTERS else "hw_counters")
    fields: dict[str, str | int | float | bool] = {
        "device": place.device, "name": name, "value": int(value), "family": "port" if folder == "counters" else "hw",
    }  # fmt: skip
    if place.port is not None:
        fields["port"] = place.port
    yield Record("rdma_counter", fields, (evidence(source, *lines),), place.at, place.host)


def _json(lines: list[Line], place: _Place, source: Source) -> Iterator[Record]:
    """`rdma -j statistic`: a list of {ifname, port, counters}."""
    try:
        found: Any = json.loads("\n".join(line.text for line in lines))
    except (ValueError, RecursionError):
        return
    for item in found if isinstance(found, list) else ():
        if not (isinstance(item, dict) and isinstance(item.get("ifname"), str) and isinstance(item.get("port"), int)):
            continue
        if not KNOWN & item.keys():
            continue
        at = replace(place, device=item["ifname"], port=int(item["port"]), folder="hw_counters")
        for name, value in item.items():
            if name not in ("port", "ifindex") and type(value) is int and value >= 0:
                shown = next((line for line in lines if f'"{name}"' in line.text), lines[0])
                yield from _one(at, name, str(value), source, shown)
