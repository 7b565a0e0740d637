"""Writes an NCCL INFO log of invented values: `nccl_generate.py SIZE_MB FILE [--ranks 2048] [--seed N]`.

Eight ranks a host; INIT, ENV, NET and GRAPH lines of every rank first, then COLL lines of three communicators, the
lines of all ranks interleaved as in a job whose ranks write to one stream. Equal arguments give equal bytes.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import TextIO

GPUS = 8
OPS = ("AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Send", "Recv")


def start_up(rank: int, ranks: int, dice: random.Random) -> Iterator[str]:
    """Lines of one rank from start to the end of its first init, in order, without the signature."""
    dev = rank % GPUS
    host = rank // GPUS
    bus = f"{0x1B + 0x10 * dev:x}000"
    comm = f"0x{0x55B65F000000 + rank * 0x100:x}"
    yield "NCCL_SOCKET_IFNAME set by environment to =bond0"
    yield f"Bootstrap: Using bond0:10.{20 + host // 200}.{host % 200}.1<0>"
    yield "cudaDriverVersion 12080"
    yield "NCCL version 2.27.3+cuda12.8"
    yield "NET/Plugin: Could not find: libnccl-net.so. "
    for name, value in (
        ("IB_TC", 106),
        ("IB_TIMEOUT", 22),
        ("IB_QPS_PER_CONNECTION", 4),
        ("DEBUG_SUBSYS", "INIT,COLL"),
    ):
        dot = "." if isinstance(value, int) else ""
        yield f"NCCL_{name} set by environment to {value}{dot}"
    for i in range(GPUS):
        yield (f"NET/IB: [{i}] mlx5_{i}:uverbs{i}:1/RoCE provider=Mlx5 speed=400000 context=0x{dice.getrandbits(44):x} "
               f"pciPath=/sys/devices/pci0000:{i + 1}5/0000:{i + 1}5:01.0/0000:{i + 1}8:00.0 ar=0")  # fmt: skip
    devices = " ".join(f"[{i}]mlx5_{i}:1/RoCE" for i in range(GPUS))
    yield f"NET/IB : Using {devices} [RO]; OOB bond0:10.{20 + host // 200}.{host % 200}.1<0>"
    yield "Initialized NET plugin IB"
    yield "Assigned NET plugin IB to comm"
    yield "Using network IB"
    yield f"DMA-BUF is available on GPU device {dev}"
    tell = f"comm {comm} rank {rank} nranks {ranks} cudaDev {dev} nvmlDev {dev} busId {bus} commId 0x6d07e2b19f44c358"
    yield f"ncclCommInitRankConfig {tell} - Init START"
    yield "RAS client listening socket at 127.0.0.1<28028>"
    yield (
        "Bootstrap timings total 0.131841 (create 0.000031, send "
        "0.000203, recv 0.079105, ring 0.039552, delay 0.000001)"
    )
    yield f"Setting affinity for GPU {dev} to ffffffff,ffffff"
    for i in range(GPUS):
        yield (
            f"GPU Direct RDMA Enabled for GPU {dev} / HCA {i} "
            f"(distance {4 if i == dev else 5} <= 5), read 1 mode Default"
        )
    yield f"=== System : maxBw 48.0 totalBw {480.0:.1f} ==="
    for i in range(GPUS):
        yield f"+ PCI[48.0] - PCI/0-{i + 1}5000 (15b3197b15b3197b)"
        yield f"              + PCI[48.0] - GPU/0-{0x1B + 0x10 * i:x}000 ({host * GPUS + i})"
        yield "                            + NVL[480.0] - NVS/0"
        yield f"              + PCI[48.0] - NIC/0-{i + 1}8000"
        yield f"                            + NET[50.0] - NET/{i} (0/0/50.000000)"
    yield "=========================================="
    for pattern in (4, 1, 5):
        yield f"Pattern {pattern}, crossNic 0, nChannels 16, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1"
    yield f"NVLS multicast support is available on dev {dev} (NVLS_NCHANNELS 16)"
    yield f"comm {comm} rank {rank} nRanks {ranks} nNodes {ranks // GPUS} localRanks {GPUS} localRank {dev} MNNVL 0"
    for c in range(16):
        yield f"Ring {c:02d} : {(rank - 1) % ranks} -> {rank} -> {(rank + 1) % ranks}"
    yield "Trees " + " ".join(f"[{c}] {rank + 1}/-1/-1->{rank}->{rank - 1}" for c in range(16))
    yield "P2P Chunksize set to 131072"
    yield "Check P2P Type isAllDirectP2p 0 directMode 0"
    for c in range(16):
        if dev in (0, GPUS - 1):
            yield (
                f"Channel {c:02d}/0 : {(rank - GPUS) % ranks}[{dev}] "
                f"-> {rank}[{dev}] [receive] via NET/IB/{c % 8}/GDRDMA"
            )
            yield (
                f"Channel {c:02d}/0 : {rank}[{dev}] -> {(rank + GPUS) % ranks}[{dev}] "
                f"[send] via NET/IB/{c % 8}({rank})/GDRDMA"
            )
        near = (dev + 1) % GPUS
        yield f"Channel {c:02d}/0 : {rank}[{dev}] -> {host * GPUS + near}[{near}] via P2P/CUMEM"
        yield (
            f"NET/IB: NCCL Dev {dev} IbDev {dev} Port 1 qpn {dice.randrange(1 << 20)} "
            f"mtu 5 GID 3 (0/D2A8C0FFFF0000) "
            f"fifoRkey=0x{dice.getrandbits(24):x} fifoLkey=0x{dice.getrandbits(24):x}"
        )
    yield "Connected all rings, use ring PXN 1 GDR 1"
    yield "Connected all trees"
    yield "threadThresholds 8/8/64 | 16384/8/64 | 512 | 512"
    yield "16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer"
    yield f"ncclCommInitRankConfig {tell} - Init COMPLETE"
    total = dice.uniform(2, 3)
    yield (
        f"Init timings - ncclCommInitRankConfig: rank {rank} nranks {ranks} total {total:.2f} (kernels 0.25, "
        "alloc 0.05, bootstrap 0.18, allgathers 0.59, topo 0.58, graphs 0.17, connections 0.66, rest 0.14)"
    )


def calls(rank: int, ranks: int, number: int) -> str:
    """The COLL line of one call of one rank."""
    group = number % 3
    comm = f"0x{0x55B65F000000 + rank * 0x100 + group * 0x40:x}"
    size = (ranks, GPUS, ranks // GPUS)[group]
    op = OPS[number % 4]
    buffer = 0x7F0000000000 + (number % 4096) * 0x10000
    return (f"{op}: opCount {number // 3:x} sendbuff 0x{buffer:x} recvbuff 0x{buffer + 0x8000:x} count {4096 << group} "
            f"datatype 9 op 0 root 0 comm {comm} [nranks={size}] stream 0x{0x5581A0000000 + rank:x}")  # fmt: skip


def write(out: TextIO, size: int, ranks: int, seed: int) -> None:
    """Write about `size` bytes."""
    dice = random.Random(seed)
    signs = [f"gpu-a{r // GPUS:03d}:{41000 + r}:{51000 + r} [{r % GPUS}] NCCL INFO " for r in range(ranks)]
    written = 0
    waiting = [start_up(r, ranks, dice) for r in range(ranks)]
    alive = list(range(ranks))
    while alive:
        dice.shuffle(alive)
        still = []
        for r in alive:
            for _ in range(3):
                line = next(waiting[r], None)
                if line is None:
                    break
                written += out.write(f"{signs[r]}{line}\n")
            else:
                still.append(r)
        alive = still
    number = 0
    order = list(range(ranks))
    while written < size:
        if number % 16 == 0:
            dice.shuffle(order)
        for r in order:
            written += out.write(f"{signs[r]}{calls(r, ranks, number)}\n")
        number += 1


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("file")
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with open(options.file, "w", encoding="ascii") as out:
        write(out, int(options.megabytes * 1_000_000), options.ranks, options.seed)


if __name__ == "__main__":
    main()
