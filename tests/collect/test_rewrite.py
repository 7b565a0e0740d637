"""`redact` and `verify` on whole bundles: new manifest with its parent's digest, private map, dumps as JSON."""

from __future__ import annotations

import hashlib
import json
import pickle
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from diagnose.collect import bundles, rewrite
from diagnose.collect.options import BadOption
from tests.collect.support import TOP, everything, manifest

LOG = (
    "gpu07:4711:4790 [3] NCCL INFO Bootstrap : Using eth0:10.20.33.7<0>\n"
    "HF_TOKEN=abcdef123456 by alice in /home/alice/x\n"
)
DUMP = {"version": "2.10", "pg_config": {"0": {"ranks": "[0, 1]"}}, "pg_status": {}, "entries": [
    {"record_id": 0, "frames": [{"name": "f", "filename": "/home/alice/llm/train.py", "line": 3}]}]}  # fmt: skip


class Runs:
    def __reduce__(self):
        return (print, ("it ran",))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of two hosts with a log, a dump, a hostile pickle and binary data."""
    top = tmp_path / "diagnose-gpu07"
    files = {
        "gpu07/logs/nccl.gpu07.4711.log": LOG.encode(),
        "gpu08/logs/nccl.gpu08.99.log": LOG.replace("gpu07", "gpu08").encode(),
        "gpu07/flight_recorder/comm_lib_trace_rank_0": pickle.dumps(DUMP, protocol=2),
        "gpu07/flight_recorder/comm_lib_trace_rank_1": pickle.dumps({"entries": [Runs()]}, protocol=2),
        "gpu07/blob": b"\x7fELF" + bytes(1000),
    }
    entries = []
    for path, data in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)
        entries.append({
            "path": path, "host": path.split("/")[0], "command": f"/home/alice/{path.split('/')[-1]}",
            "start": "2026-11-24T09:12:00.000Z", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data),
        })  # fmt: skip
    made = {
        "schema": "diagnose.manifest/1", "tool": {"name": "diagnose collect", "version": "1"}, "files": entries,
        "created": "2026-11-24T09:12:00Z",
        "absent": [{"what": "ethtool eth0", "reason": "not installed", "host": "gpu08"}],
        "clock_offset_s": {"gpu07": 0.1, "gpu08": -0.2},
    }  # fmt: skip
    (top / "manifest.json").write_text(json.dumps(made))
    return top


def packed(folder: Path) -> Path:
    out = folder.with_suffix(".tar.gz")
    with tarfile.open(out, "w:gz") as archive:
        archive.add(folder, folder.name)
    return out


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_redact_gives_a_bundle_without_identities(bundle: Path, tmp_path: Path, form: str, capfd):
    import jsonschema

    source = bundle if form == "folder" else packed(bundle)
    before = everything(bundle)
    out = tmp_path / ("r" if form == "folder" else "r.tar.gz")
    done = rewrite.redact_bundle(str(source), str(out), "1.2")
    held = everything(out)
    for word in (b"gpu07", b"gpu08", b"alice", b"10.20.33", b"abcdef123456", b"diagnose-gpu07"):
        assert word not in held, word
    made = manifest(out)
    jsonschema.validate(made, json.loads((TOP / "diagnose" / "manifest.schema.json").read_text()))
    raw = (bundle / "manifest.json").read_bytes()
    assert made["parent"] == {"manifest_sha256": hashlib.sha256(raw).hexdigest()}
    assert bundles.verify(str(out)).good
    hosts = {f["host"] for f in made["files"]}
    assert len(hosts) == 2 and set(made["clock_offset_s"]) == hosts
    assert all(f["path"].startswith(f["host"] + "/") for f in made["files"])
    assert everything(bundle) == before
    assert sorted(what.rpartition("/")[2] for what, _ in done.left_out) == ["blob", "comm_lib_trace_rank_1"]
    assert any("asks for" in why for _, why in done.left_out)
    reasons = [a["reason"] for a in made["absent"]]
    assert sum(r.startswith("left out: ") for r in reasons) == 2
    assert "it ran" not in capfd.readouterr().out
    dump = next(f for f in made["files"] if f["path"].endswith("rank_0.json"))
    assert dump["bytes"] > 50 and b'"entries"' in held and b"train.py" in held
    private = Path(done.map_path)
    assert private.parent == tmp_path and stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "gpu07" in json.loads(private.read_text())["tokens"].values()


def test_a_credential_goes_from_every_text_wherever_it_is_recognised(bundle: Path, tmp_path: Path):
    key = "3f786850e387550fdab836ed7e6dc881de23001b"
    (bundle / "gpu07/logs/nccl.gpu07.4711.log").write_text(f"{LOG}sent {key}\n")
    (bundle / "gpu08/logs/nccl.gpu08.99.log").write_text(f"{LOG}WANDB_API_KEY={key}\n")
    rewrite.redact_bundle(str(bundle), str(tmp_path / "r"), "1")
    assert key.encode() not in everything(tmp_path / "r") and b"sent [SECRET-" in everything(tmp_path / "r")


def test_redacting_twice_and_onto_something(bundle: Path, tmp_path: Path):
    rewrite.redact_bundle(str(bundle), str(tmp_path / "r"), "1")
    with pytest.raises(BadOption):
        rewrite.redact_bundle(str(bundle), str(tmp_path / "r"), "1")
    again = rewrite.redact_bundle(str(tmp_path / "r"), None, "1")
    assert bundles.verify(again.path).good


def test_what_is_no_bundle_is_refused(tmp_path: Path):
    (tmp_path / "x").mkdir()
    (tmp_path / "f").write_text("text")
    for path in ("x", "f"):
        with pytest.raises(bundles.NoBundle):
            rewrite.redact_bundle(str(tmp_path / path), str(tmp_path / "out"), "1")
        with pytest.raises(bundles.NoBundle):
            bundles.verify(str(tmp_path / path))
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_verify_names_what_differs(bundle: Path, form: str):
    (bundle / "gpu07/blob").write_bytes(b"other")
    (bundle / "gpu08/logs/nccl.gpu08.99.log").unlink()
    (bundle / "gpu08/extra").write_text("x")
    path = bundle if form == "folder" else packed(bundle)
    verdict = bundles.verify(str(path))
    assert not verdict.good and verdict.same == 3
    assert [p.rpartition("/")[2] for p in verdict.differs] == ["blob"]
    assert [p.rpartition("/")[2] for p in verdict.missing] == ["nccl.gpu08.99.log"]
    assert [p.rpartition("/")[2] for p in verdict.unlisted] == ["extra"]
    done = subprocess.run([sys.executable, "-m", "diagnose", "verify", str(path)], capture_output=True, text=True)
    assert done.returncode == 1 and "differs: " in done.stdout


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_verify_says_once_where_an_archive_breaks(bundle: Path, tmp_path: Path, damage: str):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(bundle / "manifest.json", "manifest.json")
        for file in sorted(p for p in bundle.rglob("*") if p.is_file() and p.name != "manifest.json"):
            archive.add(file, str(file.relative_to(bundle)))
    with tarfile.open(tmp_path / "x.tar") as archive:
        members = archive.getmembers()
    whole = (tmp_path / "x.tar").read_bytes()
    at = members[2].offset
    whole = whole[:at] if damage == "cut" else whole[:at] + b"\xff" * 512 + whole[at + 512 :]
    (tmp_path / "x.tar").write_bytes(whole)
    verdict = bundles.verify(str(tmp_path / "x.tar"))
    assert not verdict.good and verdict.same == 1
    said = verdict.lines()
    assert len(said) == 2
    assert f"breaks after {members[1].name}" in said[0] and f"{len(members) - 2} files" in said[0]


def test_paths_that_lead_outside_are_refused(bundle: Path, tmp_path: Path):
    raw = json.loads((bundle / "manifest.json").read_text())
    raw["files"].append({"path": "../../etc/passwd", "sha256": "0" * 64})
    (bundle / "manifest.json").write_text(json.dumps(raw))
    assert len(bundles.verify(str(bundle)).outside) == 1
    hostile = tmp_path / "h.tar.gz"
    with tarfile.open(hostile, "w:gz") as archive:
        archive.add(bundle / "manifest.json", "b/manifest.json")
        archive.add(bundle / "gpu07/blob", "b/../../escaped")
        link = tarfile.TarInfo("b/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    rewrite.redact_bundle(str(hostile), str(tmp_path / "out"), "1")
    assert not (tmp_path.parent / "escaped").exists() and b"root:" not in everything(tmp_path / "out")


def test_a_pickle_that_asks_for_gigabytes_is_left_out():
    data, why = rewrite.read_dump(b"\x80\x02r\xff\xff\xff\x7f" + b"." * 10)
    assert data is None and "cannot be read safely" in why
