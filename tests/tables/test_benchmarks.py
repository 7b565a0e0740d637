"""Lots, stragglers, GPUs against their siblings, clocks: what a figure shows, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.model import Fact
from diagnose.tables import benchmarks
from tests.tables.support import Given, base, derived, lines


def found(kind: str, *given: Given, ranks: dict[int, str] | None = None) -> list[Fact]:
    return derived(benchmarks, base(*given, ranks=ranks), kind)


def gpus(host: str, lot: str, values: list[float], **fields: Any) -> list[Given]:
    """GPUs of one host with a part number, and a GEMM figure of each."""
    return [
        x for n, value in enumerate(values) for x in (
            ("gpu", {"host": host, "index": n, "name": "H100", "part_number": lot, **fields}),
            ("bench_gpu", {"host": host, "gpu": n, "test": "gemm", "value": value}),
        )
    ]  # fmt: skip


SLOW, FAST = [88.0, 88.5, 87.9, 88.2], [100.0, 100.4, 99.8, 100.1]


# --- lots -------------------------------------------------------------------------------------------


def test_a_lot_that_is_slower():
    (effect,) = found("lot_effect", *gpus("a-n1", "P1", SLOW), *gpus("a-n2", "P2", FAST))
    fields = effect.fields
    assert (fields["lot_kind"], fields["lot"], fields["other_lots"], fields["figure"]) == (
        "part_number",
        "P1",
        "P2",
        "gemm",
    )
    assert (fields["members"], fields["members_rest"], fields["hosts"]) == (4, 4, "a-n1")
    assert fields["slower_pct"] == pytest.approx(11.9, abs=0.2)
    assert lines(effect) == [2, 4, 6], "figures of the slow lot"


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        ([96.0, 97.0, 96.5, 96.2], FAST),
        ([100.0, 100.1, 60.0, 99.9], FAST),
        ([88.0, 99.0, 110.0, 77.0], [90.0, 112.0, 100.0, 85.0]),
        ([80.0, 81.0], FAST),
    ],
    ids=["four per cent", "one slow GPU", "wide spread", "two members"],
)
def test_what_is_no_lot_effect(slow: list[float], fast: list[float]):
    assert found("lot_effect", *gpus("a-n1", "P1", slow), *gpus("a-n2", "P2", fast)) == []


@pytest.mark.parametrize(
    ("own", "other", "confounder"),
    [
        ({"throttle_thermal": True}, {}, "throttled"),
        ({"throttle_app_clocks": True}, {}, "clocks"),
        ({"power_limit_w": 500.0}, {"power_limit_w": 700.0}, "power_limit_w"),
        ({"driver": "550.1"}, {"driver": "570.2"}, "driver"),
        ({"pcie_width": 8}, {"pcie_width": 16}, "pcie_width"),
    ],
)
def test_what_coincides_with_the_lot_is_named(own: dict[str, Any], other: dict[str, Any], confounder: str):
    (effect,) = found("lot_effect", *gpus("x1", "P1", SLOW, **own), *gpus("x2", "P2", FAST, **other))
    assert effect.fields["confounder"] == confounder


def test_a_lot_spread_over_the_same_hosts_has_no_confounder():
    eight = [*(("P1", value) for value in SLOW), *(("P2", value) for value in FAST)]
    mixed = [
        x for host in ("n1", "n2") for n, (lot, value) in enumerate(eight)
        for x in (
            ("gpu", {"host": host, "index": n, "name": "H100", "part_number": lot, "driver": "570.2"}),
            ("bench_gpu", {"host": host, "gpu": n, "test": "gemm", "value": value}),
        )
    ]  # fmt: skip
    (effect,) = found("lot_effect", *mixed)
    assert (effect.fields["confounder"], effect.fields["members"]) == ("none", 8)


def test_rack_explains_before_the_lot_does():
    racks = [*gpus("r1-n1", "P1", SLOW), *gpus("r2-n1", "P2", FAST)]
    (effect,) = found("lot_effect", *racks)
    assert effect.fields["confounder"] == "rack"


def test_lots_without_figures_are_inventory():
    given: list[Given] = [
        ("gpu", {"host": "n1", "index": n, "name": "H100", "vbios": v}) for n, v in enumerate(("A", "A", "B"))
    ]
    (inventory,) = found("lot_inventory", *given)
    assert inventory.fields == {"lot_kind": "vbios", "lots": "A (2), B (1)"}
    assert found("lot_inventory", *given[:2]) == []


def test_different_models_are_no_mixed_lot():
    given: list[Given] = [
        ("gpu", {"host": "n1", "index": n, "name": name, "vbios": name}) for n, name in enumerate(("H100", "A100"))
    ]
    assert found("lot_inventory", *given) == []


# --- stragglers ---------------------------------------------------------------------------------------


def steps(**medians: float) -> list[Given]:
    return [
        ("train_step", {"rank": n, "host": host, "steps": 100, "median_s": value})
        for n, (host, value) in enumerate(medians.items())
    ]


def test_a_rank_whose_steps_take_longer():
    ranks = {n: f"n{n + 1}" for n in range(6)}
    (slow,) = found("straggler", *steps(n1=1.0, n2=1.01, n3=0.99, n4=1.0, n5=1.21, n6=1.0), ranks=ranks)
    assert (slow.fields["subject"], slow.fields["name"], slow.fields["host"]) == ("rank", "4", "n5")
    assert (slow.fields["rank"], slow.fields["others"]) == (4, 5)
    assert slow.fields["slower_pct"] == pytest.approx(21, abs=0.5)


@pytest.mark.parametrize(
    "medians",
    [
        {"n1": 1.0, "n2": 1.0, "n3": 1.3},
        {"n1": 1.0, "n2": 1.0, "n3": 1.0, "n4": 1.04},
        {"n1": 1.0, "n2": 1.4, "n3": 0.7, "n4": 1.2, "n5": 0.9},
        {"n1": 1.0, "n2": 1.0, "n3": 1.0, "n4": 0.5},
    ],
    ids=["three figures", "four per cent", "wide spread", "faster"],
)
def test_what_is_no_straggler(medians: dict[str, float]):
    assert found("straggler", *steps(**medians)) == []


def test_many_slow_ones_are_a_population_and_no_straggler():
    assert found("straggler", *steps(**{f"n{n}": 1.0 if n < 5 else 2.0 for n in range(8)})) == []


def test_a_slow_gpu_by_its_figure():
    (slow,) = found("straggler", *gpus("n1", "P", [100.0, 100.1, 99.9, 80.0, 100.0, 100.2, 99.8, 100.0]))
    assert (slow.fields["subject"], slow.fields["name"], slow.fields["figure"]) == ("gpu", "GPU3", "gemm")


def test_hosts_by_single_node_collective_and_by_ib_write_bw():
    given: list[Given] = [
        (kind, {"host": f"n{n}", **shared, field: value})
        for kind, shared, field in (
            ("bench_nccl", {"op": "all_reduce", "nodes": 1}, "busbw_gbps"),
            ("bench_ib", {"test": "ib_write_bw"}, "avg_gbps"),
        )
        for n, value in enumerate((380.0, 381.0, 379.0, 190.0))
    ]  # fmt: skip
    assert {(f.fields["figure"], f.fields["host"]) for f in found("straggler", *given)} == {
        ("busbw", "n3"), ("ib_write_bw", "n3"),
    }  # fmt: skip


def test_several_nodes_together_tell_nothing_of_one_host():
    given: list[Given] = [
        ("bench_nccl", {"op": "all_reduce", "nodes": 4, "host": f"n{n}", "busbw_gbps": v})
        for n, v in enumerate((380.0, 381.0, 379.0, 190.0))
    ]
    assert found("straggler", *given) == []


# --- siblings and clocks ------------------------------------------------------------------------------


def clocks(load: float | None, *values: float) -> list[Given]:
    told = {} if load is None else {"utilization_pct": load}
    return [
        ("gpu", {"host": "n1", "index": n, "name": "H100", "clock_sm_mhz": v, **told}) for n, v in enumerate(values)
    ]


def test_a_clock_below_the_siblings_under_load():
    (low,) = found("gpu_deviation", *clocks(99.0, 1980.0, 1980.0, 1980.0, 1410.0))
    assert (low.fields["gpu"], low.fields["metric"], low.fields["siblings"]) == ("GPU3", "clock_sm", 3)
    assert low.fields["below_pct"] == pytest.approx(28.8, abs=0.1)


@pytest.mark.parametrize("load", [None, 0.0])
def test_idle_gpus_clock_down_by_design(load: float | None):
    assert found("gpu_deviation", *clocks(load, 1980.0, 1980.0, 1980.0, 345.0)) == []


def test_a_power_limit_differs_even_when_idle():
    given: list[Given] = [
        ("gpu", {"host": "n1", "index": n, "name": "H100", "power_limit_w": v})
        for n, v in enumerate([700.0] * 3 + [500.0])
    ]
    (low,) = found("gpu_deviation", *given)
    assert (low.fields["metric"], low.fields["value"], low.fields["median"]) == ("power_limit", 500.0, 700.0)


def test_spread_of_the_clocks_names_the_worst_host():
    given: list[Given] = [
        ("clock_tracking", {"host": host, "offset_ms": abs(v), "signed_offset_ms": v})
        for host, v in (("n1", 0.1), ("n2", -0.2), ("n3", -41.0))
    ]
    (spread,) = found("clock_spread", *given)
    assert (spread.fields["worst_host"], spread.fields["hosts"]) == ("n3", 3)
    assert spread.fields["spread_ms"] == pytest.approx(41.1)
    assert found("clock_spread", *given[:1]) == []


# --- hostile input --------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n1", "n2", "r1-n1"]), st.integers(0, 7), st.sampled_from(["A", "B", "C"]),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=24,
    )
)  # fmt: skip
def test_any_figures_give_conforming_facts(rows: list[tuple[str, int, str, float]]):
    given: list[Given] = []
    for host, index, lot, value in rows:
        given += [
            ("gpu", {"host": host, "index": index, "name": "X", "part_number": lot, "clock_sm_mhz": value,
                     "utilization_pct": 100.0}),
            ("bench_gpu", {"host": host, "gpu": index, "test": "t", "value": value}),
        ]  # fmt: skip
    derived(benchmarks, base(*given))
