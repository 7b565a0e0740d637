"""Triage: what is wrong, where, how do you know, what now. List on the left, detail on the right or below."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen

from diagnose.model import SEVERITIES, Diagnosis, Evidence, Finding, Line, Problem, Severity, Source

from ..case import CaseLike, window
from ..items import Group, Item, arrange
from ..keys import bindings, hints
from ..logtext import SourceRows
from ..plain import printable
from ..widgets.bars import Bar, KeyLine
from ..widgets.detail import Detail, TabName
from ..widgets.findings import FindingsList
from ..widgets.lineview import LineView, Piece, row_cells
from ..widgets.matrix import Matrix
from ..widgets.rankgrid import RankGrid

if TYPE_CHECKING:
    from ..app import DiagnoseApp

CONTEXT = 3
"""Lines shown on either side of an evidence."""

FAR = 20_000
"""From this line on a source is not read from its start for each evidence."""

MAX_READ = 40
"""Evidence items of one finding that get their context read; the rest show their excerpt."""

_HINTS: dict[str, tuple[str, ...]] = {
    "list": ("down", "up", "open", "search", "evidence.next", "filter", "copy", "export"),
    "evidence": ("evidence.previous", "evidence.next", "source", "copy", "wrap", "back"),
    "why": ("down", "up", "copy.all", "back"),
    "fix": ("tick", "copy", "copy.all", "comment", "back"),
    "ranks": ("zoom", "open", "left", "right", "back"),
    "topology": ("view", "open", "left", "right", "back"),
}
_TAB_KEYS: dict[str, tuple[str, ...]] = {"fix": ("tick",), "ranks": ("zoom",), "topology": ("view",)}
"""Keys that act on the tab shown while the list has the focus."""


class TriageScreen(Screen[None]):
    """The main screen, once there is a diagnosis."""

    BINDINGS = bindings("findings", "detail", "fix", "ranks", "topology")
    AUTO_FOCUS = "#findings"
    DEFAULT_CSS = """
