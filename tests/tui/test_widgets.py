"""Every widget of ours: NO_COLOR, no data, hostile and wide text, tiny sizes; and text stays data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult

from diagnose.model import Diagnosis, Evidence, Line, Subject
from diagnose.tui import grids, plain
from diagnose.tui.clock import minute_away
from diagnose.tui.items import arrange
from diagnose.tui.keys import KEYS
from diagnose.tui.logtext import LogRow, Rows, SourceRows, sheet, spans_in
from diagnose.tui.theme import THEMES
from diagnose.tui.widgets.bars import Bar, KeyLine, TabBar
from diagnose.tui.widgets.findings import FindingsList
from diagnose.tui.widgets.lineview import LineView
from diagnose.tui.widgets.logview import LogView
from diagnose.tui.widgets.matrix import Matrix
from diagnose.tui.widgets.page import Block, Page
from diagnose.tui.widgets.rankgrid import RankGrid

from . import fake

NASTY = {
    "nothing": "",
    "markup": "[bold red]not bold[/] [link=x] $(reboot) {{7*7}}",
    "escapes": "\x1b[31mred\x1b]52;c;aGk=\x07 \x9b2J \x00 \r \u202e back \u200b",
    "wide": "節点 017 のポートがダウンしています。" * 8,
    "combining": "e\u0301" * 50 + "👩‍👩‍👧‍👦" * 10,
    "tabs": "\tGPU0\tNIC0\t\tX",
    "long": "x" * 1_000_000,
    "one long word in CJK": "鏈" * 30_000,
}


def _diagnosis(text: str) -> Diagnosis:
    finding = replace(
        fake.PORT_DOWN,
        title=text,
        summary=text,
        subjects=(Subject("nic", text, text),),
        evidence=(Evidence(fake.NCCL_LOG, 1, 1, text[:2000], ((0, 4), (900, 5000))),),
    )
    topology = {"hosts": [{"host": text, "columns": [text], "rows": [{"name": text, "cells": [text, None]}]}]}
    row = {"ranks": text, "host": text, "states": [text, "done"], "note": text, "odd": True}
    progress = {"groups": [{"group": text, "seqs": [text, 2], "rows": [row]}]}
    return fake.diagnosis(findings=(finding,), tables={"progress": progress, "topology": topology})


def _findings(text: str) -> LineView:
    view = FindingsList()
    view.items = arrange(_diagnosis(text))
    return view


def _log(text: str) -> LineView:
    view = LogView()
    evidence = Evidence("a", 1, 2, text[:2000], ((0, 4),))
    view.document = Rows(sheet([evidence], [[Line(1, text), Line(2, text)]], lambda _: text).rows)
    view.needle = "x"
    return view


def _page(text: str) -> LineView:
    view = Page()
    view.blocks = [Block(text, lead=((plain.shorten(text, 5), "key"),), item=0), Block(text)]
    return view


class _Shown:
    """Widgets that need `show` once they have a size."""

    @staticmethod
    def grid(text: str) -> LineView:
        view = RankGrid()
        view.call_after_refresh(view.show, grids.rank_groups(_diagnosis(text)), "rank" if not text else "job")
        return view

    @staticmethod
    def matrix(text: str) -> LineView:
        view = Matrix()
        view.call_after_refresh(view.show, grids.topology(_diagnosis(text)), {(text, text): "x"})
        return view


def _bar(text: str) -> LineView:
    view = Bar()
    view.left, view.right = [(text, "head"), (text, "odd")], [(text[:10], "key")]
    return view


def _tabs(text: str) -> LineView:
    view = TabBar()
    view._tabs = ([("a", "1 " + text[:50]), ("b", "2 b")], "a", [(text[:3], "key")])
    return view


def _keys(text: str) -> LineView:
    view = KeyLine()
    view._hints = [(text[:3], text[:30]), ("x", "y")]
    return view


MAKERS: dict[str, Callable[[str], LineView]] = {
    "findings": _findings,
    "log": _log,
    "page": _page,
    "grid": _Shown.grid,
    "matrix": _Shown.matrix,
    "bar": _bar,
    "tabs": _tabs,
    "keys": _keys,
}


class One(App[None]):
    """An app of one widget."""

    def __init__(self, view: Callable[[], LineView]) -> None:
        super().__init__()
        self._make = view
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = THEMES[0].name

    def compose(self) -> ComposeResult:
        yield self._make()


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("no_color", [False, True], ids=["colour", "NO_COLOR"])
async def test_hostile_text_in_every_widget(maker: str, no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    for name, text in NASTY.items():
        if not no_color and name not in ("markup", "escapes", "wide"):
            continue
        app = One(lambda text=text: MAKERS[maker](text))  # type: ignore[misc]
        async with app.run_test(size=(60, 12)) as pilot:
            view = app.query_one(LineView)
            view.relayout()
            view.content_changed()
            await pilot.pause()
            for size in ((60, 12), (20, 5), (1, 1)):
                await pilot.resize_terminal(*size)
                for y in range(view.size.height):
                    strip = view.render_line(y)
                    assert all(s.style is not None for s in strip), "a segment without style fails under NO_COLOR"
                    assert strip.text.isprintable()
                    assert strip.cell_length == view.view_size.width


async def test_no_color_whole_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        for _ in range(200):
            await pilot.pause(0.01)
            if app.case is not None:
                break
        for keys in ("2", "3", "4", "5", "?", "escape", "slash", "escape"):
            await pilot.press(keys)
        assert "CRITICAL" in fake.frame(app)


def test_markup_in_evidence_stays_text() -> None:
    view = _log(NASTY["markup"])
    assert isinstance(view, LogView)
    assert view.document.row(1).text == NASTY["markup"]


@pytest.mark.parametrize("text", NASTY.values(), ids=list(NASTY))
@pytest.mark.parametrize("width", [1, 2, 7, 80])
def test_wrapping_and_shortening_keep_to_the_width(text: str, width: int) -> None:
    text = text[:20_000]
    assert cell_len(plain.shorten(text, width)) <= width
    for line in plain.wrap(text, width):
        assert cell_len(line) <= max(4, width) and line.isprintable()
    fitted, _ = plain.fit(text)
    assert "".join(plain.chop(fitted, max(2, width))) == fitted


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200), st.lists(st.tuples(st.integers(0, 250), st.integers(0, 250)), max_size=4))
def test_fit_keeps_spans_inside(text: str, spans: list[tuple[int, int]]) -> None:
    fitted, moved = plain.fit(text, spans)
    assert fitted.isprintable()
    assert all(0 <= a <= b <= len(fitted) for a, b in moved)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="abc d\n", min_size=1, max_size=80), st.integers(4, 30))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    assert "".join("".join(plain.wrap(text, width)).split()) == "".join(text.split())


def test_spans_follow_a_line_whose_prefix_the_evidence_lacks() -> None:
    evidence = Evidence("a", 4, 5, "one\nport Down", ((9, 13),))
    assert spans_in(evidence, Line(5, "3: port Down")) == [(8, 12)]
    assert spans_in(evidence, Line(4, "3: one")) == []
    assert spans_in(evidence, Line(5, "something else")) == []


async def test_200_000_lines_are_read_where_seen_only() -> None:
    asked: list[tuple[int, int]] = []

    class Big(fake.Reader):
        def __len__(self) -> int:
            return 200_000

        def __getitem__(self, index: slice) -> list[Line]:
            asked.append((index.start, index.stop))
            return [Line(i + 1, f"line {i + 1}") for i in range(index.start, min(index.stop, 200_000))]

    def make() -> LineView:
        view = LogView()
        view.document = SourceRows(Big(()))
        return view

    app = One(make)
    async with app.run_test(size=(80, 24)) as pilot:
        view = app.query_one(LogView)
        view.show(view.document)
        for wrap in (True, False):
            view.set_wrap(wrap)
            await pilot.press("G")
            assert any("line 200000" in text for text in view.visible_text())
            await pilot.press("g")
        assert len(asked) < 12


async def test_last_line_is_reached_when_it_wraps() -> None:
    def make() -> LineView:
        view = LogView()
        view.document = Rows([LogRow(n, "word " * 100) for n in range(1, 30)])
        return view

    app = One(make)
    async with app.run_test(size=(60, 10)) as pilot:
        view = app.query_one(LogView)
        view.show(view.document)
        await pilot.press("G")
        assert any(" 29 " in text for text in view.visible_text())


async def test_10_000_ranks_fold_and_unfold() -> None:
    row = {"ranks": "0-4999,5001-9999", "states": ["done"] * 300, "note": "waiting"}
    odd = {"ranks": "5000", "states": ["done"] * 299 + ["absent"], "note": "not in", "odd": True}
    tables = {"progress": {"groups": [{"group": "dp", "seqs": list(range(300)), "rows": [row, odd]}]}}
    app = One(RankGrid)
    async with app.run_test(size=(100, 24)) as pilot:
        view = app.query_one(RankGrid)
        view.show(grids.rank_groups(fake.diagnosis(tables=tables)))
        await pilot.press("g")
        assert view.item_count() == 2
        assert view.current is not None and view.current.ranks == "5000"
        view.next_zoom()
        view.next_zoom()
        await pilot.pause()
        assert view.item_count() == 10_000
        assert view.current.ranks == "5000"
        await pilot.press("G", "l", "l")
        assert any("9999" in text for text in (view.row(view.item_rows(view.cursor)[0])[1][0],))


def test_keys_are_unique_where_they_meet() -> None:
    everywhere = [k for k in KEYS if k.place in ("everywhere", "lists and texts")]
    triage = [k for k in KEYS if k.place in ("findings", "detail", "fix", "ranks", "topology")]
    source = [k for k in KEYS if k.place in ("source", "search")]
    for together in (everywhere + triage, everywhere + source):
        names = [name for key in together for name in key.keys]
        assert len(names) == len(set(names))
    assert len({k.id for k in KEYS}) == len(KEYS)


def test_no_key_needs_what_terminals_swallow() -> None:
    for key in KEYS:
        assert any("+" not in name for name in key.keys) or key.id in ("line",)
        assert not any(name.startswith(("f1", "alt+", "ctrl+shift")) for name in key.keys)


def test_neighbours_in_one_source_share_a_section() -> None:
    items = [
        Evidence("a", 4, 4, "four"),
        Evidence("a", 5, 6, "five\nsix"),
        Evidence("b", 1, 1, "one"),
        Evidence("a", 40, 40, "x"),
    ]
    around = [[Line(n, f"line {n}") for n in range(e.first - 2, e.last + 3) if n > 0] for e in items]
    made = sheet(items, around, str.upper)
    assert [r.text for r in made.rows if r.token == "head"] == ["A", "B", "A"]
    assert [r.number for r in made.rows if r.hit] == [4, 5, 6, 1, 40]
    assert [made.rows[h].number for h in made.hits] == [4, 5, 1, 40]
    assert [made.rows[s].number for s in made.starts] == [None, 5, None, None]
    assert [r.number for r in sheet(items[:1], (), str).rows] == [None, 4]


@pytest.mark.parametrize("shape", ["at", "iso", "glog", "kernel"])
def test_a_minute_away(shape: str) -> None:
    asked = 0

    class Lines:
        def __len__(self) -> int:
            return 100_000

        def line(self, index: int) -> Line | None:
            nonlocal asked
            asked += 1
            if index % 3 == 1:
                return Line(index + 1, "a line without a time: 1234")
            seconds = 86_000 + index
            day, clock = 1 + seconds // 86_400, seconds % 86_400
            told = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
            text = {
                "at": "x",
                "iso": f"2025-03-{day:02}T{told}Z node017 x",
                "glog": f"[rank0]:[E3{day:02} {told}.408271257 ProcessGroupNCCL.cpp:607] x",
                "kernel": f"[{seconds:12}.000000] mlx5_core x",
            }[shape]
            return Line(index + 1, text, float(seconds) if shape == "at" else None)

    lines = Lines()
    assert minute_away(lines, 300, 1) in (359, 360, 361)
    assert minute_away(lines, 390, 1) in (449, 450, 451)
    assert minute_away(lines, 390, -1) in (328, 329, 330)
    assert minute_away(lines, 30, -1) == 0
    assert minute_away(lines, 99_999, 1) == 99_999
    assert asked < 2_000


def test_a_minute_away_where_no_line_has_a_time() -> None:
    assert (
        minute_away(SourceRows(type("R", (fake.Reader,), {"__getitem__": lambda *_: [Line(1, "x")]})(["x"])), 0, 1)
        is None
    )


async def test_rows_fit_even_when_the_resize_event_came_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineView, "on_resize", lambda self, event: None)
    page = Page()
    page.blocks = [Block("some words that fit easily into sixty cells")]
    page._rows = [(None, [("laid out for another width", "text")])]
    app = One(lambda: page)
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        assert page.visible_text()[0].strip() == "some words that fit easily into sixty cells"
