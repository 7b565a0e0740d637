"""The command line: argument tree and exit codes. Everything but the tree is imported when a command needs it.

Exit codes of `analyze`: 2 nothing was analysed · 1 findings at or above `--fail-on` · 3 none of those, but something
could not be read or judged because it failed · 0 none, and all read · 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from diagnose import __version__

FORMATS = ("text", "markdown", "html", "json")
LANGUAGES = ("en", "zh")
SCHEMAS = ("report", "facts", "rule", "manifest", "site")
FAIL_ON = ("critical", "major", "minor", "info", "never")

EXAMPLES = """\
examples:
  diagnose analyze nccl.log                    what a log shows
  diagnose analyze logs/ topo.txt dmesg.txt    any mix of files, folders and archives
  kubectl logs POD | diagnose analyze -        standard input
  diagnose analyze bundle.tar.gz -o report.html
  diagnose view bundle.tar.gz                  the same as a screen
  diagnose collect                             a bundle from this host, while the job still hangs
  diagnose explain ID                          what a finding means, and how it is decided

exit codes of analyze: 0 nothing at or above --fail-on · 1 findings · 2 nothing analysed · 3 something failed
"""


_UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF))


class UsageError(Exception):
    """Something about the call is wrong: exit 2 with this message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help shows what can be given\n")


def build_parser(collecting: bool = True) -> argparse.ArgumentParser:
    """The whole tree; completion files and the man page are made from it. The options of `collect` are many and
    its own: they are left out where nobody collects.
    """
    parser = _Parser(
        prog="diagnose",
        description="Finds out why distributed training stalls or is slow: NCCL over InfiniBand, RoCE, TCP and NVLink.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    loud = _Parser(add_help=False)
    loud.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help="verdict only, no progress")
    loud.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="fold nothing")
    loud.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show traces of internal errors")
    parser.add_argument("--version", action="store_true", help="version; with -v also engine, packs and site file")
    for action in loud._actions:
        parser._add_action(action)
    parser.set_defaults(quiet=False, verbose=False, debug=False)

    packs = _Parser(add_help=False)
    packs.add_argument("--rules", metavar="DIR", action="append", default=[], help="further rules; may be repeated")
    lang = _Parser(add_help=False)
    lang.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the report (default en)")
    judging = _Parser(add_help=False, parents=[packs, lang])
    judging.add_argument("--parsers", metavar="DIR", action="append", default=[], help="further parsers (code!)")
    judging.add_argument("--site", metavar="FILE", help="site file: QoS contract, node classes, thresholds")
    judging.add_argument("--tz", metavar="ZONE", help="zone of times that carry none, such as Europe/Berlin")
    judging.add_argument("--drafts", action="store_true", help="also use rules of status draft")
    judging.add_argument("--jobs", metavar="N", type=_positive, help="processes at most (default: all cores)")
    judging.add_argument("--scheduler", metavar="ADDRESS", help="read on a Dask cluster (extra 'cluster'); or 'local'")
    output = _Parser(add_help=False)
    output.add_argument("--format", choices=FORMATS, help="default text, or what the name after -o ends in")
    output.add_argument("-o", "--output", metavar="FILE", help="write the report there, whole or not at all")

    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)

    def command(name: str, run: str, text: str, *parents: _Parser) -> _Parser:
        made = commands.add_parser(name, parents=[*parents, loud], help=text, description=text, allow_abbrev=False)
        made.set_defaults(run=run)
        return made

    analyze = command("analyze", "analyse:analyze", "judge logs, command outputs and bundles", judging, output)
    analyze.add_argument("paths", nargs="+", metavar="PATH", help="files, folders, archives; - is standard input")
    analyze.add_argument("--fail-on", choices=FAIL_ON, default="major", help="exit 1 from this on (default major)")

    view = command("view", "analyse:view", "judge, and look at it on a screen", judging)
    view.add_argument("paths", nargs="+", metavar="PATH", help="files, folders, archives; - is standard input")

    report = command("report", "analyse:report", "show a saved JSON report in another form", lang, output)
    report.add_argument("file", metavar="FILE", help="made by analyze --format json; - is standard input")

    explain = command("explain", "rules:explain", "what a rule looks for, why, and what to do", packs, lang)
    explain.add_argument("id", metavar="ID", help="family/slug, as reports show it")
    explain.add_argument("--format", choices=("text", "markdown"), help="default text, or what the name ends in")
    explain.add_argument("-o", "--output", metavar="FILE", help="write the page there")

    _add_collecting(command, collecting)
    _add_rules(command("rules", "", "list, check, test and start rules"), loud, packs)

    schema = command("schema", "rules:schema", "print a JSON Schema")
    schema.add_argument("name", choices=SCHEMAS)
    return parser


