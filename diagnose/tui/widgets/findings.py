"""The list of findings: glyph, severity word, title, subjects, confidence; groups fold and unfold."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from diagnose.model import Finding, Problem, Source, Unknown

from ..items import ACKNOWLEDGED_GLYPH, GLYPHS, STATUS_GLYPHS, Group, Item, subjects_text, unread_text
from ..plain import pad, shorten, wrap
from ..words import Words
from .lineview import LineView, Row

WORD = 8
"""Cells of the longest severity word."""


class FindingsList(LineView):
    """The rows of `items.arrange`; the cursor's item is what the detail pane shows."""

    def __init__(self, *, id: str | None = None, say: Words | None = None) -> None:
        super().__init__(id=id)
        self.items: Sequence[Item] = ()
        self.placeholder: Sequence[str] = ()
        self._say = say or Words()
        self._rows: list[tuple[int, Row]] = []
        self._spans: list[tuple[int, int]] = []

    def show(self, items: Sequence[Item], keep: str | None = None) -> None:
        """Show items; the cursor goes to the one whose key is `keep`, else stays where it was."""
        self.items = items
        if keep is not None:
            self.cursor = next((i for i, item in enumerate(items) if item.key == keep), self.cursor)
        self.cursor = max(0, min(self.cursor, len(items) - 1))
        self.relayout()
        self.content_changed()
        self.show_cursor()

    def wait(self, *lines: str) -> None:
        """Show text instead of items, while there are none."""
        self.placeholder = lines
        if not self.items:
            self.relayout()
            self.content_changed()

    @property
    def current(self) -> Item | None:
        """The item under the cursor."""
        return self.items[self.cursor] if self.items else None

    def row_count(self) -> int:
        return len(self._rows)

    def row(self, y: int) -> Row:
        item, pieces = self._rows[y]
        mark = "▌" if self.items and item == self.cursor else " "
        return [(mark, "key"), *pieces]

    def item_count(self) -> int:
        return len(self._spans)

    def item_rows(self, item: int) -> tuple[int, int]:
        return self._spans[item]

    def item_at(self, y: int) -> int | None:
        return self._rows[y][0] if self.items and 0 <= y < len(self._rows) else None

    def relayout(self) -> None:
        width = max(8, self.view_size.width - 1)
        self._rows, self._spans = [], []
        if not self.items:
            for text in self.placeholder:
                self._rows.extend((0, [(line, "muted")]) for line in wrap(text, width))
        for number, item in enumerate(self.items):
            rows = self._item(item, width)
            self._spans.append((len(self._rows), len(self._rows) + len(rows) - 1))
            self._rows.extend((number, row) for row in rows)

    def _item(self, item: Item, width: int) -> list[Row]:
        thing = item.thing
        indent = "  " * max(0, item.depth - 1) + ("└ " if item.depth else "")
        if isinstance(thing, Finding):
            return self._finding(thing, indent, width)
        if isinstance(thing, Group):
            return [[(shorten(f"{indent}{'▾' if thing.unfolded else '▸'} {self._group(thing)}", width), "muted")]]
        if isinstance(thing, Unknown):
            return [[(shorten(f"{indent}○ {thing.question}", width), "text")]]
        if isinstance(thing, Problem):
            where = f"{thing.source}: " if thing.source else ""
            return [[(shorten(f"{indent}! {where}{thing.text}", width), "minor")]]
        kinds = ", ".join(thing.kinds) or self._say(thing.status)
        return [
            [(shorten(f"{indent}{STATUS_GLYPHS[thing.status]} {thing.path}  {kinds}", width), _source_token(thing))]
        ]

    def _group(self, group: Group) -> str:
        count = len(group.members)
        if group.name == "explained":
            return self._say.count(count, "finding, explained by this one", "findings, explained by this one")
        if group.name == "unknowns":
            return f"{count} " + self._say("not judged: evidence missing")
        if group.name == "problems":
            return f"{count} " + self._say("could not be read or judged")
        return self._say.count(count, "source", "sources") + unread_text(group.members, self._say)

    def _finding(self, finding: Finding, indent: str, width: int) -> list[Row]:
        known = bool(finding.acknowledged)
        token, body = ("muted", "muted") if known else (finding.severity, "text")
        head = f"{indent}{ACKNOWLEDGED_GLYPH if known else GLYPHS[finding.severity]} "
        word = pad(self._say("ACCEPTED" if known else finding.severity.upper()), WORD) + " "
        inset = cell_len(head) + cell_len(word)
        room = max(8, width - inset)
        about = self._about(finding, room)
        title = wrap(finding.title, room)
        if width > 60 and len(title) == 1 and cell_len(title[0]) + cell_len(about) + 3 <= room:
            gap = " " * (room - cell_len(title[0]) - cell_len(about))
            return [[(head + word, token), (title[0], body), (gap + about, "muted")]]
        if len(title) > 2:
            title = [title[0], shorten(" ".join(title[1:]), room)]
        rows: list[Row] = [[(head + word, token), (title[0], body)]]
        rows.extend([(" " * inset, "text"), (line, body)] for line in title[1:])
        rows.append([(" " * inset + shorten(about, room), "muted")])
        return rows

    def _about(self, finding: Finding, room: int) -> str:
        """Subjects, confidence and state; in words as short as the room asks for."""
        state = [self._say("explained")] if finding.explained_by else []
        state += [self._say(finding.severity)] if finding.acknowledged else []
        text = ""
        for most, words in ((3, " confidence"), (3, ""), (1, " confidence"), (1, "")):
            confidence = self._say(finding.confidence + words)
            text = " · ".join(filter(None, (subjects_text(finding.subjects, most), confidence, *state)))
            if cell_len(text) <= room:
                return text
        return text


def _source_token(source: Source) -> str:
    if source.status == "error":
        return "major"
    return "text" if source.status == "parsed" else "minor"
