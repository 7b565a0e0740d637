"""Clocks of hosts that are wrong, jump or are not locked."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from . import stalls, system, torchlog
from .cluster import build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .torchlog import Collective

SILENT = ["stall/*", "link/*", "rdma/*", "gpu/*", "topo/*", "lossless/*", "host/*", "perf/*"]


def journal(at: float, host: str, unit: str, text: str) -> str:
    """A line of `journalctl -o short-iso`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}+00:00 {host} {unit}: {text}"


@scenario("clock-unsynchronised")
def unsynchronised(rng: Random, swapped: bool) -> Scenario:
    """A rank was killed on one host; the clock of another one is wrong, which does not stop a collective."""
    cluster = build(rng, ("curlew-41", "curlew-42", "curlew-43"), 4)
    started, killed = epoch("2026-12-01 06:00:20"), epoch("2026-12-01 07:33:10")
    lost = 10 if swapped else 1
    wrong = cluster.hosts[0 if swapped else 2]
    bundle = Bundle(killed + 700)
    paths = stalls.missing(
        bundle, cluster, rng, lost, work=Collective(seq=5120), started=started, killed=killed, skip=["clock"]
    )
    for host in cluster.hosts:
        offset, good = (2_310_442.0, False) if host is wrong else (rng.uniform(-90, 90), True)
        bundle.add(f"{host.name}/clock/chronyc-tracking.txt", system.tracking(bundle.start, offset, rng, synchronised=good),
                   host=host.name, command="chronyc tracking", at=1)  # fmt: skip
    truth = stalls.missing_truth(bundle, cluster, paths, lost)
    rule = "clock/skew-breaks-correlation"
    truth.roots.append(rule)
    truth.absent = [pattern for pattern in truth.absent if pattern != "clock/*"]
    truth.subjects[rule] = {"host": [wrong.name]}
    truth.evidence[rule] = [bundle.at(f"{wrong.name}/clock/chronyc-tracking.txt", "Not synchronised")]
    return Scenario(bundle, truth)


@scenario("clock-stepped")
def stepped(rng: Random, swapped: bool) -> Scenario:
    """chronyd stepped the clock of one host while the job ran well."""
    cluster = build(rng, ("dipper-1", "dipper-2", "dipper-3"), 4)
    guilty = cluster.hosts[0 if swapped else 1]
    start = epoch("2026-02-27 03:10:00")
    bundle = Bundle(start)
    by = "-7.402118" if swapped else "4.118832"
    for host in cluster.hosts:
        lines = [
            journal(start - 86000, host.name, "chronyd[1204]", "chronyd version 4.5 starting (+CMDMON +NTP +REFCLOCK +RTC +PRIVDROP +SCFILTER +SIGND +ASYNCDNS +NTS +SECHASH +IPV6 -DEBUG)"),
            journal(start - 85990, host.name, "chronyd[1204]", "Selected source 10.88.0.2"),
            journal(start - 42000, host.name, "chronyd[1204]", "Source 10.88.0.3 replaced with 10.88.0.4"),
        ]  # fmt: skip
        if host is guilty:
            lines += [
                journal(start - 3111, host.name, "chronyd[1204]", f"System clock wrong by {by} seconds"),
                journal(start - 3111, host.name, "chronyd[1204]", f"System clock was stepped by {by} seconds"),
            ]
        bundle.add(
            f"{host.name}/clock/journal-chronyd.txt",
            lines,
            host=host.name,
            command="journalctl -u chronyd --since -1d -o short-iso",
        )
    bundle.add("job/train.log", torchlog.steps(start - 1200, rng, 20, 900), command="tail -20 train.log")
    surround(bundle, cluster, rng, busy=True)
    rule = "clock/stepped"
    there = bundle.at(f"{guilty.name}/clock/journal-chronyd.txt", "stepped by")
    return Scenario(bundle, Truth(
        roots=[rule],
        absent=SILENT,
        subjects={rule: {"host": [guilty.name]}},
        evidence={rule: [there]},
        first=[[guilty.name], [f"{guilty.name}/clock/journal-chronyd.txt:"], []],
        never=[h.name for h in cluster.hosts if h is not guilty],
        exit=0,
    ))  # fmt: skip


@scenario("clock-ptp-unlocked")
def ptp_unlocked(rng: Random, swapped: bool) -> Scenario:
    """The PTP servo of one host loses its lock again and again; its siblings follow within nanoseconds."""
    cluster = build(rng, ("redshank-5", "redshank-6", "redshank-8"), 4)
    guilty = cluster.hosts[2 if swapped else 0]
    start = epoch("2026-09-14 23:30:00")
    bundle = Bundle(start)
    for host in cluster.hosts:
        lines: list[str] = []
        for n in range(24):
            offset, state = rng.randrange(-40, 41), "s2"
            if host is guilty and (n % 6 == 3 or n > 20):
                lines.append(
                    journal(
                        start - 60 + n,
                        host.name,
                        "ptp4l[911]",
                        f"[{81000 + n}.100] clockcheck: clock jumped backward or running slower than expected!",
                    )
                )
                offset, state = rng.choice((-1, 1)) * rng.randrange(60_000, 900_000), "s0"
            lines.append(
                journal(
                    start - 60 + n,
                    host.name,
                    "ptp4l[911]",
                    f"[{81000 + n}.110] master offset {offset:10d} {state} freq  -{1100 + n} path delay       {rng.randrange(300, 306)}",
                )
            )
            if host is guilty and n == 20:
                lines.append(
                    journal(
                        start - 60 + n,
                        host.name,
                        "ptp4l[911]",
                        f"[{81000 + n}.120] port 1 (eth2): SLAVE to UNCALIBRATED on SYNCHRONIZATION_FAULT",
                    )
                )
        bundle.add(
            f"{host.name}/clock/journal-ptp4l.txt",
            lines,
            host=host.name,
            command="journalctl -u ptp4l --since -1h -o short-iso",
        )
    bundle.add("job/train.log", torchlog.steps(start - 1200, rng, 20, 900), command="tail -20 train.log")
    surround(bundle, cluster, rng, busy=True, skip=["clock"])
    rule = "clock/step-or-ptp-unlocked"
    told = bundle.files[f"{guilty.name}/clock/journal-ptp4l.txt"].count("\n")
    last = f"{guilty.name}/clock/journal-ptp4l.txt:{told}"
    return Scenario(bundle, Truth(
        roots=[rule],
        consequences=["clock/stepped"],
        absent=SILENT,
        subjects={rule: {"host": [guilty.name]}},
        evidence={rule: [last]},
        first=[[guilty.name], [last], []],
        never=[h.name for h in cluster.hosts if h is not guilty],
        exit=0,
    ))  # fmt: skip
