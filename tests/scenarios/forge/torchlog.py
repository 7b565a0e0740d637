"""Training output of PyTorch 2.7 under torchrun, and of Slurm around it (formats: c10d, torch.distributed.elastic, slurm)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from .cluster import Cluster, Host

TIMEOUT_MS = 600000


def glog(level: str, at: float, where: str, nanos: int = 0) -> str:
    """Header of a c10d line: `[E512 03:14:07.201387756 ProcessGroupNCCL.cpp:632]`."""
    t = datetime.fromtimestamp(at, UTC)
    return f"[{level}{t.month}{t.day:02d} {t:%H:%M:%S}.{nanos or 201387756:09d} {where}]"


@dataclass
class Collective:
    """A collective that ranks wait in."""

    seq: int
    op: str = "ALLREDUCE"
    numel_in: int = 134217728
    numel_out: int = 134217728
    group: str = "0(default_pg)"
    pg: int = 0


def header(at: float, cluster: Cluster, host: Host) -> list[str]:
    """What torchrun and the script print first, the usual harmless warnings included."""
    t = datetime.fromtimestamp(at, UTC)
    mark = f"W{t:%m%d %H:%M:%S}.118000 {host.pids[0] - 40} site-packages/torch/distributed/run.py:793]"
    first = host.ranks.start
    return [
        f"{mark} ",
        f"{mark} *****************************************",
        f"{mark} Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being"
        " overloaded, please further tune the variable for optimal performance in your application as needed. ",
        f"{mark} *****************************************",
        f"[rank{first}]:{glog('W', at + 41, 'ProcessGroupNCCL.cpp:5023')} [PG ID 0 PG GUID 0 Rank {first}]  using GPU 0 as"
        " device used by this process is currently unknown. This can potentially cause a hang if this rank to GPU mapping"
        " is incorrect. You can specify device_id in init_process_group() to force use of a particular device.",
        f"> initializing torch distributed with {cluster.world} ranks, timeout 0:10:00 (a hang or error is reported after that)",
    ]


def steps(at: float, rng: Random, count: int, first: int, seconds: float = 4.3, batch: int = 512) -> list[str]:
    """Progress lines as Megatron-LM prints them."""
    lines: list[str] = []
    for n in range(count):
        t = datetime.fromtimestamp(at + n * seconds * 10, UTC)
        ms = seconds * 1000 * rng.uniform(0.99, 1.01)
        lines.append(
            f"[{t:%Y-%m-%d %H:%M:%S}] iteration {first + 10 * n:8d}/   60000 | elapsed time per iteration (ms): {ms:.1f} |"
            f" learning rate: 1.200E-04 | global batch size: {batch:5d} | lm loss: {2.4 - 0.001 * n + rng.uniform(-0.01, 0.01):.6E} |"
            f" grad norm: {rng.uniform(0.18, 0.33):.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    return lines


def timed_out(
    at: float, rank: int, work: Collective, *, enqueued: int | None = None, completed: int | None = None,
    group_rank: int | None = None,
) -> list[str]:  # fmt: skip
    """What the watchdog of a waiting rank prints, from the time-out to the end of the process."""
    ran = TIMEOUT_MS + 7 * (rank % 13) + 3
    own = group_rank if group_rank is not None else rank
    pg = f"[PG ID {work.pg} PG GUID {work.group} Rank {own}]"
    said = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={work.seq}, OpType={work.op},"
        f" NumelIn={work.numel_in}, NumelOut={work.numel_out}, Timeout(ms)={TIMEOUT_MS}) ran for {ran} milliseconds before timing out."
    )
    mark = f"[rank{rank}]:"
    enqueued = work.seq if enqueued is None else enqueued
    completed = work.seq - 1 if completed is None else completed
    return [
        f"{mark}{glog('E', at, 'ProcessGroupNCCL.cpp:632', 200000000 + 7919 * rank)} {said}",
        f"{mark}{glog('E', at, 'ProcessGroupNCCL.cpp:2268', 200900000 + 7919 * rank)} {pg}  failure detected by watchdog at work"
        f" sequence id: {work.seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}",
        f"{mark}{glog('E', at, 'ProcessGroupNCCL.cpp:670', 201100000 + 7919 * rank)} Stack trace of the failed collective not"
        " found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to"
        " a non-zero value.",
        f"{mark}{glog('E', at + 1, 'ProcessGroupNCCL.cpp:684', 100000000 + 7919 * rank)} [Rank {rank}] Some NCCL operations have"
        " failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on"
        " corrupted/incomplete data.",
        f"{mark}{glog('E', at + 1, 'ProcessGroupNCCL.cpp:698', 100200000 + 7919 * rank)} [Rank {rank}] To avoid data inconsistency,"
        " we are taking the entire process down.",
        f"{mark}{glog('E', at + 1, 'ProcessGroupNCCL.cpp:1896', 100400000 + 7919 * rank)} {pg} Process group watchdog thread"
        f" terminated with exception: {said}",
    ]


def behind(at: float, rank: int, seq: int, dumped_by: int, group: str = "0(default_pg)") -> list[str]:
    """What a rank prints that waits for nothing when another rank's watchdog asks everybody to dump."""
    return [
        f"[rank{rank}]:{glog('E', at, 'ProcessGroupNCCL.cpp:1745', 900112233)} [PG ID 0 PG GUID {group} Rank {rank}] Received a dump"
        f" signal due to a collective timeout from  rank {dumped_by} and we will try our best to dump the debug info. Last"
        f" enqueued NCCL work: {seq}, last completed NCCL work: {seq}.This is most likely caused by incorrect usages of"
        " collectives, e.g., wrong sizes used across ranks, the order of collectives is not same for all ranks or the"
        " scheduled collective, for some reason, didn't run. Additionally, this can be caused by GIL deadlock or other"
        " reasons such as network errors or bugs in the communications library (e.g. NCCL), etc. ",
    ]


