"""Dumps of every version and form that there is: numbers, ranks, signatures, and bytes of any kind."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import load

from diagnose.model import Record, Source
from diagnose.vocabulary import vocabulary

DUMPS = Path(__file__).parents[2] / "fixtures" / "dumps"
PARSER = load("flight_recorder")


def read(data: bytes, name: str = "x") -> list[Record]:
    records = list(PARSER.scan_bytes(data, Source("s1", name)))
    lines = list(PARSER.render_bytes(data, Source("s1", name)))
    assert PARSER.line_count(records) == len(lines)
    for record in records:
        assert not (wrong := vocabulary().check(record.kind, record.fields)), wrong
        for e in record.evidence:
            assert 1 <= e.first <= e.last <= max(1, len(lines))
            if record.kind == "fr_group":
                assert lines[e.first - 1] == e.text
    return records


def groups(records: list[Record]) -> dict[str, Record]:
    return {str(r.fields["group"]): r for r in records if r.kind == "fr_group"}


def entry(seq: int, op: str = "all_reduce", state: str = "completed", size: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "record_id": 100 + seq, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": seq,
        "p2p_seq_id": 0, "op_id": seq, "profiling_name": f"nccl:{op}",
        "time_created_ns": 1_780_000_000_000_000_000 + seq * 10**9,
        "input_sizes": [[size]], "input_dtypes": ["Float"], "output_sizes": [[size]], "output_dtypes": ["Float"],
        "state": state, "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": False,
    } | more  # fmt: skip


def dump(entries: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries} | more


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_numbers_of_a_group(form: str) -> None:
    made = dump([entry(7), entry(8), entry(9, state="started"), entry(10, "broadcast", "scheduled")])
    data = pickle.dumps(made, 2) if form == "pickle" else json.dumps(made).encode()
    assert PARSER.sniff_bytes(data[:65536], "anything") == 0.9
    (group,) = groups(read(data)).values()
    told = {
        k: group.fields[k] for k in ("enqueued", "started", "completed", "pending_seq", "pending_op", "pending_count")
    }
    assert told == {
        "enqueued": 10, "started": 9, "completed": 8, "pending_seq": 9, "pending_op": "all_reduce", "pending_count": 2,
    }  # fmt: skip
    assert group.fields["members"] == "0-3"
    first, codes = group.fields["first_seq"], array("I", zlib.decompress(base64.b64decode(str(group.fields["codes"]))))
    assert (first, len(codes), codes[0] == codes[1] == codes[2], codes[2] == codes[3]) == (7, 4, True, False)


def test_old_versions_have_one_number_and_no_groups() -> None:
    old = [
        {k: v for k, v in entry(n).items() if k not in ("collective_seq_id", "process_group", "is_p2p", "input_dtypes")}
        | {"seq_id": n}
        for n in (1, 2, 3)
    ]  # fmt: skip
    for made in (old, {"version": "1.5", "entries": old}):
        data = pickle.dumps(made, 2)
        assert PARSER.sniff_bytes(data[:65536], "nccl_trace_rank_0") == 0.9
        (group,) = groups(read(data)).values()
        assert group.fields["enqueued"] == 3


def test_transfers_tell_the_rank_and_the_peers() -> None:
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "4": {"name": "4", "desc": "pp", "ranks": "[1, 3]"},
    }
    transfer = entry(
        5, state="scheduled", profiling_name="nccl:send 0->1", is_p2p=True, process_group=("4", "pp"), pg_id=3
    )
    records = read(pickle.dumps(dump([entry(1), transfer], pg_config=config), 2))
    assert {r.rank for r in records} == {1}
    assert groups(records)["4"].fields["p2p"] == "s3*1"


def test_sizes_of_uneven_operations_do_not_count() -> None:
    one = groups(read(pickle.dumps(dump([entry(1, "all_to_all", size=5)]), 2)))["0"].fields["codes"]
    other = groups(read(pickle.dumps(dump([entry(1, "all_to_all", size=9)]), 2)))["0"].fields["codes"]
    third = groups(read(pickle.dumps(dump([entry(1, "all_reduce", size=9)]), 2)))["0"].fields["codes"]
    assert one == other != third


def test_status_of_groups_whose_entries_were_overwritten() -> None:
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "7": {"name": "7", "desc": "dp", "ranks": "[0, 2]"},
    }
    status = {
        str(n): {"last_enqueued_collective": e, "last_started_collective": -1, "last_completed_collective": c}
        for n, (e, c) in enumerate(((12, 12), (5, 4)))
    }  # fmt: skip
    found = groups(read(pickle.dumps(dump([entry(12)], pg_config=config, pg_status=status), 2)))
    assert (found["7"].fields["enqueued"], found["7"].fields["completed"]) == (5, 4)


def test_a_cut_dump_gives_what_came_before_and_says_so() -> None:
    data = pickle.dumps(dump([entry(n) for n in range(1, 60)]), 2)
    records = read(data[: len(data) // 2])
    assert any(r.kind == "parse_problem" for r in records)
    assert next(r for r in records if r.kind == "fr_dump").fields["truncated"] is True


def test_real_dumps_of_gloo() -> None:
    records = read((DUMPS / "gloo-sleep" / "trace_rank_0").read_bytes())
    default = next(g for g in groups(records).values() if g.fields["desc"] == "default_pg")
    assert (default.fields["enqueued"], default.fields["completed"], default.fields["pending_seq"]) == (7, 6, 7)
    late = groups(read((DUMPS / "gloo-sleep" / "trace_rank_2").read_bytes()))
    assert all("pending_seq" not in g.fields for g in late.values())
    as_json = groups(read((DUMPS / "gloo-skip" / "trace_rank_3.json").read_bytes()))
    assert as_json


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"entries": 3, "pg_config": 1}',
        b"\x80\x02}.",
        pickle.dumps([1, 2, 3], 2),
    ],
)
def test_other_bytes_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


def test_a_dump_of_a_huge_job_is_known_by_its_first_group() -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(16_384)))}}
    data = pickle.dumps(dump([entry(1)], pg_config=config), 2)
    assert b"entries" not in data[:65536]
    assert PARSER.sniff_bytes(data[:65536], "x") == 0.9


@pytest.mark.parametrize("text", [b"nothing of interest", b'{"a": 1}', b"[1, 2]", b'{"log": "x", "stream": "stderr"}'])
def test_other_files_are_not_claimed(text: bytes) -> None:
    assert PARSER.sniff_bytes(text, "nccl_trace_rank_0") < 0.5


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(entry(1))), plain, st.sampled_from(("version", "pg_config", "pg_status", "entries")), plain,
)  # fmt: skip
def test_any_value_anywhere(key: str, value: Any, top: str, other: Any) -> None:
    entries = [entry(1), {**entry(2), key: value}, entry(3)]
    for made in (dump(entries), {**dump(entries), top: other}):
        try:
            read(pickle.dumps(made, 2))
        except ValueError:
            continue


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3000), st.binary(max_size=12))
def test_damaged_bytes(at: int, junk: bytes) -> None:
    data = (DUMPS / "gloo-sleep" / "trace_rank_0").read_bytes()
    try:
        read(data[:at] + junk + data[at + len(junk) :])
    except (ValueError, MemoryError):
        return


def test_parts_of_a_coalesced_collective_are_as_far_as_its_end() -> None:
    parts = [entry(7, state="scheduled", retired=False), entry(7, state="scheduled", size=9)]
    rest = [entry(8, state="scheduled", size=9), entry(8, state="scheduled"), entry(8, "coalesced", "scheduled")]
    (group,) = groups(read(pickle.dumps(dump([*parts, entry(7, "coalesced"), entry(9), *rest]), 2))).values()
    told = {k: group.fields[k] for k in ("completed", "pending_seq", "pending_count")}
    assert told == {"completed": 9, "pending_seq": 8, "pending_count": 1}
    rest[-1]["state"] = "started"
    (active,) = groups(read(pickle.dumps(dump([*parts, *rest]), 2))).values()
    assert active.fields["pending_state"] == "started"
    assert (active.fields["pending_seq"], active.fields["pending_count"]) == (8, 1)


def test_transfers_of_a_batch_are_as_far_as_its_end() -> None:
    def part(number: int, name: str, state: str = "scheduled") -> dict[str, Any]:
        return entry(1, state=state, profiling_name=f"nccl:{name}", is_p2p=True, p2p_seq_id=number)

    first = [part(1, "send 1->2"), part(1, "recv 1<-0")]
    second = [part(2, "recv 1<-0"), part(2, "send 1->2"), part(2, "coalesced")]
    (group,) = groups(read(pickle.dumps(dump([*first, part(1, "coalesced", "completed"), *second]), 2))).values()
    told = {k: group.fields[k] for k in ("p2p", "p2p_head", "p2p_seq", "p2p_state")}
    assert told == {"p2p": "r0*1 s2*1", "p2p_head": "r0 s2", "p2p_seq": 2, "p2p_state": "scheduled"}
    (active,) = groups(read(pickle.dumps(dump([*first, *second]), 2))).values()
    assert active.fields["p2p"] == "r0*1 s2*1"


def test_an_unreadable_state_before_completed_operations_is_not_pending() -> None:
    (group,) = groups(read(pickle.dumps(dump([entry(7), entry(8, state="co-pleted"), entry(9)]), 2))).values()
    assert "pending_seq" not in group.fields
    (group,) = groups(read(pickle.dumps(dump([entry(7), entry(8), entry(9, state="sched")]), 2))).values()
    assert group.fields["pending_seq"] == 9


@pytest.mark.parametrize(("enqueued", "reached"), [(9, 9), (9_000, 8)])
def test_the_status_tells_of_entries_that_are_lost(enqueued: int, reached: int) -> None:
    told = {"last_enqueued_collective": enqueued, "last_started_collective": -1, "last_completed_collective": 8}
    (group,) = groups(read(pickle.dumps(dump([entry(7), entry(8)], pg_status={"0": told}), 2))).values()
    assert group.fields["enqueued"] == reached
    assert group.fields.get("pending_seq") == (9 if reached == 9 else None)


def test_copies_of_entries_are_no_parts_of_a_coalesced_call() -> None:
    made = [entry(7), entry(8), entry(9, state="scheduled")]
    (group,) = groups(read(pickle.dumps(dump(made * 2), 2))).values()
    assert (group.fields["completed"], group.fields["pending_seq"]) == (8, 9)


def test_an_unreadable_last_entry_leaves_open_how_far_the_rank_came() -> None:
    records = read(pickle.dumps(dump([entry(7), entry(8), {}]), 2))
    assert next(r for r in records if r.kind == "fr_dump").fields["truncated"] is True
    records = read(pickle.dumps(dump([entry(7), {}, entry(8)]), 2))
    assert "truncated" not in next(r for r in records if r.kind == "fr_dump").fields


@pytest.mark.parametrize(
    "lacking",
    [
        {"input_dtypes": [None]},
        {"input_dtypes": ["Floa|"]},
        {"input_dtypes": []},
        {"input_sizes": [], "output_sizes": []},
        {"input_sizes": []},
    ],
)
def test_what_a_damaged_entry_does_not_tell_is_no_signature(lacking: dict[str, Any]) -> None:
    (group,) = groups(read(pickle.dumps(dump([entry(7), entry(8, **lacking), entry(9)]), 2))).values()
    codes = array("I", zlib.decompress(base64.b64decode(str(group.fields["codes"]))))
    assert codes[0] == codes[2] != 0
    assert codes[1] == 0


def test_json_with_a_byte_order_mark_and_numbers_without_end() -> None:
    made = json.dumps(dump([entry(7), entry(8)]))
    (group,) = groups(read(b"\xef\xbb\xbf" + made.encode())).values()
    assert group.fields["completed"] == 8
    endless = made.replace('"record_id": 107', '"record_id": ' + "9" * 5_000)
    (group,) = groups(read(endless.encode())).values()
    assert group.fields["completed"] == 8
    huge = dump([entry(7, record_id=1 << 20_000), entry(8, collective_seq_id=1 << 20_000), entry(9)])
    (group,) = groups(read(pickle.dumps(huge, 2))).values()
    assert group.fields["completed"] == 9


@pytest.mark.parametrize("key", ["state", "process_group", "profiling_name", "input_dtypes", "record_id", "frames"])
def test_lists_that_share_lists_are_not_written_out(key: str) -> None:
    shared: Any = ["x"] * 10
    for _ in range(8):
        shared = [shared] * 10
    made = [entry(7), entry(8, **{key: shared}), entry(9)]
    assert groups(read(pickle.dumps(dump(made), 2)))["0"].fields["completed"] == 9


@pytest.mark.parametrize("form", [b"", b"// dump\n%s", "utf-16"])
def test_a_file_that_a_rank_left_is_known_even_if_it_cannot_be_read(form: bytes | str) -> None:
    text = json.dumps(dump([entry(7)]))
    data = text.encode(form) if isinstance(form, str) else form % text.encode() if form else form
    assert PARSER.sniff_bytes(data[:65536], "logs/nccl_trace_rank_5") == 0.5
    assert PARSER.sniff_bytes(data[:65536], "notes.txt") == 0
    with pytest.raises(ValueError):
        read(data)
    (record,) = PARSER.unread(Source("s1", "nccl_trace_rank_5"))
    assert not vocabulary().check(record.kind, record.fields)


@pytest.mark.parametrize("name", ["dump_5", "x/trace-5.pickle", "fr_5.json", "nccl_trace_rank_5"])
def test_an_empty_file_with_the_name_of_a_dump_is_one_that_a_rank_left(name: str) -> None:
    assert PARSER.sniff_bytes(b"", name) == 0.5
    assert PARSER.sniff_bytes(b"", "core.dump") == PARSER.sniff_bytes(b"", "notes-5.json") == 0
