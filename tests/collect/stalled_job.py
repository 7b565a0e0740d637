"""A training job on CPU (gloo) of which one rank falls asleep in its data loader. Started by torchrun; needs torch.

Environment: SLEEPER (rank), WORKERS (of each loader), WAKE (file whose appearance wakes it), READY (file that says that
everyone waits).
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS = 6
SLEEP_AT = 3


class Shards(Dataset):
    """Samples, one of which takes long to come on one rank."""

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if index == SLEEP_AT and os.environ["RANK"] == os.environ["SLEEPER"]:
            wait_for_file(os.environ["WAKE"])
        return torch.full((4,), float(index))


def wait_for_file(path):
    """Stands for a read from storage that does not answer."""
    while not Path(path).exists():
        time.sleep(0.05)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Linear(4, 1)
    for step, batch in enumerate(DataLoader(Shards(), batch_size=1, num_workers=int(os.environ["WORKERS"]))):
        loss = model(batch).sum()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step == SLEEP_AT - 1:
            Path(f"{os.environ['READY']}.{rank}").touch()
        print(f"[rank{rank}]: step {step} of {STEPS} done, world {world}", flush=True)
    dist.barrier()
    print(f"[rank{rank}]: finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
