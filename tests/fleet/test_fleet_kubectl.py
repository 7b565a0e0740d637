"""Pods through a real kubectl, where one is installed, against an API server of ours on loopback."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fleet_cluster
import fleet_support as support
import pytest
from test_fleet_schedulers import RANDOM, pod

from diagnose.fleet import gather, kubernetes

PODS = ["llm-worker-0", "llm-worker-1"]


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl here")
    said = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=30)
    version = json.loads(said.stdout)["clientVersion"]
    if (int(version["major"]), int(version["minor"].rstrip("+"))) < (1, 31):
        pytest.skip("kubectl before 1.31 does not exec over WebSocket")
    pods = [pod(name, "gpu-a") for name in PODS]
    for item in pods:
        item["apiVersion"] = "v1"
        item["metadata"]["labels"] = {"job-name": "llm"}
        del item["metadata"]["managedFields"]
    with fleet_cluster.cluster(tmp_path, pods) as path:
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield path


def test_exec_and_logs(kubeconfig: Path, tmp_path: Path) -> None:
    program = support.stand_in(RANDOM.format(place=str(tmp_path)))
    plan = kubernetes.plan("llm", kubernetes.Cluster("train"), program, [], 20)
    manifest, files = support.contents(gather.gather(plan, tmp_path / "b.tar.gz", {}, bytes, lambda count: None)[0])
    assert [(v.state, v.damaged) for v in plan.visits] == [("arrived", "")] * 2, plan.visits
    for host in PODS:
        assert hashlib.sha256(files[f"{host}/host/random.bin"]).hexdigest() == (tmp_path / host).read_text()
        assert b"a line of the log" in files[f"{host}/kubectl/logs.txt"]
    assert b"llm-worker-1" in files["job/kubernetes/pods.txt"]
    assert any("PyTorchJob" in a["what"] for a in manifest["absent"]), "this server has none"


def test_the_end_of_input_reaches_the_pods(kubeconfig: Path, tmp_path: Path) -> None:
    body = f"""
files["a/early.txt"] = b"early"
open({str(tmp_path)!r} + "/started-" + host, "w").close()
time.sleep(60)
"""
    stop = support.engine.Stop()

    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while len(list(tmp_path.glob("started-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        stop.ask()

    thread = threading.Thread(target=interrupt)
    thread.start()
    plan = kubernetes.plan("job-name=llm", kubernetes.Cluster(), support.stand_in(body), [], 60)
    path, interrupted = gather.gather(plan, tmp_path / "b.tar.gz", {}, bytes, lambda count: None, stop=stop)
    thread.join()
    files = support.contents(path)[1]
    assert interrupted and all(files[f"{host}/a/early.txt"] == b"early" for host in PODS)
