"""`rules list|lint|test|new`, `explain`, `schema`, `--version -v`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from importlib import resources
from pathlib import Path

from diagnose import __version__, packs
from diagnose.cli import UsageError
from diagnose.commands import output
from diagnose.model import Rule, Status
from diagnose.report.safe import safe

_ALL: tuple[Status, ...] = ("draft", "trial", "stable")


def listing(args: argparse.Namespace) -> int:
    """All rules, those of status draft too."""
    rules = _rules(args.rules)
    if args.format == "json":
        rows = [
            {
                "id": r.id,
                "status": r.status,
                "severity": r.severity[0].severity,
                "title": r.texts["en"].title,
                "path": r.path,
            }
            for r in rules
        ]
        output.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", None)
        return 0
    width = max((len(r.id) for r in rules), default=0)
    lines = [safe(f"{r.id:<{width}}  {r.severity[0].severity:<8}  {r.status:<6}  {r.texts['en'].title}") for r in rules]
    output.write("".join(line + "\n" for line in lines), None)
    return 0


def lint(args: argparse.Namespace) -> int:
    """Everything that is wrong with the rule files, one `file:line:column: text` a line; exit 1 when anything is."""
    from diagnose import rulebook

    folders = _folders(args.folders)
    for folder in folders:
        if not any(folder.rglob("*.y*ml")):
            raise UsageError(f"{folder}: no rule file there")
    found = rulebook.lint(folders)
    output.write("".join(safe(str(error)) + "\n" for error in found), None)
    errors = sum(getattr(error, "level", "error") == "error" for error in found)
    if not args.quiet:
        said = f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}"
        output.note(said if found else "no errors")
    return 1 if errors else 0


def test(args: argparse.Namespace) -> int:
    """The examples of every rule; exit 1 when one fails or a rule cannot be loaded."""
    from diagnose import rulebook

    book = rulebook.load(_folders(args.folders), statuses=_ALL)
    failed = [str(error) for error in book.errors]
    examples = 0
    for rule in book.rules:
        examples += len(rule.examples)
        failed += [f"{rule.path or rule.id}: {failure}" for failure in rulebook.run_examples(rule)]
    output.write("".join(safe(line) + "\n" for line in failed), None)
    if not args.quiet:
        counts = ((len(book.rules), "rule"), (examples, "example"), (len(failed), "failure"))
        output.note(", ".join(_count(number, word) for number, word in counts))
    return 1 if failed else 0


def new(args: argparse.Namespace) -> int:
    """A rule file that passes lint and fails its own test until it is filled in."""
    from diagnose import rulebook

    try:
        path = rulebook.new_rule(Path(args.folder), args.id)
    except FileExistsError as error:
        raise UsageError(f"rules new {args.id}: {error.filename} is there already") from error
    except (ValueError, OSError) as error:
        raise UsageError(f"rules new {args.id}: {error}") from error
    output.write(f"{path}\n", None)
    if not args.quiet:
        output.note(f"fill it in, then: diagnose rules test {args.folder}")
    return 0


def explain(args: argparse.Namespace) -> int:
    """A rule's page."""
    from diagnose.report import rulepage
    from diagnose.vocabulary import did_you_mean, vocabulary

    output.check_output(args, ("text", "markdown"))
    rules = {r.id: r for r in _rules(args.rules)}
    rule = rules.get(args.id)
    if rule is None:
        same_slug = [i for i in rules if i.partition("/")[2] == args.id]
        hint = f"; did you mean '{same_slug[0]}'?" if same_slug else did_you_mean(args.id, rules)
        raise UsageError(f"no rule '{args.id}'{hint or '; see: diagnose rules list'}")
    if output.chosen_format(args) == "markdown":
        page = rulepage.markdown(rule, vocabulary(), args.lang)
    else:
        on_terminal = not args.output and sys.stdout.isatty()
        width = min(shutil.get_terminal_size((100, 24)).columns, 120) if on_terminal else 100
        page = rulepage.text(rule, vocabulary(), args.lang, width)
    output.write(page, args.output)
    return 0


def schema(args: argparse.Namespace) -> int:
    """A schema file as it ships."""
    text = resources.files("diagnose").joinpath(f"{args.name}.schema.json").read_text("utf-8")
    output.write(text, None)
    return 0


def version(args: argparse.Namespace) -> int:
    """Version, engine, packs and site file."""
    from diagnose import rulebook, site

    lines = [f"diagnose {__version__}", f"python {sys.version.split()[0]}", f"engine {_engine()}"]
    try:
        parsers, folder = packs.load_parsers(), packs.builtin("rules")
        lines.append(f"parsers {len(parsers)} in {packs.builtin('parsers')}")
        book = rulebook.load((folder,))
        lines.append(f"rules {len(book.rules)} in {folder} (digest {book.digest[:12]})")
        lines += [f"rule error {error}" for error in book.errors]
    except (ImportError, OSError) as error:
        lines.append(f"packs broken: {error}")
    lines.append(f"site file {site.default_path() or 'none'}")
    output.write("".join(safe(line) + "\n" for line in lines), None)
    return 0


def _engine() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        import durable.engine  # noqa: F401

        return f"durable-rules {installed('durable-rules')}"
    except PackageNotFoundError:
        return "reference (durable-rules is not installed)"
    except ImportError as error:
        return f"reference (durable-rules: {error})"


def _folders(named: list[str]) -> list[Path]:
    folders = [Path(name) for name in named] or [packs.builtin("rules")]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder")
    return folders


def _rules(named: list[str]) -> tuple[Rule, ...]:
    from diagnose import rulebook

    for folder in named:
        if not Path(folder).is_dir():
            raise UsageError(f"--rules {folder}: no such folder")
    book = rulebook.load((packs.builtin("rules"), *map(Path, named)), statuses=_ALL)
    if book.errors:
        files = {e.path for e in book.errors}
        where = [folder for folder in named if any(Path(file).is_relative_to(folder) for file in files)]
        have = "has errors" if len(files) == 1 else "have errors"
        output.note(f"{_count(len(files), 'rule file')} {have}; see: " + " ".join(["diagnose rules lint", *where]))
    return book.rules


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
