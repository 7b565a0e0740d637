"""Throttling of control groups."""

from __future__ import annotations

from typing import Any

from diagnose.tables import host
from tests.tables.support import Given, base, derived, lines


def stat(periods: int, throttled: int, seconds: float, path: str = "/job", **fields: Any) -> Given:
    values = {"host": "n1", "path": path, "nr_periods": periods, "nr_throttled": throttled, "throttled_s": seconds}
    return ("cgroup_cpu", {**values, **fields})


def only(*given: Given) -> Any:
    (fact,) = derived(host, base(*given), "cgroup_rate")
    return fact


def test_an_interval_is_preferred_to_the_life():
    rate = only(stat(1_000, 500, 60.0, snapshot=0), stat(1_100, 510, 61.5, snapshot=1))
    assert rate.fields == {
        "host": "n1", "path": "/job", "periods": 100, "throttled": 10, "share": 0.1, "throttled_s": 1.5,
        "lifetime": False,
    }  # fmt: skip
    assert lines(rate) == [2, 1]


def test_one_reading_tells_the_life():
    rate = only(stat(1_000, 500, 60.0))
    assert (rate.fields["share"], rate.fields["lifetime"]) == (0.5, True)


def test_the_same_reading_twice_is_no_interval():
    rate = only(stat(1_000, 500, 60.0, snapshot=0), stat(1_000, 500, 60.0, snapshot=0))
    assert (rate.fields["share"], rate.fields["lifetime"]) == (0.5, True)


def test_a_group_that_did_nothing_between_two_readings():
    assert derived(host, base(stat(9, 3, 1.0, snapshot=0), stat(9, 3, 1.0, snapshot=1))) == []


def test_groups_and_hosts_are_kept_apart_and_the_quota_joins():
    quota: Given = ("cgroup_cpu", {"host": "n1", "path": "/job", "quota_cores": 4.0})
    found = derived(host, base(quota, stat(10, 1, 0.1), stat(20, 0, 0.0, path="/sys"), stat(10, 2, 0.2, host="n2")))
    assert [(f.fields["host"], f.fields["path"], f.fields.get("quota_cores")) for f in found] == [
        ("n1", "/job", 4.0), ("n1", "/sys", None), ("n2", "/job", None),
    ]  # fmt: skip
