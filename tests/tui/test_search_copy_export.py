"""Search, copying and export: what leaves the screen."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from textual.widgets import Input

from diagnose.tui import clipboard
from diagnose.tui.notes import Notes
from diagnose.tui.screens.search import SearchScreen
from diagnose.tui.screens.source import SourceScreen
from diagnose.tui.search import FindingHit, SourceHit
from diagnose.tui.ticket import FORMATS, Format, ticket, with_notes
from diagnose.tui.words import Words

from . import fake
from .support import press, running


async def test_search_over_findings_evidence_and_sources() -> None:
    async with running() as (app, pilot):
        await press(pilot, "slash", *"status=12", "enter")
        assert isinstance(app.screen, SearchScreen)
        assert app.hits == (
            FindingHit(fake.PORT_DOWN.key, fake.PORT_DOWN.title, 0, app.hits[0].excerpt),
            SourceHit(fake.NCCL_LOG, 12, app.hits[1].excerpt),
        )
        await press(pilot, "G", "enter")
        assert isinstance(app.screen, SourceScreen)
        view = app.screen.view
        assert view.document.row(view.current).number == 12
        await press(pilot, "n")
        assert app.screen is app.triage
        assert app.triage.detail.finding == fake.PORT_DOWN
        await press(pilot, "N")
        assert isinstance(app.screen, SourceScreen)


async def test_search_in_one_source_only() -> None:
    async with running() as (app, pilot):
        await press(pilot, "o")
        await press(pilot, "slash", *"channel 2", "enter")
        assert [h.line for h in app.hits if isinstance(h, SourceHit)] == list(range(21, 31))
        assert len(app.hits) == 10
        await press(pilot, "enter")
        await press(pilot, "n", "n")
        assert isinstance(app.screen, SourceScreen)
        assert app.screen.view.document.row(app.screen.view.current).number == 23


async def test_search_for_what_is_not_there_and_for_markup() -> None:
    async with running() as (app, pilot):
        await press(pilot, "slash", *"[/bold]$(", "enter")
        assert app.hits == ()
        assert "Nothing found" in fake.frame(app)
        await press(pilot, "escape")
        assert app.screen is app.triage


async def test_source_screen_goes_to_lines_and_by_minutes() -> None:
    case = fake.FakeCase(texts={**fake.TEXTS, fake.NCCL_LOG: [f"line {n}" for n in range(1, 501)]})
    async with running(fake.app(case)) as (app, pilot):
        await press(pilot, "o")
        assert isinstance(app.screen, SourceScreen)
        await press(pilot, "ctrl+g", *"300", "enter")
        assert app.screen.view.current == 299
        top = round(app.screen.view.scroll_y)
        await press(pilot, ".")
        assert round(app.screen.view.scroll_y) == top + 60
        await press(pilot, ",")
        assert round(app.screen.view.scroll_y) == top


async def test_copy_goes_to_the_terminal_and_to_a_file(own_folders: Path) -> None:
    async with running() as (app, pilot):
        await press(pilot, "3", "y")
        assert app.clipboard == "ibstat mlx5_3"
        await press(pilot, "Y")
        assert app.clipboard.splitlines()[1] == "iblinkinfo -G 0x0c42a103007a1b2c"
        await press(pilot, "1", "y")
        assert app.clipboard == fake.PORT_DOWN.evidence[0].text
        path = own_folders / "state" / "diagnose" / "copied.txt"
        assert path.read_text().startswith("ibstat mlx5_3\nibstat mlx5_3\niblinkinfo")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert any("OSC 52" in n.message and "copied.txt" in n.message for n in app._notifications)


def test_copy_uses_tmux_when_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tmux"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/args\ncat > {tmp_path}/got\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TMUX", "/tmp/x,1,0")
    written: list[str] = []
    told = clipboard.copy("a\nb", written.append, tmp_path)
    assert not written
    assert (tmp_path / "got").read_text() == "a\nb"
    assert (tmp_path / "args").read_text() == "load-buffer -w -\n"
    assert "2 lines" in told and "tmux" in told and "copied.txt" in told


def test_copy_says_when_the_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "copied.txt").mkdir()
    written: list[str] = []
    assert "not to a file" in clipboard.copy("x\x1b[31m\x07\r", written.append, tmp_path)
    assert written == ["x[31m"]


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def render(diagnosis: object, format: str, lang: str) -> str:
        return {"markdown": "# Report\n", "html": "<body>report</body>\n", "json": '{"schema": "diagnose.report/1"}\n'}[
            format
        ]

    monkeypatch.setattr("diagnose.tui.ticket.render", render)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_export_shows_writes_and_asks_before_overwriting(rendered: Path) -> None:
    async with running() as (app, pilot):
        await press(pilot, "e")
        assert "# Report" in fake.frame(app)
        await press(pilot, "enter")
        path = rendered / "diagnose-run-2291.md"
        assert path.read_text() == "# Report\n"
        path.write_text("mine")
        await press(pilot, "e")
        app.screen.query_one(Input).value = path.name
        await press(pilot, "enter")
        assert path.read_text() == "mine"
        assert "overwrites" in fake.frame(app)
        await press(pilot, "enter")
        assert path.read_text() == "# Report\n"
        await press(pilot, "e", "ctrl+f", "ctrl+f", "enter")
        assert json.loads((rendered / "diagnose-run-2291.json").read_text()) == {"schema": "diagnose.report/1"}


async def test_a_second_export_gets_a_name_of_its_own(rendered: Path) -> None:
    async with running() as (app, pilot):
        await press(pilot, "e", "enter")
        first = rendered / "diagnose-run-2291.md"
        first.write_text("mine")
        await press(pilot, "e", "enter")
        await press(pilot, "e", "ctrl+f", "enter")
        await press(pilot, "e", "ctrl+f")
        assert app.screen.query_one(Input).value == "diagnose-run-2291-2.html"
        await press(pilot, "ctrl+f", "ctrl+f")
        assert app.screen.query_one(Input).value == "diagnose-run-2291-3.md"
        assert first.read_text() == "mine"
        assert (rendered / "diagnose-run-2291-2.md").read_text() == "# Report\n"


async def test_search_says_which_key_searches_and_which_opens() -> None:
    async with running() as (app, pilot):
        await press(pilot, "slash")
        assert "enter searches" in fake.frame(app)
        await press(pilot, *"status=12", "enter")
        assert "enter opens a hit, n and N" in fake.frame(app)


async def test_ticks_and_comments_appear_in_the_ticket(rendered: Path) -> None:
    async with running() as (_, pilot):
        await press(pilot, "3", "space", "c", *"on it", "enter", "e", "enter")
        text = (rendered / "diagnose-run-2291.md").read_text()
        assert "- [x] Confirm that the port is down." in text
        assert "- [ ] Reseat or swap the cable." in text
        assert "on it" in text


def test_notes_in_html_and_json_are_data() -> None:
    notes = Notes("")
    notes.comment(fake.PORT_DOWN.key, "<script>alert(1)</script>")
    words = Words()
    html = with_notes("<body>x</body>", fake.diagnosis(), notes, "html", words)
    assert "<script>" not in html and html.endswith("</body>")
    assert "<script>" not in with_notes("# x\n", fake.diagnosis(), notes, "markdown", words)
    assert json.loads(with_notes("{}", fake.diagnosis(), notes, "json", words))["notes"]["comments"]


def test_notes_survive_and_refuse_foreign_files(tmp_path: Path) -> None:
    notes = Notes("abc/../x", tmp_path)
    assert notes.path is not None and notes.path.parent == tmp_path / "notes"
    assert notes.tick("f", "step")
    assert Notes("abc/../x", tmp_path).ticks == {"f": {"step"}}
    notes.path.write_text("[]")
    with pytest.raises(ValueError, match="not a file of notes"):
        Notes("abc/../x", tmp_path)


@pytest.mark.parametrize("format", FORMATS)
def test_the_real_reports_take_notes(format: Format) -> None:
    notes = Notes("")
    notes.comment(fake.PORT_DOWN.key, "cable swapped")
    text = ticket(fake.diagnosis(), notes, format, Words())
    assert "cable swapped" in text and "InfiniBand port is down" in text
    if format == "json":
        json.loads(text)
