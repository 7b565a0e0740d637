"""The vocabulary: well formed, answers questions, and tells what is wrong with a fact."""

from __future__ import annotations

import re

import pytest
from jsonschema import Draft202012Validator

from diagnose import packs
from diagnose.vocabulary import did_you_mean, schema, vocabulary

KINDS = vocabulary().kinds
ORIGINS = {"parser", "tables", "facts", "site", "diagnose"}


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_is_described(name: str):
    kind = KINDS[name]
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert kind.origin in ORIGINS
    assert kind.topic in vocabulary().topics
    assert len(kind.description) >= 8
    assert set(kind.sources) <= vocabulary().topics.keys()
    assert set(kind.by_subject.values()) <= set(kind.sources)
    for field in kind.fields.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", field.name), field.name
        assert field.description, field.name


@pytest.mark.parametrize("name", sorted(n for n, k in KINDS.items() if k.origin == "tables" and k.topic == "derived"))
def test_derived_kinds_say_what_they_are_made_from(name: str):
    assert KINDS[name].sources, "x-from: the topics that let it be judged"


@pytest.mark.parametrize("name", sorted(vocabulary().topics))
def test_every_topic_has_a_command(name: str):
    topic = vocabulary().topics[name]
    assert topic.title and topic.collect


def test_topics_are_covered_by_a_parser_or_made_from_one():
    told = {topic for parser in packs.load_parsers() for topic in parser.TOPICS}
    needed = {kind.topic for kind in KINDS.values() if kind.origin == "parser"}
    assert needed - told == set(), "no parser can cover these"
    assert told <= vocabulary().topics.keys()


UNITS = {
    "s": "number", "ms": "number", "ns": "number", "gbps": "number", "mbps": "number", "pct": "number", "mhz": "number",
    "w": "number", "c": "number", "mib": "number", "dbm": "number", "ppm": "number",
}  # fmt: skip


def test_names_that_end_in_a_unit_are_numbers():
    for kind in KINDS.values():
        for field in kind.fields.values():
            unit = field.name.rsplit("_", 1)[-1]
            if "_" in field.name and unit in UNITS:
                assert field.type in ("number", "integer"), f"{kind.name}.{field.name}"


def test_common_fields_belong_to_every_kind():
    for kind in KINDS.values():
        assert {"host", "rank", "at", "times", "ranks"} <= kind.fields.keys()


# --- questions ------------------------------------------------------------------------------------------


def test_fields_and_topics():
    field = vocabulary().field("nic_rate", "value")
    assert field is not None and (field.type, field.required) == ("number", True)
    assert vocabulary().field("nic_rate", "colour") is None
    assert vocabulary().field("colours", "value") is None
    assert vocabulary().topic_of("kernel_event") == "kernel_log"


def test_the_vocabulary_is_read_once():
    assert vocabulary() is vocabulary()


def test_a_fact_that_conforms():
    assert vocabulary().check("clocksource", {"current": "tsc", "host": "n1"}) == []
    assert vocabulary().check("clock_tracking", {"offset_ms": 1}) == [], "an integer is a number"


@pytest.mark.parametrize(
    ("kind", "fields", "wrong"),
    [
        ("clocksorce", {}, "unknown kind 'clocksorce'; did you mean 'clocksource'?"),
        (
            "clocksource",
            {"current": "tsc", "availabel": "x"},
            "clocksource has no field 'availabel'; did you mean 'available'?",
        ),
        ("clocksource", {}, "clocksource lacks 'current'"),
        ("clocksource", {"current": 3}, "clocksource.current must be string, not 3"),
        ("kernel_event", {"event": "xid", "text": "t", "code": True}, "kernel_event.code must be integer, not True"),
        ("kernel_event", {"event": "xid", "text": "t", "code": 7.0}, "kernel_event.code must be integer, not 7.0"),
        ("clock_tracking", {"offset_ms": "1"}, "clock_tracking.offset_ms must be number, not '1'"),
        ("clock_tracking", {"offset_ms": 1.0, "synchronised": 0}, "clock_tracking.synchronised must be boolean, not 0"),
    ],
)
def test_what_is_wrong_is_said_with_a_suggestion(kind: str, fields: dict[str, object], wrong: str):
    assert vocabulary().check(kind, fields) == [wrong]


def test_all_that_is_wrong_is_said_at_once():
    assert len(vocabulary().check("clocksource", {"current": 3, "x": 1, "rank": "0"})) == 3


def test_suggestions():
    assert did_you_mean("hots", ["host", "rank"]) == "; did you mean 'host'?"
    assert did_you_mean("zzz", ["host", "rank"]) == ""
