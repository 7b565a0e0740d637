"""What the user asks for. The same arguments serve `diagnose collect` and the one-file program."""

import argparse
import os
import re
import time
from typing import Any, List, Optional

SECTIONS = (
    "gpu",
    "net",
    "rdma",
    "ip",
    "time",
    "host",
    "kernel",
    "pci",
    "cgroup",
    "proc",
    "stacks",
    "ras",
    "logs",
    "flight_recorder",
    "slurm",
    "env",
)
"""Topics of takes: the folders of a bundle, for --include and --exclude."""

SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


class BadOption(Exception):
    """An option's value makes no sense; the text says why."""


class Options(object):
    """Settings of one collection; times in seconds, sizes in bytes."""

    def __init__(self) -> None:
        self.out: Optional[str] = None
        self.host = ""
        self.dry_run = False
        self.include: List[str] = []
        self.exclude: List[str] = []
        self.since = 0.0
        self.since_text = ""
        self.quick = False
        self.interval = 15.0
        self.limit = 110.0
        self.log_cap = 4 << 20
        self.total_cap = 1 << 30
        self.watch: List[str] = []
        self.silence = 0.0
        self.redact = False
        self.ras = False
        self.gdb = False
        self.pids: List[int] = []
        self.logs: List[str] = []
        self.py_spy: Optional[str] = None
        self.quiet = False
        self.verbose = False
        self.version = "unknown"
        self.by = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `collect`."""
    add = parser.add_argument
    add(
        "--out",
        metavar="FILE",
        help="NAME.tar.gz, a folder, or - (archive on stdout); %%h host, %%t time; default diagnose-%%h-%%t.tar.gz",
    )
    add("--dry-run", action="store_true", help="print every command and file, and take nothing")
    add("--quick", action="store_true", help="at most 10 s: snapshots 2 s apart, nothing slow")
    add(
        "--include",
        metavar="TOPICS",
        action="append",
        default=[],
        help="only these, comma-separated: " + " ".join(SECTIONS),
    )
    add(
        "--exclude",
        metavar="TOPICS",
        action="append",
        default=[],
        help="all but these topics, or names of takes such as lspci",
    )
    add("--since", metavar="TIME", default="", help="logs and journals from then on: 2h, 30m, or 2026-11-24T09:00")
    add(
        "--pid",
        metavar="PID",
        action="append",
        type=int,
        default=[],
        help="a training process; default: found by itself",
    )
    add("--log", metavar="FILE", action="append", default=[], help="a further log file; may be repeated")
    add(
        "--redact",
        action="store_true",
        help="also take host names, addresses, users and paths out; the map stays beside the bundle",
    )
    add("--ras", action="store_true", help="ask NCCL's RAS service even where that is known to be risky")
    add("--gdb", action="store_true", help="native stacks with gdb: stops each rank for some seconds")
    add("--py-spy", metavar="PATH", help="the py-spy to use")
    add(
        "--watch",
        metavar="LOG",
        action="append",
        default=[],
        help="wait for a stall or watchdog message in this log, then collect",
    )
    add(
        "--silence",
        metavar="SPAN",
        default="0",
        help="with --watch: also collect when the log stands still for so long, such as 10m",
    )
    add("--interval", metavar="SPAN", default="", help="between the two snapshots (default 15 s)")
    add("--limit", metavar="SPAN", default="", help="for everything together (default 110 s)")
    add("--log-size", metavar="SIZE", default="4m", help="of each log at most (default 4m: its head and its tail)")
    add("--max-size", metavar="SIZE", default="1g", help="of the whole bundle, unpacked (default 1g)")
    add("--host", metavar="NAME", default="", help="name of this host in the bundle (default: its own)")


def from_arguments(args: Any, version: str) -> Options:
    """Options from parsed arguments. Raises BadOption."""
    options = Options()
    for name in ("out", "dry_run", "quick", "redact", "ras", "gdb", "watch", "py_spy"):
        setattr(options, name, getattr(args, name))
    options.quiet = bool(getattr(args, "quiet", False))
    options.verbose = bool(getattr(args, "verbose", False))
    options.pids, options.logs, options.version = args.pid, args.log, version
    options.include = _topics(args.include)
    options.exclude = _topics(args.exclude)
    unknown = [t for t in options.include if t not in SECTIONS]
    if unknown:
        raise BadOption("--include %s: the topics are %s" % (unknown[0], " ".join(SECTIONS)))
    options.since_text = args.since
    options.since = _moment(args.since) if args.since else 0.0
    options.silence = _span("--silence", args.silence)
    options.interval = _span("--interval", args.interval or ("2s" if options.quick else "15s"))
    options.limit = _span("--limit", args.limit or ("10s" if options.quick else "110s"))
    options.log_cap = max(1 << 20, _size("--log-size", args.log_size))
    options.total_cap = _size("--max-size", args.max_size)
    if options.py_spy and not os.path.isfile(options.py_spy):
        raise BadOption("--py-spy %s: no such file" % options.py_spy)
    options.host = host_name(args.host)
    return options


def host_name(given: str) -> str:
    """The name of this host: as addressed, else its own. Safe as a folder name."""
    name = given or os.uname()[1] or "localhost"
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", name).strip(".-")[:200]
    return clean or "localhost"


def _topics(given: List[str]) -> List[str]:
    return [word.strip() for item in given for word in item.split(",") if word.strip()]


def _span(option: str, text: str) -> float:
    match = re.match(r"(\d+(?:\.\d+)?)\s*([smhd]?)$", text.strip())
    if match is None:
        raise BadOption("%s %s: a span of time such as 30s, 10m or 2h" % (option, text))
    return float(match.group(1)) * SPANS[match.group(2)]


def _size(option: str, text: str) -> int:
    match = re.match(r"(\d+)\s*([bkmg]?)(?:i?b)?$", text.strip().lower())
    if match is None:
        raise BadOption("%s %s: a size such as 512k, 4m or 1g" % (option, text))
    return int(match.group(1)) * SIZES[match.group(2)]


def _moment(text: str) -> float:
    """Epoch seconds of a span ago, or of a local time (UTC with Z)."""
    if re.match(r"\d+(?:\.\d+)?\s*[smhd]?$", text.strip()):
        return time.time() - _span("--since", text)
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        try:
            parts = time.strptime(text.strip().rstrip("Z"), form)
        except ValueError:
            continue
        if text.strip().endswith("Z"):
            import calendar

            return float(calendar.timegm(parts))
        return time.mktime(parts)
    raise BadOption("--since %s: a span such as 2h, or a time such as 2026-11-24T09:00" % text)
