"""NCCL INFO logs (format: NCCL 2.27), one text per host with its ranks interleaved, as a launcher writes them."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from .cluster import Cluster, Host, hex_of


@dataclass
class Nccl:
    """What a job's NCCL says while it starts."""

    cluster: Cluster
    version: str = "2.27.7+cuda12.9"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    network: str = "IB"
    interface: str = "bond0"
    gdr: bool = True
    no_gdr_hosts: Sequence[str] = ()
    nvls: bool = False
    channels: int = 2
    complete: bool = True
    comm: str = "0x9f3c11d2a64be870"
    talkative: int | None = None
    """Local ranks that print all of it (NCCL_DEBUG per rank); None: every one."""
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])

    def prefix(self, rank: int, thread: int | None = None) -> str:
        """`host:pid:tid [cuda device] NCCL INFO` up to the level."""
        host = self.cluster.host_of(rank)
        pid = self.cluster.pid_of(rank)
        return f"{host.name}:{pid}:{pid if thread is None else pid + thread} [{rank - host.ranks.start}] NCCL"

    def info(self, rank: int, text: str, thread: int | None = None) -> str:
        """One INFO line."""
        return f"{self.prefix(rank, thread)} INFO {text}"

    def warn(self, rank: int, text: str, where: str) -> list[str]:
        """A WARN with the empty line before it and the INFO with its place after it."""
        return ["", f"{self.prefix(rank, 400)} {where} NCCL WARN {text}".replace("NCCL " + where, where)]

    def start(self, host: Host, rng: Random) -> list[str]:
        """Initialisation of all ranks of a host."""
        lines: list[str] = []
        for local, rank in enumerate(host.ranks):
            if self.talkative is None or local < self.talkative:
                lines += self._rank(host, rank, local, rng)
        return lines

    def _rank(self, host: Host, rank: int, local: int, rng: Random) -> list[str]:
        world, gpu = self.cluster.world, host.gpus[local]
        address = self.addresses.get(host.name, host.ip)
        comm = "0x55" + hex_of(rng, 10)
        nodes = len(self.cluster.hosts)
        say = [
            self.info(rank, f"{k} set by environment to {v}{'.' if v.isdigit() else ''}") for k, v in self.env.items()
        ]
        own: list[str] = [
            f"Bootstrap: Using {self.interface}:{address}<0>",
            "cudaDriverVersion 12090",
            f"NCCL version {self.version}",
        ]
        setup = ["NET/Plugin: Could not find: libnccl-net.so. "]
        fabric = host.fabric()
        if self.network == "IB":
            using = " ".join(f"[{n}]{nic.device}:1/{nic.link}" for n, nic in enumerate(fabric))
            setup += [
                f"NET/IB : Using {using} [RO]; OOB {self.interface}:{address}<0>",
                "Initialized NET plugin IB",
                "Assigned NET plugin IB to comm",
                "Using network IB",
            ]
        else:
            setup += [
                "NET/IB : No device found.",
                "Failed to initialize NET plugin IB",
                f"NET/Socket : Using [0]{self.interface}:{address}<0>",
                "Initialized NET plugin Socket",
                "Assigned NET plugin Socket to comm",
                "Using network Socket",
            ]
        identity = f"comm {comm} rank {rank} nranks {world} cudaDev {local} nvmlDev {local} busId {gpu.bus}000"
        gdr = self.gdr and host.name not in self.no_gdr_hosts
        if self.network == "IB" and gdr:
            setup.append(f"DMA-BUF is available on GPU device {local}")
        setup.append(f"ncclCommInitRankConfig {identity} commId {self.comm} - Init START")
        if not self.complete:
            return say + [self.info(rank, t) for t in own] + [self.info(rank, t, 400) for t in setup]
        if self.network == "IB" and not gdr:
            for n in range(len(fabric)):
                setup.append(f"NET/IB : GPU Direct RDMA Disabled for HCA {n} '{fabric[n].device}'")
        if self.nvls:
            setup.append(f"NVLS multicast support is available on dev {local} (NVLS_NCHANNELS 16)")
        setup += [
            f"Setting affinity for GPU {local} to {'0-55,112-167' if local < 4 else '56-111,168-223'}",
            f"comm {comm} rank {rank} nRanks {world} nNodes {nodes} localRanks {len(host.ranks)} localRank {local} MNNVL 0",
            "P2P Chunksize set to 131072",
        ]
        for channel in range(self.channels):
            setup.append(self._channel(host, rank, local, channel, gdr))
        setup += [
            f"Connected all rings, use ring PXN 0 GDR {1 if gdr and self.network == 'IB' else 0}",
            f"{self.channels} coll channels, {self.channels} collnet channels, 0 nvls channels, {self.channels} p2p channels,"
            f" {self.channels} p2p channels per peer",
            "TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.",
            f"ncclCommInitRankConfig {identity} commId {self.comm} - Init COMPLETE",
        ]
        return say + [self.info(rank, t) for t in own] + [self.info(rank, t, 400) for t in setup]

    def _channel(self, host: Host, rank: int, local: int, channel: int, gdr: bool) -> str:
        peer = (rank + 1) % self.cluster.world
        there = self.cluster.host_of(peer)
        peer_local = peer - there.ranks.start
        head = f"Channel {channel:02d}/0 : {rank}[{local}] -> {peer}[{peer_local}]"
        if there is host:
            return f"{head} via P2P/CUMEM"
        if self.network == "IB":
            nic = local % max(1, len(host.fabric()))
            return f"{head} [send] via NET/IB/{nic}{'/GDRDMA' if gdr else ''}"
        return f"{head} [send] via NET/Socket/0"

    def destroyed(self, host: Host, rng: Random) -> list[str]:
        """The orderly end."""
        return [
            self.info(r, f"comm 0x55{hex_of(rng, 10)} rank {r} nranks {self.cluster.world} cudaDev {n} busId {host.gpus[n].bus}000"
                      " - Destroy COMPLETE")
            for n, r in enumerate(host.ranks)
        ]  # fmt: skip
