"""How fast big NCCL logs are analysed, beside ripgrep and wc on the same files in the same run.

`nccl_speed.py [--sizes 120 1200] [--ranks 2048] [--repeat 3] [--keep DIR]` writes logs of those sizes (megabytes),
runs `diagnose analyze`, `rg -c` and `wc -l` on each in turn, and prints the best wall time and the peak memory of each,
and the slopes: difference of wall times by difference of sizes. Wanted: slope at most 10 times that of rg, at most
300 MB, and at the last size at most 1.2 times the memory of the first. Exit code 1 when one of these is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import nccl_generate

PATTERN = r"^[^\s:]+:\d+:\d+ \[\d+\] .*NCCL (INFO|WARN) "
MAX_RATIO = 10.0
MAX_MEMORY_MB = 300.0
MAX_GROWTH = 1.2
ROOT = Path(__file__).parents[1]


class Run(NamedTuple):
    """One command on one file: wall and processor seconds, peak memory in MB."""

    wall: float
    cpu: float
    memory: float


def measure(command: list[str]) -> Run:
    """Run a command to its end; RuntimeError when it fails otherwise than by findings."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {said[-500:]!r}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def best(runs: list[Run]) -> Run:
    """Shortest times and largest memory."""
    return Run(min(r.wall for r in runs), min(r.cpu for r in runs), max(r.memory for r in runs))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=float, nargs=2, default=(120.0, 1200.0), metavar="MB")
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder that keeps the logs; those already there are used")
    told = parser.parse_args()
    if shutil.which("rg") is None:
        print("ripgrep (rg) is needed to compare with", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = told.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        files = [_log(folder, size, told.ranks) for size in told.sizes]
        commands = {
            "diagnose": [sys.executable, "-m", "diagnose", "-q", "analyze", "--format", "json"],
            "rg -c": ["rg", "-c", PATTERN],
            "wc -l": ["wc", "-l"],
        }
        taken: dict[tuple[str, int], list[Run]] = {}
        for _ in range(told.repeat):
            for number, file in enumerate(files):
                for name, command in commands.items():
                    taken.setdefault((name, number), []).append(measure([*command, str(file)]))
        sizes = [file.stat().st_size / 1e6 for file in files]
    return _report({key: best(runs) for key, runs in taken.items()}, list(commands), sizes)


def _log(folder: Path, size: float, ranks: int) -> Path:
    file = folder / f"nccl-{ranks}-{size:g}.log"
    if not file.exists():
        with file.open("w", encoding="ascii") as out:
            nccl_generate.write(out, int(size * 1e6), ranks, seed=7)
    return file


def _report(runs: dict[tuple[str, int], Run], names: list[str], sizes: list[float]) -> int:
    print(f"{'':10s} " + " ".join(f"{size:8.0f} MB: wall  cpu  peak" for size in sizes) + "   ms/MB")
    slopes: dict[str, float] = {}
    for name in names:
        slopes[name] = 1e3 * (runs[name, 1].wall - runs[name, 0].wall) / (sizes[1] - sizes[0])
        cells = (f"{r.wall:12.2f} s {r.cpu:6.2f} s {r.memory:5.0f} MB" for r in (runs[name, 0], runs[name, 1]))
        print(f"{name:10s} " + " ".join(cells) + f" {slopes[name]:7.2f}")
    ratio = slopes["diagnose"] / slopes["rg -c"]
    peak, growth = runs["diagnose", 1].memory, runs["diagnose", 1].memory / runs["diagnose", 0].memory
    print(f"slope: {ratio:.1f} x rg (wanted {MAX_RATIO:g}); peak {peak:.0f} MB (wanted {MAX_MEMORY_MB:g}); "
          f"growth {growth:.2f} (wanted {MAX_GROWTH:g})")  # fmt: skip
    return 0 if ratio <= MAX_RATIO and peak <= MAX_MEMORY_MB and growth <= MAX_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
