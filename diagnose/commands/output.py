"""Where reports, notes and progress go: stdout holds the report and nothing else, stderr the rest."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli import FORMATS, UsageError, drop_stdout
from diagnose.model import Diagnosis
from diagnose.report.safe import safe

if TYPE_CHECKING:
    from diagnose.run import Progress

_SUFFIXES = {
    ".txt": "text", ".text": "text", ".log": "text", ".json": "json", ".html": "html", ".htm": "html",
    ".md": "markdown", ".markdown": "markdown", "": "text",
}  # fmt: skip


_PLAIN = str.maketrans({
    "●": "*", "✖": "x", "▲": "^", "…": "...", "·": "-", "–": "-", "—": "-", "×": "x", "µ": "u", "°": " deg ",
    "→": "->", "≥": ">=", "≤": "<=",
})  # fmt: skip


def note(text: str) -> None:
    """One line to stderr."""
    with contextlib.suppress(OSError, ValueError):
        print(safe(text).encode("utf-8", "backslashreplace").decode(), file=sys.stderr)


def deliver(diagnosis: Diagnosis, args: argparse.Namespace) -> None:
    """The report in the form and at the place asked for."""
    kind = chosen_format(args)
    write(render(diagnosis, kind, args), args.output, kind)


def chosen_format(args: argparse.Namespace) -> str:
    """`--format`, else what the name after `-o` ends in, else text."""
    if args.format:
        return args.format
    return _SUFFIXES.get(Path(args.output).suffix.lower(), "text") if args.output else "text"


def render(diagnosis: Diagnosis, kind: str, args: argparse.Namespace) -> str:
    """The report in the form asked for."""
    if kind == "json":
        from diagnose.report.jsonform import to_json

        return to_json(diagnosis)
    if kind in ("markdown", "html"):
        from diagnose.report import page

        return (page.html if kind == "html" else page.markdown)(diagnosis, lang=args.lang)
    from diagnose.report import text

    on_terminal = not args.output and sys.stdout.isatty()
    width = shutil.get_terminal_size((text.WIDTH, 24)).columns if on_terminal else text.WIDTH
    return text.render(
        diagnosis,
        width=width,
        lang=args.lang,
        colour=on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        verbose=args.verbose,
        brief=args.quiet,
    )


def check_output(args: argparse.Namespace, kinds: Sequence[str] = FORMATS) -> None:
    """Refuse a place that cannot be written, and an ending that tells none of the forms, before any work is done."""
    path: str | None = args.output
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"-o {path}: is a folder")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"-o {path}: no folder {target.absolute().parent}")
    special = target.exists() and not target.is_file()
    if not args.format and not special and _SUFFIXES.get(target.suffix.lower()) not in kinds:
        known = ", ".join(ending for ending, kind in _SUFFIXES.items() if ending and kind in kinds)
        raise UsageError(f"-o {path}: unknown ending '{target.suffix}'; known are {known}, or give --format")


def write(text: str, path: str | None, kind: str = "text") -> None:
    """To stdout, or to `path`: whole or not at all (a new file takes the old one's place).

    Always UTF-8, but for plain text on a terminal or pipe of another encoding.
    """
    data = text.encode("utf-8", "backslashreplace")
    if path is None:
        _to_stdout(_encoded(text, _encoding()) if kind == "text" else data)
        return
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        _replace(target.resolve(), data)
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror or error}") from error


def _replace(target: Path, data: bytes) -> None:
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _encoded(text: str, encoding: str) -> bytes:
    """The text for a terminal or pipe of this encoding; our own marks have a plain form where it lacks them."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace")


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _to_stdout(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()


@contextlib.contextmanager
def progress(args: argparse.Namespace) -> Iterator[Callable[[Progress], None]]:
    """A line on stderr that is overwritten and leaves no trace; only on a terminal, and not with `-q`."""
    if args.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return

    def show(step: Progress) -> None:
        at = f"{step.done + 1}/{step.total} " if step.total else ""
        width = shutil.get_terminal_size((80, 24)).columns
        with contextlib.suppress(OSError):
            sys.stderr.write("\r\x1b[K" + safe(at + step.text, max(20, width - 1)))
            sys.stderr.flush()

    try:
        yield show
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
