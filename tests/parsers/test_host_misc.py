"""Limits and settings of a host."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("host_misc")


def limits(name: str) -> dict[object, Record]:
    return {r.fields["name"]: r for r in of(run(parser, fixture("host_misc", name)), "host_limit")}


def test_healthy_host() -> None:
    found = limits("healthy.txt")
    assert {n: r.fields.get("number", r.fields["value"]) for n, r in found.items()} == {
        "memlock_kib": "unlimited",
        "shm_total_mib": 504 * 1024,
        "shm_free_mib": 503 * 1024,
        "numa_balancing": 0,
        "cpus": 224,
        "governor": "performance",
        "affinity_cpus": 112,
    }
    assert found["memlock_kib"].fields["unlimited"] is True
    assert found["cpus"].evidence[0].first == 12
    (clock,) = of(run(parser, fixture("host_misc", "healthy.txt")), "clocksource")
    assert dict(clock.fields) == {"current": "tsc"}


def test_sick_host() -> None:
    found = {n: r.fields for n, r in limits("sick.txt").items()}
    assert (found["memlock_kib"]["number"], found["memlock_kib"]["unlimited"]) == (64, False)
    assert (found["shm_total_mib"]["number"], found["shm_free_mib"]["number"]) == (64, 0)
    assert found["governor"]["value"] == "powersave"
    assert (found["numa_balancing"]["number"], found["affinity_cpus"]["number"], found["nofile"]["number"]) == (
        1,
        2,
        1024,
    )
    (clock,) = of(run(parser, fixture("host_misc", "sick.txt")), "clocksource")
    assert dict(clock.fields) == {"current": "hpet", "available": "hpet acpi_pm"}


def test_several_hosts_and_other_sources() -> None:
    records = run(parser, fixture("host_misc", "dirty-pdsh.txt"))
    memlock = {r.host: r.fields["value"] for r in of(records, "host_limit") if r.fields["name"] == "memlock_kib"}
    assert memlock == {"gpu-a01": "unlimited", "gpu-a02": "8192", None: "8192"}, "/proc counts bytes"
    shm = limits("dirty-pdsh.txt")["shm_total_mib"]
    assert shm.fields["number"] == 64
    assert [r.fields["current"] for r in of(records, "clocksource")] == ["acpi_pm"]
    assert 12 not in {e.first for r in records for e in r.evidence}, "a number that nothing names"


@pytest.mark.parametrize(
    ("name", "text", "kind", "value"),
    [
        ("ulimit.txt", "unlimited\n", "memlock_kib", "unlimited"),
        ("ulimit-l.txt", "65536\n", "memlock_kib", "65536"),
        ("nproc.txt", "96\n", "cpus", "96"),
        ("numa_balancing.txt", "1\n", "numa_balancing", "1"),
    ],
)
def test_bare_values_are_known_by_the_file_name(name: str, text: str, kind: str, value: str) -> None:
    assert parser.sniff(text, name) >= 0.5
    (record,) = run(parser, text, name)
    assert (record.fields["name"], record.fields["value"]) == (kind, value)
    assert parser.sniff(text, "notes.txt") == 0.0
    assert not run(parser, text, "notes.txt")


def test_truncated_row() -> None:
    assert not limits("truncated.txt")


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("host_misc"):
        if "numa_balancing" in text or "CPU(s):" in text or "ulimit" in text:
            continue
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


@settings(max_examples=80, deadline=None)
@given(hostile("host_misc"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)
