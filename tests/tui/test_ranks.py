"""Tab 4 with 10,000 ranks: odd ones on the first screen at every zoom, alike ones fold, only what is seen is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from textual.app import App

from diagnose.model import Diagnosis, unfold_ranks
from diagnose.run import Options, analyse
from diagnose.tui import grids
from diagnose.tui.widgets.rankgrid import RankGrid
from tests.simulator import dumps, faults, layout

from . import fake
from .support import press, running

RANKS, PER_HOST, ODD = 10_000, 8, (4242, 7007)
NO_SITE = Path(__file__).parents[2] / "fixtures" / "site" / "none.toml"


def host(rank: int) -> str:
    return f"node{rank // PER_HOST:04d}"


def rows() -> list[dict[str, object]]:
    """Two ranks that never came, 37 without a dump, the others wait."""
    silent = "100-136"
    waiting = f"0-99,137-{ODD[0] - 1},{ODD[0] + 1}-{ODD[1] - 1},{ODD[1] + 1}-{RANKS - 1}"
    before = ["done"] * 3
    return [
        {"ranks": ",".join(map(str, ODD)), "host": "2 hosts", "states": [*before, "absent"], "note": "never entered it",
         "odd": True},
        {"ranks": silent, "host": "6 hosts", "states": ["unknown"] * 4, "note": "no dump", "odd": False},
        {"ranks": waiting, "host": "1250 hosts", "states": [*before, "waiting"], "note": "waits in it", "odd": False},
    ]  # fmt: skip


def large() -> Diagnosis:
    hosts = {host(first): f"{first}-{first + PER_HOST - 1}" for first in range(0, RANKS, PER_HOST)}
    groups = [
        {"group": "process group 0 (default_pg)", "op": "all_reduce", "seqs": [415, 416, 417, 418], "rows": rows()}
    ]
    return fake.diagnosis(tables={"progress": {"groups": groups, "hosts": hosts}})


def shown(app: App[int]) -> list[str]:
    return app.screen.query_one(RankGrid).visible_text()


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20)])
async def test_odd_ranks_are_on_the_first_screen_at_every_zoom(size: tuple[int, int]) -> None:
    async with running(fake.app(fake.FakeCase(large())), size) as (app, pilot):
        await press(pilot, "4")
        widgets = len(app.screen.query("*"))
        for zoom, expected in (("job", 3), ("node", 1250 + 2 + 6 - 4), ("rank", RANKS)):
            view = app.screen.query_one(RankGrid)
            assert view.zoom == zoom
            assert view.item_count() == expected
            text = "\n".join(shown(app))
            for rank in ODD:
                assert str(rank) in text, text
            assert "never entered it" in text or size[0] < 100
            if zoom != "job" and size[0] >= 100:
                assert host(ODD[0]) in text and host(ODD[1]) in text
            assert len(app.screen.query("*")) == widgets
            await press(pilot, "z")
        assert view.zoom == "job"


async def test_a_key_draws_what_is_seen_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = 0
    plain = RankGrid.row

    def row(self: RankGrid, y: int) -> object:
        nonlocal drawn
        drawn += 1
        return plain(self, y)

    async with running(fake.app(fake.FakeCase(large()))) as (app, pilot):
        await press(pilot, "4", "z", "z")
        view = app.screen.query_one(RankGrid)
        view.focus()
        await pilot.pause()
        assert view.item_count() == RANKS
        monkeypatch.setattr(RankGrid, "row", row)
        for key in ("j", "pagedown", "G", "k", "left", "g"):
            drawn = 0
            await press(pilot, key)
            assert drawn <= 6 * view.view_size.height, key


async def test_enter_unfolds_to_the_rank_and_the_cursor_stays_with_it() -> None:
    async with running(fake.app(fake.FakeCase(large()))) as (app, pilot):
        await press(pilot, "4")
        view = app.screen.query_one(RankGrid)
        view.focus()
        assert view.current is not None
        assert (view.current.ranks, view.current.count) == ("4242,7007", 2)
        await press(pilot, "j", "j")
        assert view.current is not None and view.current.count == RANKS - 39
        view.unfold()
        await pilot.pause()
        assert view.current is not None
        assert (view.current.ranks, view.current.host) == ("0", host(0))
        await press(pilot, "z", "z")
        assert view.zoom == "node"
        assert view.current.host == host(0)


def test_a_node_is_a_row_per_look() -> None:
    (group,) = grids.rank_groups(large())
    nodes = grids.zoomed(group, "node")
    assert [(r.host, r.ranks, r.odd) for r in nodes[:2]] == [(host(r), str(r), True) for r in ODD]
    assert sum(r.count for r in nodes) == RANKS
    mates = next(r for r in nodes[2:] if r.host == host(ODD[0]))
    assert set(unfold_ranks(mates.ranks)) == set(range(4240, 4248)) - {4242}
    first = [r.ranks for r in nodes[2:]]
    assert first == sorted(first, key=lambda text: int(text.split(",")[0].split("-")[0]))


def test_tables_without_hosts_zoom_as_well() -> None:
    table = {"groups": [{"group": "0", "seqs": [1, 2, 3, 4], "rows": rows()}]}
    (group,) = grids.rank_groups(fake.diagnosis(tables={"progress": table}))
    assert len(grids.zoomed(group, "node")) == 3
    assert grids.zoomed(group, "rank")[0].ranks == "4242"


def test_an_analysis_tells_the_hosts(tmp_path: Path) -> None:
    rng = Random(8)
    run = None
    while run is None:
        run = faults.broken(rng, layout.draw(rng, 32, 32), "sleep")
    clock = dumps.Clock(rng, run.layout, 0.0)
    style = dumps.Style("2.10", False, 200, False, "nccl_trace_rank_{rank}", False, "pickle")
    for rank in range(32):
        folder = tmp_path / run.layout.host(rank)
        folder.mkdir(exist_ok=True)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(dumps.dump(run, rank, style, clock, 600_000))
    found = analyse([str(tmp_path)], Options(site=NO_SITE, jobs=1))
    for group in grids.rank_groups(found):
        for row in grids.zoomed(group, "rank"):
            assert row.host == run.layout.host(int(row.ranks))
        assert {r.host for r in grids.zoomed(group, "node")} <= set(run.layout.hosts)


@pytest.mark.parametrize("zoom", [(), ("z",), ("z", "z")], ids=["job", "node", "rank"])
async def test_nothing_is_cut_while_there_is_room(zoom: tuple[str, ...]) -> None:
    states = [*["done"] * 11, "waiting"]
    rows = [
        {
            "ranks": "5",
            "host": "node-b",
            "states": [*states[:-1], "absent"],
            "note": "has not entered it yet",
            "odd": True,
        },
        {"ranks": "0-4,6-15", "host": "2 hosts", "states": states, "note": "waits in it", "odd": False},
    ]
    groups = [
        {"group": "process group 0 (default_pg)", "op": "all_reduce", "seqs": list(range(4700, 4712)), "rows": rows}
    ]
    case = fake.FakeCase(fake.diagnosis(tables={"progress": {"groups": groups, "hosts": {}}}))
    async with running(fake.app(case), (140, 40)) as (app, pilot):
        await press(pilot, "4", *zoom)
        text = "\n".join(shown(app))
        assert "◂ odd one out  has not entered it yet" in text, text
        assert "process group 0 (default_pg) · all_reduce" in text
        assert re.search(r"← \d+ earlier", text), text
