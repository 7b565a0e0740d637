"""Slurm: one `srun` into the job's allocation, one task a node beside the job's own steps.

srun passes the output of all tasks on as one stream. In its default, line-buffered mode it keeps lines whole up to 1024
bytes (measured with Slurm 22.05: lines of 994 bytes from three nodes arrived whole, of 1114 four in five were torn;
with `--unbuffered` any length is torn), so lines are short here and carry the node's name. The far end's name is the
one that Slurm addressed it with (SLURMD_NODENAME).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from diagnose.fleet import local, names, ssh
from diagnose.fleet.bundle import Bundle
from diagnose.fleet.engine import Link
from diagnose.fleet.gather import Plan
from diagnose.fleet.visit import Visit

COLUMNS = 860
LAUNCH_S = 60.0
"""What srun may take to start tasks on all nodes."""
SRUN = (
    "srun", "--overlap", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--mpi=none", "--cpu-bind=none",
    "--kill-on-bad-exit=0", "--wait=0", "--input=all", "--export=PATH", "--job-name=diagnose",
)  # fmt: skip
_JOB = re.compile(r"[1-9]\d{0,9}(?:[_+]\d{1,6})?", re.ASCII)
RUNS = ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "STAGE_OUT", "SIGNALING")
"""States in which a job has nodes that a step can be started on."""


def check_job(job: str) -> str:
    """A job id such as 4711, 4711_3 (array) or 4711+1 (heterogeneous). NoAnswer for anything else."""
    if not _JOB.fullmatch(job):
        raise local.NoAnswer(f"{job!r:.40} is no Slurm job id")
    return job


def components(job: str) -> list[tuple[str, list[str]]]:
    """(raw job id, nodes) for each running component of a job. NoAnswer when it does not run."""
    said = local.must(["squeue", "--noheader", "--jobs", check_job(job), "--format", "%A|%T|%N"])
    found, states = [], []
    for line in said.splitlines():
        raw, state, nodes = [*line.strip().split("|"), "", ""][:3]
        states.append(state)
        if state in RUNS and nodes and raw.isdigit():
            found.append((raw, names.expand([nodes])))
    if not found:
        raise local.NoAnswer(
            f"job {job} has no nodes: " + (f"it is {states[0]}" if states else "squeue does not know it")
        )
    return found


def plan(
    job: str, program: bytes, arguments: Sequence[str], limit_s: float, python: str = "", only: Sequence[str] = ()
) -> Plan:
    """Links and tasks for a running job; `only` limits it to some of its nodes. NoAnswer."""
    parts = components(job)
    nodes = [node for _, part in parts for node in part if not only or node in only]
    if not nodes:
        raise local.NoAnswer(f"none of the hosts named is in job {job}")
    folders = names.folders(nodes)
    visits = {node: Visit(node, folders[node], {"slurm_job": job}) for node in nodes}
    dead = _dead(nodes)
    for node, state in dead.items():
        visits[node].finish(f"Slurm says that it is {state}")
    links: list[Link] = []
    for raw, part in parts:
        there = [visits[n] for n in part if n in visits and n not in dead]
        if there:
            links.append(_link(raw, there, program, arguments, limit_s, python))
    listed = ",".join(nodes)
    tasks: list[Callable[[Bundle], None]] = [
        local.into("job/slurm/scontrol-job.txt", ["scontrol", "show", "job", "-d", job]),
        local.into("job/slurm/scontrol-step.txt", ["scontrol", "show", "step", parts[0][0]]),
        local.into("job/slurm/scontrol-node.txt", ["scontrol", "show", "node", listed]),
        local.into("job/slurm/squeue-steps.txt", ["squeue", "--steps", "--jobs", parts[0][0]]),
        local.into("job/slurm/sinfo-reasons.txt", ["sinfo", "--list-reasons", "--long", "--nodes", listed]),
    ]
    return Plan(list(visits.values()), links, tasks)


def _link(
    job: str, visits: Sequence[Visit], program: bytes, arguments: Sequence[str], limit_s: float, python: str
) -> Link:
    far_limit = limit_s + ssh.CLOSE_S
    there = ",".join(v.name for v in visits)
    count = str(len(visits))
    argv = [*SRUN, "--jobid", job, "--nodes", count, "--ntasks", count, "--nodelist", there]
    argv += ["sh", "-c", ssh.far_script(python)]
    stdin = ssh.order(
        program, arguments, "", far_limit, columns=COLUMNS, name_from="SLURMD_NODENAME", host_by_name=True
    )

    def one_by_one(unreached: list[Visit]) -> list[Link]:
        """When a node cannot start its task, srun ends them all: then each node gets its own step."""
        if len(visits) == 1:
            return []
        return [_link(job, [visit], program, arguments, limit_s, python) for visit in unreached]

    return Link(
        tuple(visits), stdin, LAUNCH_S + far_limit + ssh.SPARE_S, argv, by_name={v.name: v for v in visits},
        fallback=one_by_one, env=environment(),
    )  # fmt: skip


def environment() -> dict[str, str]:
    """This environment without what the shell of another job has set for srun."""
    return {k: v for k, v in os.environ.items() if k == "SLURM_CONF" or not k.startswith(("SLURM", "SRUN_", "SBATCH_"))}


def _dead(nodes: Sequence[str]) -> dict[str, str]:
    """Nodes that do not answer Slurm: srun would wait for them. Empty when sinfo does not tell."""
    try:
        said = local.must(["sinfo", "--noheader", "--Node", "--nodes", ",".join(nodes), "--format", "%N|%T"])
    except local.NoAnswer:
        return {}
    found: dict[str, str] = {}
    for line in said.splitlines():
        node, _, state = line.strip().partition("|")
        if node in nodes and (state.endswith("*") or state.lower().startswith(("down", "fail", "power", "unknown"))):
            found[node] = state.rstrip("*").lower() + (", not responding" if state.endswith("*") else "")
    return found
