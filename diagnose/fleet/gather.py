"""All of it: links run, hosts come in, the bundle is closed whatever happens."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.fleet.bundle import Bundle
from diagnose.fleet.engine import Link, Ssh, Stop, run
from diagnose.fleet.visit import Visit

JOB_THREADS = 4


@dataclass
class Plan:
    """What is to be done: hosts, links to them, and tasks of this side that add to the bundle (the job as its scheduler
    sees it). Visits that failed before they began have no link."""

    visits: list[Visit]
    links: list[Link]
    job: list[Callable[[Bundle], None]] = field(default_factory=list[Callable[[Bundle], None]])


@dataclass(frozen=True, slots=True)
class Count:
    """How far it is. `said` is what the hosts that still run say, by host."""

    done: int
    failed: int
    running: int
    waiting: int
    bytes: int
    said: Mapping[str, str]

    @property
    def total(self) -> int:
        """All hosts."""
        return self.done + self.failed + self.running + self.waiting


def count(visits: Sequence[Visit]) -> Count:
    """Progress of these hosts."""
    states = [v.state for v in visits]
    done, failed, waiting = states.count("arrived"), states.count("failed"), states.count("waiting")
    running = len(states) - done - failed - waiting
    said = {v.name: v.said or v.state for v in visits if not v.over and v.state != "waiting"}
    return Count(done, failed, running, waiting, sum(v.size for v in visits), said)


def gather(
    plan: Plan,
    out: Path,
    head: Mapping[str, Any],
    clean: Callable[[bytes], bytes],
    show: Callable[[Count], None],
    *,
    fanout: int = 128,
    ssh: Ssh | None = None,
    stop: Stop | None = None,
) -> tuple[Path, bool]:
    """Run the plan into a bundle; its path, and whether it was interrupted. OSError when nothing can be stored."""
    bundle = Bundle(out, head, clean)
    stop = stop or Stop()
    with ThreadPoolExecutor(1) as storing, ThreadPoolExecutor(JOB_THREADS) as asking, _interrupts(stop):
        stored: list[Future[None]] = []
        asked = [asking.submit(task, bundle) for task in plan.job]

        def over(visit: Visit) -> None:
            stored.append(storing.submit(bundle.add_host, visit))

        def tick() -> None:
            show(count(plan.visits))

        for visit in plan.visits:
            if visit.over:
                over(visit)
        run(plan.links, bundle.spool, over, tick, stop, fanout=fanout, ssh=ssh or Ssh())
        for future in [*stored, *asked]:
            future.result()
        tick()
        return bundle.close(), stop.count > 0


@contextmanager
def _interrupts(stop: Stop) -> Any:
    """Ctrl-C and SIGTERM ask to stop; outside the main thread nothing can be installed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
