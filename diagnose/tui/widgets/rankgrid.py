"""RankGrid: ranks against collectives. Ranks that look alike share a row; zoom unfolds to nodes and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from rich.cells import cell_len

from ..grids import STATE_TOKENS, STATES, ZOOMS, RankGroup, RankRow, Zoom, zoomed
from ..plain import printable, shorten, wrap
from .lineview import MIN_WIDTH, LineView, Piece, Row, row_cells

MAX_RANKS_WIDTH = 24
NOTE_WIDTH = 28
"""Cells kept for what is said about a row, right of its collectives; more of a wide view."""

NARROW = 64
"""Below this width the hosts are left out."""


class RankGrid(LineView):
    """Rows: per group a heading and the collectives, then its ranks; the last row of the view is the legend."""

    def __init__(self, *, id: str | None = None, say: Callable[[str], str] = str) -> None:
        super().__init__(id=id)
        self.groups: Sequence[RankGroup] = ()
        self.zoom: Zoom = "job"
        self._say = say
        self._ranks: list[tuple[RankGroup, RankRow]] = []
        self._heads: dict[int, tuple[RankGroup, int]] = {}
        self._row_of: list[int] = []
        self._item_of: list[int | None] = []
        self._columns: dict[str, int] = {"ranks": 5, "host": 0, "note": 0}
        self._back = 0

    def show(self, groups: Sequence[RankGroup], zoom: Zoom | None = None) -> None:
        """Show groups at a zoom level."""
        self.groups = groups
        self.zoom = zoom or self.zoom
        self._ranks, self._row_of, self._item_of, self._heads = [], [], [], {}
        for group in groups:
            for part in range(2):
                self._heads[len(self._item_of)] = (group, part)
                self._item_of.append(None)
            for row in zoomed(group, self.zoom):
                self._row_of.append(len(self._item_of))
                self._item_of.append(len(self._ranks))
                self._ranks.append((group, row))
        sizes = [len(r.ranks) for _, r in self._ranks]
        self._columns = {
            "ranks": max(5, min(MAX_RANKS_WIDTH, max(sizes, default=0))),
            "host": min(16, max((cell_len(r.host[:20]) for _, r in self._ranks), default=0)),
            "note": max((row_cells(self._note(r)) for _, r in self._ranks), default=0),
        }
        self.content_changed()

    def next_zoom(self) -> Zoom:
        """Job, node, rank, and again; the cursor stays with its ranks."""
        here = self.current
        level = ZOOMS[(ZOOMS.index(self.zoom) + 1) % len(ZOOMS)]
        self.show(self.groups, level)
        if here is not None:
            self._find(here)
        return level

    def unfold(self) -> None:
        """From the row under the cursor to its first rank."""
        here = self.current
        if here is None or self.zoom == "rank":
            return
        self.show(self.groups, "rank")
        self._find(here)

    def _find(self, row: RankRow) -> None:
        first = row.ranks.split(",")[0].split("-")[0]
        for item, (_, other) in enumerate(self._ranks):
            starts = [part.split("-")[0] for part in other.ranks.split(",")[:50]]
            if first in starts:
                self.goto(item)
                return

    @property
    def current(self) -> RankRow | None:
        """The row under the cursor."""
        return self._ranks[self.cursor][1] if self._ranks else None

    def _nothing(self) -> list[str]:
        text = self._say("No table of progress: it needs flight-recorder dumps or NCCL logs of several ranks.")
        return wrap(text, max(MIN_WIDTH, self.view_size.width - 2))

    def row_count(self) -> int:
        return len(self._item_of) or len(self._nothing())

    def item_count(self) -> int:
        return len(self._ranks)

    def item_rows(self, item: int) -> tuple[int, int]:
        return self._row_of[item], self._row_of[item]

    def item_at(self, y: int) -> int | None:
        return self._item_of[y] if 0 <= y < len(self._item_of) else None

    def action_pan(self, step: int) -> None:
        """Earlier or later collectives; at first the latest are shown."""
        longest = max((len(g.seqs) for g in self.groups), default=0)
        self._back = max(0, min(self._back - step * 4, longest - 1))
        self.refresh()

    def _window(self, group: RankGroup) -> tuple[int, int, int]:
        """First and last collective that fit, and the width of a column."""
        width = max((len(s) for s in group.seqs), default=1) + 1
        room = self.view_size.width - self._columns["ranks"] - self._host_width - 4
        room -= min(self._columns["note"], max(NOTE_WIDTH, room * 2 // 3))
        stop = max(1, len(group.seqs) - self._back)
        return max(0, stop - max(2, room // width)), stop, width

    @property
    def _host_width(self) -> int:
        """Cells of the host column with its gaps; none where the view is narrow."""
        return self._columns["host"] + 2 if self._columns["host"] and self.view_size.width >= NARROW else 0

    def row(self, y: int) -> Row:
        if not self._item_of:
            return [(" " + self._nothing()[y], "muted")]
        item = self._item_of[y]
        if item is None:
            group, part = self._heads[y]
            return self._heading(group, part)
        group, row = self._ranks[item]
        first, stop, width = self._window(group)
        mark = "▌" if item == self.cursor else "◂" if row.odd else " "
        name = f"{shorten(row.ranks, self._columns['ranks']):>{self._columns['ranks']}}"
        pieces: list[Piece] = [(mark, "key"), (name, "odd" if row.odd else "text")]
        pieces.append((self._padded(row.host) + " ", "muted"))
        for state, run in groupby(row.states[first:stop]):
            pieces.append((f"{STATES[state]:>{width}}" * len(tuple(run)), STATE_TOKENS[state]))
        return [*pieces, ("  ", "text"), *self._note(row)]

    def _note(self, row: RankRow) -> Row:
        """What is said about a row."""
        pieces: list[Piece] = []
        if row.count > 1:
            pieces.append((f"{row.count} " + self._say("ranks") + "  ", "muted"))
        note = printable(row.note[:200])
        if row.odd:
            return [*pieces, ("◂ " + self._say("odd one out") + "  ", "odd"), (note, "odd")]
        return [*pieces, (note, "text")]

    def _padded(self, host: str) -> str:
        """The host in its column."""
        width = self._host_width - 2
        if width <= 0:
            return ""
        host = shorten(host, width)
        return "  " + host + " " * (width - cell_len(host))

    def _heading(self, group: RankGroup, part: int) -> Row:
        first, stop, width = self._window(group)
        if part == 0:
            names = " · ".join(
                filter(None, (printable(group.name[:60]), printable(group.op[:40]), self._say(self.zoom)))
            )
            title, width = f" {self._say('group')} {names}", self.view_size.width
            hidden = f"  ← {first} {self._say('earlier collectives')}" if first else ""
            if cell_len(title) + cell_len(hidden) > width:
                hidden = f"  ← {first} {self._say('earlier')}" if first else ""
            return [(shorten(title, width - cell_len(hidden)), "head"), (hidden, "muted")]
        label = f" {self._say('rank'):>{self._columns['ranks']}}{self._padded(self._say('host'))} "
        return [(label, "muted"), ("".join(f"{s:>{width}}" for s in group.seqs[first:stop]), "muted")]

    def legend(self) -> Row:
        """What the glyphs mean."""
        pieces: list[Piece] = []
        for state, glyph in STATES.items():
            pieces += [(f" {glyph} ", STATE_TOKENS[state]), (self._say(state) + " ", "muted")]
        return pieces
