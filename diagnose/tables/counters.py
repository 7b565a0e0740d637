"""Counters of two snapshots -> rates; gauges and lifetime values that mean something alone.

Counters are cumulative: only a difference over a known order of snapshots says something about the job. A counter that
went down was reset: its interval is dropped. Names and units: Linux kernel, mlx5 `counters.rst` (pause durations in
microseconds), bnxt_en, i40e and ice statistics, RDMA `hw_counters`; InfiniBand port counters as in `ibqueryerrors(8)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from diagnose.model import Evidence, Fact, FactBase, Value

Frame = Any
"""A pandas object; pandas ships no types that tell rows from columns."""

PAUSED_RX_SHARE = 0.01
"""From this share of the interval on, a host counts as paused by the fabric (chosen by us: 1 % shows in step time)."""
PAUSING_TX_SHARE = 0.05
"""From this share on, a host counts as pausing the fabric (chosen by us: healthy receivers stay below 0.5 %)."""


@dataclass(frozen=True)
class Metric:
    """How counters become a metric: `form` is share (of the interval, from µs), count (of all matching counters
    together), or largest (of counters that count the same packets at several places)."""

    name: str
    pattern: re.Pattern[str]
    form: str = "count"
    per: str | None = None
    always: bool = False


def _m(name: str, pattern: str, form: str = "count", per: str | None = None, always: bool = False) -> Metric:
    return Metric(name, re.compile(rf"(?:{pattern})\Z"), form, per, always)


NIC_METRICS = (
    _m("tx_pause_share", r"tx_prio(?P<prio>[0-7])_pause_duration|pfc_pri(?P<prio2>[0-7])_tx_duration_us", "share",
       always=True),
    _m("rx_pause_share", r"rx_prio(?P<prio>[0-7])_pause_duration|pfc_pri(?P<prio2>[0-7])_rx_duration_us", "share",
       always=True),
    _m("tx_global_pause_share", r"tx_global_pause_duration", "share"),
    _m("rx_global_pause_share", r"rx_global_pause_duration", "share"),
    _m("tx_pause_frames",
       r"tx_prio(?P<prio>[0-7])_pause|(?:port\.)?tx_priority_(?P<prio2>[0-7])_xoff(?:\.nic)?"
       r"|tx_pfc_ena_frames_pri(?P<prio3>[0-7])"),
    _m("rx_pause_frames",
       r"rx_prio(?P<prio>[0-7])_pause|(?:port\.)?rx_priority_(?P<prio2>[0-7])_xoff(?:\.nic)?"
       r"|rx_pfc_ena_frames_pri(?P<prio3>[0-7])"),
    _m("global_pause_frames",
       r"[rt]x_global_pause|[rt]x_pause_ctrl_phy|[rt]x_pause_frames|(?:port\.)?link_xoff_[rt]x(?:\.nic)?"),
    _m("lossless_discards", r"rx_prio(?P<prio>[0-7])_discards"),
    _m("discards", r"rx_discards_phy|tx_discards_phy", per="rx"),
    _m("buffer_85", r"rx_buffer_passed_thres_phy"),
    _m("crc_errors", r"rx_crc_errors_phy|(?:port\.)?rx_crc_errors(?:\.nic)?|rx_fcs_err_frames"),
    _m("symbol_errors", r"rx_pcs_symbol_err_phy|rx_symbol_err_phy|rx_pcs_symbol_err|rx_fec_uncorrectable_blocks"),
    _m("oversize", r"rx_oversize_pkts_phy|rx_out_of_range_len_phy|(?:port\.)?rx_oversize(?:\.nic)?"),
    _m("link_down_events", r"link_down_events(?:_phy)?"),
    _m("ring_drops",
       r"rx_out_of_buffer|rx_total_ring_discards|rx_drops_no_frags|rx_no_buffer_count|rx_missed_errors|rx_missed"
       r"|(?:port\.)?rx_dropped(?:\.nic)?|rx_ring_(?:\w{1,40}_)?(?:discards?|drops?|dropped)(?:_\w{1,40})?_sum",
       "largest", per="rx"),
    _m("bandwidth_allowance", r"bw_(?:in|out)_allowance_exceeded"),
    _m("packet_allowance", r"pps_allowance_exceeded"),
    _m("connection_allowance", r"conntrack_allowance_exceeded"),
    _m("storm_warnings", r"tx_pause_storm_warning_events"),
    _m("storm_errors", r"tx_pause_storm_error_events"),
    _m("pci_signal_errors", r"[rt]x_pci_signal_integrity"),
    _m("pci_overflow", r"outbound_pci_buffer_overflow"),
    _m("pci_stalled_write_seconds", r"outbound_pci_stalled_wr_events"),
    _m("pci_stalled_read_seconds", r"outbound_pci_stalled_rd_events"),
    _m("module_events", r"module_(?:high_temp|bus_stuck|bad_shorted|unplug)"),
    _m("corrected_bits", r"rx_corrected_bits_phy"),
    _m("rdma_bytes", r"[rt]x_vport_rdma_unicast_bytes"),
)  # fmt: skip

GAUGES = {
    "outbound_pci_stalled_wr": "pcie_stalled_write_pct",
    "outbound_pci_stalled_rd": "pcie_stalled_read_pct",
}

RDMA_METRICS = (
    _m("ack_timeouts", r"local_ack_timeout_err", per="tx", always=True),
    _m("retransmissions", r"packet_seq_err|implied_nak_seq_err|roce_adp_retrans", per="tx", always=True),
    _m("adaptive_timeouts", r"roce_adp_retrans_to"),
    _m("out_of_sequence", r"out_of_sequence", per="rx"),
    _m("rnr", r"rnr_nak_retry_err"),
    _m("out_of_buffer", r"out_of_buffer"),
    _m("cnp_sent", r"np_cnp_sent", per="rx", always=True),
    _m("cnp_handled", r"rp_cnp_handled", always=True),
    _m("ecn_marked", r"np_ecn_marked_roce_packets", always=True),
    _m("icrc", r"rx_icrc_encapsulated"),
    _m("symbol_errors", r"symbol_error|SymbolErrorCounter"),
    _m("receive_errors", r"port_rcv_errors|PortRcvErrors"),
    _m("remote_physical_errors", r"port_rcv_remote_physical_errors|PortRcvRemotePhysicalErrors"),
    _m("link_downed", r"link_downed|LinkDownedCounter"),
    _m("link_recoveries", r"link_error_recovery|LinkErrorRecoveryCounter"),
    _m("transmit_discards", r"port_xmit_discards|PortXmitDiscards"),
    _m("transmit_wait", r"port_xmit_wait|PortXmitWait"),
    _m("data_sent_words", r"port_xmit_data|PortXmitData", always=True),
)

_PACKETS = {
    "nic_counter": {
        way: re.compile(
            rf"(?:{way}_packets(?:_phy)?|{way}_(?:total|good|ucast)_frames|(?:port\.)?{way}_unicast(?:\.nic)?"
            rf"|{way}_ring_(?:packets|pkts)_sum)\Z"
        ) for way in ("rx", "tx")
    },
    "rdma_counter": {
        "rx": re.compile(r"(?:port|unicast)_rcv_packets"), "tx": re.compile(r"(?:port|unicast)_xmit_packets"),
    },
}  # fmt: skip


def derive(base: FactBase) -> Iterator[Fact]:
    """nic_rate, rdma_rate, nic_gauge, fabric_pause, traffic_class and the coverage of the rate topics."""
    nic = _pairs(base, "nic_counter")
    yield from _coverage(nic, "nic_rates")
    rates = list(_rates(nic, NIC_METRICS, "nic_rate", "nic_counter"))
    yield from rates
    rdma = _pairs(base, "rdma_counter")
    yield from _coverage(rdma, "rdma_rates")
    yield from _rates(rdma, RDMA_METRICS, "rdma_rate", "rdma_counter")
    yield from _gauges(base)
    yield from _fabric_pause(rates)
    yield from _traffic_classes(base, nic)


def _pairs(base: FactBase, kind: str) -> Frame:
    """First and last value of every counter that was read more than once: one row a counter, `delta` >= 0.

    Counters without a host are of several unnamed ones, and not compared.
    """
    rows = [
        (o.fields.get("host", ""), o.fields["device"], o.fields.get("port", 0), o.fields["name"],
         o.fields["value"], o.fields.get("at"), o.fields.get("snapshot"), o.evidence)
        for o in base.observations if o.kind == kind and "host" in o.fields
    ]  # fmt: skip
    columns = ["host", "device", "port", "name", "value", "at", "snapshot", "evidence"]
    table: Frame = pd.DataFrame(rows, columns=columns)
    if table.empty:
        return table.assign(delta=[], seconds=[], first=[])
    keys = ["host", "device", "port", "name"]
    timed = table["at"].notna().groupby([table[k] for k in keys]).transform("all")
    table["order"] = table["at"].where(timed, table["snapshot"]).astype(float)
    table = table.dropna(subset=["order"]).sort_values("order", kind="stable")
    grouped = table.groupby(keys, sort=True)
    first, last = grouped.first(), grouped.last()
    ordered = (first["order"] < last["order"]) & (last["value"] >= first["value"])
    pairs = last[ordered].copy()
    pairs["first"] = first.loc[pairs.index, "evidence"]
    pairs["delta"] = pairs["value"] - first.loc[pairs.index, "value"]
    begin: Frame = pd.to_numeric(first.loc[pairs.index, "at"], errors="coerce")
    end: Frame = pd.to_numeric(pairs["at"], errors="coerce")
    pairs["seconds"] = end - begin
    return pairs.reset_index()


def _rows(table: Frame) -> Iterable[Any]:
    """Rows with their columns as attributes."""
    return table.itertuples()


def _coverage(pairs: Frame, topic: str) -> Iterator[Fact]:
    for host in sorted(set(pairs["host"])) if len(pairs) else ():
        yield Fact("", "covered", {"topic": topic, "host": host} if host else {"topic": topic})


def _rates(pairs: Frame, metrics: tuple[Metric, ...], kind: str, counter_kind: str) -> Iterator[Fact]:
    if pairs.empty:
        return
    names: Frame = pd.Series(pairs["name"].unique())
    packets = {
        way: _sum_by_device(pairs, set(names[names.str.match(pattern)]))
        for way, pattern in _PACKETS[counter_kind].items()
    }
    for metric in metrics:
        matches = {name: m for name in names if (m := metric.pattern.match(name))}
        if not matches:
            continue
        chosen = pairs[pairs["name"].isin(list(matches))].copy()
        chosen["priority"] = chosen["name"].map(lambda n, found=matches: _priority(found[n]))
        keys = ["host", "device", "port", "priority"]
        summed = chosen.groupby(keys, dropna=False, sort=True).agg(
            delta=("delta", "max" if metric.form == "largest" else "sum"), seconds=("seconds", "max"),
            counter=("name", lambda s: ", ".join(sorted(s))), evidence=("evidence", list), first=("first", list),
            deltas=("delta", list),
        ).reset_index()  # fmt: skip
        if metric.form == "share":
            summed["number"] = summed["delta"] / 1e6 / summed["seconds"].where(summed["seconds"] > 0)
        else:
            summed["number"] = summed["delta"].astype(float)
        yield from _rate_facts(summed.dropna(subset=["number"]), metric, kind, packets)


def _rate_facts(
    summed: Frame, metric: Metric, kind: str, packets: dict[str, dict[tuple[str, str], float]]
) -> Iterator[Fact]:
    by_host = summed.groupby(["host", "priority"], dropna=False)["number"].max().reset_index()
    for row in _rows(summed):
        if row.delta == 0 and not metric.always:
            continue
        number = float(row.number)
        fields: dict[str, Value] = {
            "host": row.host, "device": row.device, "metric": metric.name, "value": min(number, 1.0)
            if metric.form == "share" else number, "counter": row.counter[:200], "delta": int(row.delta),
        }  # fmt: skip
        if row.priority >= 0:
            fields["priority"] = int(row.priority)
        if row.seconds > 0:
            fields["seconds"] = float(row.seconds)
            fields["per_second"] = float(row.delta) / float(row.seconds)
        volume = packets.get(metric.per or "", {}).get((row.host, row.device))
        if volume:
            fields["ratio"] = float(row.delta) / volume
        others = by_host[(by_host["host"] != row.host) & (by_host["priority"] == row.priority)]["number"]
        if len(others):
            fields["median"] = float(others.median())
            fields["hosts"] = len(others)
            if fields["median"]:
                fields["times_median"] = number / float(others.median())
        yield Fact("", kind, fields, _ends(row.first, row.evidence, row.deltas))


def _ends(first: list, last: list, deltas: list) -> tuple[Evidence, ...]:
    """Evidence of the counter that moved most: before and after."""
    index = max(range(len(deltas)), key=lambda n: deltas[n])
    return (*last[index], *first[index])


def _priority(match: re.Match[str]) -> int:
    found = match.groupdict()
    text = found.get("prio") or found.get("prio2") or found.get("prio3")
    return int(text) if text else -1


def _sum_by_device(pairs: Frame, names: set[str]) -> dict[tuple[str, str], float]:
    chosen = pairs[pairs["name"].isin(list(names))]
    if chosen.empty:
        return {}
    return chosen.groupby(["host", "device"])["delta"].max().to_dict()


def _gauges(base: FactBase) -> Iterator[Fact]:
    """The largest value of each gauge, and receive-ring drops of a whole life as a share of all packets."""
    best: dict[tuple[Value, Value, str], Fact] = {}
    drops: dict[tuple[Value, Value], list[Fact]] = {}
    packets: dict[tuple[Value, Value], int] = {}
    for o in base.observations:
        if o.kind != "nic_counter" or "host" not in o.fields:
            continue
        name, value, key = str(o.fields["name"]), o.fields["value"], (o.fields.get("host", ""), o.fields["device"])
        assert isinstance(value, int)
        metric = GAUGES.get(name)
        if metric:
            seen = best.get((*key, metric))
            if seen is None or value > seen.fields["value"]:  # type: ignore[operator]
                fields = {**_where(key), "metric": metric, "value": value, "counter": name, "lifetime": False}
                best[*key, metric] = Fact("", "nic_gauge", fields, o.evidence)
        elif _RING_DROPS.match(name) and value:
            drops.setdefault(key, []).append(o)
        elif _PACKETS["nic_counter"]["rx"].match(name):
            packets[key] = max(packets.get(key, 0), value)
    yield from best.values()
    for key, found in drops.items():
        top = max(found, key=lambda o: int(o.fields["value"]))  # type: ignore[arg-type]
        count = int(top.fields["value"])  # type: ignore[arg-type]
        fields = {
            **_where(key),
            "metric": "ring_drops",
            "value": count,
            "counter": top.fields["name"],
            "lifetime": True,
        }
        yield Fact("", "nic_gauge", fields, top.evidence)
        if packets.get(key):
            share = {**fields, "metric": "ring_drop_share", "value": count / packets[key]}
            yield Fact("", "nic_gauge", share, top.evidence)


_RING_DROPS = next(m.pattern for m in NIC_METRICS if m.name == "ring_drops")


def _where(key: tuple[Value, Value]) -> dict[str, Value]:
    return {"host": key[0], "device": key[1]} if key[0] else {"device": key[1]}


def _fabric_pause(rates: list[Fact]) -> Iterator[Fact]:
    """Who pauses whom, per priority, over all hosts whose pause durations are known."""
    shares: dict[int, dict[str, dict[str, float]]] = {}
    for rate in rates:
        metric = str(rate.fields["metric"])
        if metric in ("tx_pause_share", "rx_pause_share"):
            host, priority = str(rate.fields["host"]), int(rate.fields.get("priority", -1))  # type: ignore[arg-type]
            ways = shares.setdefault(priority, {}).setdefault(host, {})
            ways[metric[:2]] = max(ways.get(metric[:2], 0.0), float(rate.fields["value"]))  # type: ignore[arg-type]
    for _priority_number, hosts in sorted(shares.items()):
        pausing = sorted(h for h, w in hosts.items() if w.get("tx", 0) >= PAUSING_TX_SHARE)
        paused = sorted(h for h, w in hosts.items() if w.get("rx", 0) >= PAUSED_RX_SHARE)
        if pausing:
            pattern = "one_host_sends" if len(pausing) == 1 and len(hosts) > 1 else "sent_and_received"
        else:
            pattern = "received_everywhere_sent_nowhere" if paused else "none"
        fields: dict[str, Value] = {
            "pattern": pattern, "hosts": len(hosts), "paused_hosts": len(paused),
            "pausing_hosts": ",".join(pausing[:20]),
            "max_rx_share": max(w.get("rx", 0.0) for w in hosts.values()),
            "max_tx_share": max(w.get("tx", 0.0) for w in hosts.values()),
        }  # fmt: skip
        if pattern != "none":
            yield Fact("", "fabric_pause", fields)


_PRIO_BYTES = re.compile(r"(?P<way>[rt]x)_(?:prio(?P<prio>[0-7])_bytes|bytes_pri(?P<prio2>[0-7]))\Z")


def _traffic_classes(base: FactBase, pairs: Frame) -> Iterator[Fact]:
    """Which priority carried the bytes of each NIC between its snapshots."""
    if pairs.empty:
        return
    lossless = {
        (o.fields.get("host", ""), o.fields["device"]): str(o.fields["priorities"])
        for o in base.observations if o.kind == "qos_pfc" and "host" in o.fields
    }  # fmt: skip
    contract = next((f.fields.get("priority") for f in base.facts if f.kind == "site_contract"), None)
    chosen = pairs[pairs["name"].str.match(_PRIO_BYTES.pattern)]
    rdma = pairs[pairs["name"].str.match(r"[rt]x_vport_rdma_unicast_bytes\Z")]
    volumes: dict[tuple[str, str, str], dict[int, tuple[int, tuple[Evidence, ...]]]] = {}
    for row in _rows(chosen):
        m = _PRIO_BYTES.match(row.name)
        if m:
            volumes.setdefault((row.host, row.device, m["way"]), {})[_priority(m)] = (int(row.delta), row.evidence)
    carried = {(r.host, r.device, r.name[:2]): int(r.delta) for r in _rows(rdma)}
    for (host, device, way), by_priority in sorted(volumes.items()):
        total = sum(delta for delta, _ in by_priority.values())
        if total <= 0:
            continue
        busiest = max(by_priority, key=lambda p: by_priority[p][0])
        fields: dict[str, Value] = {
            **_where((host, device)), "direction": way, "busiest": busiest,
            "share": by_priority[busiest][0] / total, "gbytes": total / 1e9,
        }  # fmt: skip
        if (host, device) in lossless:
            enabled = [int(p) for p in lossless[host, device].split(",") if p]
            fields["lossless"] = lossless[host, device]
            fields["lossless_share"] = sum(by_priority[p][0] for p in enabled if p in by_priority) / total
        if isinstance(contract, int):
            fields["contract"] = contract
            fields["contract_share"] = by_priority.get(contract, (0, ()))[0] / total
        if (host, device, way) in carried:
            fields["rdma_share"] = min(1.0, carried[host, device, way] / total)
        yield Fact("", "traffic_class", fields, by_priority[busiest][1])
