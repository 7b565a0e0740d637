"""Hostile evidence: whatever bytes come, the bundle stays bounded, stays inside, and says what it left out."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import socket
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.bundle import Bundle, Limits, count_lines, excerpt, open_bundle, read_blocks, read_lines
from diagnose.model import Source
from diagnose.parsing import MAX_LINE

NCCL = "gpu01:100:200 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.1<0>"
PARSERS: list[Any] = [SimpleNamespace(KIND="nccl_log", sniff=lambda head, name: 0.9 if "NCCL INFO" in head else 0.0)]
SMALL = Limits(ratio_from=1 << 20)


def opened(*paths: Path, limits: Limits = SMALL) -> Bundle:
    return open_bundle([str(p) for p in paths], PARSERS, limits=limits)


def texts(tmp_path: Path, content: bytes) -> list[str]:
    (tmp_path / "t.log").write_bytes(content)
    with opened(tmp_path / "t.log") as bundle:
        (source,) = bundle.sources
        lines = list(read_lines(source))
        assert [line.number for line in lines] == list(range(1, len(lines) + 1))
        assert count_lines(source) == len(lines)
        return [line.text for line in lines]


def said(bundle: Bundle) -> str:
    return "\n".join(problem.text for problem in bundle.problems)


# --- bytes ------------------------------------------------------------------------------------------------


def test_a_line_of_a_megabyte_is_cut_and_numbers_stay(tmp_path: Path) -> None:
    got = texts(tmp_path, b"a\n" + b"x" * (1 << 20) + b"\n" + NCCL.encode() + b"\n")
    assert (len(got[1]), got[2]) == (MAX_LINE, NCCL)


def test_a_line_longer_than_any_block(tmp_path: Path) -> None:
    got = texts(tmp_path, b"a\n" + b"y" * (20 << 20) + b"\nend\n" + b"z" * (9 << 20))
    assert [len(line) for line in got] == [1, MAX_LINE, 3, MAX_LINE]


def test_nuls_and_controls_go(tmp_path: Path) -> None:
    got = texts(tmp_path, bytes(3000) + NCCL.encode() + b"\x00\x01\x7f\n\x08b\x0cell\x07\n" + bytes(5000) + b"c\n")
    assert got == [NCCL, "bell", "c"]


def test_a_hole_of_nuls_is_no_binary(tmp_path: Path) -> None:
    (tmp_path / "t.log").write_bytes(NCCL.encode() + b"\n" + bytes(100_000) + NCCL.encode() + b"\n")
    with opened(tmp_path / "t.log") as bundle:
        assert bundle.sources[0].kinds == ("nccl_log",)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = f"{NCCL}\r\nZeit läuft – 東京\r\nend"
    assert texts(tmp_path, text.encode(encoding)) == text.split("\r\n")


def test_utf16_cut_inside_a_character(tmp_path: Path) -> None:
    assert texts(tmp_path, (NCCL + "\nab").encode("utf-16-le")[:-1]) == [NCCL, "a"]


def test_broken_utf8_is_replaced(tmp_path: Path) -> None:
    assert texts(tmp_path, b"a\xff\xfeb\xc3\n\xe2\x82\n") == ["a\ufffd\ufffdb\ufffd", "\ufffd"]


def test_escapes_and_direction_marks_go(tmp_path: Path) -> None:
    dirty = (
        "\x1b[1;31mred\x1b[0m \x1b]8;;http://192.0.2.1/\x07link\x1b]8;;\x07 \x1b]0;title\x1b\\x\n"
        "\x9b31mC1\x9b0m \u202eevil\u202c\u2066x\u2069 \u200e\n"
        "\x1b]52;c;unfinished\nnext line\n"
    )
    assert texts(tmp_path, dirty.encode()) == ["red link x", "C1 evilx ", "", "next line"]


def test_markup_stays_as_text(tmp_path: Path) -> None:
    line = "[bold red]x[/] <script>alert(1)</script> {{ 7*7 }} %s $(id)"
    assert texts(tmp_path, line.encode()) == [line]


def test_torn_lines(tmp_path: Path) -> None:
    content = (NCCL + "\n") * 3
    for cut in range(0, len(content), 17):
        assert len(texts(tmp_path, content[cut:].encode() + b"x")) <= 4


def test_docker_json_lines_are_unwrapped(tmp_path: Path) -> None:
    lines = [
        {"log": NCCL + "\n", "stream": "stderr", "time": "2026-11-30T17:20:00.123456789Z"},
        {"log": "\u001b[31mb\u001b[0m\r\n", "stream": "stdout", "time": "2026-11-30T17:20:01Z"},
    ]
    got = texts(tmp_path, b"".join(json.dumps(line).encode() + b"\n" for line in lines) + b'{"log": "torn')
    assert got == [
        f"2026-11-30T17:20:00.123456789Z stderr F {NCCL}",
        "2026-11-30T17:20:01Z stdout F b",
        '{"log": "torn',
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from([b"\r", b"\n", b"\0", b"\x1b[", b"\x1b]", b"a\0", b"\xff\xfe", NCCL.encode()])).map(
            b"".join
        ),
    ),
    st.integers(4096, 9000),
)
def test_any_bytes_read_alike_everywhere(tmp_path: Path, content: bytes, size: int) -> None:
    file = tmp_path / "any"
    file.write_bytes(content)
    source = Source("s", "any", str(file), len(content))
    lines = list(read_lines(source))
    assert count_lines(source) == len(lines)
    again = [(b.first + i, t) for b in read_blocks(source, size) for i, t in enumerate(b.text.split("\n"))]
    assert again == [(line.number, line.text) for line in lines]
    assert excerpt(source, 1, 10**9, 0) == lines
    assert all(c not in line.text for line in lines for c in "\0\x1b\r\n\x7f")
    with opened(file) as bundle:
        assert len(bundle.sources) <= 1 or bundle.problems == ()


# --- archives ----------------------------------------------------------------------------------------------


def member(name: str, content: bytes = b"", **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def test_tar_names_that_climb_links_and_devices(tmp_path: Path) -> None:
    archive = tar(
        tmp_path / "evil.tar",
        member("good/a.log", NCCL.encode()),
        member("../../climb.log", b"x"),
        member("good/../../climb.log", b"x"),
        member("/etc/absolute.log", b"x"),
        member("C:\\logs\\drive.log", b"x"),
        member("link.log", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("inner.log", type=tarfile.SYMTYPE, linkname="good/a.log"),
        member("hard.log", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("dev/sda", type=tarfile.BLKTYPE, devmajor=8),
        member("pipe", type=tarfile.FIFOTYPE),
        member("good/z.log", b"last"),
    )
    before = sorted(tmp_path.iterdir())
    with opened(archive) as bundle:
        assert [s.path for s in bundle.sources] == ["etc/absolute.log", "good/a.log", "good/z.log", "logs/drive.log"]
        text = said(bundle)
        for word in ("climbs", "symbolic link", "hard link", "device", "named pipe"):
            assert word in text
        assert len(bundle.problems) == 8
    assert sorted(tmp_path.iterdir()) == before


def test_zip_names_links_and_methods(tmp_path: Path) -> None:
    file = tmp_path / "evil.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../climb.log", "x")
        archive.writestr("/abs.log", "x")
        archive.writestr("a\\b.log", "x")
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("lzma.log", "x" * 1000, zipfile.ZIP_LZMA)
        archive.writestr("good.log", NCCL, zipfile.ZIP_DEFLATED)
    with opened(file) as bundle:
        assert [s.path for s in bundle.sources] == ["a/b.log", "abs.log", "good.log"]
        assert "climbs" in said(bundle)
        assert "link" in said(bundle)
        assert "LZMA" in said(bundle)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_lone_bomb(tmp_path: Path, compress: Any) -> None:
    (tmp_path / "bomb").write_bytes(compress(bytes(40 << 20)))
    (tmp_path / "good.log").write_text(NCCL)
    with opened(tmp_path) as bundle:
        assert [s.path for s in bundle.sources] == ["good.log"]
        assert "bomb: compressed more than 500-fold" in said(bundle)


def test_bombs_among_good_members(tmp_path: Path) -> None:
    bomb = member("bomb.log", bytes(40 << 20))
    tar(tmp_path / "a.tar.gz", member("a.log", NCCL.encode()), bomb, member("b.log", NCCL.encode()), mode="w:gz")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.log", bytes(40 << 20))
        archive.writestr("c.log", NCCL)
    tar(tmp_path / "c.tar", member("inner.gz", gzip.compress(bytes(40 << 20))), member("d.log", NCCL.encode()))
    with opened(tmp_path) as bundle:
        assert [s.name for s in bundle.sources] == ["a.log", "b.log", "c.log", "d.log"]
        assert said(bundle).count("bomb") >= 3


def test_the_total_is_bounded(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(300_000)
    tar(tmp_path / "a.tar.gz", *(member(f"{n}.log", noise) for n in range(10)), mode="w:gz")
    (tmp_path / "b.gz").write_bytes(gzip.compress(noise * 10))
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        for n in range(10):
            archive.writestr(f"{n}.log", noise)
    with opened(tmp_path, limits=Limits(total=1_000_000)) as bundle:
        assert sum(s.size for s in bundle.sources) <= 1_100_000
        assert said(bundle).count("bytes unpacked in all") >= 3


def test_the_number_of_members_is_bounded(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", *(member(f"{n}.log", b"x") for n in range(50)))
    with opened(tmp_path / "a.tar", limits=Limits(members=20)) as bundle:
        assert len(bundle.sources) == 20
        assert "more than 20 files" in said(bundle)


def test_archives_in_archives_end(tmp_path: Path) -> None:
    content = NCCL.encode()
    for n in range(6):
        content = gzip.compress(content) if n % 2 else tar_bytes(f"{n}.x", content)
    (tmp_path / "deep").write_bytes(content)
    with opened(tmp_path / "deep") as bundle:
        assert bundle.sources == ()
        assert "not unpacked" in said(bundle)


def tar_bytes(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info, _ = member(name, content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar", "a.tar.xz", "a.tar.bz2", "a.zip", "a.log.gz"])
def test_archives_cut_short_give_what_they_can(tmp_path: Path, name: str, share: float) -> None:
    rng = random.Random(7)
    logs = ["\n".join(f"{NCCL} {rng.random()}" for _ in range(3000)).encode() for _ in range(4)]
    whole = tmp_path / "whole" / name
    whole.parent.mkdir()
    if name.endswith(".zip"):
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
            for n, log in enumerate(logs):
                archive.writestr(f"{n}.log", log)
    elif name == "a.log.gz":
        whole.write_bytes(gzip.compress(logs[0]))
    else:
        mode = {"a.tar": "w", "a.tar.gz": "w:gz", "a.tar.xz": "w:xz", "a.tar.bz2": "w:bz2"}[name]
        tar(whole, *(member(f"{n}.log", log) for n, log in enumerate(logs)), mode=mode)
    raw = whole.read_bytes()
    (tmp_path / name).write_bytes(raw[: int(len(raw) * share)])
    with opened(tmp_path / name) as bundle:
        assert bundle.problems
        for source in bundle.sources:
            assert count_lines(source) > 0
        if name in ("a.tar", "a.tar.gz") and share > 0.5:
            assert len(bundle.sources) >= 2


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9), st.sampled_from(["tar", "gz", "xz", "bz2", "zip"]))
def test_damaged_archives_never_raise(tmp_path: Path, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    tarred = tar_bytes("gpu01/a.log", (NCCL + "\n").encode() * 50) + tar_bytes("b.log", b"x" * 700)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log", NCCL * 20)
        archive.writestr("b.log", NCCL)
    raw = {
        "tar": lambda: tarred, "gz": lambda: gzip.compress(tarred), "xz": lambda: lzma.compress(tarred),
        "bz2": lambda: bz2.compress(tarred), "zip": out.getvalue,
    }[kind]()  # fmt: skip
    damaged = bytearray(raw)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    (tmp_path / "x").write_bytes(bytes(damaged))
    with opened(tmp_path / "x") as bundle:
        assert len(bundle.sources) <= 3
        assert all(not s.path.startswith("/") and ".." not in s.path.split("/") for s in bundle.sources)


def test_a_tar_with_a_huge_header_is_refused(tmp_path: Path) -> None:
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    (tmp_path / "x.tar").write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with opened(tmp_path / "x.tar") as bundle:
        assert "a header of more than 1 MiB" in said(bundle)


def test_an_xz_header_may_not_ask_for_gigabytes(tmp_path: Path) -> None:
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    raw = bytearray(compressor.compress(b"x" * 100) + compressor.flush())
    size_at = raw.index(bytes([lzma.FILTER_LZMA2, 1])) + 2
    raw[size_at] = 36  # a dictionary of 1 GiB
    header_end = 12 + (raw[12] + 1) * 4
    raw[header_end - 4 : header_end] = struct.pack("<I", zlib.crc32(bytes(raw[12 : header_end - 4])))
    (tmp_path / "x.xz").write_bytes(bytes(raw))
    with opened(tmp_path / "x.xz") as bundle:
        assert "too much memory" in said(bundle)


# --- folders -----------------------------------------------------------------------------------------------


def test_links_stay_inside(tmp_path: Path) -> None:
    outside = tmp_path / "outside.log"
    outside.write_text("secret\n")
    root = tmp_path / "bundle"
    (root / "gpu01").mkdir(parents=True)
    (root / "gpu01" / "a.log").write_text(NCCL)
    (root / "inside.log").symlink_to(root / "gpu01" / "a.log")
    (root / "absolute.log").symlink_to(outside)
    (root / "relative.log").symlink_to("../outside.log")
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to(root)
    (root / "nothing").symlink_to("gone")
    with opened(root) as bundle:
        assert [s.path for s in bundle.sources] == ["gpu01/a.log", "inside.log"]
        assert said(bundle).count("leads out") == 3
        assert "a link to nothing" in said(bundle)
        assert "secret" not in said(bundle)


def test_pipes_and_sockets_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind("plug")
        (tmp_path / "a.log").write_text(NCCL)
        with opened(tmp_path) as bundle:
            assert [s.path for s in bundle.sources] == ["a.log"]
        with opened(tmp_path / "pipe") as bundle:
            assert said(bundle) == "pipe: neither a file nor a folder"


def test_junk_is_ignored_quietly(tmp_path: Path) -> None:
    for name in ("__MACOSX/a.log", ".git/config", "x/__pycache__/m.pyc", "._a.log", ".DS_Store", "a.pyc", "a.log"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(NCCL)
    with opened(tmp_path) as bundle:
        assert [s.path for s in bundle.sources] == ["a.log"]
        assert bundle.problems == ()


def test_names_fit_for_a_terminal(tmp_path: Path) -> None:
    for name in ("new\nline.log", "esc\x1b[31m.log", "[bold]x[-].log", "rtl\u202e.log", os.fsdecode(b"bad\xff.log")):
        (tmp_path / name).write_text(NCCL)
    with opened(tmp_path) as bundle:
        paths = [s.path for s in bundle.sources]
        assert sorted(paths) == sorted(["new?line.log", "esc?[31m.log", "[bold]x[-].log", "rtl?.log", "bad?.log"])
        assert all(count_lines(s) == 1 for s in bundle.sources)
        json.dumps(paths).encode("utf-8")


def test_a_folder_that_changes_while_it_is_read(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"{n:02d}.log").write_text(NCCL)

    def vandal(head: str, name: str) -> float:
        for victim in sorted(tmp_path.glob("*.log"))[-3:]:
            victim.unlink()
        (tmp_path / "fresh.log").write_text(head * 3)
        (tmp_path / "00.log").write_text(head * 5)
        return 0.9

    with open_bundle([str(tmp_path)], [SimpleNamespace(KIND="x", sniff=vandal)]) as bundle:  # type: ignore[list-item]
        assert bundle.sources
        assert "no such file" in said(bundle)


def test_a_source_that_vanished_raises_os_error(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(NCCL)
    with opened(tmp_path / "a.log") as bundle:
        (tmp_path / "a.log").unlink()
        with pytest.raises(OSError, match="No such file"):
            list(read_lines(bundle.sources[0]))


def test_ten_thousand_tiny_files(tmp_path: Path) -> None:
    for n in range(10_000):
        folder = tmp_path / f"gpu{n // 100:03d}"
        if n % 100 == 0:
            folder.mkdir()
        (folder / f"cmd{n % 100}.txt").write_bytes(NCCL.encode())
    start = time.process_time()
    with opened(tmp_path) as bundle:
        assert len(bundle.sources) == 10_000
        assert {s.host for s in bundle.sources} == {f"gpu{n:03d}" for n in range(100)}
    assert time.process_time() - start < 30


def test_deep_folders_end(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(40):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "a.log").write_text(NCCL)
    with opened(tmp_path) as bundle:
        assert bundle.sources == ()
        assert "deep" in said(bundle)
