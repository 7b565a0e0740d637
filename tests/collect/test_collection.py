"""A whole collection on this host: what a sick host does to it, and what is left when it is stopped."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.collect.pyz import build
from diagnose.collect.writer import Writer
from tests.collect.support import TOP, collect, everything, fake_rank, manifest, tool


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def path_of(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def absent(bundle: Path, word: str) -> str:
    return next(a["reason"] for a in manifest(bundle)["absent"] if word in a["what"])


def test_one_archive_with_private_modes_a_valid_manifest_and_good_hashes(tmp_path: Path):
    import jsonschema

    out = tmp_path / "b.tar.gz"
    done = collect("--quick", "--out", str(out), "--host", "node-a")
    assert done.returncode in (0, 3), done.stderr
    assert done.stdout.strip() == str(out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["b.tar.gz"]
    with tarfile.open(out) as archive:
        members = list(archive)
        assert {(m.isdir(), m.mode) for m in members} <= {(False, 0o600), (True, 0o700)}
        assert members[0].name == "b/manifest.json"
    made = manifest(out)
    schema = json.loads((TOP / "diagnose" / "manifest.schema.json").read_text())
    jsonschema.validate(made, schema)
    assert made["host"] == "node-a"
    assert {f["host"] for f in made["files"]} == {"node-a"}
    pairs = [f for f in made["files"] if f["path"].endswith((".t0.txt", ".t1.txt"))]
    assert pairs and {f["snapshot"] for f in pairs} == {1, 2}
    verified = subprocess.run([sys.executable, "-m", "diagnose", "verify", str(out)], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout


def test_a_hung_tool_never_stops_the_rest(tmp_path: Path, tools: Path):
    tool(tools, "nvidia-smi", "trap '' TERM; sleep 1000 & wait; sleep 1000")
    tool(tools, "ibstat", "echo CA")
    out = tmp_path / "b"
    began = time.monotonic()
    done = collect("--quick", "--limit", "20s", "--out", str(out), "--include", "gpu,rdma", env=path_of(tools))
    assert time.monotonic() - began < 45
    assert done.returncode == 3, done.stderr
    reasons = [a["reason"] for a in manifest(out)["absent"] if "nvidia-smi" in a["what"]]
    assert any("timed out after" in r for r in reasons)
    assert any("did not answer before" in r for r in reasons) or any("time was up" in r for r in reasons)
    assert any(f["path"].endswith("rdma/ibstat.txt") for f in manifest(out)["files"])
    assert "sleep 1000" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def frozen() -> Iterator[Path]:
    """A control group (v1) whose processes sleep uninterruptibly: no signal reaches them until it is thawed."""
    group = FREEZER / f"diagnose-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs root and the freezer of control groups v1")
    yield group
    (group / "freezer.state").write_text("THAWED")
    for pid in (group / "tasks").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    for _ in range(50):
        try:
            group.rmdir()
            break
        except OSError:
            time.sleep(0.1)


def test_what_no_signal_reaches_is_left_behind_and_the_bundle_is_closed(tmp_path: Path, tools: Path, frozen: Path):
    tool(tools, "ibstat", f"echo $$ > {frozen}/tasks; echo FROZEN > {frozen}/freezer.state; echo never")
    tool(tools, "show_gids", "echo DEV PORT")
    out = tmp_path / "b.tar.gz"
    began = time.monotonic()
    done = collect("--quick", "--out", str(out), "--include", "rdma,time", env=path_of(tools))
    assert time.monotonic() - began < 25
    assert done.returncode == 3, done.stderr
    assert "left behind in state D" in absent(out, "ibstat")
    assert any(f["path"].endswith("rdma/show_gids.txt") for f in manifest(out)["files"])


def test_a_renamed_field_does_not_spoil_the_answer(tmp_path: Path, tools: Path):
    tool(
        tools,
        "nvidia-smi",
        """case "$*" in
