"""nvbandwidth: figures per GPU."""

from __future__ import annotations

from hypothesis import given, settings

from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, run

parser = load("nvbandwidth")


def figures(name: str) -> list[tuple[object, object, object]]:
    records = run(parser, fixture("nvbandwidth", name))
    return [(r.fields["test"], r.fields["gpu"], r.fields["value"]) for r in records]


def test_host_and_local_copies() -> None:
    assert figures("healthy.txt") == [("h2d", 0, 55.4), ("h2d", 1, 55.38), ("memory", 0, 1410.1), ("memory", 1, 1409.8)]
    assert ("h2d", 1, 12.9) in figures("sick.txt")
    assert run(parser, fixture("nvbandwidth", "healthy.txt"))[0].evidence[0].first == 15


def test_missing_values_stay_unknown() -> None:
    assert figures("dirty.txt") == [("d2h", 1, 26.1)]
    assert figures("truncated.txt") == []


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("nvbandwidth"):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


@settings(max_examples=60, deadline=None)
@given(hostile("nvbandwidth"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)
