"""One collection from beginning to end."""

import os
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional, Tuple

from . import discover, logs, plan, rankplan, rasplan, rewrite
from .executor import Executor
from .options import BadOption, Options
from .secrets import Cleaner, is_secret_name, secret_values
from .takes import FIRST, SECOND, Missing, Take, twice
from .writer import SCHEMA, DiskFull, Writer, pack, strip_endings, utc

COMPLETE, NOTHING, PARTIAL, INTERRUPTED = 0, 2, 3, 130
NICENESS = 5
QUICK_COMMAND_S = 3.0
"""Time limit of every command with --quick."""


class Collection(object):
    """A collection while it runs. `run` returns the exit code."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.found = discover.Found()
        self.cleaner = Cleaner()
        self.interrupted = False
        self.executor: Optional[Executor] = None
        self.began = time.time()
        self.temporary: Optional[str] = None

    # --- what is wanted ----------------------------------------------------------------------------

    def dry_run(self) -> int:
        """Print every command and file."""
        self._find()
        takes, missing = plan.plan(self.options, self.found)
        takes = plan.chosen(self.options, plan.slurm(self.found)) + takes
        for take in takes:
            print("%-5s %s" % ({FIRST: "t0", SECOND: "t1"}.get(take.phase, "once"), take.command))
        for wanted in logs.find_logs(self.found, self.options.logs)[0] + logs.find_dumps(self.found):
            print("copy  %s" % wanted.shown)
        asked, refused = rasplan.plan(self.found, self.options.ras, (), ())
        for take in twice(asked):
            print("%-5s %s" % ({FIRST: "t0", SECOND: "t1"}.get(take.phase), take.command))
        for p in self.found.processes:
            print(
                "# %s pid %d%s: %s"
                % (p.role, p.pid, "" if p.rank is None else " rank %d" % p.rank, self._clean(" ".join(p.cmdline)[:150]))
            )
        for what, why in missing + refused:
            print("# not taken: %s: %s" % (what, why))
        return COMPLETE

    def _find(self) -> None:
        """The processes, and what their environments hold of credentials."""
        self.found = discover.find(self.options.pids)
        for env in [p.all_env for p in self.found.processes] + [dict(os.environ)]:
            self.cleaner.learn(secret_values(env))

    # --- the collection ----------------------------------------------------------------------------

    def run(self) -> int:
        """Collect, close the bundle and say what is in it."""
        out, folder = self._places()
        _be_modest()
        self._find()
        try:
            writer = Writer(folder, self._head(), self.cleaner.clean, self.cleaner.masked)
        except DiskFull:
            print("no room for a bundle at %s" % folder, file=sys.stderr)
            return NOTHING
        self.executor = Executor(writer, self.options.host, self.options.total_cap, self._say)
        former = _on_signals(self._interrupt)
        try:
            self._take_all(writer, self.executor)
        finally:
            _restore(former)
        return self._finish(writer, out)

    def _places(self) -> Tuple[str, str]:
        """The final name and that of the growing folder."""
        out = self.options.out
        if out == "-":
            self.temporary = tempfile.mkdtemp(prefix="diagnose-collect-")
            return "-", os.path.join(self.temporary, "bundle.partial")
        if out is None:
            out = "diagnose-%s-%%t.tar.gz" % ("redacted" if self.options.redact else "%h")
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.began))
        out = os.path.abspath(out.rstrip("/").replace("%h", self.options.host).replace("%t", stamp))
        for path in (out, strip_endings(out) + ".partial"):
            if os.path.lexists(path):
                raise BadOption("%s is there already" % path)
        if not os.path.isdir(os.path.dirname(out)):
            raise BadOption("no folder %s" % os.path.dirname(out))
        if not os.access(os.path.dirname(out), os.W_OK):
            raise BadOption("%s cannot be written to; --out names another place" % os.path.dirname(out))
        return out, strip_endings(out) + ".partial"

    def _head(self) -> Dict[str, Any]:
        system = os.uname()
        age = self.found.age
        return {
            "schema": SCHEMA,
            "tool": {"name": "diagnose collect", "version": self.options.version},
            "by": self._clean(self.options.by),
            "host": self.options.host,
            "created": utc(self.began),
            "started": utc(self.began),
            "collector": {
                "python": sys.version.split()[0],
                "root": os.geteuid() == 0,
                "kernel": system[2],
                "machine": system[4],
                "name": system[1],
            },
            "processes": [self._process(p) for p in self.found.processes],
            **({} if age is None else {"job_began": utc(self.began - age)}),
        }

    def _process(self, p: discover.Process) -> Dict[str, Any]:
        known = {
            "pid": p.pid,
            "role": p.role,
            "rank": p.rank,
            "local_rank": p.local_rank,
            "world": p.world,
            "ppid": p.ppid,
            "inner_pid": p.nspid[-1] if len(p.nspid) > 1 else None,
            "comm": p.comm,
            "command": self._clean(" ".join(p.cmdline)[:2000]),
            "state": p.state,
            "threads": p.threads,
            "container": p.container() or None,
            "cgroup": p.cgroup.strip().split("\n")[-1][:500],
            "libraries": p.libraries,
            "devices": p.devices[:64],
            "stdout": p.stdout,
            "stderr": p.stderr,
        }
        return {k: v for k, v in known.items() if v not in (None, "", [])}

    def _take_all(self, writer: Writer, executor: Executor) -> None:
        options = self.options
        executor.end = time.monotonic() + options.limit
        executor.interval = options.interval
        executor.command_limit = QUICK_COMMAND_S if options.quick else 600.0
        takes, missing = plan.plan(options, self.found)
        executor.start(plan.chosen(options, plan.slurm(self.found)) + takes)
        self._miss(writer, missing)
        self._tell_what_is_missing(writer, executor)
        self._environments(writer)
        executor.wait(["slurm"], 9.0)
        executor.start(self._logs(writer))
        executor.wait(["stacks", "logs"], options.limit / 3, first_only=True)
        if not self.interrupted:
            workers = rankplan.worker_stacks(options, self.found, self._texts("stacks/py-spy"))
            executor.start(plan.chosen(options, workers) + self._ras(writer))
        executor.join()

    def _tell_what_is_missing(self, writer: Writer, executor: Executor) -> None:
        for pid, why in self.found.unreadable:
            writer.miss("process %d" % pid, why)
            executor.incomplete += 1
        if self.found.others:
            pids = " ".join(str(p.pid) for p in self.found.others[:20])
            writer.miss("processes %s" % pids, "belong to other jobs on this host; --pid names those to collect")
        if not self.found.ranks:
            hint = "" if os.geteuid() == 0 else "; those of others are seen by root only"
            writer.miss("training processes", "none found on this host" + hint)

    def _miss(self, writer: Writer, missing: List[Missing]) -> None:
        for what, why in missing:
            writer.miss(what, why, host=self.options.host)

    def _environments(self, writer: Writer) -> None:
        if not self._wanted("env"):
            return
        for p in self.found.ranks:
            lines = [
                "%s=%s\n" % (k, "[SECRET]" if is_secret_name(k) else v.replace("\n", "\\n"))
                for k, v in sorted(p.env.items())
            ]
            left = sorted(k for k in p.all_env if k not in p.env)
            entry = {
                "host": self.options.host,
                "command": "/proc/%d/environ" % p.pid,
                "start": utc(time.time()),
                "left_out": len(left),
            }
            if p.rank is not None:
                entry["rank"] = p.rank
            path = "%s/env/env.%s.txt" % (self.options.host, p.label)
            writer.put(path, "".join(lines).encode("utf-8", "surrogateescape"), entry)

    def _logs(self, writer: Writer) -> List[Take]:
        wanted: List[logs.Wanted] = []
        missing: List[Missing] = []
        if self._wanted("logs"):
            wanted, missing = logs.find_logs(self.found, self.options.logs)
            for text in self._texts("slurm/scontrol-job"):
                wanted += logs.slurm_logs(text.decode("utf-8", "replace"))
        dumps = logs.find_dumps(self.found) if self._wanted("flight_recorder") else []
        there, silent = logs.probe(wanted + dumps)
        if dumps and not any(w.kind == "flight_recorder" for w in there):
            missing.append(
                (
                    "flight-recorder dumps",
                    "none written: looked at %s" % ", ".join(sorted({w.shown for w in dumps})[:3]),
                )
            )
        made, left = logs.takes(there, self.options.log_cap, self.options.since)
        self._miss(writer, missing + silent + left)
        if silent and self.executor:
            self.executor.incomplete += len(silent)
        return plan.chosen(self.options, made)

    def _ras(self, writer: Writer) -> List[Take]:
        if not self._wanted("ras"):
            return []
        asked, missing = rasplan.plan(self.found, self.options.ras, self._texts("stacks/py-spy"), self._texts("logs/"))
        self._miss(writer, missing)
        return twice(asked)

    def _wanted(self, topic: str) -> bool:
        return topic not in self.options.exclude and (not self.options.include or topic in self.options.include)

    def _texts(self, start: str) -> List[bytes]:
        """What was collected so far in files whose path below the host begins so."""
        if self.executor is None:
            return []
        writer = self.executor.writer
        found = []
        for entry in list(writer.files):
            if entry["path"].startswith(self.options.host + "/" + start):
                with open(os.path.join(writer.folder, entry["path"]), "rb") as handle:
                    found.append(handle.read(16 << 20))
        return found

    # --- the end -----------------------------------------------------------------------------------

    def _finish(self, writer: Writer, out: str) -> int:
        executor = self.executor
        assert executor is not None
        if not writer.files:
            shutil.rmtree(writer.folder, ignore_errors=True)
            for item in writer.absent[:10]:
                print("%s: %s" % (item["what"][:100], item["reason"]), file=sys.stderr)
            print("nothing was collected", file=sys.stderr)
            return INTERRUPTED if self.interrupted else NOTHING
        code = INTERRUPTED if self.interrupted else PARTIAL if executor.incomplete or writer.full else COMPLETE
        writer.note(
            complete=code == COMPLETE, interrupted=self.interrupted, duration_s=round(time.time() - self.began, 1)
        )
        if self.cleaner.found:
            writer.clean_again()
        names = None
        if self.options.redact:
            names = rewrite.redact_folder(writer, self.options.version)
        if out == "-":
            writer.flush(force=True)
            try:
                pack(writer.folder, self.options.host, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise BadOption("whoever was to read the archive has gone: it is lost")
            finally:
                shutil.rmtree(self.temporary or writer.folder, ignore_errors=True)
            return code
        final = writer.close(out)
        if names is not None:
            rewrite.write_map(rewrite.map_beside(final), names)
        self._summary(writer, final)
        return code

    def _summary(self, writer: Writer, final: str) -> None:
        if not self.options.quiet:
            reasons: Dict[str, int] = {}
            for item in writer.absent:
                reason = item["reason"].split(":")[0]
                reasons[reason] = reasons.get(reason, 0) + 1
            told = ", ".join("%d %s" % (n, r) for r, n in sorted(reasons.items(), key=lambda i: -i[1])[:5])
            ranks = sorted(p.rank for p in self.found.ranks if p.rank is not None)
            print(
                "%d files of %d ranks in %.0f s; absent: %s"
                % (len(writer.files), len(ranks), time.time() - self.began, told or "nothing"),
                file=sys.stderr,
            )
            if os.geteuid() != 0:
                print("root would add: kernel stacks, lspci link states, dmesg, processes of others", file=sys.stderr)
            print("next: diagnose analyze %s" % final, file=sys.stderr)
        print(final)

    def _interrupt(self, *_: Any) -> None:
        if self.interrupted:
            return
        self.interrupted = True
        print("interrupted: closing the bundle", file=sys.stderr)
        if self.executor is not None:
            self.executor.interrupt()

    def _say(self, text: str) -> None:
        if self.options.verbose:
            print(self._clean(text), file=sys.stderr)

    def _clean(self, text: str) -> str:
        return self.cleaner.text(text)


def _be_modest() -> None:
    """Give way to the job: lower priority, and the first to go when memory runs out."""
    os.umask(0o077)
    try:
        os.nice(NICENESS)
        with open("/proc/self/oom_score_adj", "r+") as handle:
            if int(handle.read()) < 900:
                handle.seek(0)
                handle.write("900")
    except (OSError, ValueError):
        return


def _on_signals(handler: Any) -> Dict[int, Any]:
    former = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        former[number] = signal.signal(number, handler)
    return former


def _restore(former: Dict[int, Any]) -> None:
    for number, handler in former.items():
        signal.signal(number, handler)
