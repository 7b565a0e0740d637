"""Pickles made to do harm or to cost without end: nothing of them runs, costs are bounded, other files are read."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose import guarded
from diagnose.model import Source
from diagnose.parsing.plain import NotPlain, load_pickle
from tests.test_guarded import GOOD, parser

NO_SITE = Path(__file__).parents[1] / "fixtures" / "site" / "none.toml"
CANARY = "canary"
MEMORY = 1 << 30


def text(value: str) -> bytes:
    """BINUNICODE."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def dump(value: bytes, before: bytes = b"\x80\x04") -> bytes:
    """Opcodes of a dump whose entries are what the opcodes `value` make."""
    return before + b"}(" + text("pg_config") + b"}" + text("pg_status") + b"}" + text("entries") + value + b"u."


COMMAND = text(f"touch {CANARY}")
EVAL = text(f"open({CANARY!r}, 'w')")
ATTACKS = {
    "GLOBAL and REDUCE": dump(b"cos\nsystem\n" + COMMAND + b"\x85R"),
    "posix": dump(b"cposix\nsystem\n" + COMMAND + b"\x85R"),
    "eval": dump(text("builtins") + text("eval") + b"\x93" + EVAL + b"\x85R"),
    "exec by its old name": dump(b"c__builtin__\nexec\n" + EVAL + b"\x85R"),
    "an attribute of an attribute": dump(text("os") + text("path.os.system") + b"\x93" + COMMAND + b"\x85R"),
    "subprocess": dump(b"csubprocess\nPopen\n" + COMMAND + b"\x85R"),
    "INST": dump(b"(" + COMMAND + b"ios\nsystem\n"),
    "OBJ": dump(b"(cos\nsystem\n" + COMMAND + b"o"),
    "NEWOBJ": dump(b"csubprocess\nPopen\n" + COMMAND + b"\x85\x81"),
    "NEWOBJ_EX": dump(b"csubprocess\nPopen\n" + COMMAND + b"\x85}\x92"),
    "BUILD of a module": dump(b"cdiagnose.guarded\nGuard\n}" + text("scan") + b"Nsb"),
    "an unpickler within": dump(b"cpickle\nloads\n" + b"C\x05cos\nx\x85R"),
    "EXT1": dump(b"\x82\x01"),
    "EXT2": dump(b"\x83\x01\x00"),
    "EXT4": dump(b"\x84\x01\x00\x00\x00"),
    "PERSID": dump(b"Pmodule\n"),
    "BINPERSID": dump(text("module") + b"Q"),
    "NEXT_BUFFER": dump(b"\x97"),
    "protocol 0": pickle.dumps(GOOD, 0)[:-1] + b"0cos\nsystem\n" + COMMAND + b"\x85R.",
}
"""Would run something, or fetch it."""

DAMAGE = {
    "REDUCE of a text": dump(text("os.system") + b")R"),
    "BUILD on a dictionary": dump(b"}}" + text("__class__") + b"Nsb"),
    "BUILD on a list": dump(b"]}" + text("append") + b"Nsb"),
    "NEWOBJ of a number": dump(b"K\x01)\x81"),
    "SETITEM on a number": dump(b"K\x01K\x01K\x02s"),
    "APPENDS to a number": dump(b"K\x01(K\x02e"),
    "no such memo": dump(b"h\x63"),
    "no such opcode": dump(b"\xff"),
    "no mark": b"\x80\x04" + text("pg_config") + text("entries") + b"u.",
    "an empty stack": b"\x80\x04" + text("pg_config") + text("entries") + b"0000.",
    "protocol 255": dump(b"]", b"\x80\xff"),
    "a list as key": dump(b"}]K\x01s"),
}
"""No plain data."""

