"""NCCL Inspector: the last completed collective of each rank."""

from __future__ import annotations

import support
from hypothesis import given, settings
from hypothesis import strategies as st

PARSER = support.load("nccl_inspector")


def test_one_record_per_communicator_and_rank() -> None:
    text = support.fixture("nccl_inspector", "healthy.jsonl")
    assert PARSER.sniff(text, "x") == 0.9
    records = support.run(PARSER, text)
    told = [(r.host, r.fields["comm_rank"], r.fields["seq"], r.fields["records"], r.evidence[0].first) for r in records]
    assert told == [("crane-03", 0, 72, 3, 3), ("crane-04", 8, 71, 3, 6)]
    assert records[0].fields["comm_id"] == "0x7f2a9b11c0de4455"
    assert records[0].fields["exec_us"] == 411.5
    assert round(records[0].fields["busbw_gbs"], 1) == 306.4


def test_a_torn_record_is_counted() -> None:
    text = support.fixture("nccl_inspector", "healthy.jsonl")
    records = support.run(PARSER, text[:-120])
    assert len(support.of(records, "inspector_progress")) == 2
    assert support.of(records, "parse_problem")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2500), st.text(max_size=30))
def test_any_text(at: int, junk: str) -> None:
    text = support.fixture("nccl_inspector", "healthy.jsonl")
    support.run(PARSER, text[:at] + junk + text[at + len(junk) :])