def elastic_end(
    at: float, host: Host, first: int, exit_code: int, others: Iterable[int] = (), *, note: str | None = None,
    script: str = "pretrain.py", closing: bool = True,
) -> list[str]:  # fmt: skip
    """The end of a torchrun agent whose rank `first` failed first; `others` fail with it."""
    t = datetime.fromtimestamp(at, UTC)
    agent = host.pids[0] - 40
    local = first - host.ranks.start
    pid = host.pids[local]
    api = f"{agent} site-packages/torch/distributed/elastic/multiprocessing/api.py"
    lines: list[str] = []
    if closing:
        lines += [
            f"W{t:%m%d %H:%M:%S}.002000 {api}:900] Sending process {host.pids[r - host.ranks.start]} closing signal SIGTERM"
            for r in host.ranks if r != first
        ]  # fmt: skip
    names = {-9: "SIGKILL", -6: "SIGABRT", -11: "SIGSEGV", -15: "SIGTERM"}

    def block(number: int, rank: int, code: int) -> list[str]:
        p = host.pids[rank - host.ranks.start]
        last = (
            f"Signal {-code} ({names[code]}) received by PID {p}"
            if code < 0
            else (note or "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
        )
        return [
            f"[{number}]:",
            f"  time      : {t:%Y-%m-%d_%H:%M:%S}",
            f"  host      : {host.name}",
            f"  rank      : {rank} (local_rank: {rank - host.ranks.start})",
            f"  exitcode  : {code} (pid: {p})",
            "  error_file: <N/A>",
            f"  traceback : {last}",
        ]  # fmt: skip

    lines += [
        f"E{t:%m%d %H:%M:%S}.004000 {api}:882] failed (exitcode: {exit_code}) local_rank: {local} (pid: {pid}) of binary: /opt/venv/bin/python3",
        "Traceback (most recent call last):",
        '  File "/opt/venv/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "             ^^^^^^",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 270, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        f"{script} FAILED",
        "-" * 60,
        "Failures:",
    ]
    failed = list(others)
    lines += [line for n, rank in enumerate(failed, 1) for line in block(n, rank, exit_code)] or [
        "  <NO_OTHER_FAILURES>"
    ]
    return [*lines, "-" * 60, "Root Cause (first observed failure):", *block(0, first, exit_code), "=" * 60]


def slurm_end(job: int, codes: Mapping[str, tuple[int, int]]) -> list[str]:
    """srun's last words: host -> (task, exit code)."""
    return [
        f"srun: error: {host}: task {task}: Exited with exit code {code}" for host, (task, code) in codes.items()
    ] + [f"srun: Terminating StepId={job}.0"]


def traceback_of(rank: int, error: str, frames: Iterable[tuple[str, int, str, str]]) -> list[str]:
    """A Python traceback of a rank: frames of (file, line, function, source line), then the error."""
    lines = [f"[rank{rank}]: Traceback (most recent call last):"]
    for file, line, function, source in frames:
        lines += [f'[rank{rank}]:   File "{file}", line {line}, in {function}', f"[rank{rank}]:     {source}"]
    return [*lines, *(f"[rank{rank}]: {part}" for part in error.splitlines())]


def stack(pid: int, frames: Iterable[str], *, active: bool = False) -> list[str]:
    """`py-spy dump`: frames innermost first, such as `get (queue.py:180)`."""
    return [
        f"Process {pid}: /opt/venv/bin/python3 -u pretrain.py --config base.yaml",
        "Python v3.11.9 (/usr/bin/python3.11)",
        "",
        f'Thread {pid} ({"active" if active else "idle"}): "MainThread"',
        *(f"    {frame}" for frame in frames),
        f'Thread {pid + 61} (idle): "pt_autograd_0"',
        "    wait (threading.py:331)",
        "    run (threading.py:982)",
    ]


IN_LOADER = ("wait (threading.py:331)", "get (queue.py:180)", "_try_get_data (torch/utils/data/dataloader.py:1132)",
             "_get_data (torch/utils/data/dataloader.py:1295)", "_next_data (torch/utils/data/dataloader.py:1329)",
             "__next__ (torch/utils/data/dataloader.py:630)", "next_batch (pretrain.py:118)", "train (pretrain.py:204)",
             "<module> (pretrain.py:311)")  # fmt: skip
IN_COLLECTIVE = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "wrapper (torch/distributed/c10d_logger.py:81)",
                 "reduce_gradients (pretrain.py:160)", "train (pretrain.py:221)", "<module> (pretrain.py:311)")  # fmt: skip
