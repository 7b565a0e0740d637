"""Recognises the kernel messages that matter, one pattern per kind of message.

Sources: NVIDIA driver (NVRM, nvswitch), mlx5 driver, PCIe AER and APEI, memcg OOM killer, x86 traps, clocksource
watchdog, hung-task detector, sunrpc, Lustre, IOMMU drivers, EDAC/MCE (Linux 4.15 to 6.12).
"""

from __future__ import annotations

import re

from . import _devices, _gpu, _memory, _system
from ._event import MAX_TEXT, Event

__all__ = ["GATE", "MAX_TEXT", "Event", "recognise"]

RECOGNISERS = (*_gpu.RECOGNISERS, *_memory.RECOGNISERS, *_devices.RECOGNISERS, *_system.RECOGNISERS)

CONTINUATIONS = (
    "(First)", "event severity: ", "device_id: ", "killed as a result of limit of", "Memory cgroup stats for ",
    "NVRM: The NVIDIA GPU ", "firmware version: ", "Linux version ", "Shutdown was called", "reboot: ",
)  # fmt: skip
GATE = re.compile("|".join(re.escape(x) for x in dict.fromkeys([*(r[0] for r in RECOGNISERS), *CONTINUATIONS])))


def recognise(message: str) -> Event | None:
    """The event that a message tells, or None."""
    for literal, pattern, handler in RECOGNISERS:
        if literal in message:
            m = pattern.search(message)
            if m:
                return handler(m, message)
    return None
