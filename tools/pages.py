#!/usr/bin/env python3
"""Man page, completions and docs/rules, made from the argument tree and the rules.

python -m tools.pages             write what is stale
python -m tools.pages --check     name it, and fail
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab

from diagnose import __version__, packs, rulebook
from diagnose.cli import build_parser
from diagnose.report import rulepage
from diagnose.vocabulary import vocabulary

TOP = Path(__file__).resolve().parent.parent
MAN = "docs/man/diagnose.1"
COMPLETIONS = {"bash": "completions/diagnose.bash", "zsh": "completions/_diagnose"}
RULES = "docs/rules"


def made() -> dict[str, str]:
    """Path in the checkout -> text, of everything that is made."""
    parser = build_parser()
    pages = {MAN: man_page(parser)}
    _complete_paths(parser)
    pages |= {path: shtab.complete(parser, shell) for shell, path in COMPLETIONS.items()}
    return pages | rule_pages()


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    for _, command in _commands(parser):
        for action in command._actions:
            if action.dest in ("paths", "file", "output", "site"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest in ("rules", "parsers", "folders", "folder"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]


def rule_pages() -> dict[str, str]:
    """One page a rule, and the list of them."""
    book = rulebook.load((packs.builtin("rules"),), statuses=("draft", "trial", "stable"))
    pages = {f"{RULES}/{rule.id}.md": rulepage.markdown(rule, vocabulary()) for rule in book.rules}
    rows = ["# Rules", "", f"{len(book.rules)} rules; `diagnose explain ID` shows the same pages.", ""]
    rows += [f"- [{r.id}]({r.id}.md): {r.texts['en'].title} ({r.severity[0].severity}, {r.status})" for r in book.rules]
    return {**pages, f"{RULES}/README.md": "\n".join(rows) + "\n"}


# --- man page ---------------------------------------------------------------------------------------


def man_page(parser: argparse.ArgumentParser) -> str:
    """The page in roff."""
    lines = [
        f'.TH DIAGNOSE 1 "" "diagnose {__version__}" "User Commands"',
        ".SH NAME",
        "diagnose \\- find out why distributed training stalls or is slow",
        ".SH SYNOPSIS",
        ".B diagnose",
        "COMMAND ...",
        ".SH DESCRIPTION",
        _roff(parser.description or ""),
        ".SH OPTIONS",
        *_options(parser),
        ".SH COMMANDS",
    ]
    for name, command in _commands(parser):
        lines += [f".SS diagnose {_roff(name)}", _roff(command.description or ""), *_options(command)]
    lines += [
        ".SH EXIT STATUS",
        "Of analyze:",
        *_items({
            "0": "nothing at or above --fail-on was found, and nothing failed",
            "1": "findings at or above --fail-on",
            "2": "nothing was analysed",
            "3": "none of those, but something could not be read or judged because it failed",
            "130": "interrupted",
        }),
        ".SH ENVIRONMENT",
        *_items({
            "NO_COLOR": "no colour, when it holds anything",
            "XDG_CONFIG_HOME": "where diagnose/site.toml is looked for",
        }),
        ".SH FILES",
        *_items({"~/.config/diagnose/site.toml": "the site file, where --site names none"}),
        ".SH EXAMPLES",
        ".nf",
        *(_roff(line) for line in (parser.epilog or "").split("\n\n")[0].split("\n")[1:]),
        ".fi",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                if not any(isinstance(a, argparse._SubParsersAction) for a in command._actions):
                    yield before + name, command
                yield from _commands(command, f"{before}{name} ")


def _options(parser: argparse.ArgumentParser) -> list[str]:
    shown: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        value = "" if action.nargs == 0 else action.metavar or "|".join(action.choices or ()) or action.dest.upper()
        names = ", ".join(f"{name} {value}".strip() for name in action.option_strings) or str(value)
        shown[names] = action.help or "one of: " + ", ".join(action.choices or ())
    return _items(shown)


def _items(items: dict[str, str]) -> list[str]:
    return [line for name, text in items.items() for line in (".TP", f".B {_roff(name)}", _roff(text))]


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


# --- writing ----------------------------------------------------------------------------------------


def stale(pages: dict[str, str]) -> list[str]:
    """Paths whose text differs from what would be made, and rule pages without a rule."""
    wrong = [path for path, text in pages.items() if not _same(TOP / path, text)]
    kept = {str(p.relative_to(TOP)) for p in (TOP / RULES).rglob("*.md")}
    return sorted([*wrong, *(kept - set(pages))])


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


def main() -> int:
    """Write what is stale, or with `--check` name it and fail."""
    pages = made()
    wrong = stale(pages)
    for path in wrong:
        print(path)
        if "--check" in sys.argv:
            continue
        if path in pages:
            (TOP / path).parent.mkdir(parents=True, exist_ok=True)
            (TOP / path).write_text(pages[path], "utf-8")
        else:
            (TOP / path).unlink()
    return 1 if wrong and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
