"""The JSON form: its schema, its bytes, and the way back."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import diagnose
from diagnose.model import Diagnosis, Subject
from diagnose.report.jsonform import NotAReport, from_json, to_json
from tests.report.sample import QUIET, ROOT, SAMPLE, UNSOLVED, hostile

SCHEMA = json.loads((Path(diagnose.__file__).parent / "report.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def data(diagnosis: Diagnosis) -> dict[str, Any]:
    return json.loads(to_json(diagnosis))


def test_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "diagnosis", [SAMPLE, QUIET, UNSOLVED, hostile()], ids=["sample", "quiet", "unsolved", "hostile"]
)
def test_conforms(diagnosis: Diagnosis):
    assert [e.message for e in VALIDATOR.iter_errors(data(diagnosis))] == []


def test_contract_keys():
    found = data(SAMPLE)
    assert {"schema", "tool", "bundle_digest", "sources", "findings", "unknowns", "problems", "job", "tables"} == set(
        found
    )
    assert found["schema"] == "diagnose.report/1"
    assert {"name", "version", "engine", "rules", "thresholds_in_force"} <= set(found["tool"])
    root = found["findings"][0]
    assert root["evidence"][0] == {
        "source": "run/node-b/ibstat.txt",
        "lines": [31, 32],
        "text": "  State: Down\n  Physical state: Polling",
        "spans": [[2, 13]],
    }
    assert root["remediation"][1]["effect"] == "read-only"
    assert found["problems"][1] == {"source": None, "lines": None, "text": SAMPLE.problems[1].text}
    assert found["tables"]["counters"] is None


@pytest.mark.parametrize("name", ["all", "r3", "3,", "0..7", "", "1-", "٣"])
def test_rank_names_are_numbers_and_ranges(name: str):
    bad = replace(ROOT, subjects=(Subject("rank", name),))
    assert list(VALIDATOR.iter_errors(data(replace(SAMPLE, findings=(bad,)))))


def test_same_bytes_whatever_the_order_of_mappings_and_sources():
    turned = replace(
        SAMPLE,
        sources=SAMPLE.sources[::-1],
        job=dict(reversed(list(SAMPLE.job.items()))),
        tool=dict(reversed(list(SAMPLE.tool.items()))),
    )
    assert to_json(turned) == to_json(SAMPLE)


def test_no_private_path_leaves():
    assert "/tmp/x" not in to_json(SAMPLE)


@pytest.mark.parametrize(
    "diagnosis", [SAMPLE, QUIET, UNSOLVED, hostile()], ids=["sample", "quiet", "unsolved", "hostile"]
)
def test_there_and_back(diagnosis: Diagnosis):
    text = to_json(diagnosis)
    text.encode("utf-8")
    back = from_json(text)
    assert to_json(back) == text
    assert from_json(to_json(back)) == back
    assert [f.key for f in back.findings] == [f.key for f in diagnosis.findings]
    assert [f.remediation for f in back.findings] == [f.remediation for f in diagnosis.findings]
    assert back.unknowns == diagnosis.unknowns
    assert {s.path for s in back.sources} == {s.path for s in diagnosis.sources}


def test_sources_go_by_their_path():
    found = data(SAMPLE)
    ids = {s["id"] for s in found["sources"]}
    assert ids == {s.path for s in SAMPLE.sources}
    assert {e["source"] for f in found["findings"] for e in f["evidence"]} <= ids
    assert {p["source"] for p in found["problems"]} <= {*ids, None}


def test_numbers_that_json_lacks_become_null():
    odd = replace(SAMPLE, job={"nodes": float("nan"), "ranks": (1, float("inf")), "gpus": frozenset({2, 1})})
    assert data(odd)["job"]["nodes"] is None
    assert data(odd)["job"]["ranks"] == [1, None]
    assert data(odd)["job"]["gpus"] == [1, 2]


def test_control_characters_leave_as_escapes():
    text = to_json(hostile())
    assert not any((ord(c) < 32 and c != "\n") or c in "\x7f\x9b\u202e\u2066\u200b" for c in text)


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", "{", '{"schema": "diagnose.report/2"}', "[" * 100_000, '{"schema": NaN}',
        '{"schema": "diagnose.report/1"}',
        '{"schema": "diagnose.report/1", "bundle_digest": "", "findings": [3]}',
        '{"schema": "diagnose.report/1", "bundle_digest": "", "findings": [{"severity": "awful"}]}',
        '{"schema": "diagnose.report/1", "bundle_digest": "", "problems": [{"text": "x", "lines": [1]}]}',
        '{"schema": "diagnose.report/1", "bundle_digest": "", "sources": [{"id": 7}]}',
        '{"schema": "diagnose.report/1", "bundle_digest": "", "tool": []}',
    ],
)  # fmt: skip
def test_other_files_are_refused(text: str):
    with pytest.raises(NotAReport):
        from_json(text)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_reports_are_refused_or_read(draw: st.DataObject):
    text = to_json(SAMPLE)
    at = draw.draw(st.integers(0, len(text) - 1))
    new = draw.draw(st.text(max_size=3))
    with contextlib.suppress(NotAReport):
        from_json(text[:at] + new + text[at + draw.draw(st.integers(0, 4)) :])
