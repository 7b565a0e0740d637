"""The RAS client against a service that speaks the protocol, and when it must not be asked."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.collect import discover, rasplan
from tests.collect.support import collect, everything, fake_rank, manifest

CLIENT = Path(rasplan.__file__).with_name("ras.py")
TEXT = b"NCCL version 2.28.9 compiled with CUDA 12.9\n\nJob summary\n===========\n"
JSON = b'{"nccl_version": "2.28.9", "communicators_count": 0, "communicators": []}\n'


class Service(socketserver.StreamRequestHandler):
    """What NCCL 2.28 answers; `server.json_form` is False for releases before 2.28.7."""

    def handle(self) -> None:
        form = "text"
        for line in self.rfile:
            word = line.strip().lower()
            self.server.asked.append(word.decode())  # type: ignore[attr-defined]
            if word.startswith(b"client protocol"):
                self.wfile.write(b"SERVER PROTOCOL 2\n")
            elif word.startswith(b"timeout"):
                self.wfile.write(b"OK\n")
            elif word.startswith(b"set format") and self.server.json_form:  # type: ignore[attr-defined]
                form = "json"
                self.wfile.write(b"OK\n")
            elif word == b"verbose status":
                self.wfile.write(JSON if form == "json" else TEXT)
                return
            else:
                self.wfile.write(b"ERROR: Unknown command\n")


@pytest.fixture
def service() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Service) as server:
        server.asked = []  # type: ignore[attr-defined]
        server.json_form = True  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(port: int, form: str, seconds: float = 5) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", "-c", CLIENT.read_text(), "127.0.0.1", str(port), form, str(seconds)]
    return subprocess.run(command, capture_output=True, timeout=30)


@pytest.mark.parametrize(("form", "answer"), [("text", TEXT), ("json", JSON)])
def test_both_forms(service, form: str, answer: bytes):
    done = ask(service.server_address[1], form)
    assert (done.returncode, done.stdout) == (0, answer), done.stderr
    assert service.asked[0] == "client protocol 2" and service.asked[-1] == "verbose status"


def test_an_old_release_has_no_json(service):
    service.json_form = False
    done = ask(service.server_address[1], "json")
    assert done.returncode == 1 and b"no JSON form" in done.stderr and done.stdout == b""


def test_refused_foreign_and_silent_services_end_in_time():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert b"refused" in ask(port, "text").stderr
        bound.listen()
        silent = ask(port, "text", 1)
        assert silent.returncode == 1 and b"timed out" in silent.stderr


OLD = 10_000.0


@pytest.mark.parametrize(
    ("version", "age", "stacks", "texts", "word"),
    [
        (None, OLD, [], [], "not known"),
        ((2, 21, 5), OLD, [], [], "has no RAS"),
        ((2, 26, 2), OLD, [], [], "1669"),
        ((2, 27, 7), OLD, [], [], "1996"),
        ((2, 29, 7), OLD, [], [], "2346"),
        ((2, 28, 9), 20.0, [], [], "younger"),
        ((2, 28, 9), OLD, [b"    init_process_group (torch/distributed/distributed_c10d.py:1)"], [], "initialising"),
        ((2, 28, 9), OLD, [], [b"x Init START\ny Init START\nx Init COMPLETE\n"], "unfinished"),
        ((2, 28, 9), OLD, [b"    all_reduce (x.py:3)"], [b"x Init START\nx - Init COMPLETE\n"], ""),
        ((2, 30, 7), OLD, [], [], ""),
    ],
)
def test_when_it_must_not_be_asked(version, age, stacks, texts, word):
    found = rasplan.objection(version, age, stacks, texts)
    assert (word in found) if word else found == ""


def test_version_by_name_by_wheel_and_by_the_text_inside(tmp_path: Path):
    wheel = tmp_path / "site-packages" / "nvidia" / "nccl" / "lib"
    wheel.mkdir(parents=True)
    (tmp_path / "site-packages" / "nvidia_nccl_cu12-2.27.3.dist-info").mkdir()
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "libnccl.so.2").write_bytes(b"\0" * 5000 + b"NCCL version 2.28.9+cuda12.9\0" + b"\0" * 5000)
    for folder, name, version in (
        (tmp_path, "libnccl.so.2.21.5", (2, 21, 5)),
        (wheel, "libnccl.so.2", (2, 27, 3)),
        (inside, "libnccl.so.2", (2, 28, 9)),
    ):  # fmt: skip
        process = fake_rank(folder, name, RANK="0")
        try:
            (rank,) = discover.find([process.pid]).ranks
            assert rasplan.version_of(rank) == version
        finally:
            process.kill()
            process.wait()


def test_two_snapshots_in_both_forms_are_collected_only_when_forced(tmp_path: Path, service):
    address = f"127.0.0.1:{service.server_address[1]}"
    rank = fake_rank(tmp_path, "libnccl.so.2.28.9", RANK="0", NCCL_RAS_ADDR=address)
    try:
        collect("--quick", "--out", str(tmp_path / "a"), "--pid", str(rank.pid), "--include", "ras,time")
        assert service.asked == [], "the job is young"
        assert any("younger" in a["reason"] for a in manifest(tmp_path / "a")["absent"])
        collect("--quick", "--out", str(tmp_path / "b"), "--pid", str(rank.pid), "--include", "ras,time", "--ras")
    finally:
        rank.kill()
        rank.wait()
    files = [f["path"].rpartition("/")[2] for f in manifest(tmp_path / "b")["files"] if "/ras/" in f["path"]]
    assert files == ["ncclras-json.t0.json", "ncclras-json.t1.json", "ncclras-text.t0.txt", "ncclras-text.t1.txt"]
    assert everything(tmp_path / "b").count(b"Job summary") == 2
