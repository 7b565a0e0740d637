"""`analyze`, `view`, `report`, and `diagnose` without a command."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli import EXAMPLES, UsageError
from diagnose.commands import output
from diagnose.model import SEVERITIES, Diagnosis

if TYPE_CHECKING:
    from diagnose.run import Options

MAX_REPORT = 256 << 20
"""Longest saved report read, in bytes."""
STAND_IN = "reference evaluator"
"""Problems that say this were answered all the same."""


def analyze(args: argparse.Namespace) -> int:
    """Judge, report, and tell by the exit code what was found."""
    from diagnose import run
    from diagnose.site import SiteError

    output.check_output(args)
    options = _options(args)
    if "-" in args.paths and sys.stdin.isatty() and not args.quiet:
        output.note("reading standard input; end it with ctrl-d")
    try:
        with output.progress(args) as show:
            diagnosis = run.analyse(args.paths, options, show)
    except run.NothingAnalysed as error:
        raise UsageError(f"nothing analysed: {error}") from error
    except SiteError as error:
        raise UsageError(f"site file: {error}") from error
    for path in args.paths:
        if why := _unreadable(path):
            output.note(f"diagnose: {path}: {why}; the report does without it")
    output.deliver(diagnosis, args)
    return exit_code(diagnosis, args.fail_on)


def _unreadable(path: str) -> str | None:
    """Why nothing can come of a path that was named; None when it can be opened."""
    if path == "-":
        return None
    if not Path(path).exists():
        return "no such file or folder"
    return None if os.access(path, os.R_OK) else "must not be read"


def exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    """1, 3 or 0 as the contract has it; acknowledged findings are not counted."""
    if fail_on != "never":
        counted = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
        if any(f.severity in counted and f.acknowledged is None for f in diagnosis.findings):
            return 1
    failed = [p for p in diagnosis.problems if STAND_IN not in p.text]
    return 3 if failed or any(s.status == "error" for s in diagnosis.sources) else 0


def view(args: argparse.Namespace) -> int:
    """The screen."""
    return _screen(args.paths, _options(args))


def _screen(paths: list[str], options: Options) -> int:
    if not sys.stdout.isatty():
        raise UsageError("view needs a terminal; use: diagnose analyze " + " ".join(paths))
    from diagnose.tui.app import run_app

    return run_app(paths, options)


def report(args: argparse.Namespace) -> int:
    """A saved diagnosis in another form."""
    from diagnose.report.jsonform import NotAReport, from_json

    output.check_output(args)
    try:
        if args.file == "-":
            raw = sys.stdin.buffer.read(MAX_REPORT + 1)
        else:
            with Path(args.file).open("rb") as file:
                raw = file.read(MAX_REPORT + 1)
        if len(raw) > MAX_REPORT:
            raise NotAReport(f"more than {MAX_REPORT >> 20} MiB are no report")
        diagnosis = from_json(raw.decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{args.file}: {error.strerror or error}") from error
    except (NotAReport, UnicodeDecodeError) as error:
        raise UsageError(f"{args.file}: {error}") from error
    output.deliver(diagnosis, args)
    return 0


def bare(args: argparse.Namespace) -> int:
    """The screen on the newest bundle here, else short help."""
    newest = newest_bundle(Path())
    if newest is not None and sys.stdin.isatty() and sys.stdout.isatty():
        from diagnose import run

        return _screen([str(newest)], run.Options())
    hint = f"\nnewest bundle here: diagnose analyze {newest}\n" if newest else ""
    print("usage: diagnose COMMAND …   (diagnose --help lists the commands)\n\n" + EXAMPLES + hint, end="")
    return 0


def newest_bundle(folder: Path) -> Path | None:
    """The bundle changed last: a folder with a manifest.json, or an archive that `collect` named."""
    names = ("diagnose-*.tar", "diagnose-*.tar.gz", "diagnose-*.tgz", "diagnose-*.tar.xz", "diagnose-*.zip")
    try:
        found = [p for name in names for p in folder.glob(name) if p.is_file()]
        found += [p.parent for p in folder.glob("*/manifest.json") if p.is_file()]
        if (folder / "manifest.json").is_file():
            found.append(folder)
        return max(found, key=lambda p: (p.stat().st_mtime, p.name), default=None)
    except OSError:
        return None


def _options(args: argparse.Namespace) -> Options:
    from datetime import date

    from diagnose import run

    _check_zone(args.tz)
    for name in ("rules", "parsers"):
        for folder in getattr(args, name):
            if not Path(folder).is_dir():
                raise UsageError(f"--{name} {folder}: no such folder")
    if args.site and not Path(args.site).is_file():
        raise UsageError(f"--site {args.site}: no such file")
    return run.Options(
        rules=tuple(map(Path, args.rules)),
        parsers=tuple(map(Path, args.parsers)),
        site=Path(args.site) if args.site else None,
        tz=args.tz,
        lang=args.lang,
        drafts=args.drafts,
        jobs=args.jobs,
        scheduler=args.scheduler,
        today=date.today(),
    )


def _check_zone(zone: str | None) -> None:
    if zone is None:
        return
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    from diagnose.parsing import zone_named

    try:
        zone_named(zone)
    except ValueError as error:
        close = get_close_matches(zone, sorted(available_timezones()), n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"--tz {zone}: no such time zone{hint}") from error
