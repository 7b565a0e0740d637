"""Several stalls of one job in logs that do not tell who belongs to a group: everybody waits, save a few.

A rank that reports a time-out waits for somebody. Where nearly all ranks of the job do, in whichever groups, the
others wait for those few that do not, directly or through ranks that wait themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from diagnose.model import MAX_WORLD
from diagnose.tables.progress.stall import Stall, what

FEW = 5
"""At most one rank in so many is silent (chosen by us): more of them may as well have been ended, or wait where no
watchdog looks."""
SHOWN = 3


def job_wide(stalls: Sequence[Stall], world: int | None, explained: Collection[int]) -> Stall | None:
    """The stalls as one, where their groups tell no members and nearly all ranks of the job wait in one of them.

    `explained` are ranks known to have ended.
    """
    everyone = set(range(world)) if world and world <= MAX_WORLD else set[int]()
    waiting = frozenset[int]().union(*(s.waiting for s in stalls))
    silent = everyone - waiting - set(explained)
    unclear = any(s.kind != "watchdog" or s.behind or s.mismatch or not s.certain or s.done for s in stalls)
    whole = len(stalls) == 1 and stalls[0].world is not None
    if not stalls or unclear or whole or not silent or len(silent) * FEW > len(everyone) or not waiting <= everyone:
        return None
    largest = sorted(stalls, key=lambda s: -len(s.waiting))
    words = "; ".join(what(s.op, s.seq, s.group) for s in largest[:SHOWN])
    more = f"; {len(largest) - SHOWN} more" if len(largest) > SHOWN else ""
    return replace(
        largest[0], job_wide=True, group="", seq=None, op=f"what the others wait in ({words}{more})", waiting=waiting,
        world=world,
        evidence=tuple(dict.fromkeys(e for s in largest for e in s.evidence[:2]))[:SHOWN * 2],
        elapsed_s=max((s.elapsed_s for s in stalls if s.elapsed_s is not None), default=None),
        timeout_s=max((s.timeout_s for s in stalls if s.timeout_s is not None), default=None),
    )  # fmt: skip
