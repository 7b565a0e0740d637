"""Bundles: what becomes a source, and what path, name and manifest tell about it."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

import diagnose
from diagnose.bundle import Bundle, LineReader, count_lines, excerpt, open_bundle, read_blocks, read_lines
from diagnose.bundle.origins import numbered, origin_of, time_in
from diagnose.model import Source

NCCL = "gpu01:100:200 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.1<0>\n"


def parser(kind: str, mark: str, score: float = 0.9) -> Any:
    return SimpleNamespace(KIND=kind, sniff=lambda head, name: score if mark in head else 0.0)


PARSERS = [parser("nccl_log", "NCCL INFO"), parser("topo", "GPU0", 0.6), parser("shy", "NCCL", 0.4)]


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def opened(*paths: Path | str, **options: Any) -> Bundle:
    return open_bundle([str(p) for p in paths], PARSERS, **options)


def by_path(bundle: Bundle) -> dict[str, Source]:
    return {source.path: source for source in bundle.sources}


def text_of(source: Source) -> str:
    return "\n".join(line.text for line in read_lines(source))


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


# --- kinds and states ------------------------------------------------------------------------------------


def test_kinds_surest_first_and_states(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": NCCL + "GPU0 X\n", "b.txt": "hello\n", "c.txt": "", "d.txt": "\n \n"})
    with opened(tmp_path) as bundle:
        sources = by_path(bundle)
        assert sources["a.txt"].kinds == ("nccl_log", "topo")
        assert sources["a.txt"].status == "parsed"
        assert (sources["b.txt"].status, sources["b.txt"].kinds) == ("unrecognised", ())
        assert sources["c.txt"].status == sources["d.txt"].status == "empty"
        assert [s.id for s in bundle.sources] == ["s1", "s2", "s3", "s4"]
        assert bundle.problems == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(200), "ELF"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a", "pickle"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "PNG"),
        (bytes(range(256)) * 20, "binary"),
        (bytes(4096), "NUL"),
        (b'{"a": 1}', "JSON"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    with opened(write(tmp_path, {"x": content})) as bundle:
        (source,) = bundle.sources
        assert source.status == "unrecognised"
        assert said in source.notes[-1]


def test_a_parser_whose_sniff_fails_is_a_problem_once(tmp_path: Path) -> None:
    def fail(head: str, name: str) -> float:
        raise RuntimeError("boom")

    write(tmp_path, {"a.txt": NCCL, "b.txt": NCCL})
    bad = SimpleNamespace(KIND="bad", sniff=fail)
    with open_bundle([str(tmp_path)], [bad, *PARSERS]) as bundle:  # type: ignore[list-item]
        assert [s.kinds for s in bundle.sources] == [("nccl_log",), ("nccl_log",)]
        assert [p.text for p in bundle.problems if "bad" in p.text and "boom" in p.text]
        assert len(bundle.problems) == 1


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "host", "rank", "snapshot"),
    [
        ("gpu07/nic/ethtool-S.eth2.t0.txt", "gpu07", None, 0),
        ("gpu07/nccl.rank250.log", "gpu07", 250, None),
        ("dgx-r01-n03/ethtool-S.eth2.t1.txt", "dgx-r01-n03", None, 1),
        ("job/train.log", None, None, None),
        ("logs/2026-11-24/run-3/out/train.log", None, None, None),
        ("logs/node12/dmesg.txt", "node12", None, None),
        ("nccl.gpu07.12345.log", "gpu07", None, None),
        ("nccl_debug.worker-a.4711", "worker-a", None, None),
        ("nccl-gpu07.log", "gpu07", None, None),
        ("nccl.log", None, None, None),
        ("dmesg-gpu07.txt", "gpu07", None, None),
        ("gpu07.dmesg.txt", "gpu07", None, None),
        ("ethtool-S-ens3.txt", None, None, None),
        ("ethtool-S.flannel.1.txt", None, None, None),
        ("ethtool-S-flannel.1.txt", None, None, None),
        ("topo-a100.txt", None, None, None),
        ("rank_3.log", None, 3, None),
        ("run41/local_rank0/stdout.log", None, None, None),
        ("_dump_14", None, 14, None),
        ("nccl_trace_rank_12", None, 12, None),
        ("before/gpu07/counters.txt", "gpu07", None, 0),
        ("t1/gpu07/counters.txt", "gpu07", None, 1),
        ("sosreport-gpu07-0123456-2026-11-24-abcdef/proc/cpuinfo", "gpu07", None, None),
        ("gpu07.tar.gz/dmesg.txt", "gpu07", None, None),
        ("mlx5_0/counters.txt", None, None, None),
        ("train-run41.out", None, None, None),
        ("nvidia-smi-q.txt", None, None, None),
    ],
)
def test_names(path: str, host: str | None, rank: int | None, snapshot: int | None) -> None:
    *folders, name = path.split("/")
    origin = origin_of(folders, name)
    assert (origin.host, origin.rank, origin.snapshot) == (host, rank, snapshot)


def test_known_hosts_are_found_in_names() -> None:
    assert origin_of(("job",), "nccl.login.log", ["login", "log"]).host == "login"
    assert origin_of((), "counters_alpha.txt", ["alpha"]).host == "alpha"


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("ethtool.20261124T091230Z", 1795511550.0),
        ("ethtool_2026-11-24_09-12-30", 1795511550.0),
        ("counters-1795511550", 1795511550.0),
        ("dmesg.2026-11-24", None),
        ("nccl.12345", None),
    ],
)
def test_times_in_names(name: str, at: float | None) -> None:
    assert time_in(name) == at


def test_numbered_outputs_are_snapshots_only_in_company(tmp_path: Path) -> None:
    assert numbered("gpu01/ib-counters.2.txt") == ("gpu01/ib-counters.txt", 2)
    assert numbered("ethtool-S-flannel.1.txt") is None
    write(tmp_path, {"gpu01/ib.1.txt": "x\n", "gpu01/ib.2.txt": "x\n", "gpu01/other.1.txt": "x\n"})
    with opened(tmp_path) as bundle:
        assert {p: s.snapshot for p, s in by_path(bundle).items()} == {
            "gpu01/ib.1.txt": 1, "gpu01/ib.2.txt": 2, "gpu01/other.1.txt": None,
        }  # fmt: skip


def test_one_folder_is_the_root_and_names_no_host(tmp_path: Path) -> None:
    write(tmp_path / "gpu07", {"dmesg.txt": "x\n"})
    with opened(tmp_path / "gpu07") as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [("dmesg.txt", None)]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"host": "n1\nreboot"}, "files[0].host is no host name"),
        ({"host": "\u202en1"}, "files[0].host is no host name"),
        ({"host": "x" * 300}, "files[0].host is no host name"),
        ({"start": "0000-01-01T00:00:00Z"}, "files[0].start must be a UTC time such as 2026-11-24T09:12:00Z"),
        ({"start": -1e14}, "files[0].start must be a UTC time such as 2026-11-24T09:12:00Z"),
    ],
)
def test_a_manifest_that_lies_is_told_and_not_believed(tmp_path: Path, entry: dict[str, object], said: str) -> None:
    files = [{"path": "n1/a.log", **entry}, *({"path": f"n1/{n}.log"} for n in range(5_000))]
    manifest = json.dumps({"schema": "diagnose.manifest/1", "files": files})
    with opened(write(tmp_path, {"n1/a.log": NCCL, "manifest.json": manifest})) as bundle:
        assert [s.host for s in bundle.sources] == ["n1"]
        assert bundle.problems[0].text == f"manifest.json: {said}"
        assert bundle.problems[-1].text == "4980 more files are listed in the manifest, but not in the bundle"


def test_the_order_of_the_paths_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"b/a.log": NCCL, "a/a.log": NCCL + "x\n", "c/a.log": NCCL + "y\n"})
    given = [tmp_path / name / "a.log" for name in "bca"]
    with opened(*given) as one, opened(*reversed(given)) as other:
        assert [(s.path, s.digest) for s in one.sources] == [(s.path, s.digest) for s in other.sources]
        assert one.digest == other.digest


def test_an_empty_path_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.log": NCCL})
    monkeypatch.chdir(tmp_path)
    with opened("") as bundle:
        assert (bundle.sources, [p.text for p in bundle.problems]) == ((), ["an empty path was given"])


def test_several_folders_name_hosts(tmp_path: Path) -> None:
    write(tmp_path, {"gpu07/dmesg.txt": "x\n", "gpu08/dmesg.txt": "x\n"})
    with opened(tmp_path / "gpu07", tmp_path / "gpu08") as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [
            ("gpu07/dmesg.txt", "gpu07"), ("gpu08/dmesg.txt", "gpu08"),
        ]  # fmt: skip


def test_a_folder_and_a_compressed_log_are_not_several_folders(tmp_path: Path) -> None:
    write(tmp_path, {"gpu07/dmesg.txt": "x\n", "nccl.log.gz": gzip.compress(NCCL.encode())})
    with opened(tmp_path / "gpu07", tmp_path / "nccl.log.gz") as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [("dmesg.txt", None), ("nccl.log.gz", None)]


FOLDER: dict[str, bytes] = {
    "n07/dmesg.txt": b"x\n",
    "n07/nic/eth0.txt": b"y\n",
    "n08/dmesg.txt": b"z\n",
    "job/train.log": b"w\n",
}


@pytest.mark.parametrize("top", ["evidence", "gpu07", "2026-11-24", "case.d"])
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_of_a_folder_is_that_folder(
    top: str, pack: Callable[[dict[str, bytes]], bytes], tmp_path: Path
) -> None:
    write(tmp_path / top, dict(FOLDER))
    write(tmp_path, {"x.bin": pack({f"{top}/{name}": text for name, text in FOLDER.items()})})
    with opened(tmp_path / top) as folder, opened(tmp_path / "x.bin") as archive:
        assert [(s.path, s.host) for s in archive.sources] == [(s.path, s.host) for s in folder.sources]
        assert archive.digest == folder.digest


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_what_a_manifest_lists_behind_a_break_is_counted(damage: str, tmp_path: Path) -> None:
    files = {f"b/n{n:02d}.log": f"{n}".encode() * 700 for n in range(40)}
    listed = [{"path": name.partition("/")[2]} for name in files]
    manifest = json.dumps({"schema": "diagnose.manifest/1", "files": listed}).encode()
    whole = tar_of({"b/manifest.json": manifest, **files}, mode="w")
    at = whole.index(b"b/n11.log")
    (tmp_path / "x.tar").write_bytes(whole[:at] if damage == "cut" else whole[:at] + b"\xff" * 600 + whole[at + 600 :])
    with opened(tmp_path / "x.tar") as bundle:
        assert len(bundle.sources) == 11
        said = [p.text for p in bundle.problems]
    assert len(said) == 2
    assert "read up to b/n10.log" in said[0]
    assert said[1] == "x.tar: 29 files that the manifest lists are lost after the break"


def test_an_archive_of_what_is_in_a_folder_keeps_its_folders(tmp_path: Path) -> None:
    write(tmp_path, {"x.tar": tar_of({"./n07/dmesg.txt": b"x\n"})})
    with opened(tmp_path / "x.tar") as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [("n07/dmesg.txt", "n07")]


def test_archives_of_several_folders_are_those_folders(tmp_path: Path) -> None:
    for number, host in enumerate(("gpu07", "gpu08")):
        write(tmp_path, {f"upload-{number}.tgz": tar_of({f"{host}/dmesg.txt": b"x\n", f"{host}/a/b.txt": b"y\n"})})
    with opened(tmp_path / "upload-0.tgz", tmp_path / "upload-1.tgz") as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [
            ("gpu07/a/b.txt", "gpu07"), ("gpu07/dmesg.txt", "gpu07"),
            ("gpu08/a/b.txt", "gpu08"), ("gpu08/dmesg.txt", "gpu08"),
        ]  # fmt: skip


def test_several_archives_name_hosts(tmp_path: Path) -> None:
    write(tmp_path, {"gpu07.tar.gz": tar_of({"dmesg.txt": b"x\n"}), "gpu08.zip": zip_of({"nic/a.txt": b"x\n"})})
    with opened(tmp_path / "gpu07.tar.gz", tmp_path / "gpu08.zip") as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [
            ("gpu07/dmesg.txt", "gpu07"),
            ("gpu08/nic/a.txt", "gpu08"),
        ]


def test_a_folder_of_hosts_is_no_host(tmp_path: Path) -> None:
    write(tmp_path, {"acme-evidence/rack7/gpu01/a.txt": "x\n", "acme-evidence/rack7/gpu02/a.txt": "x\n"})
    write(tmp_path, {"acme-evidence/job/train.log": "x\n"})
    with opened(tmp_path) as bundle:
        assert {s.path: s.host for s in bundle.sources} == {
            "acme-evidence/rack7/gpu01/a.txt": "gpu01",
            "acme-evidence/rack7/gpu02/a.txt": "gpu02",
            "acme-evidence/job/train.log": None,
        }


def test_equal_names_get_a_number_and_no_path_is_absolute(tmp_path: Path) -> None:
    write(tmp_path, {"a/nccl.log": NCCL, "b/nccl.log": NCCL + NCCL})
    with opened(tmp_path / "a/nccl.log", tmp_path / "b/nccl.log") as bundle:
        assert [s.path for s in bundle.sources] == ["nccl.log", "nccl.log#2"]
        assert all(str(tmp_path) not in repr(s) for s in bundle.sources)


# --- manifests --------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    return json.loads((Path(diagnose.__file__).parent / "manifest.schema.json").read_text("utf-8"))


FULL = {
    "schema": "diagnose.manifest/1",
    "tool": "diagnose",
    "version": "1.0",
    "created": "2026-11-24T09:15:00Z",
    "job_began": "2026-11-24T09:10:00Z",
    "files": [
        {
            "path": "n1/nic/eth.1.txt",
            "host": "gpu01.example",
            "command": "ethtool -S eth2",
            "start": "2026-11-24T09:12:00Z",
            "duration_s": 0.2,
            "exit_code": 1,
            "snapshot": 1,
            "truncated": True,
            "sha256": "0" * 64,
            "bytes": 3,
        },
        {"path": "n1/job.log", "host": None},
    ],
    "absent": [{"what": "mlnx_qos -i eth2", "host": "gpu01.example", "reason": "not installed"}],
    "clock_offset_s": {"gpu01.example": -0.5},
}


def test_the_full_manifest(tmp_path: Path) -> None:
    jsonschema.validate(FULL, schema())
    write(tmp_path, {"manifest.json": json.dumps(FULL), "n1/nic/eth.1.txt": "abc", "n1/job.log": "x\n"})
    with opened(tmp_path) as bundle:
        sources = by_path(bundle)
        assert list(sources) == ["n1/job.log", "n1/nic/eth.1.txt"]
        eth = sources["n1/nic/eth.1.txt"]
        assert (eth.host, eth.command, eth.snapshot, eth.taken_at) == (
            "gpu01.example",
            "ethtool -S eth2",
            1,
            1795511520.0,
        )
        assert eth.job_began == sources["n1/job.log"].job_began == 1795511400.0
        assert eth.status == "unrecognised"
        assert len(eth.notes) == 4
        assert sources["n1/job.log"].host is None
        (manifest,) = bundle.manifests
        assert manifest.absent[0].reason == "not installed"
        assert manifest.clock_offsets == {"gpu01.example": -0.5}
        assert bundle.problems == ()


def test_the_short_manifest_in_each_host_folder(tmp_path: Path) -> None:
    host = {
        "host": "gpu01",
        "captures": [{"file": "e.t0.txt", "command": "ethtool -S eth2", "at": "2026-11-24T09:12:00Z"}],
    }
    job = {"scope": "job", "captures": [{"file": "leaf1.show.txt", "command": "show pfc counters"}]}
    for document in (host, job):
        jsonschema.validate(document, schema())
    write(tmp_path, {"x1/manifest.json": json.dumps(host), "x1/e.t0.txt": "x\n", "x1/unlisted.txt": "x\n"})
    write(tmp_path, {"switches9/manifest.json": json.dumps(job), "switches9/leaf1.show.txt": "x\n"})
    with opened(tmp_path) as bundle:
        sources = by_path(bundle)
        assert sources["x1/e.t0.txt"].host == sources["x1/unlisted.txt"].host == "gpu01"
        assert (sources["x1/e.t0.txt"].snapshot, sources["x1/e.t0.txt"].command) == (0, "ethtool -S eth2")
        assert sources["switches9/leaf1.show.txt"].host is None
        assert bundle.problems == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{not json", "not JSON"),
        ('{"files": [{"path": "../../etc/passwd"}, {"path": "/etc/passwd"}, {"path": "a\\\\b"}]}', "outside"),
        ('{"files": [3, {"command": "x"}, {"path": "a.txt", "start": "yesterday", "snapshot": "one"}]}', "no path"),
        ('{"files": [{"path": "gone.txt"}]}', "not in the bundle"),
        ('{"schema": "diagnose.manifest/9", "files": []}', "diagnose.manifest/1"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_manifest_is_a_problem_and_the_rest_is_read(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, {"manifest.json": text, "a.txt": NCCL})
    with opened(tmp_path) as bundle:
        assert [s.path for s in bundle.sources] == ["a.txt"]
        assert any(said in p.text for p in bundle.problems), bundle.problems


def test_another_tools_manifest_is_a_source(tmp_path: Path) -> None:
    with opened(write(tmp_path, {"web/manifest.json": '{"name": "app", "icons": []}'})) as bundle:
        assert [s.path for s in bundle.sources] == ["web/manifest.json"]
        assert bundle.problems == bundle.manifests == ()


# --- archives ---------------------------------------------------------------------------------------------

FILES = {"gpu01/nccl.log": NCCL.encode(), "gpu02/nccl.log": NCCL.encode() * 2}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.tar.gz", tar_of(FILES)),
        ("b.tar", tar_of(FILES, "w")),
        ("b.tar.xz", tar_of(FILES, "w:xz")),
        ("b.tar.bz2", tar_of(FILES, "w:bz2")),
        ("b.zip", zip_of(FILES)),
        ("misnamed.log", tar_of(FILES)),
        (
            "nested.tar.gz",
            tar_of({"gpu01/nccl.log": gzip.compress(NCCL.encode()), "gpu02.tgz": tar_of({"nccl.log": b"x"})}),
        ),
    ],
)
def test_archives(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path, {name: content})
    with opened(tmp_path / name) as bundle:
        assert bundle.problems == ()
        hosts = {s.host for s in bundle.sources}
        assert hosts == {"gpu01", "gpu02"}
        first = next(s for s in bundle.sources if s.host == "gpu01")
        assert text_of(first) == NCCL.rstrip()
        assert first.kinds == ("nccl_log",)
        assert not first.path.startswith("/")
        location = Path(first.location)
    assert not location.exists()


def test_a_lone_compressed_log_and_an_archive_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path, {"nccl.log.gz": gzip.compress(NCCL.encode() * 3), "gpu09.zip": zip_of({"dmesg.txt": b"x\n"})})
    with opened(tmp_path / "nccl.log.gz") as bundle:
        (source,) = bundle.sources
        assert (source.path, count_lines(source), source.kinds) == ("nccl.log.gz", 3, ("nccl_log",))
    with opened(tmp_path) as bundle:
        assert [(s.path, s.host) for s in bundle.sources] == [("gpu09.zip/dmesg.txt", "gpu09"), ("nccl.log.gz", None)]


def test_the_private_folder_is_private_and_goes(tmp_path: Path) -> None:
    write(tmp_path, {"b.zip": zip_of({"x/a.txt": b"x\n"})})
    with opened(tmp_path / "b.zip") as bundle:
        location = Path(bundle.sources[0].location)
        private = location.parent.parent
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not private.exists()


def test_standard_input_text_and_archive() -> None:
    with opened("-", stdin=io.BytesIO(NCCL.encode())) as bundle:
        assert [(s.path, s.kinds) for s in bundle.sources] == [("stdin", ("nccl_log",))]
    with opened("-", stdin=io.BytesIO(tar_of(FILES))) as bundle:
        assert [s.path for s in bundle.sources] == ["gpu01/nccl.log", "gpu02/nccl.log"]


# --- digests and problems -----------------------------------------------------------------------------------


def test_digests_do_not_depend_on_where_the_bundle_lies(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"gpu01/a.txt": "a\n", "gpu02/b.txt": "b\n"}
    write(tmp_path / "one", files)
    write(tmp_path / "two", files)
    write(tmp_path / "three", {**files, "gpu02/b.txt": "c\n"})
    digests = []
    for name in ("one", "two", "three"):
        with opened(tmp_path / name) as bundle:
            digests.append(bundle.digest)
            assert bundle.sources[0].digest == hashlib.sha256(b"a\n").hexdigest()
    assert digests[0] == digests[1] != digests[2]


def test_a_big_file_is_sampled(tmp_path: Path) -> None:
    with (tmp_path / "big.log").open("wb") as out:
        out.write(NCCL.encode())
        out.truncate(65 << 20)
    with opened(tmp_path / "big.log") as bundle:
        assert bundle.sources[0].digest.startswith("sampled:")
        assert bundle.sources[0].kinds == ("nccl_log",)


def test_unreadable_paths_are_problems_and_others_go_on(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": NCCL})
    with opened(tmp_path / "gone", tmp_path / "a.txt", "nul\0name") as bundle:
        assert [s.path for s in bundle.sources] == ["a.txt"]
        assert [p.source for p in bundle.problems] == ["gone", "nul?name"]
        assert all(str(tmp_path) not in p.text for p in bundle.problems)


def test_a_forbidden_file_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.txt": NCCL, "b.txt": NCCL})
    really_open = Path.open

    def guarded(self: Path, *args: Any, **options: Any) -> Any:
        if self.name == "a.txt":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return really_open(self, *args, **options)

    monkeypatch.setattr(Path, "open", guarded)
    with opened(tmp_path) as bundle:
        assert [s.path for s in bundle.sources] == ["b.txt"]
        assert bundle.problems[0].text == "a.txt: permission denied"


# --- text access ---------------------------------------------------------------------------------------------


def source_of(tmp_path: Path, content: bytes) -> Source:
    (tmp_path / "t.txt").write_bytes(content)
    return Source("s", "t.txt", str(tmp_path / "t.txt"), len(content))


@pytest.mark.parametrize("content", [b"a\nb\nc", b"a\nb\nc\n", b"a\r\nb\r\nc\r\n", b"a\rb\rc", b"a\rb\r\nc\n"])
def test_line_ends(tmp_path: Path, content: bytes) -> None:
    source = source_of(tmp_path, content)
    assert [(line.number, line.text) for line in read_lines(source)] == [(1, "a"), (2, "b"), (3, "c")]
    assert count_lines(source) == len(LineReader(source)) == 3


def test_blocks_lines_and_reader_agree(tmp_path: Path) -> None:
    text = "".join(f"line {n} {'é' * (n % 50)}\r\n" if n % 7 else f"line {n}\r" for n in range(1, 5000))
    source = source_of(tmp_path, text.encode())
    lines = list(read_lines(source))
    blocks = list(read_blocks(source, 4096))
    assert len(blocks) > 10
    from_blocks = [(b.first + i, t) for b in blocks for i, t in enumerate(b.text.split("\n"))]
    assert from_blocks == [(line.number, line.text) for line in lines]
    reader = LineReader(source)
    assert len(reader) == len(lines) == count_lines(source) == 4999
    assert reader[4000:4003] == lines[4000:4003]
    assert reader[4998:9999] == lines[4998:]
    assert excerpt(source, 100, 101, 2) == lines[97:103]
    assert excerpt(source, 1, 1, 3) == lines[:4]


def test_reading_stops_at_the_size_that_the_bundle_saw(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": NCCL})
    with opened(tmp_path / "a.txt") as bundle:
        with (tmp_path / "a.txt").open("a") as out:
            out.write("grown\n" * 1000)
        (source,) = bundle.sources
        assert count_lines(source) == len(list(read_lines(source))) == 1
