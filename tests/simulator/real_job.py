"""Real PyTorch jobs on CPUs (Gloo, four ranks), each with a fault; they write their dumps and logs.

    python tests/simulator/real_job.py FOLDER FAULT...      # with torch 2.13; a folder per fault, side by side

Needs torch and nothing else. `test_real_job.py` runs it; `fixtures/dumps` came from an earlier run of it. All ranks of
all jobs are forks of one process, so torch is loaded once; each job has a store of its own on a port that the kernel
chose.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]

FAULTS = ("sleep", "exit", "mismatch", "skip", "barrier", "detail-mismatch", "detail-missing")
WORLD, STEPS, AT = 4, 8, 6
TIMEOUT_S, SETTLED_S, LIMIT_S = 12, 2, 60


def dump(rank: int, folder: Path) -> None:
    """Both forms of the dump, when all ranks have come to the faulty step and had time to get stuck.

    Without stack traces: their symbols cost each process seconds, after which a dump would no longer be of the stall.
    """
    while len(list(folder.glob(".at*"))) < WORLD:
        time.sleep(0.05)
    time.sleep(SETTLED_S)
    (folder / f"trace_rank_{rank}").write_bytes(torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False))
    text = torch._C._distributed_c10d._dump_fr_trace_json()
    (folder / f"trace_rank_{rank}.json").write_bytes(text if isinstance(text, bytes) else text.encode())


def step(number: int, rank: int, fault: str, pair: dist.ProcessGroup) -> None:
    """One step of the training loop; at step AT the fault. `detail-…`: PyTorch checks every call beforehand."""
    if number == AT and fault == "sleep" and rank == 2:
        time.sleep(TIMEOUT_S + 3)
    if number == AT and fault == "exit" and rank == 2:
        time.sleep(0.5)
        os._exit(3)
    if number == AT and fault in ("mismatch", "detail-missing") and rank == 1:
        dist.broadcast(torch.ones(8), 0)
    if number == AT and fault == "barrier" and rank == 0:
        dist.barrier()
    dist.all_reduce(torch.ones(64), group=pair)
    if number == AT and fault == "skip" and rank == 3:
        return
    if number == AT and fault == "detail-mismatch" and rank == 1:
        dist.broadcast(torch.ones(8), 0)
    dist.all_reduce(torch.ones(1000 + number % 3))
    print(f"step {number} loss {3.0 - number * 0.1:.3f}", flush=True)


def work(rank: int, fault: str, folder: Path, port: int) -> None:
    """One rank, from its start to its end."""
    log = (folder / f"rank{rank}.log").open("w", buffering=1)
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_RANK=str(rank),
        TORCHELASTIC_USE_AGENT_STORE="True", GLOO_SOCKET_IFNAME="lo", TORCH_FR_BUFFER_SIZE="2000",
    )  # fmt: skip
    if fault.startswith("detail"):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    pairs = [dist.new_group([0, 1], group_desc="tensor_parallel"), dist.new_group([2, 3], group_desc="tensor_parallel")]
    writer = threading.Thread(target=dump, args=(rank, folder))
    writer.start()
    try:
        for number in range(STEPS):
            if number == AT:
                (folder / f".at{rank}").touch()
            step(number, rank, fault, pairs[rank // 2])
    except Exception:
        for line in traceback.format_exc().splitlines():
            print(f"[rank{rank}]: {line}", file=sys.stderr, flush=True)
    writer.join()
    time.sleep(1)
    os._exit(1)


def forked(rank: int, fault: str, folder: Path) -> tuple[int, int]:
    """A process for a rank; its id, and the pipe on which it waits for the port of its job's store."""
    here, there = os.pipe()
    pid = os.fork()
    if pid:
        os.close(here)
        return pid, there
    os.close(there)
    signal.alarm(LIMIT_S)
    work(rank, fault, folder, int(os.read(here, 16)))
    os._exit(1)


def main() -> None:
    """All jobs at once. Stores have threads, so they start when all ranks have been forked."""
    top, faults = Path(sys.argv[1]), sys.argv[2:] or list(FAULTS)
    ranks: dict[str, list[tuple[int, int]]] = {}
    for fault in faults:
        (top / fault).mkdir(parents=True, exist_ok=True)
        ranks[fault] = [forked(rank, fault, top / fault) for rank in range(WORLD)]
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in faults]
    for fault, store in zip(faults, stores, strict=True):
        for _, pipe in ranks[fault]:
            os.write(pipe, str(store.port).encode())
    for pid, _ in (rank for job in ranks.values() for rank in job):
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
