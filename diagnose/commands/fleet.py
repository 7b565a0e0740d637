"""`collect --hosts | --slurm | --kubernetes`: the same collection on many hosts, into one bundle."""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose import __version__
from diagnose.cli import UsageError
from diagnose.commands import output
from diagnose.report.safe import safe

if TYPE_CHECKING:
    from diagnose.collect.options import Options
    from diagnose.fleet.engine import Ssh, Stop
    from diagnose.fleet.gather import Count, Plan
    from diagnose.fleet.visit import Visit

COMPLETE, NOTHING, PARTIAL, INTERRUPTED = 0, 2, 3, 130
NAMED = 12
"""Failed hosts that are told one by one."""
_PLAIN_EVERY_S = 15.0


def collect(args: argparse.Namespace) -> int:
    """Gather from all hosts named. 0 complete, 3 partial, 2 nothing, 130 interrupted."""
    from diagnose.collect import options as settings
    from diagnose.collect.secrets import Cleaner
    from diagnose.fleet import gather
    from diagnose.fleet.bundle import utc
    from diagnose.fleet.engine import Stop
    from diagnose.fleet.local import NoAnswer
    from diagnose.fleet.names import BadHosts

    options = settings.from_arguments(args, __version__)
    _check(args)
    cleaner = Cleaner()
    if args.watch:
        from diagnose.collect.watch import wait

        output.note("collecting: " + wait(args.watch, options.silence, output.note))
    try:
        plan = _plan(args, options)
    except (NoAnswer, BadHosts) as error:
        raise UsageError(f"collect: {error}") from error
    if args.dry_run:
        return _dry_run(plan, host_arguments(args, options), _ssh(args))
    out = _place(args)
    head = {
        "tool": {"name": "diagnose collect", "version": __version__},
        "by": cleaner.text(" ".join(["diagnose", *sys.argv[1:]])),
        "started": utc(time.time()),
    }
    began = time.monotonic()
    made = out if not args.redact else out.with_name("private-" + out.name)
    try:
        stop = Stop()
        with _progress(args, stop) as show:
            path, interrupted = gather.gather(
                plan, made, head, cleaner.clean, show, fanout=args.fanout, ssh=_ssh(args), stop=stop
            )
        if args.redact:
            path = _redacted(path, out)
    except OSError as error:
        raise UsageError(f"collect: {error.filename or made}: {error.strerror or error}") from error
    if not args.quiet:
        _summary(plan.visits, time.monotonic() - began, path)
    output.write(f"{path}\n", None)
    return INTERRUPTED if interrupted else exit_code(plan.visits)


def exit_code(visits: list[Visit]) -> int:
    """2 when no host gave anything, 3 when one gave less than it could, 0 else."""
    arrived = [v for v in visits if v.state == "arrived"]
    if not arrived:
        return NOTHING
    return PARTIAL if len(arrived) < len(visits) or any(v.partial for v in arrived) else COMPLETE


def host_arguments(args: argparse.Namespace, options: Options) -> list[str]:
    """What the collector on each host is called with."""
    given: list[str] = []
    for name in ("quick", "ras", "gdb"):
        given += [f"--{name}"] if getattr(args, name) else []
    for name in ("interval", "limit", "log_size", "max_size", "py_spy"):
        value = getattr(args, name)
        given += [f"--{name.replace('_', '-')}", value] if value else []
    for name in ("include", "exclude", "log"):
        given += [word for value in getattr(args, name) for word in (f"--{name}", value)]
    if options.since:
        given += ["--since", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(options.since))]
    return given


def _check(args: argparse.Namespace) -> None:
    if args.slurm and args.kubernetes:
        raise UsageError("collect: --slurm and --kubernetes do not go together")
    for name in ("pid", "host"):
        if getattr(args, name):
            raise UsageError(f"collect: --{name} is for one host")
    if not re.fullmatch(r"[\w./+-]*", args.python, re.ASCII):
        raise UsageError("collect: --python is the path of a program, without blanks and quotes")
    if args.out == "-":
        raise UsageError("collect: --out - is for one host; name a file")