TriageScreen #body { height: 1fr; layout: horizontal; }
TriageScreen #left { width: 40%; max-width: 60; border: round $panel; border-title-color: $primary; }
TriageScreen #right { width: 1fr; border: round $panel; border-title-color: $primary; }
TriageScreen #left:focus-within, TriageScreen #right:focus-within { border: round $primary; }
TriageScreen #findings { height: 1fr; }
TriageScreen.-narrow #body { layout: vertical; }
TriageScreen.-narrow #left { width: 1fr; max-width: 100%; height: 2fr; }
TriageScreen.-narrow #right { width: 1fr; height: 3fr; }
TriageScreen.-tiny #left { width: 1fr; max-width: 100%; height: 1fr; border: none; }
TriageScreen.-tiny #right { width: 1fr; height: 1fr; border: none; display: none; }
TriageScreen.-tiny.-opened #left { display: none; }
TriageScreen.-tiny.-opened #right { display: block; }
"""

    def __init__(self) -> None:
        super().__init__()
        self.least: Severity = "info"
        self.toggled: set[str] = set()

    @property
    def owner(self) -> DiagnoseApp:
        return cast("DiagnoseApp", self.app)

    def compose(self) -> ComposeResult:
        yield Bar(id="top")
        with Container(id="body"):
            with Container(id="left"):
                yield FindingsList(id="findings", say=self.owner.words)
            with Container(id="right"):
                yield Detail(self.owner.words, id="detail")
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        self.detail.notes = self.owner.notes
        self.refill()
        self._show_top()

    @property
    def findings(self) -> FindingsList:
        return self.query_one(FindingsList)

    @property
    def detail(self) -> Detail:
        return self.query_one(Detail)

    # --- filling ------------------------------------------------------------------------------------

    def _headline(self, diagnosis: Diagnosis) -> tuple[Sequence[Piece], Sequence[Piece]]:
        say = self.owner.words
        parts: list[str] = []
        for one, many in (("node", "nodes"), ("rank", "ranks"), ("GPU", "gpus")):
            value = diagnosis.job.get(many)
            if isinstance(value, list | tuple):
                value = len(value)
            if isinstance(value, int):
                parts.append(say.count(value, one, "GPUs" if many == "gpus" else many))
            elif value:
                parts.append(str(value))
        since = diagnosis.job.get("stalled_since")
        stalled: list[str] = []
        if isinstance(since, int | float) and 0 <= since < 253402300800:
            at = datetime.fromtimestamp(since, UTC)
            stalled = [f"{say('stalled since')} {at:{form}}" for form in ("%m-%d %H:%M:%S UTC", "%m-%d %H:%M", "%H:%M")]
        title = self.owner.names[:1]
        count = sum(f.acknowledged is None for f in diagnosis.findings)
        counted = [say.count(count, "finding", "findings"), f"{len(diagnosis.unknowns)} {say('not judged')}"]
        if known := len(diagnosis.findings) - count:
            counted.insert(1, f"{known} {say('acknowledged')}")
        right: list[Piece] = [(" · ".join(counted) + " ", "label" if count else "muted")]
        head: Piece = (" diagnose ", "head")
        room = self.size.width - row_cells([head]) - row_cells(right) - 1
        shorter = [[*title, *parts, *stalled[:1]], [*parts, *stalled[:1]], [*title, *stalled[:1]]]
        shorter += [[form] for form in stalled]
        texts = [" · ".join(some) for some in shorter]
        fits = (text for text in texts if cell_len(text) <= room)
        return [head, (next(fits, texts[-1]) if stalled else texts[0], "text")], right

    def refill(self, keep: str | None = None) -> None:
        """Build the list anew from diagnosis, filter and folds."""
        diagnosis = self.owner.diagnosis
        if diagnosis is None:
            return
        say = self.owner.words
        current = self.findings.current
        items = arrange(diagnosis, self.least, self.toggled)
        self.findings.show(items, keep or (current.key if current else None))
        title = say("Findings")
        if self.least != "info":
            title += f" ≥ {say(self.least)}"
        self.query_one("#left").border_title = Content(title)
        if not items:
            self.findings.wait(say("No findings, and nothing was left unread."))
        self.detail.show(self.findings.current, diagnosis)
        self.hints()

    def hints(self) -> None:
        """The key line follows the focus."""
        focused = self.focused
        place = self.detail.tab if focused is not None and self.detail in focused.ancestors else "list"
        ids = (*_TAB_KEYS.get(self.detail.tab, ()), *_HINTS[place]) if place == "list" else _HINTS[place]
        self.query_one(KeyLine).hint(*hints(ids, self.owner.keymap, self.owner.words))

    # --- moving about -------------------------------------------------------------------------------

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if event.view is self.findings:
            self.detail.show(self.findings.current, self.owner.diagnosis)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        event.stop()
        if event.view is self.findings:
            item = self.findings.current
            if item is not None and isinstance(item.thing, Group):
                self._toggle(item.key, item.key)
            elif item is not None:
                self.enter_detail()
        elif isinstance(event.view, RankGrid):
            event.view.unfold()
        elif isinstance(event.view, Matrix):
            key = event.view.finding_at_cursor()
            if key is not None:
                self.goto_finding(key)
        elif event.view is self.detail.evidence_view:
            self.action_source()

    def on_line_view_left(self, event: LineView.Left) -> None:
        event.stop()
        if self.focused is not self.findings:
            self.leave_detail()

    def enter_detail(self) -> None:
        """Focus the detail pane; on a very narrow screen it takes the place of the list."""
        self.add_class("-opened")
        self.detail.pane.focus()
        self._show_top()

    def leave_detail(self) -> None:
        """Back to the list."""
        self.remove_class("-opened")
        self.findings.focus()
        self._show_top()

    def on_resize(self) -> None:
        self._show_top()

    def on_descendant_focus(self) -> None:
        self.hints()

    def on_detail_switched(self) -> None:
        self.hints()
        self.query_one("#right").border_title = Content(printable(self.detail.heading))
        self._show_top()

    def _show_top(self) -> None:
        """The top line; where the detail pane has the screen for itself and no frame, it says what that shows."""
        diagnosis = self.owner.diagnosis
        if diagnosis is None:
            return
        left, right = self._headline(diagnosis)
        if self.has_class("-tiny") and self.has_class("-opened"):
            left, right = [(" " + self.detail.heading, "head")], ()
        self.query_one("#top", Bar).show(left, right)

    def _toggle(self, group: str, keep: str) -> None:
        """Fold or unfold a group."""
        self.toggled ^= {group}
        self.refill(keep)

    def goto_finding(self, key: str, evidence: int | None = None) -> bool:
        """Bring a finding up, whatever filter and folds hide it; tells whether there is one."""
        diagnosis = self.owner.diagnosis
        wanted = "finding:" + key
        if diagnosis is None:
            return False
        if all(item.key != wanted for item in self.findings.items):
            self.least = "info"
            hidden = [item for item in arrange(diagnosis, "info", self.toggled) if isinstance(item.thing, Group)]
            for item in hidden:
                group = cast(Group, item.thing)
                if not group.unfolded and any(isinstance(m, Finding) and m.key == key for m in group.members):
                    self.toggled ^= {item.key}
            self.refill(keep=wanted)
        number = next((i for i, item in enumerate(self.findings.items) if item.key == wanted), None)
        if number is None:
            return False
        self.findings.goto(number, tell=False)
        self.detail.show(self.findings.current, diagnosis)
        if evidence is not None:
            self.detail.evidence_at = 0
            self.detail.step_evidence(evidence)
        return True

    # --- reading ------------------------------------------------------------------------------------

    def on_detail_wants_lines(self, event: Detail.WantsLines) -> None:
        item = event.item
        case = self.owner.case
        if case is not None:
            self.run_worker(lambda: self._read(case, item), thread=True, exclusive=True, group="lines")

    def _read(self, case: CaseLike, item: Item) -> None:
        """In a thread: read what the evidence pane wants, then hand it over."""
        thing = item.thing
        call = self.app.call_from_thread
        if isinstance(thing, Finding):
            read = [self._around(case, e) for e in thing.evidence[:MAX_READ]]
            call(self.detail.give_lines, item, read)
            return
        path = thing.path if isinstance(thing, Source) else thing.source if isinstance(thing, Problem) else None
        reader = self.owner.reader(self.owner.path_of(path)) if path else None
        if reader is not None and len(reader):
            at = max(0, (thing.first or 1) - 1) if isinstance(thing, Problem) else 0
            call(self.detail.give_source, item, SourceRows(reader), at)

    def _around(self, case: CaseLike, evidence: Evidence) -> Sequence[Line]:
        """Lines of an evidence with their neighbours; far inside a long source by its index, which is made once."""
        path = self.owner.path_of(evidence.source)
        if evidence.first < FAR:
            return case.excerpt(path, evidence.first, evidence.last, CONTEXT)
        reader = self.owner.reader(path)
        return window(reader, evidence.first - CONTEXT, evidence.last + CONTEXT) if reader is not None else ()

    # --- actions ------------------------------------------------------------------------------------

    def action_tab(self, name: TabName) -> None:
        self.detail.switch(name)
        if self.has_class("-tiny") and not self.has_class("-opened"):
            self.enter_detail()

    def action_evidence(self, step: int) -> None:
        self.detail.step_evidence(step)

    def action_filter(self) -> None:
        order: list[Severity] = list(reversed(SEVERITIES))
        self.least = order[(order.index(self.least) + 1) % len(order)]
        self.refill()

    def action_tick(self) -> None:
        step, finding = self.detail.step, self.detail.finding
        if step is None or finding is None:
            return
        try:
            self.detail.notes.tick(finding.key, step.text)
        except OSError as error:
            self.notify(f"{self.owner.words('Not kept')}: {error}", severity="warning", markup=False)
        self.detail.redraw()

    def action_comment(self) -> None:
        finding = self.detail.finding
        if finding is None:
            return
        from .prompt import PromptScreen

        def done(text: str | None) -> None:
            if text is None:
                return
            try:
                self.detail.notes.comment(finding.key, text)
            except OSError as error:
                self.notify(f"{self.owner.words('Not kept')}: {error}", severity="warning", markup=False)
            self.detail.redraw()

        old = self.detail.notes.comments.get(finding.key, "")
        self.app.push_screen(PromptScreen(self.owner.words("Comment for the ticket"), old), done)

    def action_copy_item(self) -> None:
        self.owner.copy(self.detail.copy_item())

    def action_copy_all(self) -> None:
        self.owner.copy(self.detail.copy_all())

    def action_zoom(self) -> None:
        item = self.findings.current
        if isinstance(self.detail.pane, RankGrid):
            self.detail.pane.next_zoom()
        elif item is not None and isinstance(item.thing, Group):
            self._toggle(item.key, item.key)
        elif item is not None and isinstance(item.thing, Finding):
            self._toggle(f"group:explained:{item.thing.key}", item.key)

    def action_view(self) -> None:
        if isinstance(self.detail.pane, Matrix):
            self.detail.pane.next_view()

    def action_source(self) -> None:
        thing = self.detail.item.thing if self.detail.item else None
        evidence = self.detail.evidence
        if evidence is not None:
            self.owner.open_source(self.owner.path_of(evidence.source), evidence.first)
        elif isinstance(thing, Source):
            self.owner.open_source(thing.path, 1)
        elif isinstance(thing, Problem) and thing.source:
            self.owner.open_source(self.owner.path_of(thing.source), thing.first or 1)
