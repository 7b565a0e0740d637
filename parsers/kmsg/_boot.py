"""When a host and the drivers of its NICs started: a port that is down then need not have a cable."""

from __future__ import annotations

import re

from ._event import BDF

SLACK_S = 300.0
"""A port that is down so soon after the start of host or driver was not up before (seconds; chosen by us)."""
MAX_DRIVERS = 4_096
_DRIVER = re.compile(rf"mlx5_core (?P<device>{BDF}): firmware version: ")
_PCI = re.compile(BDF)
_HOST = "Linux version "
_STOP = re.compile(rf"mlx5_core (?P<device>{BDF}): Shutdown was called")
RESTART_S = 900.0
"""A link that went down so soon before its host or driver stopped or started went down for that (seconds; chosen by us:
servers take up to a quarter of an hour to start)."""


def turned(message: str) -> str | None:
    """PCI address of the NIC whose driver stopped or started, empty for the whole host, None for other messages."""
    if message.startswith((_HOST, "reboot: ")):
        return ""
    m = _DRIVER.search(message) or _STOP.search(message)
    return m["device"] if m else None


def address(message: str) -> str:
    """The first PCI address in a message, else empty."""
    m = _PCI.search(message)
    return m[0] if m else ""


class Starts:
    """Starts seen so far, by PCI address; the host's under an empty one."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float | None, float | None]] = {}

    def take(self, message: str, at: float | None, uptime: float | None) -> None:
        """Note the start that a message tells, if it does."""
        m = _DRIVER.search(message)
        if m and len(self._seen) < MAX_DRIVERS:
            self._seen[m["device"]] = (at, uptime)
        elif message.startswith(_HOST):
            self._seen = {"": (at, uptime)}

    def near(self, message: str, at: float | None, uptime: float | None) -> bool:
        """Whether a message came shortly after the start of the host or of the driver of its device; without any times,
        whether it came after one."""
        if uptime is not None and uptime < SLACK_S:
            return True
        for device in ("", address(message)):
            if device not in self._seen:
                continue
            start, since = self._seen[device]
            if at is not None and start is not None:
                if at - start < SLACK_S:
                    return True
            elif uptime is not None and since is not None:
                if uptime - since < SLACK_S:
                    return True
            elif at is None and uptime is None:
                return True
        return False
