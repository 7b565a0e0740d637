"""Counters: differences over time, rates, gauges, who pauses whom, which priority carries the bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.model import Fact
from diagnose.tables import counters
from tests.tables.support import Given, base, derived, lines


def snapshots(
    host: str,
    values: dict[str, tuple[int, ...]],
    device: str = "eth2",
    kind: str = "nic_counter",
    seconds: float = 10.0,
) -> list[Given]:
    """The same counters read several times, `seconds` apart."""
    return [
        (kind, {"host": host, "device": device, "name": name, "value": value, "at": 1000.0 + n * seconds})
        for name, series in values.items()
        for n, value in enumerate(series)
    ]


def rates(*given: Given, metric: str, kind: str = "nic_rate") -> list[Fact]:
    return [f for f in derived(counters, base(*given), kind) if f.fields["metric"] == metric]


def only(facts: list[Fact]) -> Any:
    (fact,) = facts
    return fact.fields


# --- differences --------------------------------------------------------------------------------------


def test_pause_durations_are_microseconds_of_the_interval():
    seen = snapshots("n1", {"tx_prio3_pause_duration": (1_000_000, 5_000_000)})
    (rate,) = rates(*seen, metric="tx_pause_share")
    assert rate.fields["value"] == pytest.approx(0.4)
    assert (rate.fields["priority"], rate.fields["delta"], rate.fields["seconds"]) == (3, 4_000_000, 10.0)
    assert rate.fields["counter"] == "tx_prio3_pause_duration"
    assert lines(rate) == [2, 1], "after, then before"


def test_a_share_is_at_most_one():
    seen = snapshots("n1", {"rx_prio3_pause_duration": (0, 10_400_000)})
    assert only(rates(*seen, metric="rx_pause_share"))["value"] == 1.0


def test_no_pause_at_all_is_said_too():
    seen = snapshots("n1", {"tx_prio3_pause_duration": (7, 7)})
    assert only(rates(*seen, metric="tx_pause_share"))["value"] == 0.0


def test_a_share_needs_a_time_difference():
    seen = [
        ("nic_counter", {"host": "n1", "device": "eth2", "name": name, "value": value, "snapshot": n})
        for n, value in enumerate((0, 9_000_000)) for name in ("tx_prio3_pause_duration", "rx_prio3_pause")
    ]  # fmt: skip
    assert rates(*seen, metric="tx_pause_share") == []
    frames = only(rates(*seen, metric="rx_pause_frames"))
    assert frames["value"] == 9_000_000 and "seconds" not in frames


def test_one_snapshot_gives_no_rate_and_covers_nothing():
    seen = snapshots("n1", {"rx_crc_errors_phy": (900,)})
    assert derived(counters, base(*seen)) == []


def test_without_any_order_there_is_no_difference():
    seen = [
        ("nic_counter", {"host": "n1", "device": "eth2", "name": "rx_crc_errors_phy", "value": value})
        for value in (0, 100)
    ]
    assert derived(counters, base(*seen)) == []


def test_a_counter_that_went_down_was_reset():
    seen = snapshots("n1", {"rx_crc_errors_phy": (900, 12), "rx_pcs_symbol_err_phy": (1, 4)})
    assert rates(*seen, metric="crc_errors") == []
    assert only(rates(*seen, metric="symbol_errors"))["delta"] == 3


def test_counters_that_stood_still_are_not_listed_but_cover_the_topic():
    seen = snapshots("n1", {"rx_crc_errors_phy": (900, 900)})
    (covered,) = derived(counters, base(*seen))
    assert (covered.kind, covered.fields) == ("covered", {"topic": "nic_rates", "host": "n1"})


def test_snapshots_may_come_in_any_order():
    seen = snapshots("n1", {"rx_crc_errors_phy": (5, 6, 9)})
    assert only(rates(*reversed(seen), metric="crc_errors"))["delta"] == 4


def test_ratio_to_packets():
    seen = snapshots("n1", {"rx_out_of_buffer": (0, 50), "rx_packets_phy": (1_000, 101_000)})
    assert only(rates(*seen, metric="ring_drops"))["ratio"] == pytest.approx(0.0005)


def test_rdma_ratio_to_packets_and_rate():
    seen = snapshots(
        "n1", {"packet_seq_err": (0, 20), "implied_nak_seq_err": (0, 30), "unicast_xmit_packets": (0, 1_000_000)},
        device="mlx5_0", kind="rdma_counter",
    )  # fmt: skip
    found = only(rates(*seen, metric="retransmissions", kind="rdma_rate"))
    assert (found["delta"], found["per_second"], found["ratio"]) == (50, 5.0, pytest.approx(5e-5))


def test_ports_of_an_hca_are_kept_apart():
    seen: list[Given] = [
        ("rdma_counter", {"host": "n1", "device": "mlx5_0", "port": port, "name": "symbol_error", "value": value,
                          "at": float(value)})
        for port in (1, 2) for value in (0, 4)
    ]  # fmt: skip
    assert [f.fields["delta"] for f in rates(*seen, metric="symbol_errors", kind="rdma_rate")] == [4, 4]


def test_the_median_is_that_of_the_other_hosts():
    seen = [
        x for host, end in (("n1", 4_000_000), ("n2", 100_000), ("n3", 200_000), ("n4", 300_000))
        for x in snapshots(host, {"tx_prio3_pause_duration": (0, end)})
    ]  # fmt: skip
    worst = next(f.fields for f in rates(*seen, metric="tx_pause_share") if f.fields["host"] == "n1")
    assert (worst["median"], worst["hosts"]) == (pytest.approx(0.02), 3)
    assert worst["times_median"] == pytest.approx(20)


def test_times_and_snapshot_numbers_are_not_mixed():
    """Where only some readings tell their time, the snapshot numbers order them, and no seconds are known."""
    common = {"host": "n1", "device": "eth2", "name": "rx_crc_errors_phy"}
    seen: list[Given] = [
        ("nic_counter", {**common, "value": 5, "snapshot": 0, "at": 1_000.0}),
        ("nic_counter", {**common, "value": 9, "snapshot": 1}),
    ]
    found = only(rates(*seen, metric="crc_errors"))
    assert found["delta"] == 4 and "seconds" not in found


# --- names of other drivers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "metric", "priority"),
    [
        ("tx_pfc_ena_frames_pri3", "tx_pause_frames", 3),
        ("rx_pfc_ena_frames_pri5", "rx_pause_frames", 5),
        ("pfc_pri3_tx_duration_us", "tx_pause_share", 3),
        ("pfc_pri4_rx_duration_us", "rx_pause_share", 4),
        ("link_down_events", "link_down_events", None),
        ("rx_total_ring_discards", "ring_drops", None),
        ("rx_ring_discards_sum", "ring_drops", None),
        ("rx_ring_alloc_drops_sum", "ring_drops", None),
        ("rx_fcs_err_frames", "crc_errors", None),
        ("rx_fec_uncorrectable_blocks", "symbol_errors", None),
        ("tx_priority_3_xoff.nic", "tx_pause_frames", 3),
        ("rx_priority_0_xoff.nic", "rx_pause_frames", 0),
        ("port.rx_priority_3_xoff", "rx_pause_frames", 3),
        ("port.tx_priority_6_xoff", "tx_pause_frames", 6),
        ("port.link_xoff_rx", "global_pause_frames", None),
        ("link_xoff_tx.nic", "global_pause_frames", None),
        ("tx_pause_frames", "global_pause_frames", None),
        ("port.rx_crc_errors", "crc_errors", None),
        ("port.rx_dropped", "ring_drops", None),
        ("rx_out_of_buffer", "ring_drops", None),
    ],
)
def test_names_of_bnxt_and_intel(name: str, metric: str, priority: int | None):
    found = only(rates(*snapshots("n1", {name: (0, 1_000)}), metric=metric))
    assert (found["counter"], found["delta"], found.get("priority")) == (name, 1_000, priority)


@pytest.mark.parametrize(
    "name",
    ["rx_pfc_ena_frames_pri8", "pfc_pri3_rx_transitions", "rx_ring_packets_sum", "tx_ring_discards_sum",
     "rx_priority_3_xon.nic", "rx_bytes_pri3", "link_down_events_total"],
)  # fmt: skip
def test_names_that_mean_something_else(name: str):
    found = derived(counters, base(*snapshots("n1", {name: (0, 1_000)})), "nic_rate")
    assert found == []


def test_the_same_drops_counted_at_several_places_count_once():
    seen = snapshots("n1", {"rx_total_ring_discards": (0, 40), "rx_ring_discards_sum": (0, 40)})
    assert only(rates(*seen, metric="ring_drops"))["delta"] == 40


@pytest.mark.parametrize(
    "name", ["rx_packets", "rx_total_frames", "port.rx_unicast", "rx_unicast.nic", "rx_packets_phy"]
)
def test_packets_that_drops_are_measured_by(name: str):
    seen = snapshots("n1", {"rx_total_ring_discards": (0, 10), name: (0, 1_000)})
    assert only(rates(*seen, metric="ring_drops"))["ratio"] == pytest.approx(0.01)


# --- gauges ---------------------------------------------------------------------------------------------


def test_gauges_are_not_differenced():
    seen = snapshots("n1", {"outbound_pci_stalled_wr": (41, 7)})
    gauge = only(derived(counters, base(*seen), "nic_gauge"))
    assert (gauge["metric"], gauge["value"], gauge["lifetime"]) == ("pcie_stalled_write_pct", 41, False)


def test_drops_of_a_whole_life_with_their_share():
    seen = snapshots("n1", {"rx_total_ring_discards": (300,), "rx_total_frames": (30_000,)})
    found = {f.fields["metric"]: f.fields for f in derived(counters, base(*seen), "nic_gauge")}
    assert found["ring_drops"]["value"] == 300 and found["ring_drops"]["lifetime"] is True
    assert found["ring_drop_share"]["value"] == pytest.approx(0.01)


def test_no_drops_no_gauge():
    assert derived(counters, base(*snapshots("n1", {"rx_out_of_buffer": (0,)}))) == []


# --- who pauses whom --------------------------------------------------------------------------------------


def pauses(**shares: tuple[float, float]) -> list[Given]:
    return [
        x for host, (rx, tx) in shares.items()
        for x in snapshots(host, {
            "rx_prio3_pause_duration": (0, int(rx * 1e7)), "tx_prio3_pause_duration": (0, int(tx * 1e7)),
        })
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shares", "pattern"),
    [
        ({"n1": (0.0, 0.4), "n2": (0.3, 0.0), "n3": (0.2, 0.0)}, "one_host_sends"),
        ({"n1": (0.2, 0.0), "n2": (0.3, 0.001)}, "received_everywhere_sent_nowhere"),
        ({"n1": (0.2, 0.2), "n2": (0.3, 0.3)}, "sent_and_received"),
        ({"n1": (0.0, 0.4)}, "sent_and_received"),
    ],
)
def test_direction_of_the_pauses(shares: dict[str, tuple[float, float]], pattern: str):
    assert only(derived(counters, base(*pauses(**shares)), "fabric_pause"))["pattern"] == pattern


def test_little_pausing_is_nothing():
    assert derived(counters, base(*pauses(n1=(0.005, 0.01), n2=(0.0, 0.0))), "fabric_pause") == []


def test_who_pauses_is_named():
    found = only(derived(counters, base(*pauses(n1=(0.0, 0.4), n2=(0.3, 0.0), n3=(0.2, 0.0))), "fabric_pause"))
    assert (found["pausing_hosts"], found["paused_hosts"], found["hosts"]) == ("n1", 2, 3)
    assert (found["max_rx_share"], found["max_tx_share"]) == (pytest.approx(0.3), pytest.approx(0.4))


# --- traffic classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tx_prio{}_bytes", "tx_bytes_pri{}"])
def test_busiest_priority_against_pfc_and_contract(form: str):
    seen = snapshots("n1", {form.format(0): (0, 900), form.format(3): (0, 100)})
    pfc: Given = ("qos_pfc", {"host": "n1", "device": "eth2", "priorities": "3", "count": 1})
    contract: Given = ("site_contract", {"priority": 3})
    found = only(derived(counters, base(*seen, pfc, facts=[contract]), "traffic_class"))
    assert (found["busiest"], found["share"], found["direction"]) == (0, pytest.approx(0.9), "tx")
    assert (found["lossless"], found["lossless_share"]) == ("3", pytest.approx(0.1))
    assert (found["contract"], found["contract_share"]) == (3, pytest.approx(0.1))


def test_share_of_rdma():
    seen = snapshots("n1", {"tx_prio0_bytes": (0, 1_000), "tx_vport_rdma_unicast_bytes": (0, 950)})
    assert only(derived(counters, base(*seen), "traffic_class"))["rdma_share"] == pytest.approx(0.95)


def test_an_idle_nic_has_no_traffic_class():
    assert derived(counters, base(*snapshots("n1", {"tx_prio0_bytes": (5, 5)})), "traffic_class") == []


# --- hostile input ----------------------------------------------------------------------------------------

NAMES = st.sampled_from([
    "tx_prio3_pause_duration", "rx_prio3_pause", "rx_out_of_buffer", "rx_packets", "tx_prio0_bytes",
    "outbound_pci_stalled_wr", "rx_crc_errors_phy", "pfc_pri3_rx_duration_us", "x",
])  # fmt: skip
READINGS = st.lists(
    st.tuples(
        st.sampled_from(["n1", "n2", ""]), NAMES, st.integers(0, 2**64 - 1),
        st.none() | st.floats(0, 2e9), st.none() | st.integers(0, 3),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(READINGS)
def test_any_readings_give_conforming_facts(readings: list[tuple[str, str, int, float | None, int | None]]):
    seen: list[Given] = []
    for host, name, value, at, snapshot in readings:
        fields: dict[str, Any] = {"device": "eth2", "name": name, "value": value}
        fields |= {k: v for k, v in (("host", host), ("at", at), ("snapshot", snapshot)) if v is not None and v != ""}
        seen.append(("nic_counter", fields))
    for fact in derived(counters, base(*seen)):
        assert "value" not in fact.fields or float(fact.fields["value"]) >= 0  # type: ignore[arg-type]


def test_allowances_of_a_cloud_instance_that_rise_between_snapshots():
    counters_of_ena = {"bw_in_allowance_exceeded": (12, 58_012), "bw_out_allowance_exceeded": (903, 903),
                       "pps_allowance_exceeded": (5, 5)}  # fmt: skip
    (fact,) = [f for f in rates(*snapshots("n1", counters_of_ena), metric="bandwidth_allowance") if f.fields["delta"]]
    assert fact.fields["delta"] == 58_000
    assert not [f for f in rates(*snapshots("n1", counters_of_ena), metric="packet_allowance") if f.fields["delta"]]
