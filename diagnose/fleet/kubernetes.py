"""Kubernetes: `kubectl exec` into each pod of a job, and what the cluster says of its pods and their nodes.

A job is named by a label selector, by its name (PyTorchJob and others: their operators label the pods with it), or by
its pods. A pod is a host here: that is the name which NCCL prints in a pod.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.fleet import local, names, ssh
from diagnose.fleet.bundle import Bundle, utc
from diagnose.fleet.engine import Link
from diagnose.fleet.gather import Plan
from diagnose.fleet.visit import Visit, printable

JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
    "job-name",
    "volcano.sh/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "pytorch-job-name",
    "app.kubernetes.io/instance",
)
"""Labels in which operators write the name of the job on its pods, in the order tried."""
LOG_LINES = 30_000
LOG_BYTES = 16 << 20
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_SELECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./!=,() -]{0,500}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster and namespace kubectl asks; empty means its own defaults."""

    namespace: str = ""
    context: str = ""
    container: str = ""

    def kubectl(self, *words: str) -> list[str]:
        """A kubectl command line."""
        given = (("--context", self.context), ("--namespace", self.namespace))
        return ["kubectl", *(word for option, value in given if value for word in (option, value)), *words]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as far as it matters here. `trouble` says why nothing can run in it, empty when it can."""

    name: str
    node: str
    container: str
    trouble: str
    restarts: int
    owner: tuple[str, str]


def plan(
    job: str, cluster: Cluster, program: bytes, arguments: Sequence[str], limit_s: float, python: str = "",
    only: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """Links and tasks for the pods of a job. NoAnswer when there are none."""
    chosen, raw = find(job, cluster)
    pods = [pod for pod in (read_pod(item, cluster) for item in raw) if not only or pod.name in only]
    if not pods:
        raise local.NoAnswer(f"none of the hosts named is a pod of {job}")
    folders = names.folders(pod.name for pod in pods)
    visits: list[Visit] = []
    links: list[Link] = []
    tasks = _describe(chosen, pods, cluster)
    tasks.append(
        _store("job/kubernetes/pods.json", " ".join(cluster.kubectl("get", "pods", *chosen, "-o", "json")), raw)
    )
    for pod in pods:
        visit = Visit(pod.name, folders[pod.name], {"pod": pod.name, "node": pod.node, "container": pod.container})
        visits.append(visit)
        tasks += _logs(pod, visit, cluster)
        if pod.trouble:
            visit.finish(pod.trouble)
            continue
        far_limit = limit_s + ssh.CLOSE_S
        argv = cluster.kubectl("exec", "-i", pod.name, "-c", pod.container, "--", "sh", "-c", ssh.far_script(python))
        stdin = ssh.order(program, [*arguments, "--host", visit.folder], visit.folder, far_limit)
        links.append(Link((visit,), stdin, far_limit + ssh.SPARE_S, argv))
    return Plan(visits, links, tasks)


def find(job: str, cluster: Cluster) -> tuple[list[str], list[dict[str, Any]]]:
    """The words of kubectl that choose the pods of a job, and the pods. NoAnswer."""
    if job.startswith("pod/"):
        chosen = [word.removeprefix("pod/") for word in job.split(",")]
        if not all(_NAME.fullmatch(word) for word in chosen):
            raise local.NoAnswer(f"{job!r:.80}: pods are named as pod/NAME,pod/NAME")
        return chosen, _pods(cluster, chosen)
    if not _SELECTOR.fullmatch(job):
        raise local.NoAnswer(f"{job!r:.80} is neither the name of a job nor a label selector")
    if any(c in job for c in "=!( "):
        selectors = [job]
    else:
        selectors = [f"{label}={job}" for label in JOB_LABELS]
    for selector in selectors:
        chosen = ["--selector", selector]
        pods = _pods(cluster, chosen)
        if pods:
            return chosen, pods
    where = f"namespace {cluster.namespace}" if cluster.namespace else "the namespace of kubectl"
    raise local.NoAnswer(f"no pods of {job} in {where}; --namespace names another, a selector such as app={job} too")


def _pods(cluster: Cluster, chosen: Sequence[str]) -> list[dict[str, Any]]:
    said = local.must(cluster.kubectl("get", "pods", *chosen, "-o", "json"))
    try:
        found = json.loads(said)
    except ValueError as error:
        raise local.NoAnswer(f"kubectl get pods: no JSON ({error})") from error
    items = found.get("items", [found] if found.get("kind") == "Pod" else []) if isinstance(found, dict) else []
    return [item for item in items if _NAME.fullmatch(str(_at(item, "metadata", "name") or ""))]


def read_pod(item: dict[str, Any], cluster: Cluster) -> Pod:
    """What matters of a pod; the container is the one named, the pod's default, or the one with GPUs."""
    containers = [c for c in _list(item, "spec", "containers") if isinstance(c.get("name"), str)]
    default = _at(item, "metadata", "annotations", "kubectl.kubernetes.io/default-container")
    gpus = [c["name"] for c in containers if any("gpu" in str(k) for k in _at(c, "resources", "limits") or ())]
    wanted = cluster.container or default or (gpus or [c["name"] for c in containers] or [""])[0]
    status = next((s for s in _list(item, "status", "containerStatuses") if s.get("name") == wanted), {})
    phase = str(_at(item, "status", "phase") or "unknown")
    trouble = ""
    if wanted not in [c["name"] for c in containers]:
        trouble = f"the pod has no container {wanted}"
    elif phase != "Running" or not isinstance(_at(status, "state", "running"), dict):
        waiting = _at(status, "state", "waiting", "reason") or _at(status, "state", "terminated", "reason")
        trouble = f"the pod is {phase}" + (f", its container {wanted}: {waiting}" if waiting else "")
    owner = next(iter(_list(item, "metadata", "ownerReferences")), {})
    kind = f"{owner.get('kind', '')}.{str(owner.get('apiVersion', '')).rpartition('/')[0]}".rstrip(".")
    restarts = status.get("restartCount")
    return Pod(
        str(item["metadata"]["name"]), printable(_at(item, "spec", "nodeName")), str(wanted), printable(trouble),
        restarts if isinstance(restarts, int) else 0, (kind, str(owner.get("name", ""))),
    )  # fmt: skip


