"""How many hosts `collect --hosts` bears: `fleet_load.py [--hosts 64] [--megabytes 4] [--fanout 128] [--real]`.

Starts that many sshd on loopback ports, sends a collector to all of them and prints wall time, bytes, failures, the CPU
time of the collecting side and its largest memory. The far ends pack random bytes (which do not compress); each digest
is compared. `--columns 76` shows what lines of usual base64 would cost. With `--real` the true collector runs on each
"host", with `--quick`: then this machine's CPUs decide.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP), str(TOP / "tests" / "fleet")]

import fleet_support as support  # noqa: E402

from diagnose.collect import pyz  # noqa: E402
from diagnose.fleet import engine, ssh  # noqa: E402

BODY = """
data = os.urandom({size})
files["host/random.bin"] = data
open({place!r} + "/" + host, "w").write(hashlib.sha256(data).hexdigest())
"""


def main() -> int:
    """Print the figures; 1 when a host failed or a digest differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--fanout", type=int, default=128)
    parser.add_argument("--columns", type=int, default=ssh.COLUMNS)
    parser.add_argument("--real", action="store_true")
    args = parser.parse_args()
    engine.MANY_LINES = 1 << 30
    ssh.order.__kwdefaults__["columns"] = args.columns
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "told").mkdir()
        hosts = [f"node{n:03d}" for n in range(1, args.hosts + 1)]
        with support.farm(folder, hosts) as farm:
            return measure(args, folder, farm)


def measure(args: argparse.Namespace, folder: Path, farm: support.Farm) -> int:
    """One collection of all hosts."""
    body = BODY.format(size=int(args.megabytes * 1e6), place=str(folder / "told"))
    program = pyz.program("benchmark") if args.real else support.stand_in(body)
    visits = support.visits_of(farm.hosts)
    plan = support.gather.Plan(
        visits, ssh.links(visits, program, ["--quick"] if args.real else [], 100, sys.executable)
    )
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    most = [0]

    def show(count: support.gather.Count) -> None:
        most[0] = max(most[0], count.running)

    out, _ = support.gather.gather(plan, folder / "b.tar.gz", {}, bytes, show, ssh=farm.ssh, fanout=args.fanout)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    manifest, files = support.contents(out)
    failed = [v for v in visits if v.state != "arrived"]
    wrong = [] if args.real else [h for h in farm.hosts if not same(folder, h, files)]
    sent = sum(v.size for v in visits)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"hosts {len(visits)}, at a time {most[0]}, failed {len(failed)}, wrong digests {len(wrong)}")
    rate, packed = sent / 1e6 / wall, out.stat().st_size / 1e6
    print(f"wall {wall:.1f} s, archives {sent / 1e6:.1f} MB, {rate:.1f} MB/s, bundle {packed:.1f} MB")
    memory = after.ru_maxrss / 1024
    print(f"collecting side: {cpu:.1f} s of CPU, {memory:.0f} MB at most; {len(manifest['files'])} files")
    for visit in failed[:5]:
        print(f"  {visit.name}: {visit.reason}")
    return 1 if failed or wrong else 0


def same(folder: Path, host: str, files: dict[str, bytes]) -> bool:
    """Whether the random bytes of a host are those that it wrote."""
    told = folder / "told" / host
    return told.is_file() and hashlib.sha256(files.get(f"{host}/host/random.bin", b"")).hexdigest() == told.read_text()


if __name__ == "__main__":
    sys.exit(main())