COSTLY = {
    "memo index 2^31 - 1": dump(b"]r\xff\xff\xff\x7f"),
    "memo index of 19 digits": dump(b"]p9223372036854775807\n"),
    "100,000 lists in each other": dump(b"]" * 100_000 + b"a" * 99_999),
    "100,000 tuples in each other": dump(b")" + b"\x85" * 100_000),
    "a key of 100,000 tuples": dump(b"})" + b"\x85" * 100_000 + b"Ns"),
    "a key that doubles 60 times": dump(b"}K\x01\x85" + b"2\x86" * 60 + b"Ns"),
    "a list that doubles 60 times": dump(b"]K\x01a" + b"".join(b"\x94]h%ch%c" % (n, n) + b"\x86" for n in range(60))),
    "a list in itself": dump(b"]\x94h\x00a"),
    "8 GiB of text": dump(b"\x8d" + struct.pack("<Q", 8 << 30)),
    "8 GiB of bytes": dump(b"\x8e" + struct.pack("<Q", 8 << 30)),
    "8 GiB of bytearray": dump(b"\x96" + struct.pack("<Q", 8 << 30)),
    "2^63 - 1 bytes": dump(b"\x8e" + struct.pack("<Q", (1 << 63) - 1)),
    "a frame of 8 GiB": dump(b"]", b"\x80\x04\x95" + struct.pack("<Q", 8 << 30)),
    "a number of 2 GiB": dump(b"\x8b" + struct.pack("<i", (1 << 31) - 1)),
    "a number of negative length": dump(b"\x8b" + struct.pack("<i", -1)),
    "a number of 4 million digits": dump(b"L" + b"9" * 4_000_000 + b"L\n"),
    "a number of 1 MB": dump(b"](}" + text("op_id") + b"\x8b\x00\x00\x10\x00" + b"\x7f" * (1 << 20) + b"se"),
    "5 million marks": dump(b"(" * 5_000_000),
    "5 million copies": dump(b"]" + b"2" * 5_000_000),
    "5 million lists": dump(b"(" + b"]" * 5_000_000 + b"l"),
}  # fmt: skip
"""Small files that cost much."""