*throttle_reasons*) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2;;
*query-gpu*event_reasons*) echo 'index, name'; echo '0, NVIDIA H100';;
*) exit 1;;
esac""",
    )
    collect("--quick", "--out", str(tmp_path / "b"), "--include", "gpu", env=path_of(tools))
    files = [f for f in manifest(tmp_path / "b")["files"] if "query-gpu" in f["path"]]
    assert len(files) == 2 and all("event_reasons" in f["command"] and f["exit_code"] == 0 for f in files)


def test_reasons_of_absence(tmp_path: Path, tools: Path):
    tool(tools, "ibstat", "echo 'ibpanic: cannot open' >&2; exit 1")
    tool(tools, "show_gids", "echo 'show_gids: Permission denied' >&2; exit 1")
    tool(tools, "ibdev2netdev", "exit 0")
    out = tmp_path / "b"
    done = collect("--quick", "--out", str(out), "--include", "rdma,ip", env=path_of(tools))
    assert done.returncode in (0, 3)
    assert absent(out, "lldpctl") == "not installed"
    assert absent(out, "ibdev2netdev") == "gave nothing"
    entry = next(f for f in manifest(out)["files"] if f["path"].endswith("ibstat.txt"))
    assert entry["exit_code"] == 1, "what a tool says instead of an answer is evidence too"


def test_dry_run_names_everything_and_takes_nothing(tmp_path: Path, tools: Path):
    tool(tools, "nvidia-smi", f"touch {tmp_path}/asked")
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "diagnose.collect", "--dry-run"], capture_output=True, text=True,
        cwd=tmp_path / "here", env={**os.environ, **path_of(tools), "PYTHONPATH": str(TOP)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("nvidia-smi -q", "nvidia-smi topo -m", "dmesg", "t0    ", "t1    ", "/proc/{loadavg,meminfo"):
        assert word in done.stdout
    assert not (tmp_path / "asked").exists() and not list((tmp_path / "here").iterdir())


def test_include_and_exclude(tmp_path: Path):
    collect("--quick", "--out", str(tmp_path / "a"), "--include", "time,ip", "--exclude", "ip-route,timedatectl")
    topics = {f["path"].split("/")[1] for f in manifest(tmp_path / "a")["files"]}
    assert topics <= {"time", "ip"}
    assert not any("ip-route" in f["path"] for f in manifest(tmp_path / "a")["files"])
    refused = collect("--include", "gpus")
    assert refused.returncode == 2 and "the topics are" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_closes_the_bundle(tmp_path: Path, tools: Path, number: int):
    tool(tools, "ibstat", "echo started; sleep 100")
    out = tmp_path / "b.tar.gz"
    command = [sys.executable, "-m", "diagnose", "collect", "--out", str(out), "--include", "rdma,time"]
    process = subprocess.Popen(command, cwd=TOP, env={**os.environ, **path_of(tools)}, stderr=subprocess.PIPE)
    time.sleep(3)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    made = manifest(out)
    assert made["interrupted"] is True and made["complete"] is False
    assert any("interrupted" in a["reason"] for a in made["absent"])
    assert not list(tmp_path.glob("*.partial"))


def test_while_it_runs_the_folder_is_partial_and_its_manifest_whole(tmp_path: Path, tools: Path):
    tool(tools, "ibstat", "sleep 4; echo CA")
    out = tmp_path / "b.tar.gz"
    command = [sys.executable, "-m", "diagnose", "collect", "--quick", "--out", str(out), "--include", "rdma,ip"]
    process = subprocess.Popen(command, cwd=TOP, env={**os.environ, **path_of(tools)}, stderr=subprocess.PIPE)
    seen = 0
    while process.poll() is None:
        assert not out.exists() or process.wait(5) is not None
        growing = tmp_path / "b.partial" / "manifest.json"
        if growing.exists():
            assert stat.S_IMODE(growing.parent.stat().st_mode) == 0o700
            for entry in manifest(growing.parent)["files"]:
                assert (growing.parent / entry["path"]).stat().st_size == entry["bytes"]
                seen += 1
        time.sleep(0.1)
    process.communicate()
    assert seen and out.exists()


def test_nothing_is_overwritten(tmp_path: Path):
    (tmp_path / "b.tar.gz").write_text("old")
    done = collect("--quick", "--out", str(tmp_path / "b.tar.gz"))
    assert done.returncode == 2 and "is there already" in done.stderr
    assert (tmp_path / "b.tar.gz").read_text() == "old"


def test_archive_on_standard_output(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "diagnose",
        "collect",
        "--quick",
        "--out",
        "-",
        "--host",
        "node-a",
        "--include",
        "time",
    ]
    done = subprocess.run(
        command, cwd=TOP, capture_output=True, timeout=60, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    (tmp_path / "x.tar.gz").write_bytes(done.stdout)
    assert manifest(tmp_path / "x.tar.gz")["host"] == "node-a"
    assert [p.name for p in tmp_path.iterdir()] == ["x.tar.gz"]


def test_a_full_disk_is_said_and_the_bundle_stays_readable(tmp_path: Path, monkeypatch):
    """The file system fills up at the third file."""
    real, written = Writer._write, []

    def limited(self: Writer, target: str, data: bytes) -> None:
        if len(data) > 100 and "host" in target:
            written.append(target)
            if len(written) > 2:
                Path(target).write_bytes(data[:10])
                raise OSError(errno.ENOSPC, "No space left on device")
        real(self, target, data)

    monkeypatch.setattr(Writer, "_write", limited)
    writer = Writer(str(tmp_path / "b.partial"), {"schema": "diagnose.manifest/1"}, lambda data: data)
    for n in range(5):
        writer.put(f"host/f{n}.txt", b"x" * 1000, {"command": f"c{n}"})
    assert writer.full
    writer.close(str(tmp_path / "b"))
    made = manifest(tmp_path / "b")
    assert [f["path"] for f in made["files"]] == ["host/f0.txt", "host/f1.txt"]
    assert [(a["what"], a["reason"]) for a in made["absent"]] == [(f"c{n}", "disk full") for n in (2, 3, 4)]
    assert sorted(p.name for p in (tmp_path / "b" / "host").iterdir()) == ["f0.txt", "f1.txt"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs root to mount a small file system")
def test_a_really_full_disk(tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        log = tmp_path / "big.log"
        log.write_text("line\n" * 400_000)
        done = collect("--quick", "--out", str(small / "b.tar.gz"), "--log", str(log), "--log-size", "8m")
        assert done.returncode == 3, done.stderr
        found = next(small.glob("b*"))
        assert any(a["reason"] == "disk full" for a in manifest(found)["absent"])
        verified = subprocess.run(
            [sys.executable, "-m", "diagnose", "verify", str(found)], capture_output=True, text=True
        )
        assert verified.returncode == 0, verified.stdout
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_unprivileged_user_gets_what_is_allowed(tmp_path: Path):
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("needs a python3 that everybody may run")
    with tempfile.TemporaryDirectory(prefix="collect-test-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        build(str(folder / "collect.pyz"), "1")
        command = [python, str(folder / "collect.pyz"), "--quick", "--out", str(folder / "b")]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, user=65534, group=65534, timeout=60)
        assert done.returncode in (0, 3), done.stderr
        assert "root would add" in done.stderr
        made = manifest(folder / "b")
        assert made["collector"]["root"] is False
        assert (folder / "b").stat().st_uid == 65534


def test_logs_of_a_rank_are_found_by_themselves(tmp_path: Path):
    log = tmp_path / "nccl.node-a.77.log"
    log.write_text("node-a:77:80 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>\n" * 3)
    out = tmp_path / "b"
    rank = fake_rank(
        tmp_path, RANK="3", WORLD_SIZE="4", MASTER_PORT="29777", NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(log),
        HOME=str(tmp_path), XDG_CACHE_HOME="",
    )  # fmt: skip
    dump = tmp_path / ".cache" / "torch" / "comm_lib_trace_rank_3"
    dump.parent.mkdir(parents=True)
    dump.write_bytes(b"\x80\x02}q\x00X\x07\x00\x00\x00entriesq\x01]s.")
    try:
        done = collect("--quick", "--out", str(out), "--pid", str(rank.pid))
        assert done.returncode in (0, 3), done.stderr
    finally:
        rank.kill()
        rank.wait()
    files = {f["path"].split("/", 1)[1]: f for f in manifest(out)["files"]}
    assert files["logs/rank3.nccl.node-a.77.txt"]["command"] == str(log)
    assert files["flight_recorder/comm_lib_trace_rank_3"]["bytes"] == dump.stat().st_size
    assert f"env/env.rank3.pid{rank.pid}.txt" in files
    assert f"proc/state.rank3.pid{rank.pid}.t1.txt" in files
    assert b"NCCL_DEBUG=INFO" in everything(out)
    assert "pipe" in absent(out, "stdout of rank3")
    assert "can crash when it is asked" not in absent(out, "NCCL RAS") and "has no RAS" in absent(out, "NCCL RAS")
