"""Layouts of jobs: hosts, ranks, GPUs and NICs with stable, invented identities."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random


@dataclass
class Gpu:
    """One GPU; `vbios`, `part` and `inforom` are its lot."""

    index: int
    bus: str
    uuid: str
    serial: str
    vbios: str = "96.00.A5.00.01"
    part: str = "692-2G520-0200-500"
    inforom: str = "G520.0200.00.05"


@dataclass
class Nic:
    """One RDMA device with its network interface; `link` is IB or RoCE, `storage` says that no GPU uses it."""

    device: str
    netdev: str
    bus: str
    guid: str
    speed_gbps: int = 400
    link: str = "IB"
    storage: bool = False
    firmware: str = "28.39.3560"


@dataclass
class Host:
    """One host of the job."""

    name: str
    index: int
    ip: str
    ranks: range
    gpus: list[Gpu] = field(default_factory=list[Gpu])
    nics: list[Nic] = field(default_factory=list[Nic])
    pids: list[int] = field(default_factory=list[int])

    def fabric(self) -> list[Nic]:
        """NICs that NCCL uses."""
        return [n for n in self.nics if not n.storage]


@dataclass
class Cluster:
    """The hosts of one job, in rank order."""

    hosts: list[Host]
    gpu: str
    memory: str

    @property
    def world(self) -> int:
        """Number of ranks."""
        return sum(len(h.ranks) for h in self.hosts)

    def host_of(self, rank: int) -> Host:
        """The host that runs a rank."""
        return next(h for h in self.hosts if rank in h.ranks)

    def pid_of(self, rank: int) -> int:
        """Process id of a rank."""
        host = self.host_of(rank)
        return host.pids[rank - host.ranks.start]

    def ranks(self) -> Iterator[tuple[int, Host]]:
        """Every rank with its host."""
        return ((rank, host) for host in self.hosts for rank in host.ranks)


H100_GPUS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
H100_NICS = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
A100_GPUS = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
A100_NICS = ("0c", "12", "4b", "54", "8d", "94", "ba", "cc")


def hex_of(rng: Random, digits: int) -> str:
    """A random hexadecimal number."""
    return f"{rng.getrandbits(4 * digits):0{digits}x}"


def uuid_of(rng: Random) -> str:
    """A random UUID, as GPUs have."""
    h = hex_of(rng, 32)
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def build(
    rng: Random, names: Sequence[str], per_host: int = 8, *, link: str = "IB", model: str = "h100", subnet: str = "10.88.4",
    rails: int | None = None, storage: bool = False,
) -> Cluster:  # fmt: skip
    """A job on `names` with `per_host` ranks each; `rails` NICs of the compute fabric (default: one per GPU)."""
    buses, nic_buses = (H100_GPUS, H100_NICS) if model == "h100" else (A100_GPUS, A100_NICS)
    speed = 400 if model == "h100" else 200
    hosts: list[Host] = []
    for index, name in enumerate(names):
        ranks = range(index * per_host, (index + 1) * per_host)
        host = Host(name, index, f"{subnet}.{20 + index}", ranks)
        first = rng.randrange(21000, 88000)
        host.pids = [first + n for n in range(per_host)]
        for n in range(per_host):
            gpu = Gpu(n, buses[n], "GPU-" + uuid_of(rng), f"16{rng.randrange(10**10, 10**11)}")
            if model == "a100":
                gpu.vbios, gpu.part, gpu.inforom = "92.00.45.00.06", "692-2G506-0200-003", "G506.0200.00.04"
            host.gpus.append(gpu)
        for n in range(per_host if rails is None else rails):
            netdev = f"ibp{int(nic_buses[n], 16)}s0" if link == "IB" else f"ens{n + 1}np0"
            host.nics.append(Nic(f"mlx5_{n}", netdev, nic_buses[n], "0x" + hex_of(rng, 16), speed, link))
        if storage:
            for n in (8, 9):
                bus = "29" if n == 8 else "ab"
                host.nics.append(
                    Nic(f"mlx5_{n}", f"ens20{n}f0", bus, "0x" + hex_of(rng, 16), 200, "RoCE", storage=True)
                )
        hosts.append(host)
    gpu_name, memory = (
        ("NVIDIA H100 80GB HBM3", "81559 MiB") if model == "h100" else ("NVIDIA A100-SXM4-80GB", "81920 MiB")
    )
    return Cluster(hosts, gpu_name, memory)
