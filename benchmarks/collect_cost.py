"""What a collection costs the host and the job: CPU seconds, peak memory, bytes, and the longest pause inside a rank.

    python benchmarks/collect_cost.py [--ranks 4] [--python PYTHON] [--seconds 20] [-- collect options]

Ranks are Python processes that look like ranks (RANK, a mapped libnccl, several threads). In each a thread stamps the
monotonic clock every millisecond and remembers its longest gap, first without and then during a collection: the
difference is the collector's doing, since a busy machine pauses threads by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
RANK = """
import mmap, signal, sys, threading, time
with open(sys.argv[1], "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
gaps = []
def stamp():
    last, worst, over = time.monotonic(), 0.0, 0
    while True:
        time.sleep(0.001)
        now = time.monotonic()
        worst, over = max(worst, now - last), over + (now - last > 0.01)
        last = now
        if asked.is_set():
            asked.clear()
            gaps.append((worst, over))
            worst, over, last = 0.0, 0, time.monotonic()
asked = threading.Event()
threading.Thread(target=stamp, daemon=True).start()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("up", flush=True)
for line in sys.stdin:
    asked.set()
    while asked.is_set():
        time.sleep(0.001)
    print("%.6f %d" % gaps[-1], flush=True)
"""


class Rank:
    """A process that measures its own pauses."""

    def __init__(self, python: str, number: int, world: int, library: Path, threads: int) -> None:
        env = {
            **os.environ,
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(world),
            "MASTER_PORT": "29999",
        }
        self.process = subprocess.Popen(
            [python, "-c", RANK, str(library), str(threads)], env=env, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, cwd=library.parent,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def pause(self) -> tuple[float, int]:
        """Longest pause in seconds since the last question, and the number of those over 10 ms."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        worst, over = self.process.stdout.readline().split()
        return float(worst), int(over)


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=40, help="threads of each rank")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the ranks, with py-spy beside it")
    parser.add_argument("--seconds", type=float, default=10, help="how long pauses are measured without a collection")
    args, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="collect-cost-") as name:
        folder = Path(name)
        (folder / "libnccl.so.2.21.5").write_bytes(b"\0" * 4096)
        ranks = [
            Rank(args.python, n, args.ranks, folder / "libnccl.so.2.21.5", args.threads) for n in range(args.ranks)
        ]
        try:
            print(json.dumps(measure(ranks, folder, args.seconds, options), indent=2))
        finally:
            for rank in ranks:
                rank.process.send_signal(signal.SIGKILL)
                rank.process.wait()


def measure(ranks: list[Rank], folder: Path, seconds: float, options: list[str]) -> dict[str, object]:
    """Pauses at rest, then a collection with its cost and the pauses during it."""
    for rank in ranks:
        rank.pause()
    time.sleep(seconds)
    rest = [rank.pause() for rank in ranks]
    out = folder / "b.tar.gz"
    command = [sys.executable, "-m", "diagnose.collect", "-q", "--out", str(out), *(o for o in options if o != "--")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=TOP, stdout=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        peak = max(peak, tree_memory(child.pid))
        time.sleep(0.02)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    during = [rank.pause() for rank in ranks]
    return {
        "ranks": len(ranks),
        "exit_code": child.returncode,
        "wall_s": round(wall, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_memory_mib": round(peak / 1024, 1),
        "archive_bytes": out.stat().st_size if out.exists() else 0,
        "longest_pause_ms": {"at_rest": worst_ms(rest), "during": worst_ms(during)},
        "pauses_over_10_ms_per_s": {
            "at_rest": round(sum(n for _, n in rest) / seconds, 2),
            "during": round(sum(n for _, n in during) / wall, 2),
        },
    }  # fmt: skip


def worst_ms(pauses: list[tuple[float, int]]) -> float:
    """Longest of all, in ms."""
    return round(max(worst for worst, _ in pauses) * 1000, 2)


def tree_memory(pid: int) -> int:
    """Memory of a process and what it started, in KiB; pages that several share count once (PSS)."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
            children = " ".join((t / "children").read_text() for t in Path(f"/proc/{one}/task").iterdir())
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
        waiting += [int(p) for p in children.split()]
    return total


if __name__ == "__main__":
    main()
