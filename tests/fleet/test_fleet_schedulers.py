"""Slurm and Kubernetes through programs of the same names that record how they were called; and through a real Slurm of
four nodes on loopback where it is installed (Debian: slurmctld, slurmd, slurm-client, munge)."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fleet_support as support
import pytest

from diagnose.collect.secrets import Cleaner
from diagnose.fleet import gather, kubernetes, slurm, ssh
from diagnose.fleet.bundle import Bundle
from diagnose.fleet.local import NoAnswer

RANDOM = """
data = os.urandom(700001)
files["host/random.bin"] = data
open({place!r} + "/" + host, "w").write(hashlib.sha256(data).hexdigest())
"""


def fakes(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Path:
    """Programs on PATH that append their command line to `calls` and run a text of Python with `argv` and `here`."""
    place = folder / "bin"
    place.mkdir()
    for name, body in programs.items():
        lines = [
            f"#!{sys.executable}",
            "import json, os, subprocess, sys",
            f"argv, here = sys.argv[1:], {str(folder)!r}",
            f"open(here + '/calls', 'a').write(json.dumps([{name!r}, *argv]) + '\\n')",
        ]
        (place / name).write_text("\n".join(lines) + "\n" + body)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return folder / "calls"


def calls(path: Path, program: str) -> list[list[str]]:
    return [words[1:] for words in map(json.loads, path.read_text().splitlines()) if words[0] == program]


def collect(plan: gather.Plan, out: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    clean = Cleaner().clean
    return support.contents(gather.gather(plan, out, {}, clean, lambda count: None)[0])


# --- Slurm -----------------------------------------------------------------------------------------------

SQUEUE = "print('4711|RUNNING|tern-n[01-03]' if '--jobs' in argv and '--format' in argv else 'steps')"
SINFO = "print('tern-n01|allocated\\ntern-n02|mixed\\ntern-n03|down*' if '--Node' in argv else 'REASON')"
SCONTROL = "print(' '.join(argv))"
SRUN = """
nodes = argv[argv.index("--nodelist") + 1].split(",")
far = argv[argv.index("sh"):]
if "unlucky" in os.environ.get("FAKE", "") and len(nodes) > 1:
    sys.exit("srun: error: Task launch for StepId=4711.3 failed on node tern-n02: Communication connection failure")
if "dead" in os.environ.get("FAKE", "") and nodes == ["tern-n02"]:
    sys.exit("srun: error: Unable to create step for job 4711: tern-n02 is gone")
assert not [k for k in os.environ if k.startswith("SLURM") and k != "SLURM_CONF"]
data = sys.stdin.buffer.raw
far = [subprocess.Popen(far, stdin=subprocess.PIPE, env={**os.environ, "SLURMD_NODENAME": n}) for n in nodes]
import threading
def pump():
    while True:
        piece = data.read(65536)
        for one in far:
            try:
                one.stdin.write(piece) if piece else one.stdin.close()
            except OSError:
                pass
        if not piece:
            return
