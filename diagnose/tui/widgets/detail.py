"""The detail pane: tabs over evidence, why, fix, ranks and topology of what the list's cursor stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from diagnose.model import Diagnosis, Evidence, Finding, Line, Problem, Source, Step, Unknown

from .. import pages
from ..grids import faulty, rank_groups, topology
from ..items import Item
from ..logtext import LogRow, Rows, Sheet, SourceRows, sheet
from ..notes import Notes
from ..plain import wrap
from ..words import Words
from .bars import Bar, TabBar
from .lineview import LineView, Piece, row_cells
from .logview import LogView
from .matrix import Matrix
from .page import Block, Page
from .rankgrid import RankGrid

TabName = Literal["evidence", "why", "fix", "ranks", "topology"]
TABS: tuple[tuple[TabName, str], ...] = (
    ("evidence", "1 Evidence"), ("why", "2 Why"), ("fix", "3 Fix"), ("ranks", "4 Ranks"), ("topology", "5 Topology"),
)  # fmt: skip


def _hanging(block: Block, width: int) -> list[str]:
    """A block as lines of at most `width` cells, its text beneath itself."""
    inset = row_cells(block.lead)
    first, *more = wrap(block.text, width - inset)
    return ["".join(text for text, _ in block.lead) + first, *(" " * inset + line for line in more)]


class Detail(Vertical):
    """Shows one item in the tab that is on. Evidence comes first as excerpts; lines around it follow when read."""

    DEFAULT_CSS = """
