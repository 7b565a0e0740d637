"""lspci: links of the devices that matter, ACS of bridges."""

from __future__ import annotations

from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("lspci")


def links(name: str) -> dict[object, Record]:
    return {r.fields["bus_id"]: r for r in of(run(parser, fixture("lspci", name)), "pcie_link")}


def test_healthy_devices_and_no_bridge() -> None:
    found = links("healthy.txt")
    assert list(found) == ["0000:5e:00.0", "0000:1b:00.0"]
    nic = found["0000:5e:00.0"].fields
    assert (nic["role"], nic["speed_gts"], nic["width_max"], nic["downgraded"]) == ("nic", 32.0, 16, False)
    assert (nic["max_read_request"], nic["numa"]) == (4096, 0)
    gpu = found["0000:1b:00.0"].fields
    assert (gpu["role"], gpu["downgraded"]) == ("gpu", False)
    assert "rev" not in str(gpu["description"])


def test_onboard_ports_are_no_nics_of_a_job() -> None:
    text = """01:00.0 Ethernet controller: Broadcom Inc. and subsidiaries NetXtreme BCM5720 Gigabit Ethernet PCIe
\t\tLnkCap:\tPort #0, Speed 5GT/s, Width x2, ASPM L0s L1
\t\tLnkSta:\tSpeed 5GT/s (ok), Width x1 (downgraded)
3d:00.0 Ethernet controller: Intel Corporation 82599ES 10-Gigabit SFI/SFP+ Network Connection (rev 01)
\t\tLnkCap:\tPort #0, Speed 5GT/s, Width x8, ASPM L0s
\t\tLnkSta:\tSpeed 5GT/s (ok), Width x4 (downgraded)
"""
    (found,) = run(parser, text)
    assert (found.fields["bus_id"], found.fields["role"]) == ("0000:3d:00.0", "nic")


def test_sick_devices() -> None:
    found = links("sick.txt")
    assert "0001:5d:02.0" not in found, "a port that is wider than its card is no fault"
    bridge = found["0001:5d:01.0"]
    assert (bridge.fields["acs_redirect"], bridge.fields["downgraded"]) == (True, False)
    assert any("ACSCtl" in e.text for e in bridge.evidence)
    nic = found["0001:5e:00.0"].fields
    assert (nic["downgraded"], nic["speed_gts"], nic["width"], nic["max_read_request"]) == (True, 16.0, 8, 512)
    assert found["0001:c4:00.0"].fields["gone"] is True
    assert "downgraded" not in found["0001:c4:00.0"].fields
    assert found["0001:01:00.0"].fields["downgraded"] is True, "unmarked, as older lspci prints it"


def test_lists_trees_and_missing_rights() -> None:
    found = links("dirty-list.txt")
    assert set(found) == {"0000:1b:00.0", "0000:5e:00.0"}
    assert not {"speed_gts", "width", "downgraded"} & set(found["0000:5e:00.0"].fields)


def test_lone_acs_lines() -> None:
    assert parser.sniff(fixture("lspci", "acs-only.txt"), "x") >= 0.5
    (record,) = links("acs-only.txt").values()
    assert (record.fields["acs_redirect"], record.evidence[0].first) == (True, 2)


def test_truncated_listing() -> None:
    assert links("truncated.txt")["0000:5e:00.0"].fields["max_read_request"] == 4096


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("lspci"):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


@settings(max_examples=80, deadline=None)
@given(hostile("lspci"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)