threading.Thread(target=pump, daemon=True).start()
os._exit(max(one.wait() for one in far))
"""


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    return fakes(tmp_path, monkeypatch, squeue=SQUEUE, sinfo=SINFO, scontrol=SCONTROL, srun=SRUN)


def test_slurm_asks_for_one_task_a_node_beside_the_job(fake_slurm: Path, tmp_path: Path) -> None:
    plan = slurm.plan("4711", support.stand_in(RANDOM.format(place=str(tmp_path))), ["--quick"], 20)
    manifest, files = collect(plan, tmp_path / "b.tar.gz")
    for host in ("tern-n01", "tern-n02"):
        assert hashlib.sha256(files[f"{host}/host/random.bin"]).hexdigest() == (tmp_path / host).read_text()
    assert {e["host"] for e in manifest["files"]} == {"tern-n01", "tern-n02", None}
    (failed,) = [h for h in manifest["hosts"] if h["state"] == "failed"]
    assert failed["host"] == "tern-n03" and "not responding" in failed["reason"]
    (srun,) = calls(fake_slurm, "srun")
    assert srun[: srun.index("sh")] == [
        "--overlap", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--mpi=none", "--cpu-bind=none",
        "--kill-on-bad-exit=0", "--wait=0", "--input=all", "--export=PATH", "--job-name=diagnose", "--jobid", "4711",
        "--nodes", "2", "--ntasks", "2", "--nodelist", "tern-n01,tern-n02",
    ]  # fmt: skip
    assert files["job/slurm/scontrol-job.txt"] == b"show job -d 4711\n"
    assert calls(fake_slurm, "squeue")[0] == ["--noheader", "--jobs", "4711", "--format", "%A|%T|%N"]
    assert {"job/slurm/scontrol-node.txt", "job/slurm/scontrol-step.txt", "job/slurm/sinfo-reasons.txt"} <= set(files)


def test_slurm_lines_are_short(fake_slurm: Path, tmp_path: Path) -> None:
    far = ssh.order(b"x", [], "", 1, columns=slurm.COLUMNS, name_from="SLURMD_NODENAME")
    order = json.loads(far.removeprefix(ssh.far_program()).partition(b"\n")[0])
    assert order["columns"] + len("dg1 a-host-name-of-sixty-characters-and-a-domain.example.org D \n") + 60 < 1024


def test_slurm_when_one_node_spoils_the_step(fake_slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "unlucky dead")
    plan = slurm.plan("4711", support.stand_in('files["a/b.txt"] = b"x"'), [], 20, only=["tern-n01", "tern-n02"])
    manifest, files = collect(plan, tmp_path / "b.tar.gz")
    assert files["tern-n01/a/b.txt"] == b"x"
    states = {h["host"]: h.get("reason") for h in manifest["hosts"]}
    assert states["tern-n01"] is None and "tern-n02 is gone" in str(states["tern-n02"])
    assert len(calls(fake_slurm, "srun")) == 3


@pytest.mark.parametrize(
    "said", ["print('4711|PENDING|')", "sys.exit('slurm_load_jobs error: Invalid job id')", "pass"]
)
def test_slurm_jobs_without_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    fakes(tmp_path, monkeypatch, squeue=said)
    with pytest.raises(NoAnswer, match=r"PENDING|Invalid job id|does not know"):
        slurm.plan("4711", b"", [], 20)
    with pytest.raises(NoAnswer, match="no Slurm job id"):
        slurm.plan("1; rm -rf", b"", [], 20)


# --- Kubernetes ------------------------------------------------------------------------------------------


def pod(name: str, node: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    state = {"running": {}} if phase == "Running" else {"waiting": {"reason": "ImagePullBackOff"}}
    variables = [{"name": "WANDB_API_KEY", "value": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"}]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name, "managedFields": ["x"],
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm"}],
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "sidecar"},
                {"name": "pytorch", "env": variables, "resources": {"limits": {"nvidia.com/gpu": "8"}}},
            ],
        },
        "status": {"phase": phase, "containerStatuses": [{"name": "pytorch", "state": state, **status}]},
    }  # fmt: skip


KUBECTL = """
words = [w for w in argv if not w.startswith("-")]
if "exec" in argv:
    os.execvp("sh", argv[argv.index("--") + 1 :])
elif "get" in argv and "json" in argv and "pods" in argv:
    wanted = argv[argv.index("--selector") + 1] if "--selector" in argv else "training.kubeflow.org/job-name=llm"
    items = json.load(open(here + "/pods.json")) if wanted == "training.kubeflow.org/job-name=llm" else []
    print(json.dumps({"kind": "List", "items": items}))
elif "json" in argv:
    print(json.dumps({"kind": "PyTorchJob", "spec": {"env": [{"name": "HF_TOKEN", "value": "not-a-plain-word-8471"}]}}))
elif "--previous" in argv:
    print("2026-11-24T09:00:00Z last words")
elif "logs" in argv:
    print("2026-11-24T09:00:00Z worker log, token=hf_" + "a1B2" * 9)
else:
    print("said: " + " ".join(words))