def source_of(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return Source("s1", path.name, str(path), len(data))


@pytest.fixture(scope="module")
def guard() -> Iterator[guarded.Guard]:
    one = guarded.Guard(memory=MEMORY, seconds=15)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which a canary would appear."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ATTACKS)
def test_what_would_run_is_refused(name: str, guard: guarded.Guard, elsewhere: Path) -> None:
    with pytest.raises(NotPlain):
        load_pickle(ATTACKS[name])
    with pytest.raises(guarded.Unreadable, match="not read"):
        guard.scan(parser(), source_of(elsewhere / "x", ATTACKS[name]))
    assert not (elsewhere / CANARY).exists()


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_runs_when_it_is_cut_off(name: str, elsewhere: Path) -> None:
    """The slow reader of files that end too early refuses the same."""
    data = ATTACKS[name]
    for end in range(len(data) - 1):
        try:
            load_pickle(data[:end])
        except NotPlain:
            continue
    assert not (elsewhere / CANARY).exists()


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_has_a_reason(name: str, guard: guarded.Guard, elsewhere: Path) -> None:
    with pytest.raises(guarded.Unreadable, match=r"not read: .*pickle"):
        guard.scan(parser(), source_of(elsewhere / "x", DAMAGE[name]))


def _largest_child() -> int:
    """Peak (KiB) of the largest process that this one has waited for, whichever test started it."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


@pytest.mark.parametrize("name", COSTLY)
def test_costs_are_bounded_and_the_next_file_is_read(name: str, elsewhere: Path) -> None:
    one = guarded.Guard(memory=MEMORY, seconds=3)
    before = _largest_child()
    began = time.monotonic()
    try:
        one.scan(parser(), source_of(elsewhere / "x", COSTLY[name]))
    except guarded.Unreadable as error:
        assert str(error).startswith("not read: ")
    assert time.monotonic() - began < 20
    records, _ = one.scan(parser(), source_of(elsewhere / "y", pickle.dumps(GOOD, 2)))
    one.close()
    assert records
    assert _largest_child() < max(2 * MEMORY >> 10, before + 1)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read_whole_and_cut_at_every_opcode(protocol: int) -> None:
    data = pickle.dumps(GOOD, protocol)
    assert load_pickle(data) == (GOOD, False)
    ends = {position for _, _, position in pickletools.genops(data) if position}
    read = 0
    for end in sorted(ends | {e - 1 for e in ends if e > 1}):
        try:
            found, cut = load_pickle(data[:end])
        except NotPlain:
            continue
        assert cut
        assert isinstance(found, dict)
        read += bool(found.get("entries"))
    assert read or protocol > 3  # a frame is only there as a whole


def test_a_file_that_grew_is_not_read_beyond_the_limit(guard: guarded.Guard, elsewhere: Path) -> None:
    source = source_of(elsewhere / "x", pickle.dumps(GOOD, 2))
    os.truncate(elsewhere / "x", guarded.MAX_BYTES + 1)
    with pytest.raises(guarded.Unreadable, match="larger than"):
        guard.scan(parser(), source)


@pytest.mark.parametrize("told", [0, 1, 1 << 20])
def test_a_file_whose_size_was_another_is_read_as_it_is(told: int, guard: guarded.Guard, elsewhere: Path) -> None:
    data = pickle.dumps(GOOD, 2)
    (elsewhere / "x").write_bytes(data)
    records, _ = guard.scan(parser(), Source("s1", "x", str(elsewhere / "x"), told))
    assert records


def test_a_pipe_that_nobody_writes_to_costs_the_time_limit(elsewhere: Path) -> None:
    os.mkfifo(elsewhere / "pipe")
    one = guarded.Guard(seconds=2)
    with pytest.raises(guarded.Unreadable, match="longer than 2 s"):
        one.scan(parser(), Source("s1", "pipe", str(elsewhere / "pipe"), 10))
    one.close()


def test_after_several_time_outs_the_next_wait_is_short(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "BASE_SECONDS", 1.5)
    monkeypatch.setattr(guarded, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(guarded, "IMPATIENT_SECONDS", 0.4)
    os.mkfifo(elsewhere / "pipe")
    one = guarded.Guard()
    for words in ("longer than 2 s", "longer than 0 s"):
        with pytest.raises(guarded.Unreadable, match=words):
            one.scan(parser(), Source("s1", "pipe", str(elsewhere / "pipe"), 10))
    one.close()


def test_an_answer_without_end_is_cut(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "MAX_ANSWER", 100)
    one = guarded.Guard()
    with pytest.raises(guarded.Unreadable, match="too much"):
        one.scan(parser(), source_of(elsewhere / "x", pickle.dumps(GOOD, 2)))
    one.close()


def odd_text(value: str) -> bytes:
    """A sound dump with `value` wherever there is text."""
    entries = [{**e, "profiling_name": value, "process_group": ("0", value), "state": value} for e in GOOD["entries"]]  # type: ignore[union-attr]
    config = {"0": {"name": "0", "desc": value, "ranks": "[0, 1]"}}
    return pickle.dumps({**GOOD, "entries": [*entries, *GOOD["entries"]], "pg_config": config, "version": value}, 2)  # type: ignore[misc]


def test_a_bundle_of_malice_is_analysed_to_the_end(elsewhere: Path) -> None:
    """The problems name the files, the sound dumps are read, and what is printed can be printed."""
    folder = elsewhere / "bundle"
    folder.mkdir()
    for kind, files in (("attack", ATTACKS), ("damage", DAMAGE)):
        for n, name in enumerate(files):
            if not name.startswith("protocol"):  # PyTorch writes protocol 2: these are not taken for dumps
                (folder / f"{kind}_{n}").write_bytes(files[name])
    for n, value in enumerate(
        ("\ud800", "\x1b]0;x\x07\x1b[2J", "\x00\n\r\u2028", "{alias.field} $(reboot)", "x" * 5_000_000)
    ):
        (folder / f"odd_{n}").write_bytes(odd_text(value))
    for rank in (0, 1):
        late = {**GOOD, "entries": GOOD["entries"][: 2 - rank]}  # type: ignore[index]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(late, 2))
    for form in ("json", "text"):
        command = [sys.executable, "-m", "diagnose", "analyze", str(folder), "--format", form, "--site", str(NO_SITE)]
        done = subprocess.run(command, capture_output=True, timeout=120)
        assert done.returncode in (0, 1, 3), done.stderr[-2000:]
        assert b"\x1b" not in done.stdout
        assert len(done.stdout) < 2_000_000
        if form == "json":
            report = json.loads(done.stdout)
            told = {Path(p["source"]).name for p in report["problems"]}
            assert told >= {p.name for p in folder.iterdir() if p.name.startswith(("attack", "damage"))}
            status = {Path(s["path"]).name: s["status"] for s in report["sources"]}
            assert status["nccl_trace_rank_0"] == status["nccl_trace_rank_1"] == "parsed"
    assert not list(elsewhere.rglob(CANARY))
