"""Behaviour of the main screen, by pressing keys."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.model import Finding, Source
from diagnose.tui import app as app_module
from diagnose.tui.items import Group
from diagnose.tui.widgets.matrix import Matrix
from diagnose.tui.widgets.page import Page
from diagnose.tui.widgets.rankgrid import RankGrid

from . import fake
from .support import press, running, settle


async def test_first_frame_comes_before_the_analysis_ends() -> None:
    go = threading.Event()
    app = fake.app(go=go)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert app.case is None
        assert "Reading the evidence" in fake.frame(app)
        await press(pilot, "j", "2", "3", "4", "5", "1", "]", "y", "f", "w")
        go.set()
        while app.case is None:
            await pilot.pause(0.01)
        await settle(pilot)
        assert "InfiniBand port is down" in fake.frame(app)


async def test_help_open_while_the_analysis_ends() -> None:
    go = threading.Event()
    app = fake.app(go=go)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "question_mark")
        go.set()
        while app.case is None:
            await pilot.pause(0.01)
        await settle(pilot)
        assert "Keys" in fake.frame(app)
        await press(pilot, "escape")
        assert "InfiniBand port is down" in fake.frame(app)


async def test_failure_is_said_and_gives_exit_code_2() -> None:
    def opener(on_progress: object) -> object:
        raise RuntimeError("no source of a known kind")

    from diagnose.tui.app import DiagnoseApp

    app = DiagnoseApp(opener, ("x",))  # type: ignore[arg-type]
    async with app.run_test(size=(100, 20)) as pilot:
        while "Nothing could be analysed" not in fake.frame(app):
            await pilot.pause(0.01)
        assert "no source of a known kind" in fake.frame(app)
        await pilot.press("q")
    assert app.return_value == 2


async def test_list_by_severity_with_the_consequence_beneath_its_root() -> None:
    async with running() as (app, _):
        things = [(item.depth, item.thing) for item in app.triage.findings.items]
        findings = [(d, t.id) for d, t in things if isinstance(t, Finding)]
        assert findings == [
            (0, "ib/port-down"),
            (1, "stall/missing-rank"),
            (0, "pcie/width"),
            (0, "software/versions-differ"),
        ]
        groups = [t.name for _, t in things if isinstance(t, Group)]
        assert groups == ["unknowns", "problems", "sources"]


async def test_moving_shows_the_finding_and_keeps_the_tab() -> None:
    async with running() as (app, pilot):
        await press(pilot, "2", "j", "j")
        assert app.triage.detail.tab == "why"
        assert app.triage.detail.finding == fake.PCIE
        assert "min_width = 16" in fake.frame(app)
        await press(pilot, "G")
        await press(pilot, "g")
        assert app.triage.detail.finding == fake.PORT_DOWN


async def test_evidence_shows_original_lines_with_context_and_walks() -> None:
    async with running() as (app, pilot):
        view = app.triage.detail.evidence_view
        rows = [view.document.row(i) for i in range(len(view.document))]
        assert [r.number for r in rows[:9]] == [None, 9, 10, 11, 12, 13, 14, 15, 16]
        assert [r.number for r in rows if r.hit] == [12, 13, 6, 7]
        spans = {row.text[a:b] for row in rows for a, b in row.spans}
        assert spans == {"status=12", "Down"}
        await press(pilot, "]")
        assert app.triage.detail.evidence_at == 1
        assert view.document.row(view.current).number == 6
        await press(pilot, "]", "[")
        assert app.triage.detail.evidence_at == 0


async def test_ticks_are_kept_and_come_back() -> None:
    async with running() as (app, pilot):
        await press(pilot, "3", "enter", "j", "space")
        assert app.notes.ticks[fake.PORT_DOWN.key] == {fake.PORT_DOWN.remediation[1].text}
        assert "[x] 2" in fake.frame(app)
    async with running() as (app, pilot):
        await press(pilot, "3")
        assert "[x] 2" in fake.frame(app)
        await press(pilot, "enter", "j", "space")
        assert "[x]" not in fake.frame(app)


async def test_a_comment_is_asked_for_and_shown() -> None:
    async with running() as (app, pilot):
        await press(pilot, "c", *"swapped", "enter", "2")
        assert app.notes.comments[fake.PORT_DOWN.key] == "swapped"
        pages = app.triage.query(Page)
        assert any("swapped" in block.text for page in pages for block in page.blocks)
        await press(pilot, "c", "escape")
        assert app.notes.comments[fake.PORT_DOWN.key] == "swapped"


async def test_filter_walks_the_severities() -> None:
    async with running() as (app, pilot):
        await press(pilot, "f", "f", "f")
        shown = [i.thing.id for i in app.triage.findings.items if isinstance(i.thing, Finding)]
        assert shown == ["ib/port-down"]
        await press(pilot, "f")
        assert sum(isinstance(i.thing, Finding) for i in app.triage.findings.items) == 4


async def test_groups_unfold_and_sources_show_their_text() -> None:
    async with running() as (app, pilot):
        await press(pilot, "G", "enter")
        items = app.triage.findings.items
        assert sum(isinstance(i.thing, Source) for i in items) == 4
        assert items[app.triage.findings.cursor].key == "group:sources:"
        await press(pilot, "j")
        assert isinstance(app.triage.findings.current.thing, Source)  # type: ignore[union-attr]
        assert app.triage.findings.current.thing.status == "unrecognised"  # type: ignore[union-attr]
        await press(pilot, "j")
        assert len(app.triage.detail.evidence_view.document) == 40


async def test_consequences_fold_and_unfold() -> None:
    async with running() as (app, pilot):
        await press(pilot, "z")
        assert all(getattr(i.thing, "id", "") != "stall/missing-rank" for i in app.triage.findings.items)
        app.triage.goto_finding(fake.NEVER_ENTERED.key)
        await settle(pilot)
        assert app.triage.detail.finding == fake.NEVER_ENTERED


async def test_ranks_zoom_and_unfold() -> None:
    async with running() as (app, pilot):
        await press(pilot, "4", "enter")
        grid = app.triage.detail.pane
        assert isinstance(grid, RankGrid)
        assert [grid._ranks[i][1].ranks for i in range(grid.item_count())] == ["137", "0-136,138-255"]
        assert grid._ranks[1][1].count == 255
        await press(pilot, "z")
        assert grid.zoom == "node"
        await press(pilot, "z")
        assert (grid.zoom, grid.item_count()) == ("rank", 256)
        assert grid.current is not None and grid.current.ranks == "137"
        await press(pilot, "z", "G", "enter")
        assert (grid.zoom, grid.current.ranks) == ("rank", "0")


async def test_topology_marks_faults_and_leads_to_the_finding() -> None:
    async with running() as (app, pilot):
        await press(pilot, "j", "j", "5", "enter", "G")
        matrix = app.triage.detail.pane
        assert isinstance(matrix, Matrix)
        assert "!mlx5_3" in fake.frame(app) and "!PIX" in fake.frame(app)
        await press(pilot, "v")
        assert "GPU0 → NV18 → GPU1" in fake.frame(app)
        await press(pilot, "v", "G", "enter")
        assert app.triage.detail.finding == fake.PORT_DOWN


async def test_help_lists_all_keys_and_scrolls() -> None:
    async with running(size=(60, 20)) as (app, pilot):
        await press(pilot, "?")
        assert "Everywhere" in fake.frame(app)
        await press(pilot, "G")
        assert "keys.toml" in fake.frame(app)
        await press(pilot, "escape")
        assert app.screen is app.triage


async def test_themes_go_round() -> None:
    async with running() as (app, pilot):
        seen = [app.theme]
        for _ in range(3):
            await press(pilot, "t")
            seen.append(app.theme)
        assert seen == ["diagnose-dark", "diagnose-light", "diagnose-contrast", "diagnose-dark"]
        await press(pilot, "t")
        assert app_module.kept_theme() == "diagnose-light"


def test_start_imports_only_what_the_first_frame_needs() -> None:
    late = (
        "pandas",
        "jsonschema",
        "pyparsing",
        "yaml",
        "durable",
        "diagnose.model",
        "diagnose.run",
    )
    code = f"import sys, diagnose.tui.app; print([m for m in {late!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_whole_source_opens_at_the_evidence() -> None:
    async with running() as (app, pilot):
        await press(pilot, "o")
        view = app.screen.query_one("#text")
        assert view.document.row(view.current).number == 12  # type: ignore[attr-defined]
        await press(pilot, "escape")
        assert app.screen is app.triage


async def test_a_users_keys_replace_ours() -> None:
    async with running(fake.app(keymap={"theme": "x", "themes": "y"})) as (app, pilot):
        await press(pilot, "x")
        assert app.theme == "diagnose-light"
        assert any("did you mean 'theme'" in n.message for n in app._notifications)


async def test_palette_goes_to_a_finding() -> None:
    async with running() as (app, pilot):
        await press(pilot, "ctrl+p", *"pcielink")
        await pilot.pause(0.3)
        await press(pilot, "enter")
        assert app.triage.detail.finding == fake.PCIE


@pytest.mark.parametrize("size", [(20, 5), (59, 20), (300, 80)])
async def test_any_size(size: tuple[int, int]) -> None:
    async with running() as (_, pilot):
        for tab in "1345":
            await press(pilot, tab)
            await pilot.resize_terminal(*size)
            await press(pilot, "j", "enter", "j", "G", "escape")
            await pilot.resize_terminal(120, 36)
            await settle(pilot)


async def test_very_narrow_shows_one_pane_at_a_time() -> None:
    async with running(size=(58, 20)) as (app, pilot):
        right = app.screen.query_one("#right")
        assert not right.display or right.size.width == 0
        await press(pilot, "enter")
        assert "nccl.rank137.log" in fake.frame(app)
        await press(pilot, "escape")
        assert "nccl.rank137.log" not in fake.frame(app)


async def test_wrapping_and_mouse_can_be_changed() -> None:
    async with running() as (app, pilot):
        view = app.triage.detail.evidence_view
        assert view.wrap
        await press(pilot, "w", "m")
        assert not view.wrap and app.mouse_released
        assert any("fe80::1" in view.document.row(i).text for i in range(len(view.document)))
        await press(pilot, "enter", "l", "l")
        assert view.scroll_x > 0
        await press(pilot, "w", "m")
        assert view.wrap and not app.mouse_released and view.scroll_x == 0


def test_a_users_key_map_is_read(own_folders: Path) -> None:
    folder = own_folders / "config" / "diagnose"
    folder.mkdir(parents=True)
    (folder / "keys.toml").write_text('search = "ctrl+f"\n"evidence.next" = "x"\n[tab]\nwhy = "7"\n')
    assert app_module.user_keymap() == ({"search": "ctrl+f", "evidence.next": "x", "tab.why": "7"}, [])
    (folder / "keys.toml").write_text("search = \n")
    keymap, problems = app_module.user_keymap()
    assert keymap == {} and "keys.toml" in problems[0]


async def test_the_key_line_tells_the_keys_of_the_tab_while_the_list_has_the_focus() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        assert "z zoom" not in fake.frame(app)
        await press(pilot, "4")
        assert app.screen.focused is app.triage.findings
        assert " z zoom " in fake.frame(app).splitlines()[-1]
        await press(pilot, "5")
        assert " v view " in fake.frame(app).splitlines()[-1]
        await press(pilot, "1")
        assert "z zoom" not in fake.frame(app)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (120, "run-2291 · 32 nodes · 256 ranks · stalled since 11-14 03:12:45 UTC"),
        (80, "stalled since 11-14 03:12:45 UTC"),
        (60, "stalled since 03:12"),
    ],
)
async def test_the_top_line_says_since_when_at_every_width(width: int, said: str) -> None:
    job = {"nodes": 32, "ranks": 256, "stalled_since": 1763089965.0}
    async with running(fake.app(fake.FakeCase(fake.diagnosis(job=job))), size=(width, 24)) as (app, _):
        assert said in fake.frame(app).splitlines()[0]
        assert "not judged" in fake.frame(app).splitlines()[0]


async def test_what_the_site_has_accepted_looks_like_no_open_finding() -> None:
    known = replace(fake.PORT_DOWN, acknowledged="spare port, until March")
    found = fake.diagnosis(findings=(known, fake.PCIE))
    async with running(fake.app(fake.FakeCase(found)), size=(120, 36)) as (app, pilot):
        text = fake.frame(app)
        assert "✖" not in text and "CRITICAL" not in text
        assert "– ACCEPTED InfiniBand port is down" in text
        assert "1 finding · 1 acknowledged" in text.splitlines()[0]
        await press(pilot, "j", "2")
        while app.triage.detail.finding != known:
            await press(pilot, "j")
        assert "– ACCEPTED (critical)" in fake.frame(app) and "spare port, until March" in fake.frame(app)
