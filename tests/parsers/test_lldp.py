"""LLDP neighbours in all forms."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

LLDP = support.load("lldp")


def read(name: str) -> list[tuple[object, ...]]:
    records = support.run(LLDP, support.fixture("lldp", name))
    return [tuple(r.fields.get(f) for f in ("device", "switch", "port")) for r in support.of(records, "lldp_neighbour")]


def test_plain() -> None:
    assert read("healthy.txt") == [("ens1np0", "leaf-11", "Ethernet1/7"), ("ens2np0", "02:00:5e:40:00:02", "swp9")]
    records = support.run(LLDP, support.fixture("lldp", "healthy.txt"))
    assert [e.first for e in records[0].evidence] == [4, 6, 7, 12, 13]


def test_keyvalue_with_two_neighbours_on_one_interface() -> None:
    assert read("keyvalue.txt") == [("ens1np0", "leaf-11", "Ethernet1/7"), ("ens1np0", "leaf-13", "Ethernet1/9")]


def test_json_and_json0() -> None:
    assert read("json.txt") == [("ens1np0", "leaf-11", "Ethernet1/7"), ("ens2np0", "leaf-12", "Ethernet1/8")]


def test_networkctl_and_lldptool() -> None:
    assert read("dirty.txt") == [("ens1", "leaf-11", "Ethernet1/7"), ("ens4", "leaf-14", "Ethernet1/4")]


def test_no_neighbours_and_cut_json() -> None:
    assert read("sick.txt") == []
    (problem,) = support.run(LLDP, support.fixture("lldp", "truncated.txt"))
    assert problem.kind == "parse_problem"


def test_sniff_and_foreign_text() -> None:
    for text in mutations.fixtures_of("lldp"):
        assert LLDP.sniff(text, "x") == 0.9
    for name, text in mutations.foreign("lldp"):
        assert support.run(LLDP, text) == [] and LLDP.sniff(text, name) == 0.0, name


@given(mutations.hostile("lldp"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    LLDP.sniff(text, "x")
    support.run(LLDP, text)
