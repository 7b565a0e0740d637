"""Hostile and damaged binary files: refused with a reason, within limits, and nothing of them runs."""

from __future__ import annotations

import os
import pickle
import pickletools
from pathlib import Path
from types import ModuleType

import pytest

from diagnose import guarded, packs
from diagnose.model import Source
from diagnose.parsing.plain import NotPlain, load_json, load_pickle

GOOD = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 1}},
    "entries": [
        {
            "record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n, "p2p_seq_id": 0,
            "op_id": n, "profiling_name": "nccl:all_reduce", "time_created_ns": 1_780_000_000_000_000_000 + n,
            "input_sizes": [[64]], "input_dtypes": ["Float"], "output_sizes": [[64]], "output_dtypes": ["Float"],
            "state": "completed" if n < 2 else "scheduled", "retired": n < 2, "timeout_ms": 600_000, "is_p2p": False,
        }
        for n in (1, 2)
    ],
}  # fmt: skip


class Evil:
    """Would write a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def parser() -> ModuleType:
    return packs.load_file(packs.builtin("parsers") / "flight_recorder" / "__init__.py")


def source_of(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return Source("s1", path.name, str(path), len(data))


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    guard = guarded.Guard()
    source = source_of(tmp_path / "trace_rank_0", pickle.dumps(GOOD, 2))
    records, lines = guard.scan(parser(), source)
    text = guard.render(parser(), source)
    guard.close()
    assert {r.kind for r in records} == {"fr_dump", "fr_group"}
    group = next(r for r in records if r.kind == "fr_group")
    assert (group.fields["enqueued"], group.fields["completed"], group.fields["pending_seq"]) == (2, 1, 2)
    assert lines == len(text) == 4
    for record in records:
        for e in record.evidence:
            assert text[e.first - 1] == e.text


def test_classes_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "made"
    guard = guarded.Guard()
    with pytest.raises(guarded.Unreadable, match="class"):
        guard.scan(parser(), source_of(tmp_path / "x", pickle.dumps({**GOOD, "more": Evil(target)}, 2)))
    guard.close()
    assert not target.exists()


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_every_way_to_a_class_is_refused(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(Evil(tmp_path / "made"), protocol)
    with pytest.raises(NotPlain):
        load_pickle(data)
    assert not (tmp_path / "made").exists()


def test_a_huge_memo_index_ends_in_a_reason_and_the_next_file_is_read(tmp_path: Path) -> None:
    guard = guarded.Guard(memory=1 << 30, seconds=20)
    bomb = b"\x80\x02}r\xff\xff\xff\x7f."  # LONG_BINPUT 2^31 - 1
    with pytest.raises(guarded.Unreadable):
        guard.scan(parser(), source_of(tmp_path / "bomb", bomb))
    records, _ = guard.scan(parser(), source_of(tmp_path / "good", pickle.dumps(GOOD, 2)))
    guard.close()
    assert records


def test_shared_structure_is_not_walked(tmp_path: Path) -> None:
    shape: list[object] = [1]
    for _ in range(60):
        shape = [shape, shape]
    entry = {**GOOD["entries"][0], "input_sizes": shape, "process_group": ("0", "default_pg")}  # type: ignore[index]
    guard = guarded.Guard(seconds=20)
    records, _ = guard.scan(parser(), source_of(tmp_path / "x", pickle.dumps({**GOOD, "entries": [entry]}, 2)))
    guard.close()
    assert records


def test_time_is_limited_and_the_child_replaced(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "KIND = 'slow'\nTOPICS = ()\ndef sniff_bytes(head, name): return 1.0\ndef line_count(records): return 1\n"
        "def render_bytes(data, source): return []\ndef scan_bytes(data, source):\n    while True: pass\n"
    )
    guard = guarded.Guard(seconds=3)
    with pytest.raises(guarded.Unreadable, match="longer than"):
        guard.scan(packs.load_file(tmp_path / "slow.py"), source_of(tmp_path / "x", b"x"))
    guard = guarded.Guard()
    assert guard.scan(parser(), source_of(tmp_path / "y", pickle.dumps(GOOD, 2)))[0]
    guard.close()


def test_files_cut_anywhere_give_what_came_before() -> None:
    data = pickle.dumps(GOOD, 2)
    read = []
    for end in range(1, len(data)):
        try:
            found, cut = load_pickle(data[:end])
        except NotPlain:
            continue
        assert cut
        assert isinstance(found, dict)
        read.append(len(found.get("entries", ())))
    assert max(read) >= 1


def test_json_cut_anywhere() -> None:
    import json

    data = json.dumps(GOOD).encode()
    for end in range(1, len(data), 7):
        try:
            found, cut = load_json(data[:end], ("entries",))
        except NotPlain:
            continue
        assert cut
        assert isinstance(found, dict)


def test_only_plain_opcodes_are_in_the_stored_dumps() -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "dumps"
    refused = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "PERSID", "BINPERSID"}
    dumps = list(folder.rglob("trace_rank_?"))
    assert dumps
    for path in dumps:
        assert not refused & {op.name for op, _, _ in pickletools.genops(path.read_bytes())}
