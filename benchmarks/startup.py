#!/usr/bin/env python3
"""What a start costs, as a multiple of `python -c pass` in the same run. Budget: 6.

python3 benchmarks/startup.py [runs]      exit 1 when over budget
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

BUDGET = 6.0
CALLS = {
    "python -c pass": ["-c", "pass"],
    "diagnose --version": ["-m", "diagnose", "--version"],
    "diagnose --help": ["-m", "diagnose", "--help"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one fresh interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Interleaved runs, so that a busy machine slows all of them; the median counts."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[float]] = {name: [] for name in CALLS}
    for _ in range(runs):
        for name, arguments in CALLS.items():
            times[name].append(seconds(arguments))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    base = medians["python -c pass"]
    worst = 0.0
    for name, taken in medians.items():
        print(f"{name:20} {taken * 1000:7.1f} ms   {taken / base:5.2f} x")
        worst = max(worst, taken / base)
    print(f"worst {worst:.2f} x, budget {BUDGET:.0f} x")
    return 0 if worst <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