"""


@pytest.fixture
def fake_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pods = [
        pod("llm-worker-0", "gpu-a"),
        pod("llm-worker-1", "gpu-b", restartCount=2),
        pod("llm-worker-2", "", "Pending"),
    ]
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    return fakes(tmp_path, monkeypatch, kubectl=KUBECTL)


def test_kubernetes_runs_in_each_pod_of_a_job(fake_kubectl: Path, tmp_path: Path) -> None:
    cluster = kubernetes.Cluster("train", "prod")
    plan = kubernetes.plan("llm", cluster, support.stand_in(RANDOM.format(place=str(tmp_path))), ["--quick"], 20)
    manifest, files = collect(plan, tmp_path / "b.tar.gz")
    assert [(v.state, v.damaged) for v in plan.visits[:2]] == [("arrived", "")] * 2, plan.visits
    for host in ("llm-worker-0", "llm-worker-1"):
        assert hashlib.sha256(files[f"{host}/host/random.bin"]).hexdigest() == (tmp_path / host).read_text()
    hosts = {h["host"]: h for h in manifest["hosts"]}
    assert hosts["llm-worker-1"]["node"] == "gpu-b" and hosts["llm-worker-1"]["container"] == "pytorch"
    assert hosts["llm-worker-2"]["reason"] == "the pod is Pending, its container pytorch: ImagePullBackOff"
    ran = [words for words in calls(fake_kubectl, "kubectl") if "exec" in words]
    assert sorted(words[:9] for words in ran) == [
        ["--context", "prod", "--namespace", "train", "exec", "-i", f"llm-worker-{n}", "-c", "pytorch"] for n in (0, 1)
    ]
    assert b"describe pods" in files["job/kubernetes/describe-pods.txt"]
    assert b"describe nodes gpu-a gpu-b" in files["job/kubernetes/describe-nodes.txt"]
    assert b"last words" in files["llm-worker-1/kubectl/logs-previous.txt"]
    assert "llm-worker-0/kubectl/logs-previous.txt" not in files
    assert next(e["host"] for e in manifest["files"] if e["path"] == "llm-worker-2/kubectl/logs.txt") == "llm-worker-2"
    assert {e["host"] for e in manifest["files"] if e["path"].startswith("job/")} == {None}


def test_kubernetes_keeps_no_credentials(fake_kubectl: Path, tmp_path: Path) -> None:
    plan = kubernetes.plan("llm", kubernetes.Cluster(), support.stand_in('files["a"] = b"x"'), [], 20)
    manifest, files = collect(plan, tmp_path / "b.tar.gz")
    everything = json.dumps(manifest).encode() + b"".join(files.values())
    for secret in (b"0a1b2c3d4e5f6071", b"not-a-plain-word-8471", b"a1B2a1B2"):
        assert secret not in everything
    assert b"WANDB_API_KEY" in files["job/kubernetes/pods.json"]
    assert b"HF_TOKEN" in files["job/kubernetes/pytorchjob-llm.json"]
    assert b"managedFields" not in files["job/kubernetes/pods.json"]


def test_kubernetes_selectors_and_pods(fake_kubectl: Path, tmp_path: Path) -> None:
    cluster = kubernetes.Cluster()
    chosen, pods = kubernetes.find("training.kubeflow.org/job-name=llm", cluster)
    assert chosen == ["--selector", "training.kubeflow.org/job-name=llm"] and len(pods) == 3
    assert kubernetes.find("pod/llm-worker-0,pod/llm-worker-1", cluster)[0] == ["llm-worker-0", "llm-worker-1"]
    for wrong, why in (
        ("absent", "no pods of absent"),
        ("-x", "neither"),
        ("pod/-x", "pods are named"),
        ("a;b", "neither"),
    ):
        with pytest.raises(NoAnswer, match=why):
            kubernetes.find(wrong, cluster)
    tried = [w[w.index("--selector") + 1] for w in calls(fake_kubectl, "kubectl") if "absent" in " ".join(w)]
    assert tried == [f"{label}=absent" for label in kubernetes.JOB_LABELS]


@pytest.mark.parametrize(
    "item", [{}, {"spec": 3}, {"spec": {"containers": [{"name": 4}, 5]}, "status": {"phase": ["x"]}}]
)
def test_pods_that_make_no_sense(item: dict[str, Any]) -> None:
    item = {**item, "metadata": {"name": "p", "ownerReferences": "x", "annotations": []}}
    assert kubernetes.read_pod(item, kubernetes.Cluster()).trouble


def test_what_a_scheduler_does_not_say_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes(tmp_path, monkeypatch, quiet="pass", angry="sys.exit('no permission')", slow="import time; time.sleep(60)")
    bundle = Bundle(tmp_path / "b", {}, bytes)
    for name in ("quiet", "angry", "slow", "not-there-at-all"):
        slurm.local.into(f"job/{name}.txt", [name], limit_s=1)(bundle)
    bundle.close()
    absent = {a["what"]: a["reason"] for a in json.loads((tmp_path / "b" / "manifest.json").read_text())["absent"]}
    assert absent["quiet"] == "it said nothing" and absent["angry"] == "no permission"
    assert absent["slow"] == "no answer within 1 s" and "not installed" in absent["not-there-at-all"]


# --- a real Slurm ----------------------------------------------------------------------------------------

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[4]}
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SlurmdParameters=config_overrides
SlurmdTimeout=6000
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def real_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A job of three of four nodes of a Slurm on loopback; its id."""
    programs = {
        name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("munged", "slurmctld", "slurmd")
    }
    if os.geteuid() != 0 or not all(programs.values()) or not shutil.which("sbatch"):
        pytest.skip("needs root and slurmctld, slurmd, slurm-client, munge")
    folder = tmp_path_factory.mktemp("slurm")
    ports = support._free_ports(5)
    host = os.uname()[1].split(".")[0]
    nodes = "\n".join(
        f"NodeName=tern{n + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[n]} CPUs=2 RealMemory=1000"
        for n in range(4)
    )
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder, ports=ports, nodes=nodes))
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        paths = [
            f"--{what}={folder}/munge.{end}"
            for what, end in (("socket", "socket"), ("key-file", "key"), ("log-file", "log"))
        ]
        more = [f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed"]
        daemons = [[programs["munged"], "--foreground", "--force", *paths, *more], [programs["slurmctld"], "-D", "-c"]]
        daemons += [[programs["slurmd"], "-D", "-N", f"tern{n}"] for n in (1, 2, 3, 4)]
        (folder / "state").mkdir()
        for argv in daemons:
            one = subprocess.Popen(
                [str(w) for w in argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(one.wait, 20)
            stack.callback(one.terminate)
            time.sleep(0.5)
        job = ""
        for _ in range(60):
            done = subprocess.run(
                ["sbatch", "--parsable", "-N3", "-o", "/dev/null", "--wrap", "srun sleep 300"],
                capture_output=True,
                text=True,
            )
            job = done.stdout.strip()
            if job:
                break
            time.sleep(0.5)
        assert job, (folder / "ctld.log").read_text()[-2000:]
        for _ in range(60):
            if (
                "RUNNING"
                in subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True).stdout
            ):
                break
            time.sleep(0.5)
        yield job
        subprocess.run(["scancel", job], check=False)
        time.sleep(1)


def test_a_real_slurm_allocation(real_slurm: str, tmp_path: Path) -> None:
    plan = slurm.plan(real_slurm, support.stand_in(RANDOM.format(place=str(tmp_path))), [], 30)
    manifest, files = collect(plan, tmp_path / "b.tar.gz")
    hosts = [v.name for v in plan.visits]
    assert len(hosts) == 3 and [v.state for v in plan.visits] == ["arrived"] * 3
    for host in hosts:
        assert hashlib.sha256(files[f"{host}/host/random.bin"]).hexdigest() == (tmp_path / host).read_text()
    assert b"JobState=RUNNING" in files["job/slurm/scontrol-job.txt"]
    still = subprocess.run(["squeue", "-h", "-j", real_slurm, "-o", "%T"], capture_output=True, text=True)
    assert still.stdout.strip() == "RUNNING"
    assert not manifest["absent"]


def test_a_real_slurm_allocation_interrupted(real_slurm: str, tmp_path: Path) -> None:
    import threading

    body = f"""
files["a/early.txt"] = b"early"
open({str(tmp_path)!r} + "/started-" + host, "w").close()
time.sleep(60)
"""
    stop = support.engine.Stop()

    def interrupt() -> None:
        deadline = time.monotonic() + 30
        while len(list(tmp_path.glob("started-*"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        stop.ask()

    thread = threading.Thread(target=interrupt)
    thread.start()
    plan = slurm.plan(real_slurm, support.stand_in(body), [], 60)
    path, interrupted = gather.gather(plan, tmp_path / "b.tar.gz", {}, bytes, lambda count: None, stop=stop)
    thread.join()
    files = support.contents(path)[1]
    assert interrupted and [v.partial for v in plan.visits] == [True] * 3
    assert sorted(n for n in files if n.endswith("early.txt")) == sorted(f"{v.name}/a/early.txt" for v in plan.visits)
