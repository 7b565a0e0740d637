"""mlxlink: ports by command and heading, error rates, "none seen", modules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("mlxlink")


def records(name: str) -> list[Record]:
    return run(parser, fixture("mlxlink", name))


def test_a_good_link_has_raw_errors_only() -> None:
    (phy,) = of(records("healthy.txt"), "link_phy")
    f = phy.fields
    assert (f["device"], f["state"], f["speed"], f["width"]) == ("mlx5_0", "active", "IB-NDR", 4)
    assert (f["opcode"], f["effective_ber"], f["symbol_ber"], f["link_down"]) == (0, 0.0, 0.0, 0)
    assert f["raw_ber"] == pytest.approx(1e-8)
    assert f["minutes"] == 2880.4
    assert [e.first for e in phy.evidence] == [5, 22, 44, 46, 49, 36]
    (module,) = of(records("healthy.txt"), "nic_module")
    assert (module.fields["temp_c"], module.fields["part_number"]) == (51.0, "AC4Z00-N400")


def test_ports_under_headings() -> None:
    bad, unused = of(records("sick-two-ports.txt"), "link_phy")
    assert (bad.fields["device"], bad.fields["opcode"], bad.fields["link_down"]) == ("mlx5_3", 15, 3)
    assert bad.fields["effective_ber"] == pytest.approx(3e-8)
    assert (unused.fields["device"], unused.fields["recommendation"]) == ("mlx5_4", "Cable is unplugged")
    assert "width" not in unused.fields


def test_counters_picked_out_with_grep() -> None:
    first, second = of(records("dirty-grep.txt"), "link_phy")
    assert (first.fields["device"], second.fields["device"]) == ("mlx5_0", "mlx5_1")
    assert "speed" not in second.fields, "that line is ethtool's"


def test_truncated_output_keeps_what_was_read() -> None:
    (phy,) = of(records("truncated.txt"), "link_phy")
    assert (phy.fields["state"], phy.fields["opcode"]) == ("active", 15)
    assert "link_down" not in phy.fields


def test_ports_that_nothing_names_are_told_apart() -> None:
    text = fixture("mlxlink", "healthy.txt").replace("mlxlink -d mlx5_0", "cat it")
    first, second = of(run(parser, text + text), "link_phy")
    assert (first.fields["device"], second.fields["device"]) == ("nic", "nic-2")


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("mlxlink"):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


@settings(max_examples=60, deadline=None)
@given(hostile("mlxlink"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)
