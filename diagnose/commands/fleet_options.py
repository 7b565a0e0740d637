"""The options of `collect` that are about many hosts. Apart, because every command builds the argument tree."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `collect` that are about many hosts."""
    group = parser.add_argument_group("many hosts", "one bundle with a folder a host; the collector travels along")
    add = group.add_argument
    add("--hosts", metavar="NODES", action="append", default=[], help="over SSH: node[001-128],login1 or @group")
    add("--hosts-file", metavar="FILE", help="host names from a file, the first word of each line")
    add("--slurm", metavar="JOBID", help="the nodes of a running Slurm job, with srun beside it")
    add("--kubernetes", metavar="JOB", help="the pods of a job: its name, a label selector, or pod/NAME,…")
    add("--namespace", metavar="NAME", default="", help="with --kubernetes (default: that of kubectl)")
    add("--context", metavar="NAME", default="", help="with --kubernetes (default: that of kubectl)")
    add(
        "--container",
        metavar="NAME",
        default="",
        help="with --kubernetes (default: the pod's own, or the one with GPUs)",
    )
    add("--fanout", metavar="N", type=_number, default=128, help="hosts at a time (default 128)")
    add("--python", metavar="PATH", default="", help="the Python on the hosts, 3.6 or newer (default: python3)")
    add("--ssh-user", metavar="NAME", default="", help="default: as ssh is configured")
    add("--ssh-options", metavar="WORDS", default="", help="options for ssh, such as '-F FILE -J jump'")


def wanted(args: argparse.Namespace) -> bool:
    """Whether hosts other than this one are named."""
    return bool(args.hosts or args.hosts_file or args.slurm or args.kubernetes)


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 1024")
    return int(text)
