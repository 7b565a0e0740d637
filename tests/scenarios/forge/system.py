"""Hosts: kernel log, clocks, cgroups, links (formats: dmesg -T, chrony 4, linuxptp 4, cgroup v2, iproute2)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random

from .cluster import Host

DAY = 86400.0


def kernel_time(at: float) -> str:
    """`[Tue Oct  6 05:40:07 2026]`, as dmesg -T prints it."""
    return f"[{datetime.fromtimestamp(at, UTC):%a %b %e %H:%M:%S %Y}]"


def dmesg(
    host: Host, now: float, rng: Random, extra: Iterable[tuple[float, str]] = (), *, oddities: Sequence[str] = ()
) -> list[str]:
    """A boot 30 days ago and what happened since. `oddities` of OLD_XID, OLD_OOM, AER_ONCE, NFS_BLIP, BOOT_FLAP, PEERMEM; `extra` (time, text)."""
    boot = now - 30 * DAY - rng.randrange(3600)
    rows: list[tuple[float, str]] = [
        (boot, "Linux version 6.8.0-79-generic (buildd@lcy02-amd64-010) (x86_64-linux-gnu-gcc-13 13.3.0) #79-Ubuntu SMP PREEMPT_DYNAMIC"),
        (boot + 1, "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC00.RP01], AE_NOT_FOUND (20230628/dswload2-162)"),
        (boot + 2, "clocksource: Switched to clocksource tsc"),
        (boot + 2, "mce: CPU0: Thermal monitoring enabled (TM1)"),
        (boot + 3, "ERST: Error Record Serialization Table (ERST) support is initialized."),
        (boot + 4, "usb 1-14: device descriptor read/64, error -71"),
        (boot + 6, "EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none."),
    ]  # fmt: skip
    for nic in host.nics:
        rows += [
            (boot + 9, f"mlx5_core 0000:{nic.bus}:00.0: firmware version: {nic.firmware}"),
            (
                boot + 9,
                f"mlx5_core 0000:{nic.bus}:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)",
            ),
            (boot + 9, f"mlx5_core 0000:{nic.bus}:00.0: Port module event: module 0, Cable plugged"),
        ]
    rows += [
        (boot + 20, "nvidia: module verification failed: signature and/or required key missing - tainting kernel"),
        (boot + 20, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build"),
    ]
    if "OLD_XID" in oddities:
        bus = host.gpus[-1].bus
        then = now - 8 * DAY
        rows += [
            (then, f"NVRM: Xid (PCI:0000:{bus}:00): 31, pid={rng.randrange(10000, 99999)}, name=python3, Ch 00000008, intr 00000000. MMU Fault:"
                   " ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f3b_4c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"),
            (then + 1, f"NVRM: Xid (PCI:0000:{bus}:00): 43, pid={rng.randrange(10000, 99999)}, name=python3, Ch 00000008"),
        ]  # fmt: skip
    if "AER_ONCE" in oddities:
        then = now - 21 * DAY
        rows += [
            (then, "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0"),
            (then, "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"),
            (then, "nvme 0000:01:00.0:   device [144d:a80a] error status/mask=00000001/0000e000"),
        ]
    if "NFS_BLIP" in oddities:
        then = now - 16 * DAY
        rows += [
            (then, "nfs: server 10.88.200.5 not responding, still trying"),
            (then + 14, "nfs: server 10.88.200.5 OK"),
        ]
    if "OLD_OOM" in oddities:
        then = now - 9 * DAY
        group = "/user.slice/user-2041.slice/session-812.scope"
        pid = rng.randrange(10000, 99999)
        rows += [
            (then, "jupyter-lab invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
            (then, f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group},task_memcg={group},task=jupyter-lab,pid={pid},uid=2041"),
            (then, f"Memory cgroup out of memory: Killed process {pid} (jupyter-lab) total-vm:8112044kB, anon-rss:4120344kB, file-rss:1220kB, shmem-rss:0kB, UID:2041 pgtables:9912kB oom_score_adj:0"),
        ]  # fmt: skip
    if "BOOT_FLAP" in oddities and host.nics:
        nic = host.nics[0]
        rows += [
            (boot + 31, f"mlx5_core 0000:{nic.bus}:00.0 {nic.netdev}: Link down"),
            (boot + 34, f"mlx5_core 0000:{nic.bus}:00.0 {nic.netdev}: Link up"),
        ]
    if "PEERMEM" in oddities:
        rows.append(
            (
                now - 2 * DAY,
                "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
            )
        )
    rows.append(
        (
            now - 3 * DAY,
            "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
        )
    )
    rows += extra
    return [f"{kernel_time(at)} {text}" for at, text in sorted(rows, key=lambda row: row[0])]


def tracking(
    now: float, offset_us: float, rng: Random, *, synchronised: bool = True, server: str = "10.88.0.2"
) -> list[str]:
    """`chronyc tracking`; the offset of the system clock in microseconds, positive when it is ahead."""
    a, b, c, d = (int(x) for x in server.split("."))
    way = "fast" if offset_us >= 0 else "slow"
    seconds = abs(offset_us) / 1e6
    t = datetime.fromtimestamp(now - rng.randrange(5, 60), UTC)
    if not synchronised:
        return [
            "Reference ID    : 00000000 ()", "Stratum         : 0", "Ref time (UTC)  : Thu Jan 01 00:00:00 1970",
            f"System time     : {seconds:.9f} seconds {way} of NTP time", "Last offset     : +0.000000000 seconds",
            "RMS offset      : 0.000000000 seconds", "Frequency       : 11.204 ppm slow", "Residual freq   : +0.000 ppm",
            "Skew            : 0.000 ppm", "Root delay      : 1.000000000 seconds", "Root dispersion : 1.000000000 seconds",
            "Update interval : 0.0 seconds", "Leap status     : Not synchronised",
        ]  # fmt: skip
    return [
        f"Reference ID    : {a:02X}{b:02X}{c:02X}{d:02X} ({server})", "Stratum         : 3",
        f"Ref time (UTC)  : {t:%a %b %d %H:%M:%S %Y}", f"System time     : {seconds:.9f} seconds {way} of NTP time",
        f"Last offset     : {'+' if way == 'fast' else '-'}{seconds * 0.7:.9f} seconds",
        f"RMS offset      : {seconds * 0.8 + 1e-6:.9f} seconds", f"Frequency       : {rng.uniform(9, 17):.3f} ppm slow",
        "Residual freq   : +0.001 ppm", "Skew            : 0.021 ppm", f"Root delay      : {rng.uniform(0.0001, 0.0004):.9f} seconds",
        f"Root dispersion : {rng.uniform(0.0002, 0.0009):.9f} seconds", f"Update interval : {rng.uniform(63, 66):.1f} seconds",
        "Leap status     : Normal",
    ]  # fmt: skip


def limits(host: Host) -> dict[str, tuple[str, list[str]]]:
    """Small files and settings: topic/name -> (command, lines)."""
    return {
        "host/clocksource.txt": (
            "cat /sys/devices/system/clocksource/clocksource0/{current,available}_clocksource",
            ["tsc", "tsc hpet acpi_pm "],
        ),
        "host/ulimit-l.txt": ("ulimit -l", ["unlimited"]),
        "host/df-shm.txt": ("df -h /dev/shm", [
            "Filesystem      Size  Used Avail Use% Mounted on", "tmpfs          1008G  1.1G 1007G   1% /dev/shm",
        ]),
    }  # fmt: skip
