"""The application: opens the case in a thread, owns what all screens share: theme, wrapping, copying, hits."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import App
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen

from .case import CaseLike, LineReader, OnProgress, OpenCase, ProgressLike
from .keys import bindings, keymap_problems
from .screens.start import StartScreen
from .theme import NAMES, THEMES, theme_for
from .words import Words

if TYPE_CHECKING:
    from diagnose.model import Diagnosis

    from .notes import Notes
    from .screens.triage import TriageScreen
    from .search import Hit

PROGRESS_SECONDS = 0.1
"""Progress is passed on at most so often."""


class AnalysisStopped(BaseException):
    """Raised out of the progress call when the user has left: no handler of ordinary errors may swallow it."""


class DiagnoseApp(App[int]):
    """`open_case` is called in a thread with a progress function; the case it gives is closed when the app ends."""

    TITLE = "diagnose"
    BINDINGS: ClassVar[list[BindingType]] = bindings("everywhere")
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {lambda: _commands()}
    CSS = "Screen { background: $background; }"

    class Progressed(Message):
        """The analysis tells where it stands."""

        def __init__(self, progress: ProgressLike) -> None:
            super().__init__()
            self.progress = progress

    class Opened(Message):
        """The analysis is done."""

        def __init__(self, case: CaseLike) -> None:
            super().__init__()
            self.case = case

    class Failed(Message):
        """The analysis came to nothing."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        open_case: OpenCase,
        names: Sequence[str] = (),
        *,
        lang: str = "en",
        theme: str | None = None,
        keymap: dict[str, str] | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.words = Words(lang)
        self.names = tuple(names)
        self.keymap = keymap or {}
        self.problems = (*problems, *keymap_problems(self.keymap))
        self.case: CaseLike | None = None
        self.notes: Notes
        self.wrap_lines = True
        self.hits: Sequence[Hit] = ()
        self.hit_at = -1
        self.needle = ""
        self.mouse_released = False
        self._open_case = open_case
        self._leaving = threading.Event()
        self._paths: dict[str, str] = {}
        self._readers: dict[str, LineReader | None] = {}
        self._reading = threading.Lock()
        for own in THEMES:
            self.register_theme(own)
        self.theme = theme_for(theme)
        self.set_keymap(self.keymap)
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The answer, once there is one."""
        return self.case.diagnosis if self.case else None

    def get_default_screen(self) -> Screen[Any]:
        return StartScreen()

    @property
    def start(self) -> StartScreen:
        """The screen that shows progress; it stays beneath all others."""
        return cast(StartScreen, self.screen_stack[0])

    @property
    def triage(self) -> TriageScreen:
        """The main screen; there is one once there is a diagnosis."""
        return cast("TriageScreen", self.screen_stack[1])

    def show_triage(self) -> None:
        """Put the main screen over the start screen, when there is a diagnosis and nothing else lies there."""
        if self.case is not None and len(self.screen_stack) == 1:
            from .screens.triage import TriageScreen

            self.push_screen(TriageScreen())

    # --- the analysis -------------------------------------------------------------------------------

    def on_ready(self) -> None:
        threading.Thread(target=self._analyse, name="analysis", daemon=True).start()
        for problem in self.problems:
            self.notify(problem, severity="warning", markup=False)

    def _analyse(self) -> None:
        """In a thread: open the case and keep it open until the app ends."""
        last = 0.0

        def on_progress(progress: ProgressLike) -> None:
            nonlocal last
            if self._leaving.is_set():
                raise AnalysisStopped
            now = time.monotonic()
            if now - last >= PROGRESS_SECONDS:
                last = now
                self.post_message(self.Progressed(progress))

        try:
            manager: AbstractContextManager[CaseLike] = self._open_case(on_progress)
            with manager as case:
                import_module("diagnose.tui.screens.triage")  # here, so that it does not hold up the screen
                self.post_message(self.Opened(case))
                self._leaving.wait()
        except AnalysisStopped:
            return
        except Exception as error:
            expected = type(error).__name__ == "NothingAnalysed" or isinstance(error, OSError)
            self.post_message(self.Failed(str(error) if expected else f"{type(error).__name__}: {error}"))

    def on_unmount(self) -> None:
        self._leaving.set()

    def on_diagnose_app_progressed(self, event: Progressed) -> None:
        if self.case is None:
            self.start.show_progress(event.progress)

    def on_diagnose_app_opened(self, event: Opened) -> None:
        from .notes import Notes

        diagnosis = event.case.diagnosis
        self._paths = {s.id: s.path for s in diagnosis.sources}
        try:
            self.notes = Notes(diagnosis.bundle_digest)
        except (OSError, ValueError) as error:
            self.notes = Notes("")
            self.notify(f"{self.words('Notes could not be read')}: {error}", severity="warning", markup=False)
        self.case = event.case
        self.show_triage()

    def on_diagnose_app_failed(self, event: Failed) -> None:
        self.start.show_failure(event.text)

    def reader(self, path: str) -> LineReader | None:
        """All lines of a source. Call it in a thread: the first time it reads the whole source."""
        with self._reading:
            if path not in self._readers:
                self._readers[path] = self.case.lines(path) if self.case is not None else None
            return self._readers[path]

    def path_of(self, source: str) -> str:
        """Path of a source named by id or path."""
        return self._paths.get(source, source)

    # --- actions everywhere -------------------------------------------------------------------------

    def action_next_theme(self) -> None:
        here = NAMES.index(self.theme) if self.theme in NAMES else -1
        self.theme = NAMES[(here + 1) % len(NAMES)]
        keep_theme(self.theme)
        self.notify(
            f"{self.words('theme')}: {self.words(self.theme.removeprefix('diagnose-'))}", timeout=2, markup=False
        )

    def action_wrap(self) -> None:
        from .widgets.logview import LogView

        self.wrap_lines = not self.wrap_lines
        for screen in self.screen_stack:
            for view in screen.query(LogView):
                view.set_wrap(self.wrap_lines)

    def action_mouse(self) -> None:
        """Give the mouse to the terminal, so that it selects text, or take it back."""
        self.mouse_released = not self.mouse_released
        name = "_disable_mouse_support" if self.mouse_released else "_enable_mouse_support"
        change = getattr(self._driver, name, None)
        if change is not None:
            change()
        text = "The mouse selects text now; m takes it back." if self.mouse_released else "The mouse works here again."
        self.notify(self.words(text), timeout=3, markup=False)

    def action_help(self) -> None:
        from .screens.help import HelpScreen

        self.push_screen(HelpScreen())

    def action_export(self) -> None:
        from .screens.export import ExportScreen

        if self.diagnosis is None:
            self.notify(self.words("The analysis is not done yet."), markup=False)
            return
        self.push_screen(ExportScreen(self.diagnosis, self.notes, self.names))

    async def action_quit(self) -> None:
        self.exit(0 if self.case is not None else 2)

    def copy(self, text: str) -> None:
        """Copy by the ways that work here, and tell which."""
        if not text.strip():
            self.notify(self.words("Nothing to copy here."), timeout=2, markup=False)
            return
        self.run_worker(lambda: self._copy(text), thread=True, group="copy")

    def _copy(self, text: str) -> None:
        from . import clipboard

        told = clipboard.copy(text, lambda clean: self.call_from_thread(self.copy_to_clipboard, clean))
        self.call_from_thread(self.notify, told, timeout=6, markup=False)

    # --- sources and hits ---------------------------------------------------------------------------

    def open_source(self, path: str, line: int) -> None:
        """Show a whole source at a line; a source screen that is on top is used again."""
        from .screens.source import SourceScreen

        if isinstance(self.screen, SourceScreen):
            self.screen.show(path, line)
        else:
            self.push_screen(SourceScreen(path, line))

    def action_search(self) -> None:
        from .screens.search import SearchScreen
        from .screens.source import SourceScreen

        if self.case is None:
            self.notify(self.words("The analysis is not done yet."), markup=False)
        elif not isinstance(self.screen, SearchScreen):
            only = self.screen.path if isinstance(self.screen, SourceScreen) else None
            self.push_screen(SearchScreen(only))

    def action_hit(self, step: int) -> None:
        """Next or previous hit, round and round."""
        if not self.hits:
            self.notify(self.words("Nothing searched for yet: / searches."), timeout=2, markup=False)
            return
        self.goto_hit((self.hit_at + step) % len(self.hits))

    def goto_hit(self, number: int) -> None:
        """Bring a hit up: a finding on the main screen, a line in its source."""
        from .search import FindingHit, SourceHit

        self.hit_at = number
        hit = self.hits[number]
        if isinstance(hit, SourceHit):
            self.open_source(hit.path, hit.line)
        elif isinstance(hit, FindingHit):
            while self.screen is not self.triage:
                self.pop_screen()
            self.triage.detail.evidence_view.needle = self.needle
            self.triage.goto_finding(hit.key, hit.evidence)
        self.notify(f"{number + 1}/{len(self.hits)}", timeout=1, markup=False)


def _commands() -> type[Any]:
    from .palette import Commands

    return Commands


def kept_theme() -> str | None:
    """The theme chosen last; None when there is none."""
    from .notes import state_folder

    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (state_folder() / "theme").read_text("utf-8").strip()
    return None


def keep_theme(name: str) -> None:
    """Remember a theme for the next time, where the state folder can be written."""
    from .notes import state_folder

    with contextlib.suppress(OSError):
        (state_folder() / "theme").write_text(name + "\n", "utf-8")


def user_keymap() -> tuple[dict[str, str], list[str]]:
    """Action id -> keys, from `$XDG_CONFIG_HOME/diagnose/keys.toml`; empty without one. And what is wrong with it."""
    import tomllib

    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    path = Path(base) / "diagnose" / "keys.toml"
    if not path.is_file():
        return {}, []
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        return {}, [f"{path}: {error}"]
    return {name: str(keys) for name, keys in _flat(table)}, []


def _flat(table: dict[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names of a TOML table: `search.next = "n"` is read as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{start}{name}.")
        else:
            yield start + name, value


def _keep_stdin(options: Any) -> Any:
    """Evidence comes from standard input: move it aside, take the keyboard from the terminal. OSError without one."""
    evidence = os.fdopen(os.dup(0), "rb")
    terminal = os.open("/dev/tty", os.O_RDWR)
    os.dup2(terminal, 0)
    os.close(terminal)
    return replace(options, stdin=evidence)


def run_app(paths: list[str], options: Any, theme: str | None = None) -> int:
    """Show the screen for some evidence; returns the exit code (0, or 2 when nothing was analysed).

    `options` are those of `run.open_case`. OSError when '-' is given and there is no terminal to take keys from.
    """
    if "-" in paths and not os.isatty(0):
        options = _keep_stdin(options)

    def opener(on_progress: OnProgress) -> AbstractContextManager[CaseLike]:
        from diagnose.run import open_case

        return cast("AbstractContextManager[CaseLike]", open_case(paths, options, on_progress))

    for name in ("COLUMNS", "LINES"):  # exported by some shells: the screen would never learn of a resize
        os.environ.pop(name, None)
    names = ["stdin" if p == "-" else Path(p).name or p for p in paths]
    keymap, problems = user_keymap()
    chosen = theme or kept_theme()
    app = DiagnoseApp(opener, names, lang=options.lang, theme=chosen, keymap=keymap, problems=problems)
    code = app.run()
    return (app.return_code or 0) if code is None else code
