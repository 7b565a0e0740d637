"""ethtool: every answer form, several drivers, refused queries, damaged pastes."""

from __future__ import annotations

import mutations
import pytest
import support
from hypothesis import given, settings

from diagnose.model import Record

ETHTOOL = support.load("ethtool")


def read(name: str, file: str = "ticket.txt", **told: object) -> list[Record]:
    return support.run(ETHTOOL, support.fixture("ethtool", name), file, **told)


def counters(records: list[Record]) -> dict[str, int]:
    return {str(r.fields["name"]): int(str(r.fields["value"])) for r in support.of(records, "nic_counter")}


def one(records: list[Record], kind: str) -> dict[str, object]:
    (record,) = support.of(records, kind)
    return dict(record.fields)


def test_a_healthy_port_in_all_forms() -> None:
    records = read("healthy.txt")
    assert {r.fields["device"] for r in records} == {"ens7np0"}
    link = one(records, "nic_link")
    assert link["speed_mbps"] == link["max_supported_mbps"] == 400_000 and link["up"] is True and link["lanes"] == 8
    assert one(records, "nic_driver")["firmware"] == "28.43.1014 (MT_0000000911)"
    assert one(records, "nic_driver")["bus_id"] == "0000:6a:00.0"
    assert one(records, "nic_pause") == {"device": "ens7np0", "autoneg": False, "rx": False, "tx": False}
    assert one(records, "nic_coalesce")["adaptive_rx"] is True and one(records, "nic_coalesce")["rx_usecs"] == 8
    assert one(records, "nic_ring") == {"device": "ens7np0", "rx": 8192, "rx_max": 8192, "tx": 8192, "tx_max": 8192}
    assert one(records, "nic_queues") == {"device": "ens7np0", "combined": 63, "combined_max": 63}
    assert one(records, "nic_timestamping") == {"device": "ens7np0", "hardware": True, "phc": 4}
    assert one(records, "nic_fec") == {"device": "ens7np0", "configured": "RS", "active": "RS"}
    flags = {r.fields["flag"]: r.fields["on"] for r in support.of(records, "nic_private_flag")}
    assert flags["rx_cqe_compress"] is False and flags["rx_striding_rq"] is True
    on = {r.fields["feature"]: r.fields["on"] for r in support.of(records, "nic_feature")}
    assert on["tx-checksumming"] is True and "tx-checksum-ipv4" not in on
    assert counters(records)["outbound_pci_stalled_wr"] == 0
    assert "rx_1519_to_2047_bytes_phy" not in counters(records)
    assert not support.of(records, "parse_problem")


def test_a_slow_receiver_and_a_dead_port() -> None:
    records = read("sick.txt")
    found = counters(records)
    assert found["tx_prio3_pause"] == 4_411_090 and found["tx_prio3_pause_duration"] == 4_411_090 * 98
    assert {r.fields["device"] for r in support.of(records, "nic_counter")} == {"ens9np0"}
    assert found["outbound_pci_stalled_wr"] == 63 and found["tx_pause_storm_warning_events"] == 2
    assert found["tx_pause_frames"] == 8812 and found["fec_uncorrectable_blocks"] == 44
    link = one(records, "nic_link")
    assert link["device"] == "ens9np1" and link["up"] is False and link["link_down_events"] == 17
    assert str(link["down_reason"]).startswith("Bad signal integrity") and "speed_mbps" not in link
    features = {str(r.fields["feature"]): r.fields for r in support.of(records, "nic_feature")}
    assert features["generic-segmentation-offload"]["requested"] is True and features["rx-fcs"]["requested"] is True
    assert features["tx-checksumming"]["fixed"] is False and "rx-all" not in features
    assert one(records, "nic_fec") == {"device": "ens9np0", "configured": "Auto RS", "active": "None"}
    assert one(records, "nic_pause")["tx_negotiated"] is False


def test_evidence_names_the_line_of_the_counter() -> None:
    text = support.fixture("ethtool", "sick.txt")
    (record,) = [r for r in support.run(ETHTOOL, text) if r.fields.get("name") == "tx_prio3_pause"]
    number = record.evidence[0].first
    assert text.split("\n")[number - 1].strip() == "tx_prio3_pause: 4411090" == record.evidence[0].text.strip()


