"""Deviations: majority, tie, contract, and what may differ by design."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.model import Evidence, Fact, FactBase, Problem, Value
from diagnose.tables import deviations
from diagnose.tables.deviations import PER_PROCESS_VARIABLES, SUBJECTS
from diagnose.vocabulary import vocabulary
from tests.tables.support import Given, base, derived


def versions(*values: str) -> list[Given]:
    return [("nccl_version", {"host": f"n{n}", "version": v, "rank": n}) for n, v in enumerate(values)]


def found(*given: Given, facts: tuple[Given, ...] = (), subject: str | None = None) -> list[Fact]:
    every = derived(deviations, base(*given, facts=facts), "deviation")
    return [f for f in every if subject is None or f.fields["subject"] == subject]


def summary(facts: list[Fact]) -> list[tuple[Any, ...]]:
    return [(f.fields["host"], f.fields["value"], f.fields["majority"], f.fields["reference"]) for f in facts]


def test_the_odd_one_deviates_from_the_majority():
    (odd,) = found(*versions("2.27.7", "2.27.7", "2.21.5", "2.27.7"))
    assert summary([odd]) == [("n2", "2.21.5", "2.27.7", "majority")]
    assert (odd.fields["hosts_same"], odd.fields["hosts_majority"], odd.fields["ranks"]) == (1, 3, "2")
    assert [e.first for e in odd.evidence] == [3]


def test_equal_hosts_do_not_deviate():
    assert found(*versions("2.27.7", "2.27.7", "2.27.7")) == []


def test_one_host_has_nobody_to_differ_from():
    assert found(*versions("2.27.7")) == []


@pytest.mark.parametrize("values", [("a", "b"), ("a", "b", "c"), ("a", "a", "b", "b")])
def test_without_a_majority_it_is_a_tie_that_names_all(values: tuple[str, ...]):
    odd = found(*versions(*values))
    assert [f.fields["host"] for f in odd] == [f"n{n}" for n in range(len(values))]
    assert {f.fields["reference"] for f in odd} == {"tie"}
    assert all(value in str(odd[0].fields["majority"]) for value in values)


def test_ranks_of_one_host_that_differ_show_both_values():
    given = [*versions("2.27.7", "2.27.7", "2.27.7"), ("nccl_version", {"host": "n1", "version": "2.21.5", "rank": 9})]
    (odd,) = found(*given)
    assert (odd.fields["value"], odd.fields["ranks"]) == ("2.21.5 | 2.27.7", "1,9")


# --- environment ---------------------------------------------------------------------------------------


def env(host: str, **values: str) -> list[Given]:
    return [("nccl_env", {"host": host, "name": name, "value": value}) for name, value in values.items()]


def test_a_variable_missing_on_one_host():
    given = [*env("n0", NCCL_IB_TC="106", NCCL_X="1"), *env("n1", NCCL_IB_TC="106", NCCL_X="1"), *env("n2", NCCL_X="1")]
    assert summary(found(*given)) == [("n2", "(not set)", "106", "majority")]


def test_hosts_whose_variables_are_unknown_are_not_compared():
    given = [
        *env("n0", NCCL_IB_TC="106"),
        *env("n1", NCCL_IB_TC="106"),
        ("nccl_version", {"host": "n2", "version": "2"}),
    ]
    assert found(*given, subject="nccl_env") == []


@pytest.mark.parametrize("name", sorted(PER_PROCESS_VARIABLES))
def test_variables_that_differ_by_design(name: str):
    assert found(*env("n0", **{name: "a"}), *env("n1", **{name: "a"}), *env("n2", **{name: "b"})) == []


# --- contract of the site --------------------------------------------------------------------------------


def pfc(*values: str) -> list[Given]:
    return [
        ("qos_pfc", {"host": f"n{n}", "device": "eth2", "priorities": v, "count": len(v)}) for n, v in enumerate(values)
    ]


def test_the_contract_decides_against_the_majority():
    contract: Given = ("site_contract", {"priority": 3, "trust": "dscp"})
    assert summary(found(*pfc("", "", "3"), facts=(contract,))) == [
        ("n0", "", "3", "contract"), ("n1", "", "3", "contract"),
    ]  # fmt: skip


def test_a_single_host_is_held_to_the_contract():
    trust: Given = ("qos_trust", {"host": "n0", "device": "eth2", "trust": "pcp"})
    contract: Given = ("site_contract", {"trust": "dscp"})
    assert summary(found(trust, facts=(contract,))) == [("n0", "pcp", "dscp", "contract")]


def test_a_lossy_site_does_not_demand_pfc():
    contract: Given = ("site_contract", {"priority": 3, "lossless": False})
    assert found(*pfc("", "", ""), facts=(contract,)) == []


# --- subjects --------------------------------------------------------------------------------------------


def test_only_physical_interfaces_are_compared_by_mtu():
    links: list[Given] = [
        ("ip_interface", {"host": f"n{n}", "device": "veth1", "type": "veth", "mtu": mtu})
        for n, mtu in enumerate((1450, 1450, 9000))
    ]
    assert found(*links) == []


def test_numbers_and_truth_values_become_words():
    given: list[Given] = [
        ("nccl_net_device", {"host": f"n{n}", "network": "IB", "device": "mlx5_0", "relaxed_ordering": on})
        for n, on in enumerate((True, True, False))
    ]
    assert summary(found(*given)) == [("n2", "no", "yes", "majority")]
    rates: list[Given] = [
        ("rdma_port", {"host": f"n{n}", "device": "mlx5_0", "rate_gbps": rate})
        for n, rate in enumerate((400.0, 400.0, 200.0))
    ]
    assert summary(found(*rates)) == [("n2", "200", "400", "majority")]


def test_every_subject_exists_and_has_a_topic():
    by_subject = vocabulary().kinds["deviation"].by_subject
    for subject in SUBJECTS:
        kind = vocabulary().kinds[subject.kind]
        assert {subject.field, subject.item or "host"} <= kind.fields.keys()
        assert by_subject[subject.name] == kind.topic, subject.name


def test_counts_of_gpus():
    given: list[Given] = [
        ("gpu", {"host": host, "index": n, "bus_id": f"0000:{n:02x}:00"})
        for host, count in (("a", 8), ("b", 7), ("c", 8)) for n in range(count) for _ in range(2)
    ]  # fmt: skip
    assert summary(found(*given, subject="gpu_count")) == [("b", "7", "8", "majority")]


def test_a_second_population_is_bounded():
    assert len(found(*versions(*["a"] * 200, *["b"] * 150))) == deviations.MAX_DEVIATIONS


# --- rails -----------------------------------------------------------------------------------------------


def cables(**leaves: tuple[str, ...]) -> list[Given]:
    return [
        ("lldp_neighbour", {"host": host, "device": f"eth{n}", "switch": leaf, "port": f"p{host}"})
        for host, switches in leaves.items() for n, leaf in enumerate(switches)
    ]  # fmt: skip


def test_swapped_cables_are_seen_at_both_nics():
    odd = found(*cables(a=("l0", "l1"), b=("l0", "l1"), c=("l1", "l0"), d=("l0", "l1")), subject="rail_switch")
    assert [(f.fields["host"], f.fields["item"], f.fields["value"], f.fields["majority"]) for f in odd] == [
        ("c", "eth0", "l1", "l0"), ("c", "eth1", "l0", "l1"),
    ]  # fmt: skip


def test_another_rack_is_no_wrong_rail():
    assert found(*cables(a=("l0", "l1"), b=("l0", "l1"), c=("l8", "l9"), d=("l0", "l1")), subject="rail_switch") == []


def test_one_leaf_for_all_is_no_rail_design():
    assert found(*cables(a=("l0", "l0"), b=("l0", "l0"), c=("l0", "l0")), subject="rail_switch") == []


def test_two_hosts_show_no_rails():
    assert found(*cables(a=("l0", "l1"), b=("l1", "l0")), subject="rail_switch") == []


def test_a_torn_list_of_gpus_counts_nothing():
    def seen(host: str, count: int, source: str, **named: Value) -> list[Fact]:
        return [
            Fact(f"{source}{n}", "gpu", {"host": host, "index": n, **named}, (Evidence(source, n, n, "x"),))
            for n in range(count)
        ]  # fmt: skip

    facts = [*seen("a", 8, "a"), *seen("b", 8, "b"), *seen("c", 5, "c"), *seen("d", 8, "d"), *seen("d", 8, "d2")]
    by_bus = [Fact(f"q{n}", "gpu", {"host": "d", "bus_id": f"0000:{n:02x}:00"}, facts[n].evidence) for n in range(3)]

    def said(problems: tuple[Problem, ...]) -> list[tuple[Value, ...]]:
        known = FactBase((*facts, *by_bus), (), problems, ("a", "b", "c", "d"), {}, None)
        told = derived(deviations, known, "deviation")
        return [(f.fields["host"], f.fields["value"]) for f in told if f.fields["subject"] == "gpu_count"]

    assert said(()) == [("c", "5")]
    assert said((Problem("row does not fit", "c"),)) == []
