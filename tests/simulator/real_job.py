"""A real PyTorch job on CPUs (Gloo, four ranks) with a fault; writes its dumps and logs. `fixtures/dumps` came from it.

    python tests/simulator/real_job.py FAULT FOLDER PORT      # with torch 2.13: sleep, exit, mismatch, skip or barrier

Needs torch and nothing else, and is not part of the test run. In the stored files the paths of the environment and of
this script are replaced.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
import traceback
from pathlib import Path

WORLD, STEPS, AT = 4, 8, 6


def dump(rank: int, folder: Path, stuck: threading.Event) -> None:
    """Both forms of the dump, some seconds after the job got stuck."""
    import torch  # type: ignore[import-not-found]

    stuck.wait()
    time.sleep(5)
    (folder / f"trace_rank_{rank}").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
    text = torch._C._distributed_c10d._dump_fr_trace_json()
    (folder / f"trace_rank_{rank}.json").write_bytes(text if isinstance(text, bytes) else text.encode())


def work(rank: int, fault: str, folder: Path, port: str) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist  # type: ignore[import-not-found]

    log = (folder / f"rank{rank}.log").open("w", buffering=1)
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, LOCAL_RANK=str(rank)
    )  # fmt: skip
    if fault == "mismatch":
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=25))
    pairs = [dist.new_group([0, 1], group_desc="tensor_parallel"), dist.new_group([2, 3], group_desc="tensor_parallel")]
    pair = pairs[rank // 2]
    stuck = threading.Event()
    writer = threading.Thread(target=dump, args=(rank, folder, stuck))
    writer.start()
    try:
        for n in range(STEPS):
            if n == AT:
                stuck.set()
                if fault == "sleep" and rank == 2:
                    time.sleep(60)
                if fault == "exit" and rank == 2:
                    time.sleep(1)
                    os._exit(3)
                if fault == "mismatch" and rank == 1:
                    dist.broadcast(torch.ones(8), 0)
                if fault == "skip" and rank == 3:
                    dist.all_reduce(torch.ones(64), group=pair)
                    continue
                if fault == "barrier" and rank == 0:
                    dist.barrier()
            dist.all_reduce(torch.ones(64), group=pair)
            dist.all_reduce(torch.ones(1000 + n % 3))
            print(f"step {n} loss {3.0 - n * 0.1:.3f}", flush=True)
    except Exception:
        for line in traceback.format_exc().splitlines():
            print(f"[rank{rank}]: {line}", file=sys.stderr, flush=True)
    writer.join()
    time.sleep(3)
    os._exit(1)


def main() -> None:
    """All ranks."""
    import torch.multiprocessing as mp  # type: ignore[import-not-found]

    fault, folder, port = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    folder.mkdir(parents=True, exist_ok=True)
    mp.set_start_method("spawn")
    ranks = [mp.Process(target=work, args=(r, fault, folder, port)) for r in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(90)


if __name__ == "__main__":
    main()