def test_module_readings_count_only_lanes_of_the_medium() -> None:
    module = one(read("module-cmis.txt"), "nic_module")
    assert module["device"] == "ens9np0" and module["temp_c"] == 73.25 and module["lanes"] == 4
    assert module["rx_power_min_dbm"] == -10.6 and module["rx_power_max_dbm"] == 0.73
    assert module["warnings"] == "Module temperature high warning"
    assert module["alarms"] == "Rx power low alarm (Channel 3)"
    dark = one(read("module-qsfp28.txt", "ethtool-m.ens4.txt"), "nic_module")
    assert dark["device"] == "ens4" and dark["rx_power_min_dbm"] == -40.0 and dark["lanes"] == 4


def test_ring_drops_are_summed_and_listed() -> None:
    found = counters(read("bnxt.txt"))
    assert found["rx_ring_discards_sum"] == 3 * 120_400 + 3 and found["rx_total_ring_discards"] == 771_020
    assert found["[2]: rx_discards"] == 120_402 and "[2]: tx_discards" not in found
    assert found["pfc_pri3_rx_duration_us"] == 5_120 and found["rx_discard_packets_cos0"] == 771_020


def test_a_list_without_header_or_indentation() -> None:
    found = counters(read("ena-headerless.txt"))
    assert found["bw_out_allowance_exceeded"] == 15_231
    assert found["rx_ring_bytes_sum"] == 14_000_000 and found["tx_ring_queue_stop_sum"] == 1
    assert "admin_q_pause" not in found


def test_other_drivers() -> None:
    ice = counters(read("ice.txt"))
    assert ice["tx_priority_3_xoff.nic"] == 7 and ice["mac_local_faults.nic"] == 1 and "rx_size_64.nic" not in ice
    assert support.of(read("ice.txt"), "nic_counter")[0].fields["device"] == "ens1f0"
    i40e = counters(read("i40e.txt"))
    assert i40e["port.rx_dropped"] == 128 and i40e["port.rx_priority_3_xoff_rx"] == 9
    assert i40e["rx_ring_bytes_sum"] == 189_000


def test_interleaved_hosts_and_damaged_lines() -> None:
    records = read("dirty.txt")
    speeds = {r.host: r.fields["speed_mbps"] for r in support.of(records, "nic_link")}
    assert speeds == {"gpu-b01": 400_000, "gpu-b02": 200_000}
    values = {(r.host, r.fields["name"]): r.fields["value"] for r in support.of(records, "nic_counter")}
    assert values == {("gpu-b01", "rx_prio3_pause"): 81, ("gpu-b02", "rx_crc_errors_phy"): 7}
    assert len(support.of(records, "parse_problem")) == 2


def test_a_cut_list_keeps_what_is_whole() -> None:
    records = read("truncated.txt", "ethtool-S.eth2.t0.txt")
    assert "rx_out_of_buffer" in counters(records)
    assert {r.fields["device"] for r in support.of(records, "nic_counter")} == {"eth2"}
    assert len(support.of(records, "parse_problem")) == 1


def test_refused_queries_say_so_and_nothing_else() -> None:
    records = read("refused.txt")
    assert {r.kind for r in records} == {"parse_problem"}
    assert "Operation not supported" in str(records[0].fields["text"])
    assert ETHTOOL.sniff("no stats available\n", "x") >= 0.5
    assert ETHTOOL.sniff("     tx_priority_3_xoff.nic: 6434\n", "x") >= 0.5, "counters picked out with grep"
    assert ETHTOOL.sniff("     bw_in_allowance_exceeded: 12\n", "x") >= 0.5
    (lone,) = support.run(ETHTOOL, "no stats available\n")
    assert lone.kind == "parse_problem"


