"""RAS status of a stopped job, as text and JSON (NCCL 2.28 to 2.30)."""

from __future__ import annotations

import time
from collections import Counter

from .dumps import Clock
from .faults import Run
from .layout import ProcessGroup

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AlltoAll")
NAMES = {"all_reduce": "AllReduce", "barrier": "AllReduce", "_all_gather_base": "AllGather",
         "_reduce_scatter_base": "ReduceScatter", "broadcast": "Broadcast", "all_to_all": "AlltoAll"}  # fmt: skip


def counts(run: Run) -> dict[str, dict[int, Counter[str]]]:
    """Group -> rank -> operations launched."""
    found: dict[str, dict[int, Counter[str]]] = {
        g.name: {r: Counter() for r in g.ranks} for g in run.layout.groups if len(g.ranks) > 1
    }  # fmt: skip
    for rank, calls in enumerate(run.outcome.calls):
        for call in calls:
            if call.key and not call.op.transfer:
                found[call.group][rank][NAMES[call.op.name]] += 1
    return found


def as_json(run: Run, clock: Clock, later_s: float, *, comma: bool = True) -> list[str]:
    """`ncclras -f json`; without `comma` as NCCL 2.28.9 wrote missing ranks."""
    table = counts(run)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(clock.base + 300 + later_s))
    groups = [g for g in run.layout.groups if len(g.ranks) > 1]
    out = ["{", '  "nccl_version": "2.28.9",', '  "cuda_runtime_version": 12090,', '  "cuda_driver_version": 13000,',
           f'  "timestamp": "{stamp}",', f'  "communicators_count": {len(groups)},', '  "communicators": [']  # fmt: skip
    for n, group in enumerate(groups):
        alive = [i for i, r in enumerate(group.ranks) if r not in run.truth.crashed]
        gone = [i for i, r in enumerate(group.ranks) if r in run.truth.crashed]
        out += [
            "    {", f'      "hash": "0x{_hash(run, group):x}",', '      "secondary_hash": "0x1f:0x2f",',
            f'      "size": {len(group.ranks)},', f'      "ranks_count": {len(alive)},',
            f'      "missing_ranks_count": {len(gone)},', '      "ranks": [',
        ]  # fmt: skip
        out += _joined([_rank(run, group, i, table[group.name][group.ranks[i]]) for i in alive])
        out += ["      ],", '      "missing_ranks": [']
        out += _joined([_missing(run, group, i, comma) for i in gone])
        out += ["      ]", "    }" + ("," if n + 1 < len(groups) else "")]
    return [*out, "  ],", '  "ras": {', '    "collection_time_sec": 0.003,', '    "timeouts_count": 0', "  }", "}"]


def _joined(objects: list[list[str]]) -> list[str]:
    lines: list[str] = []
    for n, found in enumerate(objects):
        lines += found if n + 1 == len(objects) else [*found[:-1], found[-1] + ","]
    return lines


def _identity(run: Run, group: ProcessGroup, place: int) -> list[str]:
    rank = group.ranks[place]
    local = rank % run.layout.per_host
    return [f'          "rank": {place},', f'          "host": "{run.layout.host(rank)}",', f'          "pid": {4000 + rank},',
            f'          "cuda_dev": {local},', f'          "nvml_dev": {local},']  # fmt: skip


def _rank(run: Run, group: ProcessGroup, place: int, launched: Counter[str]) -> list[str]:
    numbers = [f'            "{f}": {launched[f]}' + ("," if f != FUNCTIONS[-1] else "") for f in FUNCTIONS]
    return [
        "        {", *_identity(run, group, place), '          "status": {', '            "init_state": 0,',
        '            "async_error": 0,', '            "finalize_called": false,', '            "destroy_flag": false,',
        '            "abort_flag": false', "          },", '          "collective_counts": {', *numbers, "          }", "        }",
    ]  # fmt: skip


def _missing(run: Run, group: ProcessGroup, place: int, comma: bool) -> list[str]:
    identity = _identity(run, group, place)
    if not comma:
        identity[-1] = identity[-1].rstrip(",")
    return ["        {", *identity, '          "status": {', '            "unresponsive": true,',
            '            "considered_dead": true', "          }", "        }"]  # fmt: skip


def _hash(run: Run, group: ProcessGroup) -> int:
    return (0x9E3779B97F4A7C15 * (int(group.name) + 1) ^ run.layout.world << 17) & (1 << 63) - 1


def as_text(run: Run) -> list[str]:
    """`ncclras -v`."""
    table = counts(run)
    layout = run.layout
    groups = [g for g in layout.groups if len(g.ranks) > 1]
    out = [
        "NCCL version 2.26.2 compiled with CUDA 12.6", "CUDA runtime version 12060, driver version 12060", "", "Job summary",
        "===========", "", "  Nodes  Processes         GPUs  Processes     GPUs", "(total)   per node  per process    (total)  (total)",
        f"{len(layout.hosts):7d}  {layout.per_host:9d}  {1:11d}  {layout.world:9d}  {layout.world:7d}", "",
        "Communicators... (0.00s)", "=============", "", "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]  # fmt: skip
    warnings: list[str] = []
    dead: list[str] = []
    for n, group in enumerate(groups):
        alive = [r for r in group.ranks if r not in run.truth.crashed]
        lines = _mismatches(run, group, alive, table[group.name])
        errors = ",".join(
            w for w, there in (("INCOMPLETE", len(alive) < len(group.ranks)), ("MISMATCH", lines)) if there
        )
        nodes = len({layout.host(r) for r in group.ranks})
        out.append(
            f"{n:5d}  {1:8d}  {nodes:8d}  {len(group.ranks) // nodes:8d}  {len(group.ranks):8d}  {len(group.ranks):8d}"
            f"  {'RUNNING':>8s}  {errors or 'OK':>6s}"
        )
        if lines:
            warnings += [f"#{n}-0 ({_hash(run, group):016x}) MISMATCH", *lines, ""]
    if run.truth.crashed:
        several = "es are" if len(run.truth.crashed) > 1 else " is"
        dead = [
            "DEAD",
            f"  {len(run.truth.crashed)} job process{several} considered dead (unreachable via the RAS network)",
        ]
        dead += [
            f"  Process {4000 + r} on node {layout.host(r)} managing GPU {r % layout.per_host}" for r in sorted(run.truth.crashed)
        ]  # fmt: skip
    return [*out, "", "Errors", "======", "", *dead, "", "Warnings", "========", "", *warnings]


def _mismatches(run: Run, group: ProcessGroup, alive: list[int], table: dict[int, Counter[str]]) -> list[str]:
    lines: list[str] = []
    for function in FUNCTIONS:
        by_count: dict[int, list[int]] = {}
        for rank in alive:
            by_count.setdefault(table[rank][function], []).append(rank)
        if len(by_count) < 2:
            continue
        lines.append(f"  Communicator ranks have different {function} operation counts")
        ordered = sorted(by_count.items(), key=lambda item: -len(item[1]))
        for n, (count, ranks) in enumerate(ordered):
            many = f"  {len(ranks)} ranks have launched up to operation {count}"
            if len(ranks) > 1:
                lines.append(many)
            listed = n > 0 and len(ranks) * 2 < len(alive)
            for rank in ranks if listed or len(ranks) == 1 else ():
                place = group.ranks.index(rank)
                where = (
                    f"GPU {rank % run.layout.per_host} managed by process {4000 + rank} on node {run.layout.host(rank)}"
                )
                told = "" if len(ranks) > 1 else f" has launched up to operation {count}"
                lines.append(f"  Rank {place}{told} -- {where}")
    return lines
