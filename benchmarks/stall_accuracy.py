"""How often the right ranks are named: simulated incidents through the whole chain.

    python benchmarks/stall_accuracy.py [--incidents 1000] [--largest 4096] [--seed N] [--jobs 2]

The seed is drawn and printed; `--only SEED` analyses one incident and prints what was said. An answer is *exact* when
the ranks named by findings that are no consequences are those of the fault (for a dead NIC: its host, and no rank),
*wrong* when a rank is named that has no part in it, *open* when nothing is named and the report says that it cannot
tell and asks for what would decide it, *unasked* when it says so and asks for something else.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from simulator.incident import Incident, incident  # noqa: E402

from diagnose import packs, rulebook  # noqa: E402
from diagnose.model import Diagnosis, unfold_ranks  # noqa: E402
from diagnose.run import NothingAnalysed, Options, analyse  # noqa: E402

NO_BLAME = ("stall/undetermined", "stall/standstill", "stall/snapshot-difference")
NO_SITE = ROOT / "fixtures" / "site" / "none.toml"


def load_rules_once() -> None:
    """The same rules for every incident of this process."""
    rules = rulebook.load((packs.builtin("rules"),))
    rulebook.load = lambda *_, **__: rules  # type: ignore[assignment]


def named(diagnosis: Diagnosis) -> tuple[set[int], set[str], bool]:
    """Ranks and hosts named by roots at or above minor, and whether the report says that it cannot tell."""
    ranks: set[int] = set()
    hosts: set[str] = set()
    open_ = False
    for finding in diagnosis.findings:
        if finding.severity == "info" or finding.role != "root":
            continue
        if finding.id in NO_BLAME:
            open_ = True
            continue
        for subject in finding.subjects:
            if subject.kind == "rank":
                ranks.update(unfold_ranks(subject.name))
            elif subject.kind == "host":
                hosts.add(subject.name)
    return ranks, hosts, open_


def asks_rightly(case: Incident, diagnosis: Diagnosis) -> bool:
    """Whether a step of a report that cannot tell would decide this incident; look-alikes are always listed, so they
    do not count."""
    commands = [str(step.command) for f in diagnosis.findings if f.id in NO_BLAME for step in f.remediation]
    return any(word in command for word in case.asks for command in commands)


def judge(case: Incident, diagnosis: Diagnosis) -> str:
    """exact, wrong, missed (quiet although something is broken), open or partly."""
    ranks, hosts, open_ = named(diagnosis)
    told = any(f.id in NO_BLAME for f in diagnosis.findings)
    unsure = "missed" if not told else "open" if asks_rightly(case, diagnosis) else "unasked"
    if case.fault == "healthy":
        return "exact" if not ranks and not hosts and not open_ else "wrong" if ranks else "alarm"
    guilty = set().union(*case.answers)
    if case.fault == "dead-nic":
        if ranks:
            return "wrong"
        return "exact" if case.host in hosts else unsure
    if ranks - guilty:
        return "wrong"
    if ranks in case.answers and (ranks or case.host in hosts):
        return "exact"
    if ranks:
        return "partly"
    return unsure


def run_one(seed: int, largest: int) -> dict[str, Any]:
    """The verdict on one incident."""
    started = time.perf_counter()
    case = incident(seed, largest)
    made = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="incident-") as folder:
        case.write(Path(folder))
        try:
            diagnosis = analyse([folder], Options(site=NO_SITE, jobs=1))
            verdict = judge(case, diagnosis)
            ranks, hosts, _ = named(diagnosis)
        except NothingAnalysed:
            verdict, ranks, hosts = "missed", set(), set()
    return {
        "seed": seed, "fault": case.fault, "evidence": case.evidence, "world": case.world, "verdict": verdict,
        "named": sorted(ranks)[:12], "hosts": sorted(hosts)[:4], "answers": [sorted(a)[:12] for a in case.answers],
        "may_pass": case.may_pass, "full": case.full, "seconds": (made - started, time.perf_counter() - made),
    }  # fmt: skip


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--incidents", type=int, default=1000)
    parser.add_argument("--largest", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None)
    options = parser.parse_args()
    if options.only is not None:
        if options.keep:
            incident(options.only, options.largest).write(options.keep)
        print(run_one(options.only, options.largest))
        return
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 40)
    print(f"seed {seed}, {options.incidents} incidents of 8 to {options.largest} ranks", flush=True)
    draw = Random(seed)
    seeds = [draw.randrange(1 << 40) for _ in range(options.incidents)]
    with ProcessPoolExecutor(options.jobs, initializer=load_rules_once) as pool:
        results = list(pool.map(run_one, seeds, [options.largest] * len(seeds), chunksize=4))
    report(results)


def report(results: list[dict[str, Any]]) -> None:
    """Tables and figures."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for r in results:
        table[r["fault"]][r["verdict"]] += 1
        if r["verdict"] not in ("exact",) and not (r["verdict"] == "open" and r["may_pass"]):
            print("  not exact:", {k: v for k, v in r.items() if k != "seconds"})
    verdicts = ("exact", "open", "unasked", "partly", "missed", "alarm", "wrong")
    print(f"{'fault':16s}" + "".join(f"{v:>8s}" for v in verdicts))
    for fault, found in sorted(table.items()):
        print(f"{fault:16s}" + "".join(f"{found[v]:8d}" for v in verdicts))
    n = len(results)
    count = Counter(r["verdict"] for r in results)
    tellable = [r for r in results if not r["may_pass"]]
    exact = sum(r["verdict"] == "exact" for r in tellable)
    full = [r for r in tellable if r["full"]]
    unsure = sum(r["verdict"] in ("open", "unasked", "missed", "partly") for r in full)
    print(
        f"exact {count['exact'] / n:.2%} of all {n};"
        f" {exact / len(tellable):.2%} of the {len(tellable)} that can be told"
    )
    print(f"a wrong rank blamed: {count['wrong'] / n:.2%}; false alarm in {count['alarm']} healthy jobs")
    print(f"cannot tell on full evidence: {unsure / max(1, len(full)):.2%} of {len(full)}")
    print(
        f"seconds: making {sum(r['seconds'][0] for r in results):.0f},"
        f" analysing {sum(r['seconds'][1] for r in results):.0f}"
    )


if __name__ == "__main__":
    main()