def test_json_answers() -> None:
    records = read("json.txt")
    assert one(records, "nic_link")["max_advertised_mbps"] == 100_000
    assert one(records, "nic_ring") == {"device": "ens5", "rx": 1024, "rx_max": 8192, "tx": 1024, "tx_max": 8192}
    features = {r.fields["feature"]: dict(r.fields) for r in support.of(records, "nic_feature")}
    assert features["tx-checksumming"] == {"device": "ens5", "feature": "tx-checksumming", "on": False}
    assert features["rx-all"]["requested"] is True and "rx-fcs" not in features
    assert counters(records)["tx_pause_frames"] == 12
    assert not support.of(records, "parse_problem")


@pytest.mark.parametrize(
    ("name", "command", "device"),
    [
        ("ethtool-S.eth2.t0.txt", None, "eth2"),
        ("ethtool-S-flannel.1.txt", None, "flannel.1"),
        ("ethtool-S.ens3.1.txt", None, "ens3"),
        ("ethtool_-S_ib0.log", None, "ib0"),
        ("ethtool-S.txt", None, "nic"),
        ("notes.txt", "ethtool -S bond0", "bond0"),
        ("x.txt", "ethtool -m ens4 hex on", "ens4"),
    ],
)
def test_the_device_comes_from_command_or_file_name(name: str, command: str | None, device: str) -> None:
    records = support.run(ETHTOOL, "NIC statistics:\n     rx_discards_phy: 4\n", name, command=command)
    assert [r.fields["device"] for r in records] == [device]


def test_records_stay_few() -> None:
    for name in ("healthy.txt", "bnxt.txt", "ice.txt"):
        assert len(read(name)) <= 150


def test_a_loop_over_interfaces_echoes_their_names() -> None:
    text = "$ for i in eth0 eth1; do echo $i; ethtool -S $i | grep discards; done\n"
    text += "eth0\n     rx_discards_phy: 1\n== eth1 ==\n     rx_discards_phy: 7\n"
    text += "Every 2.0s: ethtool -S eth5        gpu-b09: Sun Mar  1 10:00:00 2026\n\n"
    text += "NIC statistics:\n     rx_discards_phy: 9\n"
    found = {r.fields["device"]: r.fields["value"] for r in support.run(ETHTOOL, text)}
    assert found == {"eth0": 1, "eth1": 7, "eth5": 9}


def test_two_readings_in_one_text_are_snapshots() -> None:
    text = "2026-03-01T10:00:00Z\n$ ethtool -S eth4\nNIC statistics:\n     rx_prio3_pause: 5\n"
    text += "2026-03-01T10:00:30Z\n$ ethtool -S eth4\nNIC statistics:\n     rx_prio3_pause: 9\n"
    found = [(r.fields["snapshot"], r.fields["value"], r.at) for r in support.run(ETHTOOL, text)]
    assert [(n, value) for n, value, _ in found] == [(0, 5), (1, 9)]
    first, last = found[0][2], found[1][2]
    assert first is not None and last is not None and last - first == 30.0


def test_foreign_text_yields_nothing() -> None:
    for name, text in mutations.foreign("ethtool"):
        if "ethtool" not in text and "NIC statistics" not in text:
            assert ETHTOOL.sniff(text, name) == 0.0, name
    assert ETHTOOL.sniff("lifespan: 10\ntx_bytes: 5\nsend_wrs: 4\nrx_bytes: 1\n", "x") == 0.0


@given(mutations.hostile("ethtool"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    ETHTOOL.sniff(text, "x")
    support.run(ETHTOOL, text)


def test_blank_lines_of_a_pager_do_not_end_an_answer() -> None:
    link = "Settings for eth2:\n\tSpeed: 100000Mb/s\n{0}\tDuplex: Full\n\tLink detected: yes\n"
    flags = "Features for eth2:\nrx-checksumming: on\n{0}tx-checksumming: off\n"
    for text in (link, flags):
        assert [r.fields for r in support.run(ETHTOOL, text.format("\n"))] == [
            r.fields for r in support.run(ETHTOOL, text.format(""))
        ]
    other = support.run(ETHTOOL, link.format("") + "\nCA 'mlx5_0'\n\tSpeed: 7Mb/s\n")
    assert [r.fields.get("speed_mbps") for r in support.of(other, "nic_link")] == [100000]
