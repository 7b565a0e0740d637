"""The ordinary surroundings that every scenario has: healthy hosts with harmless oddities."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from . import gpus, system
from .cluster import Cluster
from .core import Bundle

ODDITIES = (("OLD_XID",), ("NFS_BLIP", "BOOT_FLAP"), ("AER_ONCE", "PEERMEM"), ("OLD_OOM",))


def surround(
    bundle: Bundle, cluster: Cluster, rng: Random, *, dmesg: Mapping[str, Iterable[tuple[float, str]]] | None = None,
    offsets_us: Mapping[str, float] | None = None, skip: Sequence[str] = (), busy: bool = False,
) -> None:  # fmt: skip
    """Kernel log, clock, GPUs and limits of every host, as a collector finds them; `skip` of dmesg, clock, gpus, limits."""
    now = bundle.start
    for host in cluster.hosts:
        name = host.name
        if "dmesg" not in skip:
            lines = system.dmesg(
                host, now, rng, (dmesg or {}).get(name, ()), oddities=ODDITIES[host.index % len(ODDITIES)]
            )
            bundle.add(f"{name}/kernel/dmesg-T.txt", lines, host=name, command="dmesg -T")
        if "clock" not in skip:
            offset = (offsets_us or {}).get(name, rng.uniform(-210, 210))
            lines = system.tracking(now, offset, rng)
            bundle.add(f"{name}/clock/chronyc-tracking.txt", lines, host=name, command="chronyc tracking", at=1)
        if "gpus" not in skip:
            lines = gpus.query(cluster, host, rng, busy=busy)
            command = f"nvidia-smi --query-gpu={gpus.COLUMNS.replace(' ', '')} --format=csv"
            bundle.add(f"{name}/gpu/nvidia-smi-query.csv", lines, host=name, command=command, at=2)
        if "limits" not in skip:
            for path, (command, text) in system.limits(host).items():
                bundle.add(f"{name}/{path}", text, host=name, command=command, at=3)