Detail { background: $background; }
Detail LineView { height: 1fr; }
Detail Bar { height: 1; }
"""

    class WantsLines(Message):
        """The evidence shown has no context lines yet: read them and call `give_lines`."""

        def __init__(self, item: Item) -> None:
            super().__init__()
            self.item = item

    class Switched(Message):
        """Another tab is on, or it shows something else."""

    def __init__(self, words: Words, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.say = words
        self.tab: TabName = "evidence"
        self.item: Item | None = None
        self.diagnosis: Diagnosis | None = None
        self.notes = Notes("")
        self.evidence_at = 0
        self._sheet = Sheet((), (), ())
        self._lines: Sequence[Sequence[Line] | None] = ()
        self._drawn: dict[TabName, Item | None] = {}

    def compose(self) -> ComposeResult:
        yield TabBar(id="tabs")
        yield LogView(id="evidence")
        yield Bar(id="legend")

    def on_mount(self) -> None:
        self.legend.display = False
        self._tabs()

    # --- parts --------------------------------------------------------------------------------------

    @property
    def evidence_view(self) -> LogView:
        return self.query_one("#evidence", LogView)

    @property
    def legend(self) -> Bar:
        return self.query_one("#legend", Bar)

    @property
    def pane(self) -> LineView:
        """The view of the tab that is on."""
        return self._pane(self.tab)

    def _pane(self, tab: TabName) -> LineView:
        found = self.query(f"#{tab}")
        if found:
            return cast(LineView, found.first())
        pane: LineView
        if tab == "ranks":
            pane = RankGrid(id=tab, say=self.say)
        elif tab == "topology":
            pane = Matrix(id=tab, say=self.say)
        else:
            pane = Page(id=tab)
        self.mount(pane, before="#legend")
        return pane

    @property
    def finding(self) -> Finding | None:
        """The finding shown, if it is one."""
        return self.item.thing if self.item and isinstance(self.item.thing, Finding) else None

    @property
    def evidence(self) -> Evidence | None:
        """The evidence that stands out."""
        finding = self.finding
        if finding is None or not finding.evidence:
            return None
        return finding.evidence[min(self.evidence_at, len(finding.evidence) - 1)]

    @property
    def step(self) -> Step | None:
        """The step under the cursor of the checklist."""
        finding = self.finding
        if self.tab != "fix" or finding is None or not finding.remediation:
            return None
        return finding.remediation[min(self.pane.cursor, len(finding.remediation) - 1)]

    @property
    def heading(self) -> str:
        """What the pane is about: the file of the evidence that stands out, or the finding's title."""
        if self.tab == "evidence" and self.evidence is not None:
            return f"{self.path_of(self.evidence.source)}:{self.evidence.first}"
        if self.tab in ("ranks", "topology") or self.item is None:
            return ""
        thing = self.item.thing
        return thing.title if isinstance(thing, Finding) else thing.path if isinstance(thing, Source) else ""

    def path_of(self, source: str) -> str:
        """Path of a source named by its id."""
        sources = self.diagnosis.sources if self.diagnosis else ()
        return next((s.path for s in sources if s.id == source), source)

    # --- what is shown ------------------------------------------------------------------------------

    def show(self, item: Item | None, diagnosis: Diagnosis | None) -> None:
        """Show an item; the tab stays."""
        if item is None or self.item is None or item.key != self.item.key:
            self.evidence_at = 0
            self._lines = ()
        if diagnosis is not self.diagnosis:
            self._drawn.pop("ranks", None)
            self._drawn.pop("topology", None)
        self.item, self.diagnosis = item, diagnosis
        for tab in ("evidence", "why", "fix"):
            self._drawn.pop(tab, None)
        self._draw()

    def switch(self, tab: TabName) -> None:
        """Turn a tab on; the focus moves along if it was in this pane."""
        inside = self.screen.focused is not None and self in self.screen.focused.ancestors
        self.tab = tab
        pane = self.pane
        for other, _ in TABS:
            for view in self.query(f"#{other}"):
                view.display = other == tab
        self._draw()
        if inside:
            pane.focus()

    def redraw(self) -> None:
        """The same item again, because notes or the width have changed."""
        self._drawn.pop("why", None)
        self._drawn.pop("fix", None)
        self._draw(keep=True)

    def on_resize(self) -> None:
        if self.tab == "fix":
            self.redraw()
        elif self.tab == "evidence" and self.evidence_at == 0:
            self.call_after_refresh(self._to_evidence)

    def _draw(self, keep: bool = False) -> None:
        pane = self.pane
        if self.tab not in self._drawn:
            self._drawn[self.tab] = self.item
            if self.tab == "evidence":
                self._evidence()
            elif isinstance(pane, Page):
                pane.show(self._blocks(), keep)
            elif isinstance(pane, RankGrid):
                pane.show(rank_groups(self.diagnosis))
            elif isinstance(pane, Matrix):
                pane.show(topology(self.diagnosis), faulty(self.diagnosis))
        legend = pane.legend() if isinstance(pane, RankGrid | Matrix) else ()
        self.legend.display = bool(legend)
        self.legend.show(legend)
        self._tabs()

    def _tabs(self) -> None:
        right: list[Piece] = []
        finding = self.finding
        if self.tab == "evidence" and finding and len(finding.evidence) > 1:
            right = [(f"{self.evidence_at + 1}/{len(finding.evidence)} ", "label"), ("[ ] ", "key")]
        self.post_message(self.Switched())
        labels = [(name, f"{label[0]} {self.say(label[2:])}") for name, label in TABS]
        self.query_one(TabBar).tabs(labels, self.tab, right)

    def on_tab_bar_picked(self, event: TabBar.Picked) -> None:
        self.switch(cast(TabName, event.name))

    def _blocks(self) -> list[Block]:
        if self.item is None or self.diagnosis is None:
            return []
        thing = self.item.thing
        if not isinstance(thing, Finding):
            return pages.about(self.item, self.diagnosis, self.say)
        comment = self.notes.comments.get(thing.key, "")
        if self.tab == "why":
            return pages.why(thing, self.diagnosis, self.say, comment)
        return pages.fix(thing, self.notes.ticks.get(thing.key, ()), self.say, self.size.width, comment)

    # --- evidence -----------------------------------------------------------------------------------

    def _evidence(self) -> None:
        if self.item is None or self.diagnosis is None:
            self.evidence_view.show(Rows(()))
            return
        thing = self.item.thing
        if isinstance(thing, Finding):
            self._finding_evidence(thing)
        else:
            width = max(20, self.evidence_view.view_size.width or self.size.width or 60)
            blocks = pages.about(self.item, self.diagnosis, self.say)
            texts = [LogRow(None, text, block.token) for block in blocks for text in _hanging(block, width)]
            self._sheet = Sheet((), (), ())
            self.evidence_view.show(Rows(texts))
        if not self._lines and isinstance(thing, Finding | Source | Problem):
            self.post_message(self.WantsLines(self.item))

    def _finding_evidence(self, finding: Finding) -> None:
        self._sheet = sheet(finding.evidence, self._lines, self._source_heading)
        rows = self._sheet.rows
        if not rows:
            rows = [LogRow(None, self.say("No line shows this: it follows from what is missing. See tab 2."), "muted")]
        self.evidence_view.show(Rows(rows))
        self._to_evidence()

    def _source_heading(self, source: str) -> str:
        """Path of a source, with its host where the path does not tell it."""
        found = next((s for s in self.diagnosis.sources if s.id == source), None) if self.diagnosis else None
        if found is None:
            return source
        return f"{found.host}  {found.path}" if found.host and found.host not in found.path else found.path

    def _to_evidence(self) -> None:
        """Bring the evidence that stands out into view, with its heading and context as far as there is room."""
        if self.evidence_at < len(self._sheet.starts):
            start, hit = self._sheet.starts[self.evidence_at], self._sheet.hits[self.evidence_at]
            self.evidence_view.current = hit
            self.evidence_view.content_changed()
            self.evidence_view.jump_to(start, hit)

    def give_lines(self, item: Item, lines: Sequence[Sequence[Line] | None]) -> None:
        """Lines around each evidence of a finding, read meanwhile; ignored when another item is shown by now."""
        if self.item is None or item.key != self.item.key or not any(lines):
            return
        self._lines = lines
        self._drawn.pop("evidence", None)
        if self.tab == "evidence":
            self._draw()

    def give_source(self, item: Item, rows: SourceRows, at: int) -> None:
        """The text of a source, for an item that is a source or a problem with one."""
        if self.item is None or item.key != self.item.key or self.tab != "evidence":
            return
        self._lines = ((),)
        self.evidence_view.show(rows, at, at)

    def step_evidence(self, step: int) -> None:
        """Go to the next or previous evidence."""
        if self.tab != "evidence":
            self.switch("evidence")
        if not self._sheet.starts:
            return
        self.evidence_at = max(0, min(self.evidence_at + step, len(self._sheet.starts) - 1))
        self._to_evidence()
        self._tabs()

    # --- copying ------------------------------------------------------------------------------------

    def copy_item(self) -> str:
        """What `y` copies: the step's command, the evidence lines, or the collect command."""
        thing = self.item.thing if self.item else None
        if isinstance(thing, Unknown):
            return thing.collect
        if self.tab == "fix":
            return (self.step.command or self.step.text) if self.step else ""
        return self.evidence.text if self.evidence else ""

    def copy_all(self) -> str:
        """What `Y` copies: on the fix tab all commands, else the whole finding."""
        finding = self.finding
        if finding is None:
            blocks = pages.about(self.item, self.diagnosis, self.say) if self.item and self.diagnosis else []
            return "\n".join("".join(t for t, _ in b.lead) + b.text for b in blocks)
        if self.tab == "fix":
            return "\n".join(s.command for s in finding.remediation if s.command)
        return pages.finding_text(finding, self.say)
