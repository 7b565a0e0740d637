"""What a host sends is not trusted: archives, lines, names."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import sys
import tarfile
import time
from pathlib import Path

import fleet_support as support
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.fleet import engine, gather, names, unpack, visit
from diagnose.fleet.engine import Link
from diagnose.fleet.visit import Visit


def archive(path: Path, members: list[tuple[str, bytes | tarfile.TarInfo]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(content, tarfile.TarInfo) else content
            info.name, info.size = name, len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, target
    return info


def opened(path: Path, tmp_path: Path) -> tuple[unpack.Unpacked, dict[str, bytes]]:
    folder = tmp_path / "inner" / "host"
    folder.mkdir(parents=True)
    found = unpack.unpack(path, folder, "gpu01")
    outside = [p for p in tmp_path.rglob("*") if p != path and folder not in (p, *p.parents) and p.is_file()]
    assert not outside
    assert not any(p.is_symlink() for p in folder.rglob("*"))
    return found, {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_names_links_and_devices_are_refused(tmp_path: Path) -> None:
    bad: list[tuple[str, bytes | tarfile.TarInfo]] = [
        ("r/../../evil", b"1"), ("/etc/evil", b"2"), ("r\\..\\evil", b"3"), ("C:/evil", b"4"), ("r/a\x1b[2J", b"5"),
        ("r", b"6"), ("r/.bashrc", b"7"), ("r/" + "d/" * 30 + "x", b"8"), ("r/" + "n" * 250, b"9"),
        ("r/link", special(tarfile.SYMTYPE, "/etc")), ("r/link/passwd", b"x"),
        ("r/hard", special(tarfile.LNKTYPE, "r/ok")),
        ("r/null", special(tarfile.CHRTYPE)), ("r/pipe", special(tarfile.FIFOTYPE)),
        ("r/ok", b"fine"), ("r/ok", b"again"), ("r/ok/below", b"x"),
    ]  # fmt: skip
    found, files = opened(archive(tmp_path / "a.tar.gz", bad), tmp_path)
    assert files == {"ok": b"fine", "link/passwd": b"x"}
    assert found.files["ok"] == (4, hashlib.sha256(b"fine").hexdigest())
    assert len(found.refused) == len(bad) - 2 and not found.broken


def test_the_folder_of_the_host_is_left_away(tmp_path: Path) -> None:
    members: list[tuple[str, bytes | tarfile.TarInfo]] = [
        ("b/gpu01/net/x", b"1"),
        ("b/gpu02/net/x", b"2"),
        ("b/job/y", b"3"),
    ]
    assert opened(archive(tmp_path / "a.tar.gz", members), tmp_path)[1] == {
        "net/x": b"1", "gpu02/net/x": b"2", "job/y": b"3",
    }  # fmt: skip


def test_a_bomb_and_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MAX_UNPACKED", 8 << 20)
    monkeypatch.setattr(unpack, "MAX_FILES", 50)
    bomb = archive(tmp_path / "a.tar.gz", [("r/small", b"s"), ("r/zeros", bytes(64 << 20))])
    found, files = opened(bomb, tmp_path)
    assert files["small"] == b"s" and len(files.get("zeros", b"")) <= 8 << 20
    assert "unpacked" in found.broken
    (tmp_path / "two").mkdir()
    many = archive(tmp_path / "two" / "b.tar.gz", [(f"r/{n}", b"") for n in range(99)])
    found, files = opened(many, tmp_path / "two")
    assert len(files) == 50 and "more than 50 files" in found.broken


def test_headers_of_absurd_length(tmp_path: Path) -> None:
    info = tarfile.TarInfo("r/x")
    info.type, info.size = tarfile.XHDTYPE, 3 << 20
    raw = info.tobuf() + b"9 a=b\n" * (1 << 19) + bytes(1024)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(raw))
    found, files = opened(tmp_path / "a.tar.gz", tmp_path)
    assert not files and found.broken


@pytest.mark.parametrize("keep", [0, 5, 30, 400, 5000])
def test_a_cut_archive_is_read_up_to_there(tmp_path: Path, keep: int) -> None:
    import random

    noise, more = random.Random(7).randbytes(4000), random.Random(8).randbytes(4000)
    whole = archive(tmp_path / "a.tar.gz", [("r/manifest.json", b"{}"), ("r/one", noise), ("r/two", more)])
    whole.write_bytes(whole.read_bytes()[:keep])
    found, files = opened(whole, tmp_path)
    assert found.broken
    whole_files = {"manifest.json": b"{}", "one": noise, "two": more}
    assert all(whole_files[name].startswith(data) for name, data in files.items())
    assert keep < 5000 or files["one"] == noise


@given(st.text(max_size=60), st.sampled_from(["gpu01", "a"]))
@settings(max_examples=100, deadline=None)
def test_no_name_leads_outside(name: str, own: str) -> None:
    try:
        path = unpack.inside(name, own)
    except unpack.Refused:
        return
    parts = path.split("/")
    assert path.isprintable() and "\\" not in path and not path.startswith("/")
    assert all(part and part not in (".", "..") for part in parts)


# --- lines -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("HBDEX"), st.binary(max_size=80)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_any_line_is_harmless(tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, bytes]]) -> None:
    one = Visit("gpu01", "gpu01")
    one.start(tmp_path_factory.mktemp("v") / "spool")
    for letter, payload in lines:
        one.line(letter, payload, time.time())
    one.finish("closed")
    assert one.over


@pytest.mark.parametrize(
    "end",
    [{"sha256": "0" * 64, "exit": 0}, {"exit": [1]}, {"error": 7}, {"cut": True}, {"why": {"a": 1}}, {"time": 1e300}],
)
def test_ends_that_make_no_sense(tmp_path: Path, end: dict[str, object]) -> None:
    one = Visit("gpu01", "gpu01")
    one.start(tmp_path / "spool")
    one.line("D", base64.b64encode(b"data"), time.time())
    one.line("E", json.dumps(end).encode(), time.time())
    assert one.state == "arrived" and one.damaged and one.partial


def test_an_archive_beyond_the_bound_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "MAX_ARCHIVE", 10_000)
    one = Visit("gpu01", "gpu01")
    one.start(tmp_path / "spool")
    for _ in range(20):
        one.line("D", base64.b64encode(bytes(999)), time.time())
    assert one.state == "arrived" and "larger than" in one.damaged
    assert (tmp_path / "spool").stat().st_size <= 10_000


def links_of(code: str, hosts: list[str], limit_s: float = 20) -> tuple[list[Visit], list[Link]]:
    visits = support.visits_of(hosts)
    return visits, [Link((one,), b"", limit_s, [sys.executable, "-c", code]) for one in visits]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.write(1, b'dg1 x D ' + b'A' * 65536)",
        "import os\nwhile True: os.write(2, b'e' * 65536)",
        "import os\nwhile True: os.write(1, b'noise\\n' * 10000)",
    ],
    ids=["endless line", "endless error line", "endless noise"],
)
def test_floods_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(engine, "MAX_ARCHIVE", 4 << 20)
    visits, links = links_of(code, ["gpu01"])
    began = time.monotonic()
    gather.gather(gather.Plan(visits, links), tmp_path / "b.tar.gz", {}, bytes, lambda count: None)
    assert visits[0].state == "failed" and time.monotonic() - began < 15


def test_a_silent_link_is_ended_at_its_limit(tmp_path: Path) -> None:
    visits, links = links_of("import time; time.sleep(60)", ["gpu01", "gpu02"], 1)
    began = time.monotonic()
    gather.gather(gather.Plan(visits, links), tmp_path / "b.tar.gz", {}, bytes, lambda count: None)
    assert [v.reason for v in visits] == ["no answer within 1 s"] * 2 and time.monotonic() - began < 10


def test_a_hostile_manifest(tmp_path: Path) -> None:
    manifest = {
        "files": [
            {"path": "gpu01/a.txt", "host": "other", "sha256": "0" * 64, "x": {"deep": 1}, "command": "cat"},
            {"path": "../../etc/passwd", "command": "c"}, {"path": 7}, "nonsense",
        ],
        "absent": [{"what": ["x"]}, {"what": "y", "reason": "r", "host": "other"}, None],
        "huge": ["x" * 1000] * 1000, "tool": "t", "job_began": "2026-11-24T09:10:00.000Z",
    }  # fmt: skip
    made = archive(tmp_path / "h.tar.gz", [("r/manifest.json", json.dumps(manifest).encode()), ("r/gpu01/a.txt", b"A")])
    one = arrived(made, tmp_path)
    found, files = support.contents(finish(one, tmp_path))
    (entry,) = found["files"]
    assert entry["path"] == "gpu01/a.txt" and entry["host"] == "gpu01" and entry["truncated"] is True
    assert "x" not in entry and "huge" not in found["hosts"][0]["collector"]
    assert {a["host"] for a in found["absent"]} == {"gpu01"}
    assert files == {"gpu01/a.txt": b"A"}
    assert found["job_began"] == manifest["job_began"]


def test_a_folder_that_is_taken(tmp_path: Path) -> None:
    made = archive(tmp_path / "h.tar.gz", [("r/kubectl/logs.txt", b"mine"), ("r/gpu01/a.txt", b"A")])
    plan = gather.Plan([], [], [lambda bundle: bundle.put("gpu01/kubectl/logs.txt", b"log", host="gpu01", command="c")])
    out, _ = gather.gather(plan, tmp_path / "first", {}, bytes, lambda count: None)
    assert (out / "gpu01/kubectl/logs.txt").read_bytes() == b"log"
    from diagnose.fleet.bundle import Bundle

    bundle = Bundle(tmp_path / "b.tar.gz", {}, bytes)
    bundle.put("gpu01/kubectl/logs.txt", b"log", host="gpu01", command="c")
    bundle.add_host(arrived(made, tmp_path))
    found, files = support.contents(bundle.close())
    assert files == {"gpu01/a.txt": b"A", "gpu01/kubectl/logs.txt": b"log"}
    assert any("taken" in a["reason"] for a in found["absent"])


@pytest.mark.parametrize("text", [b"", b"[1]", b"{", b'{"files": 3}', b"[" * 100_000])
def test_manifests_that_cannot_be_read(tmp_path: Path, text: bytes) -> None:
    made = archive(tmp_path / "h.tar.gz", [("r/manifest.json", text), ("r/gpu01/a.txt", b"A")])
    found, files = support.contents(finish(arrived(made, tmp_path), tmp_path))
    assert files == {"gpu01/a.txt": b"A"} and found["files"][0]["host"] == "gpu01"


def arrived(made: Path, tmp_path: Path) -> Visit:
    return Visit("gpu01", "gpu01", state="arrived", size=1, spool=made, end={"exit": 0})


def finish(one: Visit, tmp_path: Path) -> Path:
    return gather.gather(gather.Plan([one], []), tmp_path / "b.tar.gz", {}, bytes, lambda count: None)[0]


# --- names -----------------------------------------------------------------------------------------------


def test_node_sets() -> None:
    assert names.expand(["node[001-003],login1", "10.0.0.[1-2] node002"]) == [
        "login1", "node001", "node002", "node003", "10.0.0.1", "10.0.0.2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=id", "node[1-", "", "a;b", "$(id)", "node[1-99999999]", "a/b", "x\ny|z"]
)
def test_what_cannot_be_hosts(text: str) -> None:
    with pytest.raises(names.BadHosts):
        names.expand([text])


@given(st.lists(st.text(min_size=1, max_size=40), unique=True, max_size=8))
@settings(max_examples=100, deadline=None)
def test_folder_names_are_safe_and_different(given_names: list[str]) -> None:
    made = names.folders(given_names)
    assert len({folder.lower() for folder in made.values()}) == len(given_names)
    for folder in made.values():
        assert unpack.inside(f"r/{folder}/x", "nothing") == f"{folder}/x" and folder != "job"


def test_hosts_are_keyed_by_how_they_were_addressed() -> None:
    made = names.folders(["root@node001", "[2001:db8::1]", "job", "Node001"])
    assert made == {"root@node001": "node001", "[2001:db8::1]": "2001_db8__1", "job": "job-2", "Node001": "Node001-2"}


def test_a_full_disk_leaves_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = archive(tmp_path / "h.tar.gz", [("r/manifest.json", b"{}"), ("r/gpu01/a.txt", b"A" * 100)])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unpack, "_store", full)
    one = arrived(made, tmp_path)
    found, files = support.contents(finish(one, tmp_path))
    assert not files and "no room" in found["absent"][0]["reason"] and one.state == "failed"