def _describe(chosen: Sequence[str], pods: Sequence[Pod], cluster: Cluster) -> list[Callable[[Bundle], None]]:
    """Pods and nodes described, events, and the object that owns the pods."""
    top = "job/kubernetes/"
    nodes = sorted({pod.node for pod in pods if _NAME.fullmatch(pod.node)})
    tasks = [
        local.into(top + "pods.txt", cluster.kubectl("get", "pods", *chosen, "-o", "wide")),
        local.into(top + "describe-pods.txt", cluster.kubectl("describe", "pods", *chosen), limit_s=60),
        local.into(top + "events.txt", cluster.kubectl("get", "events", "--sort-by=.lastTimestamp")),
    ]
    if nodes:
        tasks.append(local.into(top + "describe-nodes.txt", cluster.kubectl("describe", "nodes", *nodes), limit_s=60))
    for kind, name in sorted({pod.owner for pod in pods})[:4]:
        if re.fullmatch(r"[A-Za-z]+(?:\.[a-z0-9.-]+)?", kind) and _NAME.fullmatch(name):
            tasks.append(_owner(top + f"{kind.partition('.')[0].lower()}-{name}.json", kind, name, cluster))
    return tasks


def _owner(path: str, kind: str, name: str, cluster: Cluster) -> Callable[[Bundle], None]:
    argv = cluster.kubectl("get", kind, name, "-o", "json")

    def task(bundle: Bundle) -> None:
        try:
            _store(path, " ".join(argv), json.loads(local.must(argv)))(bundle)
        except (local.NoAnswer, ValueError) as reason:
            bundle.miss(" ".join(argv), str(reason))

    return task


def _store(path: str, command: str, raw: Any) -> Callable[[Bundle], None]:
    def task(bundle: Bundle) -> None:
        data = json.dumps(plain(raw), indent=1).encode("ascii")
        bundle.put(path, data, command=command, start=utc(bundle.began), exit_code=0)

    return task


def plain(raw: Any) -> Any:
    """An object without the copies that its managers keep in it, and with variables as `NAME=value`, which is the form
    that credentials are found in."""
    if isinstance(raw, list):
        return [plain(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    if set(raw) == {"name", "value"}:
        return f"{raw['name']}={raw['value']}"
    hidden = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
    return {key: plain(value) for key, value in raw.items() if key not in hidden}


def _logs(pod: Pod, visit: Visit, cluster: Cluster) -> list[Callable[[Bundle], None]]:
    """The end of the pod's log, and of the log before its last restart."""
    bounds = (f"--tail={LOG_LINES}", f"--limit-bytes={LOG_BYTES}", "--timestamps")
    argv = cluster.kubectl("logs", pod.name, "-c", pod.container, *bounds)
    made = [local.into(f"{visit.folder}/kubectl/logs.txt", argv, pod.name, 30)]
    if pod.restarts:
        made.append(local.into(f"{visit.folder}/kubectl/logs-previous.txt", [*argv, "--previous"], pod.name, 30))
    return made


def _at(item: Any, *keys: str) -> Any:
    for key in keys:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def _list(item: Any, *keys: str) -> list[dict[str, Any]]:
    found = _at(item, *keys)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