def _add_collecting(command: Callable[[str, str, str], _Parser], options: bool) -> None:
    collect = command("collect", "collect:collect", "gather evidence of a stalled job: this host or many, read-only")
    if options:
        from diagnose.collect.options import add_arguments
        from diagnose.commands import fleet_options

        add_arguments(collect)
        fleet_options.add_arguments(collect)
    verify = command("verify", "collect:verify", "check a bundle against the hashes in its manifest")
    verify.add_argument("file", metavar="BUNDLE", help="folder or .tar.gz")
    redact = command("redact", "collect:redact", "take host names, addresses, users and paths out of a bundle")
    redact.add_argument("file", metavar="BUNDLE", help="folder or .tar.gz")
    made = "the new bundle: NAME.tar.gz or a folder (default beside it); the private map lies beside the new one"
    redact.add_argument("--out", metavar="FILE", help=made)


def _add_rules(rules: _Parser, loud: _Parser, packs: _Parser) -> None:
    actions = rules.add_subparsers(
        dest="action", metavar="ACTION", title="actions", required=True, parser_class=_Parser
    )

    def action(name: str, run: str, text: str, *parents: _Parser) -> _Parser:
        made = actions.add_parser(name, parents=[*parents, loud], help=text, description=text, allow_abbrev=False)
        made.set_defaults(run=run)
        return made

    listing = action("list", "rules:listing", "all rules with severity and status", packs)
    listing.add_argument("--format", choices=("text", "json"), default="text")
    for name, text in (("lint", "check rule files"), ("test", "run the examples of rules")):
        checked = action(name, f"rules:{name}", text + "; without a folder the built-in ones")
        checked.add_argument("folders", nargs="*", metavar="DIR")
    new = action("new", "rules:new", "write a rule file to fill in")
    new.add_argument("id", metavar="ID", help="family/slug")
    new.add_argument("--folder", metavar="DIR", default="rules", help="where the rules lie (default ./rules)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of processes")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    if argv is None:
        _end_tidily()
    try:
        code = _main(arguments)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            drop_stdout()
        return code
    except _Ended as ended:
        return 128 + ended.args[0]
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        drop_stdout()
        return 0
    except UsageError as error:
        _say(f"diagnose: {error}")
        return 2
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            drop_stdout()
            _say(f"diagnose: cannot write: {error.strerror}")
            return 2
        if "--debug" in arguments:
            raise
        _say(f"diagnose: internal error: {type(error).__name__}: {error}; --debug shows where")
        return 2


class _Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP came: `timeout`, the scheduler, a lost connection. Private folders go, as on ctrl-c."""


def _end_tidily() -> None:
    import signal

    def end(number: int, frame: object) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        raise _Ended(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _open_closed_streams() -> None:
    """Closed standard streams lead nowhere, instead of into the next file that is opened."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _main(arguments: list[str]) -> int:
    parser = build_parser("collect" in arguments)
    _hint(parser, arguments)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    if args.version:
        if not args.verbose:
            print(f"diagnose {__version__}")
            return 0
        return _command("rules:version")(args)
    if args.command is None:
        return _command("analyse:bare")(args)
    return _command(args.run)(args)


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    from importlib import import_module

    module, _, function = name.partition(":")
    return getattr(import_module(f"diagnose.commands.{module}"), function)


def _hint(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """A path, or a misspelt command, in the place of the command gets more than a list of choices."""
    first = arguments[0] if arguments else "-h"
    known = next(a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    if first.startswith("-") or first in known:
        return
    if os.path.exists(first):  # noqa: PTH110 - pathlib costs start-up time
        raise UsageError(f"'{first}' is no command; did you mean: diagnose analyze {' '.join(arguments)}")
    from difflib import get_close_matches

    close = get_close_matches(first.replace("analyse", "analyze"), list(known), n=1)
    raise UsageError(f"no command '{first}'" + (f"; did you mean '{close[0]}'?" if close else "; see diagnose --help"))


def _say(text: str) -> None:
    """To stderr, as visible characters; a closed stderr is not an error."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    try:
        print(shown.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    except (OSError, ValueError):
        return


def drop_stdout() -> None:
    """Whoever read the output has gone: nothing more may be written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
