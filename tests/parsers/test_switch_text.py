"""Tables of leaf switches."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

from diagnose.model import Record

SWITCH = support.load("switch_text")


def read(name: str, file: str = "x.txt") -> list[Record]:
    return support.run(SWITCH, support.fixture("switch_text", name), file)


def test_a_quiet_switch_is_named_by_its_file() -> None:
    records = read("healthy.txt", "leaf-k9.show-pfc-counters.txt")
    assert [dict(r.fields) for r in records] == [
        {"switch": "leaf-k9", "port": "Ethernet0", "rx_pause": 0, "tx_pause": 0},
        {"switch": "leaf-k9", "port": "Ethernet8", "rx_pause": 0, "tx_pause": 0},
    ]


def test_sonic_tables() -> None:
    records = read("sick.txt")
    assert {r.fields["switch"] for r in records} == {"leaf-k9"}
    pauses = [dict(r.fields) for r in support.of(records, "switch_pfc") if "rx_pause" in r.fields]
    assert pauses == [
        {"switch": "leaf-k9", "port": "Ethernet0", "priority": 3, "rx_pause": 98211, "tx_pause": 0},
        {"switch": "leaf-k9", "port": "Ethernet8", "priority": 3, "rx_pause": 0, "tx_pause": 61002},
    ]
    drops = {(r.fields["port"], r.fields.get("priority")): r.fields["drops"]
             for r in support.of(records, "switch_pfc") if "drops" in r.fields}  # fmt: skip
    assert drops == {("Ethernet0", 3): 1204, ("Ethernet0", None): 1204, ("Ethernet8", None): 0}
    (storm,) = support.of(records, "switch_pfc_watchdog")
    assert (storm.fields["status"], storm.fields["detected"], storm.fields["drops"]) == ("stormed", 2, 20)
    (cable,) = support.of(records, "lldp_neighbour")
    assert cable.host == "gpu-k01" and dict(cable.fields) == {
        "device": "ens1np0", "switch": "leaf-k9", "port": "Ethernet0",
    }  # fmt: skip


def test_both_tables_are_evidence_of_a_port() -> None:
    record = next(r for r in read("sick.txt") if r.fields.get("rx_pause") == 98211)
    assert [e.first for e in record.evidence] == [5, 10]


def test_nxos() -> None:
    found = [dict(r.fields) for r in read("nxos.txt")]
    assert found == [
        {"switch": "leaf-n1", "port": "Ethernet1/1", "rx_pause": 0, "tx_pause": 1234, "enabled": True, "priority": 3},
        {"switch": "leaf-n1", "port": "Ethernet1/2", "rx_pause": 7, "tx_pause": 0, "enabled": False},
        {"switch": "leaf-n1", "port": "Ethernet1/3", "rx_pause": 3, "tx_pause": 4, "enabled": True},
        {"switch": "leaf-n1", "port": "Ethernet1/1", "drops": 10},
        {"switch": "leaf-n1", "port": "Ethernet1/1", "priority": 3, "tx_pause": 7, "rx_pause": 8},
    ]


def test_arista_and_damaged_rows() -> None:
    found = [dict(r.fields) for r in read("dirty.txt")]
    assert found == [
        {"switch": "switch", "port": "Et1/1", "rx_pause": 12, "tx_pause": 34},
        {"switch": "switch", "port": "Ethernet4", "priority": 1, "rx_pause": 2000},
    ]


def test_a_cut_table() -> None:
    assert [dict(r.fields) for r in read("truncated.txt")] == [
        {"switch": "switch", "port": "Ethernet0", "priority": 3, "rx_pause": 5}
    ]


def test_sniff_and_foreign_text() -> None:
    for text in mutations.fixtures_of("switch_text"):
        assert SWITCH.sniff(text, "x") == 0.9
    for name, text in mutations.foreign("switch_text"):
        assert support.run(SWITCH, text) == [] and SWITCH.sniff(text, name) == 0.0, name


@given(mutations.hostile("switch_text"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    SWITCH.sniff(text, "x")
    support.run(SWITCH, text)


def test_cumulus_names_the_port_in_the_command() -> None:
    text = (
        "cumulus@leaf-c2:~$ nv show interface swp7 counters qos pfc-stats\n"
        "switch-priority  rx-pause-frames  rx-pause-duration  tx-pause-frames  tx-pause-duration\n"
        "---------------  ---------------  -----------------  ---------------  -----------------\n"
        "0                0                0                  0                0\n"
        "3                120              4500               45               1200\n"
    )
    assert SWITCH.sniff(text, "x") == 0.9
    quiet, busy = (dict(r.fields) for r in support.run(SWITCH, text))
    assert quiet == {"switch": "leaf-c2", "port": "swp7", "priority": 0, "rx_pause": 0, "tx_pause": 0}
    assert (busy["priority"], busy["rx_pause"], busy["tx_pause"]) == (3, 120, 45)
