"""Flight-recorder dumps of large jobs: wall time and memory against merely unpickling the same files safely.

    python benchmarks/stall_scale.py [--ranks 256 1024 4096] [--huge] [--entries 2000] [--jobs N] [--folder DIR]

Prints, per size, the seconds of unpickling on one core, the seconds of the whole analysis, their ratio, the peak of
resident memory over all processes; and the slope between the smallest and the largest size.
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PER_HOST, TP = 8, 8
OPS = (
    ("_all_gather_base", [2048, 1, 4096], [16384, 1, 4096]),
    ("_reduce_scatter_base", [16384, 1, 4096], [2048, 1, 4096]),
)
FRAMES = [{"name": f"layer_{n}", "filename": "/opt/train/model.py", "line": 100 + n} for n in range(12)]

_UNPICKLE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from diagnose.parsing.plain import load_pickle
files = sorted(Path(sys.argv[2]).rglob("nccl_trace_rank_*"))
started = time.perf_counter()
for file in files:
    load_pickle(file.read_bytes())
print(time.perf_counter() - started)
"""
_ANALYSE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from diagnose.run import Options, analyse

def main():
    started = time.perf_counter()
    found = analyse([sys.argv[2]], Options(jobs=int(sys.argv[3]) or None, site=Path(sys.argv[4])))
    seconds = time.perf_counter() - started
    ranks = [s.name for f in found.findings for s in f.subjects if s.kind == "rank"]
    print(seconds, ",".join(ranks) or "nobody")

if __name__ == "__main__":
    main()
"""


def dump(rank: int, world: int, entries: int, late: int) -> bytes:
    """2000 operations of tensor and data parallel groups; one rank stopped three operations early."""
    first = rank // TP * TP
    tp, dp = str(1 + rank // TP), str(1 + world // TP + rank % TP)
    groups = {
        "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))},
        tp: {"name": tp, "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": str(list(range(first, first + TP)))},
        dp: {"name": dp, "desc": "DATA_PARALLEL_GROUP", "ranks": str(list(range(rank % TP, world, TP)))},
    }  # fmt: skip
    numbers = {tp: 0, dp: 0}
    found: list[dict[str, Any]] = []
    count = entries - (3 if rank == late else 0)
    stuck = entries - 3
    for n in range(count):
        name = dp if n % 10 == 9 else tp
        numbers[name] += 1
        op, sizes, outs = OPS[n % 2]
        state = "completed" if n < stuck else "scheduled"
        found.append({
            "record_id": 10_000 + n, "pg_id": 1 if name == tp else 2,
            "process_group": (name, "TENSOR_MODEL_PARALLEL_GROUP" if name == tp else "DATA_PARALLEL_GROUP"),
            "collective_seq_id": numbers[name], "p2p_seq_id": 0, "op_id": numbers[name], "profiling_name": f"nccl:{op}",
            "time_created_ns": 1_780_000_000_000_000_000 + n * 4_000_000, "input_sizes": [sizes],
            "input_dtypes": ["BFloat16"], "output_sizes": [outs], "output_dtypes": ["BFloat16"], "state": state,
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": 1_780_000_000_001_000_000 + n * 4_000_000 if state == "completed" else None,
            "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": False, "thread_id": "139842776893184",
            "thread_name": "python3", "frames": FRAMES,
        })  # fmt: skip
    status = {n: dict.fromkeys(("last_enqueued_collective", "last_started_collective", "last_completed_collective"), -1)
              for n in ("0", "1", "2")}  # fmt: skip
    return pickle.dumps(
        {"version": "2.10", "pg_config": groups, "comm_lib_version": "2.27.5", "pg_status": status, "entries": found}, 2
    )  # fmt: skip


def write(folder: Path, world: int, entries: int) -> int:
    """All dumps of a job; returns the late rank."""
    late = world * 5 // 7
    for rank in range(world):
        host = folder / f"gpu{rank // PER_HOST:04d}"
        host.mkdir(parents=True, exist_ok=True)
        (host / f"nccl_trace_rank_{rank}").write_bytes(dump(rank, world, entries, late))
    return late


class _Memory(threading.Thread):
    """Samples the resident memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self.peak = pid, 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.25):
            self.peak = max(self.peak, sum(_rss(pid) for pid in _tree(self._pid)))


def _tree(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def _rss(pid: int) -> int:
    try:
        return int((Path("/proc") / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def timed(code: str, *arguments: str) -> tuple[list[str], int, float]:
    """Output words, peak memory and CPU seconds (with all its processes) of a Python program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT), *arguments], stdout=subprocess.PIPE, text=True
    ) as child:
        memory = _Memory(child.pid)
        memory.start()
        output, _ = child.communicate()
        memory.done.set()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return output.split(), memory.peak, cpu


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--huge", action="store_true", help="16,384 ranks as well: 6 GB of dumps")
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    rows: list[tuple[int, float, float]] = []
    script = Path(tempfile.mkdtemp(prefix="stall-scale-")) / "analyse.py"
    script.write_text(_ANALYSE)
    for world in [*options.ranks, *([16_384] if options.huge else [])]:
        folder = Path(tempfile.mkdtemp(prefix=f"dumps-{world}-", dir=options.folder))
        late = write(folder, world, options.entries)
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        (plain, *_), _, plain_cpu = timed(_UNPICKLE, str(folder))
        code = f"import runpy, sys; sys.argv = sys.argv[:]; runpy.run_path({str(script)!r}, run_name='__main__')"
        output, peak, cpu = timed(code, str(folder), str(options.jobs), str(ROOT / "fixtures" / "site" / "none.toml"))
        seconds, named = float(output[0]), output[1]
        rows.append((world, float(plain), seconds))
        print(
            f"{world:6d} ranks {size / 1e6:8.0f} MB: unpickling {float(plain):7.1f} s, analysis {seconds:7.1f} s,"
            f" ratio {seconds / float(plain):.2f} (CPU {plain_cpu:.1f} and {cpu:.1f} s: {cpu / plain_cpu:.2f}),"
            f" peak {peak / 1e6:.0f} MB, named {named} (late: {late})",
            flush=True,
        )
        shutil.rmtree(folder)
    if len(rows) > 1:
        (_, p0, a0), (_, p1, a1) = rows[0], rows[-1]
        print(f"slope {(a1 - a0) / (p1 - p0):.2f} seconds of analysis per second of unpickling")


if __name__ == "__main__":
    main()
