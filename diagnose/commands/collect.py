"""`collect`, `verify`, `redact`: a bundle from this host, its hashes, and the same without identities."""

from __future__ import annotations

import argparse
import sys

from diagnose import __version__
from diagnose.cli import UsageError
from diagnose.commands import fleet_options, output


def collect(args: argparse.Namespace) -> int:
    """Gather what this host gives, or many. 0 complete, 3 partial, 2 nothing, 130 interrupted."""
    from diagnose.collect import command
    from diagnose.collect.options import BadOption

    try:
        if fleet_options.wanted(args):
            from diagnose.commands import fleet

            return fleet.collect(args)
        return command.collect(args, __version__, ["diagnose", *sys.argv[1:]])
    except BadOption as error:
        raise UsageError(f"collect: {error}") from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"collect: {error}") from error


def verify(args: argparse.Namespace) -> int:
    """Compare every file with its hash. 0 all good, 1 something differs or is missing, 2 not a bundle."""
    from diagnose.collect import bundles

    try:
        found = bundles.verify(args.file)
    except (bundles.NoBundle, OSError) as error:
        raise UsageError(f"verify {args.file}: {_reason(error)}") from error
    output.write("".join(f"{line}\n" for line in found.lines()), None)
    return 0 if found.good else 1


def redact(args: argparse.Namespace) -> int:
    """A copy without identities and credentials; the private map lies beside it."""
    from diagnose.collect import bundles, rewrite
    from diagnose.collect.options import BadOption

    try:
        made = rewrite.redact_bundle(args.file, args.out, __version__)
    except (bundles.NoBundle, BadOption, OSError) as error:
        raise UsageError(f"redact {args.file}: {_reason(error)}") from error
    for what, why in made.left_out:
        output.note(f"left out: {what}: {why}")
    output.note(f"private map: {made.map_path}   (keep it; it undoes the redaction)")
    output.write(f"{made.path}\n", None)
    return 0


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
