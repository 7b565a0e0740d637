"""nvidia-smi: the CSV query, `-q` and the topology matrix (format: R535–R580)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random

from .cluster import Cluster, Gpu, Host

COLUMNS = (
    "index, name, uuid, pci.bus_id, pstate, temperature.gpu, power.draw [W], enforced.power.limit [W],"
    " clocks.current.sm [MHz], clocks.max.sm [MHz], pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current,"
    " pcie.link.width.max, clocks_event_reasons.active, ecc.errors.uncorrected.volatile.total, utilization.gpu [%], vbios_version"
)


def query(cluster: Cluster, host: Host, rng: Random, *, busy: bool = False, **odd: Mapping[int, object]) -> list[str]:
    """`--query-gpu … --format=csv`; `odd` overrides a value of some GPUs: `clock={3: 1200}`, `reasons`, `temp`, `util`."""

    def of(name: str, gpu: Gpu, usual: object) -> object:
        return odd.get(name, {}).get(gpu.index, usual)

    limit = 700.0 if "H100" in cluster.gpu else 400.0
    top = 1980 if "H100" in cluster.gpu else 1410
    gen = 5 if "H100" in cluster.gpu else 4
    lines = [COLUMNS]
    for gpu in host.gpus:
        clock = of(
            "clock",
            gpu,
            top - rng.choice((0, 15, 30))
            if busy
            else rng.choice((345, 345, 1410, top) if top > 1410 else (210, 1095, top)),
        )
        power = rng.uniform(0.86, 0.94) * limit if busy else rng.uniform(66, 76)
        lines.append(
            f"{gpu.index}, {cluster.gpu}, {gpu.uuid}, 00000000:{gpu.bus.upper()}:00.0, P0, {of('temp', gpu, rng.randrange(58, 66) if busy else rng.randrange(28, 35))},"
            f" {of('power', gpu, round(power, 2))} W, {of('limit', gpu, limit):.2f} W, {clock} MHz, {top} MHz, {gen}, {gen},"
            f" {of('width', gpu, 16)}, 16, {of('reasons', gpu, '0x0000000000000000' if busy else '0x0000000000000001')},"
            f" 0, {of('util', gpu, rng.randrange(97, 101) if busy else 0)} %, {gpu.vbios}"
        )
    return lines


def full(
    cluster: Cluster, host: Host, rng: Random, at: float, *, busy: bool = False, corrected: Mapping[int, int] | None = None,
    clock: Mapping[int, int] | None = None, thermal: Sequence[int] = (), only: Sequence[int] | None = None,
) -> list[str]:  # fmt: skip
    """`nvidia-smi -q`, cut to the sections that matter; `corrected` gives GPUs DRAM errors and one remapped row."""
    top = 1980 if "H100" in cluster.gpu else 1410
    limit = 700.0 if "H100" in cluster.gpu else 400.0
    gen = 5 if "H100" in cluster.gpu else 4
    t = datetime.fromtimestamp(at, UTC)
    lines = [
        "", "==============NVSMI LOG==============", "", f"Timestamp                                 : {t:%a %b %e %H:%M:%S %Y}",
        "Driver Version                            : 575.57.08", "CUDA Version                              : 12.9", "",
        f"Attached GPUs                             : {len(host.gpus)}",
    ]  # fmt: skip
    for gpu in host.gpus:
        if only is not None and gpu.index not in only:
            continue
        errors = (corrected or {}).get(gpu.index, 0)
        now = (clock or {}).get(gpu.index, top if busy else 345)
        hot = "Active" if gpu.index in thermal else "Not Active"
        lines += [
            f"GPU 00000000:{gpu.bus.upper()}:00.0",
            f"    Product Name                          : {cluster.gpu}",
            "    Persistence Mode                      : Enabled",
            f"    Serial Number                         : {gpu.serial}",
            f"    GPU UUID                              : {gpu.uuid}",
            f"    VBIOS Version                         : {gpu.vbios}",
            f"    GPU Part Number                       : {gpu.part}",
            "    Inforom Version",
            f"        Image Version                     : {gpu.inforom}",
            "    PCI",
            f"        Bus Id                            : 00000000:{gpu.bus.upper()}:00.0",
            "        GPU Link Info",
            "            PCIe Generation",
            f"                Max                       : {gen}",
            f"                Current                   : {gen}",
            "            Link Width",
            "                Max                       : 16x",
            "                Current                   : 16x",
            "        Replays Since Reset               : 0",
            "    Performance State                     : P0",
            "    Clocks Event Reasons",
            f"        Idle                              : {'Not Active' if busy else 'Active'}",
            "        Applications Clocks Setting       : Not Active",
            "        SW Power Cap                      : Not Active",
            f"        HW Slowdown                       : {hot}",
            f"            HW Thermal Slowdown           : {hot}",
            "            HW Power Brake Slowdown       : Not Active",
            "        SW Thermal Slowdown               : Not Active",
            "    FB Memory Usage",
            f"        Total                             : {cluster.memory}",
            f"        Used                              : {'71022 MiB' if busy else '4 MiB'}",
            "    Utilization",
            f"        GPU                               : {'99' if busy else '0'} %",
            f"        Memory                            : {'61' if busy else '0'} %",
            "    ECC Mode",
            "        Current                           : Enabled",
            "    ECC Errors",
            "        Volatile",
            "            SRAM Correctable              : 0",
            "            SRAM Uncorrectable            : 0",
            "            DRAM Correctable              : 0",
            "            DRAM Uncorrectable            : 0",
            "        Aggregate",
            "            SRAM Correctable              : 0",
            "            SRAM Uncorrectable            : 0",
            f"            DRAM Correctable              : {errors}",
            "            DRAM Uncorrectable            : 0",
            "    Remapped Rows",
            f"        Correctable Error                 : {1 if errors else 0}",
            "        Uncorrectable Error               : 0",
            "        Pending                           : No",
            "        Remapping Failure Occurred        : No",
            "    Temperature",
            f"        GPU Current Temp                  : {rng.randrange(58, 66) if busy else rng.randrange(28, 35)} C",
            "        GPU T.Limit Temp                  : 25 C",
            "    GPU Power Readings",
            f"        Instantaneous Power Draw          : {rng.uniform(0.86, 0.94) * limit if busy else rng.uniform(66, 76):.2f} W",
            f"        Current Power Limit               : {limit:.2f} W",
            f"        Default Power Limit               : {limit:.2f} W",
            "    Clocks",
            f"        SM                                : {now} MHz",
            "    Max Clocks",
            f"        SM                                : {top} MHz",
            "    Fabric",
            "        State                             : Completed",
            "        Status                            : Success",
        ]
    return lines


def topology(host: Host, *, nvlinks: int = 18, underlined: bool = False) -> list[str]:
    """`nvidia-smi topo -m` of a host whose GPU n sits beside NIC n, storage NICs last."""
    gpus, nics = host.gpus, host.nics
    half = (len(gpus) + 1) // 2

    def side(kind: str, n: int) -> int:
        if kind == "gpu" or n < len(gpus):
            return 0 if n < half else 1
        return 0 if n % 2 == 0 else 1

    names = [("gpu", n) for n in range(len(gpus))] + [("nic", n) for n in range(len(nics))]

    def cell(a: tuple[str, int], b: tuple[str, int]) -> str:
        if a == b:
            return " X "
        if a[0] == b[0] == "gpu":
            return f"NV{nvlinks}"
        if a[0] != b[0] and a[1] == b[1] and not nics[a[1]].storage:
            return "PXB"
        return "NODE" if side(*a) == side(*b) else "SYS"

    head = "\t" + "\t".join(f"{k.upper()}{n}" for k, n in names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = [f"\t\x1b[4m{head[1:]}\x1b[0m" if underlined else head]
    for me in names:
        row = "\t".join(cell(me, other) for other in names)
        tail = (
            f"\t{'0-55,112-167' if side(*me) == 0 else '56-111,168-223'}\t{side(*me)}\t\tN/A"
            if me[0] == "gpu"
            else "\t\t\t\t"
        )
        lines.append(f"{me[0].upper()}{me[1]}\t{row}{tail}")
    lines += ["", "Legend:", "", "  X    = Self",
              "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
              "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
              "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
              "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
              "  PIX  = Connection traversing at most a single PCIe bridge",
              "  NV#  = Connection traversing a bonded set of # NVLinks"]  # fmt: skip
    return [*lines, "", "NIC Legend:", "", *(f"  NIC{n}: {nic.device}" for n, nic in enumerate(nics)), ""]
