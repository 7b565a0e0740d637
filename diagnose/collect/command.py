"""The one-file program: `diagnose-collect.pyz [options]`, and what `diagnose collect` shares with it."""

import argparse
import os
import sys
from typing import Any, List, Optional

from . import options as settings
from .secrets import Cleaner


def collect(args: Any, version: str, argv: Optional[List[str]] = None) -> int:
    """Collect as the arguments say. 0 complete, 3 partial, 2 nothing, 130 interrupted."""
    from .collector import Collection
    from .watch import wait

    if not os.path.isdir("/proc/self"):
        raise settings.BadOption("only Linux hosts can be collected: there is no /proc here")
    options = settings.from_arguments(args, version)
    options.by = Cleaner().text(" ".join(sys.argv if argv is None else argv))
    if options.out == "-" and sys.stdout.isatty():
        raise settings.BadOption("--out - writes an archive, and standard output is a terminal")
    if options.out == "-" and options.redact:
        raise settings.BadOption("--redact with --out - would lose the private map; redact the bundle afterwards")
    collection = Collection(options)
    if options.dry_run:
        return collection.dry_run()
    if options.watch:
        say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr))
        say("collecting: " + wait(options.watch, options.silence, say))
        options.logs = options.logs + options.watch
        collection = Collection(options)
    return collection.run()


def main(version: str, argv: Optional[List[str]] = None) -> int:
    """Entry of the one-file program."""
    parser = argparse.ArgumentParser(
        prog="diagnose-collect",
        description="Gathers, read-only, what is needed to find out why a distributed training job stalls.",
        epilog="exit codes: 0 complete, 3 partial, 2 nothing collected, 130 interrupted",
    )
    parser.add_argument("--version", action="version", version="diagnose-collect " + version)
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell each command as it ends")
    settings.add_arguments(parser)
    try:
        code = collect(parser.parse_args(argv), version)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except settings.BadOption as error:
        print("diagnose-collect: %s" % error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        print("diagnose-collect: %s" % error, file=sys.stderr)
        return 2