def _plan(args: argparse.Namespace, options: Options) -> Plan:
    from diagnose.collect import pyz
    from diagnose.fleet import gather, kubernetes, names, slurm, ssh
    from diagnose.fleet.visit import Visit

    named = list(args.hosts)
    if args.hosts_file:
        try:
            named += names.read_host_file(Path(args.hosts_file).read_text("utf-8", "replace"))
        except OSError as error:
            raise UsageError(f"--hosts-file {args.hosts_file}: {error.strerror or error}") from error
    hosts = names.expand(named) if named else []
    program, arguments, limit = pyz.program(__version__), host_arguments(args, options), options.limit
    if args.slurm:
        return slurm.plan(args.slurm, program, arguments, limit, args.python, hosts)
    if args.kubernetes:
        cluster = kubernetes.Cluster(args.namespace, args.context, args.container)
        return kubernetes.plan(args.kubernetes, cluster, program, arguments, limit, args.python, hosts)
    if shutil.which("ssh") is None:
        raise UsageError("collect: ssh is not installed here")
    folders = names.folders(hosts)
    visits = [Visit(host, folders[host]) for host in hosts]
    return gather.Plan(visits, ssh.links(visits, program, arguments, limit, args.python))


def _ssh(args: argparse.Namespace) -> Ssh:
    from diagnose.fleet import engine, ssh

    return engine.Ssh(options=f"{args.ssh_options} {ssh.OPTIONS}".strip(), user=args.ssh_user)


def _place(args: argparse.Namespace) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    what = "redacted" if args.redact else _label(args)
    out = Path((args.out or "diagnose-%h-%t.tar.gz").replace("%h", what).replace("%t", stamp))
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: no folder {out.absolute().parent}")
    return out


def _label(args: argparse.Namespace) -> str:
    from diagnose.fleet.names import folders

    if args.slurm:
        return f"slurm-{args.slurm}"
    return folders([args.kubernetes])[args.kubernetes] if args.kubernetes else "hosts"


def _redacted(private: Path, out: Path) -> Path:
    from diagnose.collect import rewrite

    try:
        made = rewrite.redact_bundle(str(private), str(out), __version__)
    finally:
        shutil.rmtree(private, ignore_errors=True) if private.is_dir() else private.unlink(missing_ok=True)
    for what, why in made.left_out:
        output.note(f"left out: {what}: {why}")
    output.note(f"private map: {made.map_path}   (keep it; it undoes the redaction)")
    return Path(made.path)


def _dry_run(plan: Plan, arguments: list[str], ssh: Ssh) -> int:
    lines = [f"{v.name}: {v.reason or 'collect ' + ' '.join(arguments)}".rstrip() for v in plan.visits]
    for link in plan.links:
        reach = " ".join(link.argv) if link.argv else f"{ssh.path} {ssh.options} {link.address} {link.command}"
        lines.append(f"run: {reach}")
    lines.append("on a host, diagnose collect --dry-run prints every command and file")
    output.write("".join(safe(line) + "\n" for line in lines), None)
    return COMPLETE


def _summary(visits: list[Visit], seconds: float, path: Path) -> None:
    arrived = [v for v in visits if v.state == "arrived"]
    total = sum(v.size for v in visits)
    less = sum(v.partial for v in arrived)
    output.note(
        f"{len(arrived)} of {len(visits)} hosts in {seconds:.0f} s, {total / 1e6:,.1f} MB"
        + (f"; {less} gave less than they could: see absent in the manifest" if less else "")
    )
    failed = [v for v in visits if v.state == "failed"]
    for visit in failed[:NAMED]:
        output.note(f"  {visit.name}: {visit.reason}")
    if len(failed) > NAMED:
        output.note(f"  and {len(failed) - NAMED} more: see hosts in the manifest")
    output.note(f"next: diagnose analyze {path}")


@contextlib.contextmanager
def _progress(args: argparse.Namespace, stop: Stop) -> Iterator[Callable[[Count], None]]:
    """Hosts done, failed, running and waiting: a line that is overwritten, or without a terminal one now and then."""
    if args.quiet:
        yield lambda _: None
        return
    terminal = sys.stderr.isatty()
    last, told = [time.monotonic(), ""], False

    def clear() -> None:
        if terminal:
            with contextlib.suppress(OSError):
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()

    def show(count: Count) -> None:
        nonlocal told
        if stop.count and not told:
            told = True
            clear()
            output.note("interrupted: the hosts close what they have; Ctrl-C again does not wait for them")
        text = f"hosts: {count.done} done, {count.failed} failed, {count.running} running, {count.waiting} waiting"
        text += f" · {count.bytes / 1e6:,.1f} MB"
        if terminal:
            said = next((f" · {host}: {what}" for host, what in count.said.items()), "")
            width = shutil.get_terminal_size((80, 24)).columns
            with contextlib.suppress(OSError):
                sys.stderr.write("\r\x1b[K" + safe(text + said, max(20, width - 1)))
                sys.stderr.flush()
        elif time.monotonic() - float(last[0]) >= _PLAIN_EVERY_S and text != last[1]:
            last[:] = [time.monotonic(), text]
            output.note(text)

    try:
        yield show
    finally:
        clear()
