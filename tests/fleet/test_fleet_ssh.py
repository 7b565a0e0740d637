"""Many hosts over SSH, with real sshd on loopback ports."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fleet_support as support
import pytest

from diagnose.collect import pyz
from diagnose.commands.fleet import exit_code
from diagnose.fleet.engine import Ssh, Stop

pytestmark = pytest.mark.needs("ssh", "ssh-keygen", "sshd")
HOSTS = ["node001", "node002"]


@pytest.fixture(scope="module")
def far_tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TMPDIR at the far ends."""
    return tmp_path_factory.mktemp("far")


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory, far_tmp: Path) -> Iterator[support.Farm]:
    with support.farm(tmp_path_factory.mktemp("farm"), HOSTS, f"SetEnv TMPDIR={far_tmp}") as made:
        yield made


def eventually(true: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)
    return true()


RANDOM = """
data = os.urandom(3000001) + bytes(range(256)) * 20 + b"\\r\\n\\r\\r\\n" * 2000
files["host/random.bin"] = data
open({place!r} + "/" + host, "w").write(hashlib.sha256(data).hexdigest())
"""
SLOW = """
files["a/early.txt"] = b"early"
open({place!r} + "/started-" + host, "w").close()
sys.stderr.write("reading ethtool\\n"); sys.stderr.flush()
time.sleep(60)
"""


def test_random_bytes_arrive_as_they_were(farm: support.Farm, tmp_path: Path, far_tmp: Path) -> None:
    program = support.stand_in(RANDOM.format(place=str(tmp_path)))
    out, visits = support.collect(tmp_path / "b.tar.gz", HOSTS, program, farm.ssh)
    assert [(v.state, v.reason, v.damaged) for v in visits] == [("arrived", "", "")] * 2
    assert exit_code(visits) == 0
    manifest, files = support.contents(out)
    for host in HOSTS:
        assert hashlib.sha256(files[f"{host}/host/random.bin"]).hexdigest() == (tmp_path / host).read_text()
    assert {e["host"] for e in manifest["files"]} == set(HOSTS)
    assert len({h["hostname"] for h in manifest["hosts"]}) == 1, "all sshd run on one machine"
    assert all(abs(offset) < 2 for offset in manifest["clock_offset_s"].values())
    assert not list(tmp_path.glob("*.partial")) and not list(far_tmp.iterdir())
    assert out.stat().st_mode & 0o777 == 0o600


def test_the_real_collector_travels(farm: support.Farm, tmp_path: Path, far_tmp: Path) -> None:
    program = pyz.program("test")
    plan_arguments = ["--include", "host", "--limit", "20", "--interval", "1", "--exclude", "ps"]
    visits = support.visits_of(HOSTS)
    plan = support.gather.Plan(visits, support.ssh.links(visits, program, plan_arguments, 20, ""))
    out, _ = support.gather.gather(plan, tmp_path / "b.tar.gz", {}, bytes, lambda count: None, ssh=farm.ssh)
    manifest, files = support.contents(out)
    for host in HOSTS:
        assert b"Linux" in files[f"{host}/host/uname.txt"]
    assert [h["state"] for h in manifest["hosts"]] == ["arrived"] * 2
    assert not list(far_tmp.iterdir())


def test_one_host_that_cannot_be_reached(farm: support.Farm, tmp_path: Path) -> None:
    program = support.stand_in('files["a/b.txt"] = b"x"')
    out, visits = support.collect(tmp_path / "b.tar.gz", ["node001", "[::1]"], program, farm.ssh)
    assert [v.state for v in visits] == ["arrived", "failed"]
    assert exit_code(visits) == 3
    manifest, files = support.contents(out)
    assert list(files) == ["node001/a/b.txt"]
    (absent,) = manifest["absent"]
    assert absent["host"] == "::1" and absent["reason"]


def test_no_python_and_a_collector_that_breaks(farm: support.Farm, tmp_path: Path) -> None:
    program = support.stand_in("raise OSError('no way')")
    _, visits = support.collect(tmp_path / "1.tar.gz", HOSTS[:1], program, farm.ssh)
    assert visits[0].state == "failed" and "no way" in visits[0].reason
    _, visits = support.collect(tmp_path / "2.tar.gz", HOSTS[:1], program, farm.ssh, python="/nowhere/python3")
    assert visits[0].state == "failed" and visits[0].reason == "no python3 there"
    assert exit_code(visits) == 2


def test_a_host_over_its_limit_gives_what_it_has(farm: support.Farm, tmp_path: Path, far_tmp: Path) -> None:
    program = support.stand_in(SLOW.format(place=str(tmp_path)))
    began = time.monotonic()
    out, visits = support.collect(tmp_path / "b.tar.gz", HOSTS[:1], program, farm.ssh, limit_s=-18)
    assert time.monotonic() - began < 30
    assert [(v.state, v.partial) for v in visits] == [("arrived", True)]
    assert exit_code(visits) == 3
    assert support.contents(out)[1] == {"node001/a/early.txt": b"early"}
    assert not list(far_tmp.iterdir())


