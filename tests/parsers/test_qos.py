"""mlnx_qos, dcb and the RoCE sysfs files."""

from __future__ import annotations

import mutations
import pytest
import support
from hypothesis import given, settings

from diagnose.model import Record

MLNX, DCB, SYSFS = (support.load(kind) for kind in ("mlnx_qos", "dcb", "roce_sysfs"))


def pfc(records: list[Record]) -> dict[object, object]:
    return {r.fields["device"]: r.fields["priorities"] for r in support.of(records, "qos_pfc")}


def test_a_healthy_mlnx_qos() -> None:
    records = support.run(MLNX, support.fixture("mlnx_qos", "healthy.txt"))
    assert pfc(records) == {"ens1np0": "3"} and support.of(records, "qos_pfc")[0].fields["count"] == 1
    assert [r.fields["trust"] for r in support.of(records, "qos_trust")] == ["dscp"]
    mapping = {r.fields["dscp"]: r.fields["priority"] for r in support.of(records, "qos_dscp")}
    assert len(mapping) == 64 and mapping[26] == 3 and mapping[48] == 6
    assert support.of(records, "qos_pfc")[0].evidence[0].first == 17


def test_two_interfaces_without_and_with_too_much_pfc() -> None:
    records = support.run(MLNX, support.fixture("mlnx_qos", "sick.txt"))
    assert pfc(records) == {"ens2np0": "", "ens3np0": "3,4,7"}
    assert [r.fields["trust"] for r in support.of(records, "qos_trust")] == ["pcp", "dscp"]


def test_lost_tabs_and_a_short_row() -> None:
    records = support.run(MLNX, support.fixture("mlnx_qos", "dirty.txt"), "mlnx_qos.eth2.txt")
    (found,) = support.of(records, "qos_pfc")
    assert (found.host, found.fields["device"], found.fields["priorities"]) == ("gpu-g2", "eth2", "3")
    assert len(support.of(records, "parse_problem")) == 1


def test_a_cut_answer_has_no_pfc() -> None:
    records = support.run(MLNX, support.fixture("mlnx_qos", "truncated.txt"), command="mlnx_qos -i eth9")
    assert support.of(records, "qos_pfc") == [] and support.of(records, "qos_trust")[0].fields["device"] == "eth9"


def test_dcb() -> None:
    records = support.run(DCB, support.fixture("dcb", "healthy.txt"))
    assert pfc(records) == {"ens1": "3"}
    assert {r.fields["dscp"]: r.fields["priority"] for r in support.of(records, "qos_dscp")} == {26: 3, 48: 6}
    frames = {r.fields["name"]: r.fields["value"] for r in support.of(records, "nic_counter")}
    assert frames["tx_prio3_pause"] == 5 and frames["rx_prio3_pause"] == 81
    assert pfc(support.run(DCB, support.fixture("dcb", "sick.txt"))) == {"ens2": "", "ens3": "3,4"}
    assert pfc(support.run(DCB, support.fixture("dcb", "json.txt"))) == {"ens4": "3"}
    assert pfc(support.run(DCB, support.fixture("dcb", "truncated.txt"))) == {}
    damaged = support.run(DCB, support.fixture("dcb", "dirty.txt"))
    assert [(r.kind, r.fields["dscp"]) for r in damaged] == [("qos_dscp", 46)]


def test_roce_sysfs() -> None:
    records = support.run(SYSFS, support.fixture("roce_sysfs", "healthy.txt"))
    classes = {r.fields["device"]: r.fields["traffic_class"] for r in support.of(records, "qos_traffic_class")}
    assert classes == {"mlx5_0": 106, "mlx5_1": 106}
    ecn = {(r.fields["role"], r.fields["priority"]): r.fields["on"] for r in support.of(records, "qos_ecn")}
    assert ecn == {("np", 3): True, ("rp", 3): True}
    off = support.run(SYSFS, support.fixture("roce_sysfs", "sick.txt"))
    assert [r.fields.get("traffic_class", r.fields.get("on")) for r in off] == [0, False]
    for name in ("dirty.txt", "truncated.txt"):
        assert support.run(SYSFS, support.fixture("roce_sysfs", name)) == []


@pytest.mark.parametrize("parser", [MLNX, DCB, SYSFS], ids=["mlnx_qos", "dcb", "roce_sysfs"])
def test_sniff_and_foreign_text(parser: object) -> None:
    kind = parser.KIND  # type: ignore[attr-defined]
    for name, text in mutations.foreign(kind):
        assert parser.sniff(text, name) == 0.0, name  # type: ignore[attr-defined]
        assert support.run(parser, text) == [], name  # type: ignore[arg-type]
    assert all(parser.sniff(t, "x") == 0.9 for t in mutations.fixtures_of(kind)[1:4])  # type: ignore[attr-defined]


@pytest.mark.parametrize("parser", [MLNX, DCB, SYSFS], ids=["mlnx_qos", "dcb", "roce_sysfs"])
def test_hostile_text_never_breaks_it(parser: object) -> None:
    @given(mutations.hostile(parser.KIND))  # type: ignore[attr-defined]
    @settings(max_examples=40, deadline=None)
    def check(text: str) -> None:
        parser.sniff(text, "x")  # type: ignore[attr-defined]
        support.run(parser, text)  # type: ignore[arg-type]

    check()