def test_an_unfinished_folder_is_taken_when_the_collector_must_be_killed(
    farm: support.Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.makedirs(here + "/bundle.partial/" + host + "/a")
open(here + "/bundle.partial/" + host + "/a/b.txt", "w").write("so far")
open(here + "/bundle.partial/manifest.json", "w").write(json.dumps({"files": [{"path": host + "/a/b.txt"}]}))
time.sleep(60)
"""
    monkeypatch.setattr(support.ssh, "far_program", lambda: _impatient())
    out, visits = support.collect(tmp_path / "b.tar.gz", HOSTS[:1], support.stand_in(body), farm.ssh, limit_s=-18)
    assert visits[0].state == "arrived" and visits[0].damaged == "it took more than 2 s"
    assert support.contents(out)[1] == {"node001/a/b.txt": b"so far"}


def _impatient() -> bytes:
    from diagnose.fleet import remote

    return Path(remote.__file__).read_bytes().replace(b"CLOSE_S = 15.0", b"CLOSE_S = 1.0")


def test_an_interrupt_lets_the_hosts_close_their_bundles(farm: support.Farm, tmp_path: Path, far_tmp: Path) -> None:
    program = support.stand_in(SLOW.format(place=str(tmp_path)))
    stop = Stop()

    def interrupt() -> None:
        eventually(lambda: len(list(tmp_path.glob("started-*"))) == 1)
        stop.ask()

    thread = threading.Thread(target=interrupt)
    thread.start()
    out, visits = support.collect(tmp_path / "b.tar.gz", HOSTS, program, farm.ssh, stop=stop, fanout=1)
    thread.join()
    assert sorted(v.state for v in visits) == ["arrived", "failed"]
    manifest, files = support.contents(out)
    assert list(files.values()) == [b"early"]
    assert [a["reason"] for a in manifest["absent"]] == ["interrupted before it was its turn"]
    assert not list(far_tmp.iterdir())


def test_ctrl_c_on_the_command_line(farm: support.Farm, tmp_path: Path, far_tmp: Path) -> None:
    command = [sys.executable, "-m", "diagnose", "collect", "--hosts", "node[001-002]", "--include", "host"]
    command += ["--ssh-options", f"-F {farm.config}", "--interval", "60", "--out", str(tmp_path / "b.tar.gz")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: len(list(far_tmp.glob("diagnose-*/bundle.partial/*/host/uptime.txt"))) == 2, 30)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert out.strip() == str(tmp_path / "b.tar.gz")
    manifest, files = support.contents(tmp_path / "b.tar.gz")
    assert {name.partition("/")[0] for name in files} == set(HOSTS)
    assert any(a["reason"].startswith("interrupted") for a in manifest["absent"])
    assert not list(far_tmp.iterdir()) and not list(tmp_path.glob("*.partial"))


def test_a_lost_connection_ends_the_collector_there(farm: support.Farm, tmp_path: Path, far_tmp: Path) -> None:
    program = support.stand_in(SLOW.format(place=str(tmp_path)))
    shell = shutil.which("sh")

    def cut() -> None:
        eventually(lambda: len(list(tmp_path.glob("started-*"))) == 1)
        subprocess.run([str(shell), "-c", f"kill -9 $(cat {tmp_path}/pid)"], check=True)

    wrapper = tmp_path / "ssh"
    wrapper.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid\nexec ssh "$@"\n')
    wrapper.chmod(0o700)
    thread = threading.Thread(target=cut)
    thread.start()
    how = Ssh(str(wrapper), farm.ssh.options, connect_s=5)
    _, visits = support.collect(tmp_path / "b.tar.gz", HOSTS[:1], program, how)
    thread.join()
    assert visits[0].state == "failed" and visits[0].reason.startswith("the connection was lost")
    assert eventually(lambda: not list(far_tmp.iterdir())), "the far end noticed and cleaned up"


def test_what_login_scripts_print_does_no_harm(tmp_path: Path) -> None:
    noise = "printf 'Welcome\\\\n\\\\033[1mdg1 x D zzz\\\\n'; echo banner >&2; eval \"$SSH_ORIGINAL_COMMAND\""
    with support.farm(tmp_path, ["gpu01"], f"ForceCommand {noise}") as farm:
        program = support.stand_in(RANDOM.format(place=str(tmp_path)))
        out, visits = support.collect(tmp_path / "b.tar.gz", ["gpu01"], program, farm.ssh)
        assert [(v.state, v.damaged) for v in visits] == [("arrived", "")]
        data = support.contents(out)[1]["gpu01/host/random.bin"]
        assert hashlib.sha256(data).hexdigest() == (tmp_path / "gpu01").read_text()


def test_an_old_python_will_do(farm: support.Farm, tmp_path: Path) -> None:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    old = next((p for n in ("3.6", "3.7", "3.8") for p in sorted(versions.glob(f"{n}.*/bin/python3"))), None)
    if old is None:
        pytest.skip("no Python before 3.9 in pyenv here")
    visits = support.visits_of(HOSTS[:1])
    quick = ["--quick", "--include", "host"]
    plan = support.gather.Plan(visits, support.ssh.links(visits, pyz.program("test"), quick, 10, str(old)))
    out, _ = support.gather.gather(plan, tmp_path / "b.tar.gz", {}, bytes, lambda count: None, ssh=farm.ssh)
    assert visits[0].state == "arrived", visits[0].reason
    assert visits[0].hello["python"].startswith(("3.6", "3.7", "3.8"))
    assert support.contents(out)[1]


def test_a_busy_jump_host_is_tried_again(tmp_path: Path) -> None:
    fake = tmp_path / "ssh"
    fake.write_text(
        f"#!/bin/sh\nif mkdir {tmp_path}/once 2>/dev/null; then\n"
        "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255\nfi\n"
        'for last; do :; done\nexec sh -c "$last"\n'
    )
    fake.chmod(0o700)
    program = support.stand_in('files["a/b.txt"] = b"x"')
    out, visits = support.collect(tmp_path / "b.tar.gz", ["gpu01"], program, Ssh(str(fake)))
    assert visits[0].state == "arrived" and support.contents(out)[1] == {"gpu01/a/b.txt": b"x"}
