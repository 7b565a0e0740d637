"""The report for a terminal: the verdict in at most ten lines, then everything else.

Plain text unless colour is asked for; no line art, so that it can be pasted. Styles travel as private-use
characters, which `safe` never lets through from evidence, and become escapes (or nothing) at the very end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.model import Diagnosis, Finding, Step
from diagnose.report.safe import columns, cut, safe, safe_lines, wrap
from diagnose.report.tables import progress
from diagnose.report.verdict import first_lines
from diagnose.report.view import (
    Group,
    Open,
    Quote,
    View,
    counts,
    job_line,
    said_by,
    subject_names,
    subjects,
    unread,
    view,
)
from diagnose.report.words import Words

WIDTH = 100
_MIN_WIDTH = 40
_HEADLINE, _DECIDING = 400, 240
_QUOTES, _QUOTE_LINES, _ROWS = 4, 6, 4
_GROUPS, _STATES = 6, 8
_SAME, _CONSEQUENCES, _QUESTIONS, _NAMES, _SOURCES, _OPEN = 8, 8, 3, 12, 20, 6

_STYLES = {
    "critical": ("\ue001", "1;31"),
    "major": ("\ue002", "31"),
    "minor": ("\ue003", "33"),
    "info": ("\ue004", "36"),
    "bold": ("\ue005", "1"),
    "dim": ("\ue006", "2"),
    "read-only": ("\ue007", "32"),
    "changes-state": ("\ue008", "33"),
    "maintenance": ("\ue009", "31"),
}
_END = "\ue000"
_ESCAPES = {_END: "\x1b[0m", **{mark: f"\x1b[{code}m" for mark, code in _STYLES.values()}}
_MARKS = re.compile("[\ue000-\ue009]")


def render(
    diagnosis: Diagnosis,
    *,
    width: int = WIDTH,
    lang: str = "en",
    colour: bool = False,
    verbose: bool = False,
    brief: bool = False,
) -> str:
    """The whole text, ended by a newline. `brief` leaves the verdict alone; `verbose` folds nothing."""
    writer = _Writer(view(diagnosis), Words(lang), max(width, _MIN_WIDTH), verbose)
    lines = writer.verdict() if brief else [*writer.verdict(), *writer.details()]
    return _MARKS.sub(lambda m: _ESCAPES[m[0]] if colour else "", "\n".join(lines) + "\n")


def _styled(style: str, text: str) -> str:
    return f"{_STYLES[style][0]}{text}{_END}"


class _Writer:
    def __init__(self, v: View, words: Words, width: int, verbose: bool) -> None:
        self.v = v
        self.words = words
        self.width = width
        self.verbose = verbose

    # --- verdict ------------------------------------------------------------------------------------

    def verdict(self) -> list[str]:
        """At most ten lines; the first three answer what, how do you know, what now."""
        v, words = self.v, self.words
        what, found, command = first_lines(v, words)
        lines = [self._headline(what), self._deciding(found), self._next(command)]
        if v.lead:
            lines += self._wrapped(safe(v.lead.summary), rows=3)
        rest = [job_line(v.diagnosis.job, words)] if v.lead else []
        if v.lead and v.state == "fault":
            rest += self._folds()
        others = [f for f in v.diagnosis.findings if f is not v.lead and f.role != "consequence" and not f.acknowledged]
        if others:
            rest.append(words.say("more_findings", counts=counts(others, words)))
        lines += [safe(line, self.width) for line in rest if line]
        return [*lines, *self._tally()]

    def _headline(self, what: str) -> str:
        lead, said = self.v.lead, _styled("bold", safe(what, _HEADLINE))
        if lead is None or self.v.state in ("cannot-tell", "acknowledged"):
            return said
        mark = _styled(lead.severity, self.words.severity(lead.severity))
        return f"{mark}  {said} ({self.words[lead.confidence]})"

    def _deciding(self, found: Quote | str) -> str:
        if isinstance(found, str):
            return safe(found, _DECIDING)
        place = safe(found.deciding_place) + ": "
        room = max(self.width, _DECIDING) - columns(place)
        indent = len(found.deciding_text) - len(found.deciding_text.lstrip())
        return place + cut(safe(found.deciding_text.strip()), max(room, 40), max(0, found.column - indent))

    def _next(self, command: tuple[str, str | None] | str) -> str:
        label = self.words["next"] + self.words.colon()
        if isinstance(command, str):
            return label + safe(command)
        text, where = command
        lines = safe_lines(text)
        place = f"   [{self.words['on']} {safe(where)}]" if where else ""
        more = " …" if len(lines) > 1 else ""
        return f"{label}{_styled('bold', next((x.strip() for x in lines if x.strip()), ''))}{more}{place}"

    def _folds(self) -> list[str]:
        n = sum(len(g.consequences) for g in self.v.groups if g.lead is self.v.lead)
        return [self.words.say("folded", n=self.words.count(n, "consequence"))] if n else []

    def _tally(self) -> list[str]:
        v, words = self.v, self.words
        parts = [words.say("read_of", read=len(v.read), all=len(v.diagnosis.sources))]
        if v.diagnosis.unknowns:
            parts.append(words.say("checks_open", checks=words.count(len(v.diagnosis.unknowns), "check")))
        if v.diagnosis.problems:
            parts.append(words.count(len(v.diagnosis.problems), "problem"))
        return [_styled("dim", line) for line in self._wrapped("; ".join(parts))]

    # --- details ------------------------------------------------------------------------------------

    def details(self) -> list[str]:
        """Everything below the verdict."""
        v = self.v
        lines: list[str] = []
        for number, group in enumerate(v.groups, 1):
            lines += ["", *self._group(number, group)]
        lines += self._section("progress", self._progress())
        lines += self._section("context", [line for f in v.context for line in self._short(f, evidence=True)])
        lines += self._section("acknowledged", [line for f in v.acknowledged for line in self._acknowledged(f)])
        lines += self._section("not_judged", self._not_judged())
        problems = [f"{place}: {p.text}" if (place := v.place(p)) else p.text for p in v.diagnosis.problems]
        lines += self._section("problems", self._listed(problems))
        return [*lines, *self._section("unread", self._unread())]

    def _unread(self) -> list[str]:
        lines: list[str] = []
        for reason, paths in unread(self.v, self.words):
            shown = len(paths) if self.verbose else _SOURCES
            more = f" {self.words.say('more', n=len(paths) - shown)}" if len(paths) > shown else ""
            lines += self._wrapped(safe(reason), "  ", 2)
            lines += self._wrapped(", ".join(safe(path) for path in paths[:shown]) + more, "     ")
        return lines

    def _progress(self) -> list[str]:
        lines: list[str] = []
        for grid in progress(self.v.diagnosis.tables)[: None if self.verbose else _GROUPS]:
            lines += self._wrapped(safe(grid.name), "  ", 2)
            shown = len(grid.rows) if self.verbose else _STATES
            for row in grid.rows[:shown]:
                lines += self._wrapped(safe(" · ".join(filter(None, row))), "     ", 2)
            hidden = len(grid.rows) - shown + grid.hidden
            lines += ["     " + self.words.say("more", n=hidden)] if hidden > 0 else []
        return lines

    def _section(self, title: str, body: list[str]) -> list[str]:
        return ["", _styled("bold", self.words[title]), *body] if body else []

    def _listed(self, items: Sequence[str]) -> list[str]:
        shown = len(items) if self.verbose else _SOURCES
        lines = [line for item in items[:shown] for line in self._wrapped(safe(item), "  ", rows=3)]
        return lines if len(items) <= shown else [*lines, "  " + self.words.say("more", n=len(items) - shown)]

    def _wrapped(self, text: str, first: str = "", rows: int | None = None, rest: str | None = None) -> list[str]:
        return wrap(text, self.width, first, rest, rows)

    def _group(self, number: int, group: Group) -> list[str]:
        lead, words = group.lead, self.words
        lines = [
            f"{number}. {_styled(lead.severity, words.severity(lead.severity))}  {_styled('bold', safe(lead.title))}"
            f"  ({words[lead.confidence]})",
            _styled("dim", f"   {safe(lead.id)}"),
        ]
        if lead.subjects:
            lines += self._wrapped(safe(subjects(lead, words, shown=12)), f"   {words['subjects']}{words.colon()}")
        lines += self._wrapped(safe(lead.summary), "   ")
        lines += self._block("evidence", self._quotes(lead))
        lines += self._block("same", self._same(group.others))
        lines += self._block("why", self._wrapped(safe(lead.cause), "     ") if lead.cause.strip() else [])
        steps = [line for i, step in enumerate(lead.remediation, 1) for line in self._step(i, step)]
        lines += self._block("fix", steps)
        lines += self._block("look_alikes", self._look_alikes(lead))
        lines += self._block("open", self._open_questions(lead))
        lines += self._block("explains", self._consequences(group.consequences))
        return lines + self._block("references", [f"     {safe(r)}" for r in lead.references])

    def _block(self, title: str, body: list[str]) -> list[str]:
        return [f"   {_styled('bold', self.words[title])}", *body] if body else []

    def _quotes(self, finding: Finding) -> list[str]:
        shown = len(finding.evidence) if self.verbose else _QUOTES
        lines: list[str] = []
        for evidence in finding.evidence[:shown]:
            lines += self._quote(self.v.quote(evidence))
        hidden = len(finding.evidence) - shown
        return lines if hidden <= 0 else [*lines, f"     {self.words.say('more', n=hidden)} ({self.words['all_in']})"]

    def _quote(self, quote: Quote) -> list[str]:
        place = safe(quote.place) + ": "
        if len(quote.lines) == 1:
            return self._wrapped(place + safe(quote.lines[0][1].strip()), "     ", _ROWS, " " * 9)
        lines = ["     " + place.rstrip()]
        for _, text in quote.lines[:_QUOTE_LINES]:
            lines += self._wrapped(safe(text.rstrip()), " " * 9, _ROWS, " " * 11)
        hidden = len(quote.lines) - _QUOTE_LINES
        return lines if hidden <= 0 else [*lines, " " * 9 + self.words.say("more", n=hidden)]

    def _same(self, others: Sequence[Finding]) -> list[str]:
        shown = len(others) if self.verbose else _SAME
        lines = [line for f in others[:shown] for line in self._short(f, evidence=True, titled=False)]
        hidden = subject_names(others[shown:])
        if not hidden:
            return lines
        names = ", ".join(hidden[:_NAMES]) + (" …" if len(hidden) > _NAMES else "")
        return [*lines, *self._wrapped(safe(f"{self.words.say('more', n=len(others) - shown)}: {names}"), "     ")]

    def _short(self, finding: Finding, *, evidence: bool, titled: bool = True) -> list[str]:
        mark = _styled(finding.severity, self.words.severity(finding.severity))
        about = subjects(finding, self.words)
        parts = [finding.title, about] if titled else [about]
        text = safe(": ".join(p for p in (*parts, finding.summary) if p))
        lines = self._wrapped(f"{mark}  {text}", "     ", _ROWS, " " * 9)
        if evidence and finding.evidence:
            quote = self.v.quote(finding.evidence[0])
            lines.append(
                " " * 9 + cut(f"{safe(quote.deciding_place)}: {safe(quote.deciding_text.strip())}", self.width)
            )
        return lines

    def _step(self, number: int, step: Step) -> list[str]:
        words, inner = self.words, " " * 9
        mark = _styled(step.effect, f"[{words[step.effect]}]")
        lines = self._wrapped(f"{mark} {safe(step.text)}", f"     {number}. ", rest=inner)
        if step.where:
            lines += self._wrapped(safe(step.where), f"{inner}{words['on']}{words.colon()}")
        lines += self._command(step.command, inner)
        if step.verify:
            lines += self._wrapped(safe(step.verify), f"{inner}{words['verify']}{words.colon()}")
        if step.rollback:
            lines += self._wrapped(safe(step.rollback), f"{inner}{words['rollback']}{words.colon()}")
        return lines

    def _command(self, command: str | None, indent: str) -> list[str]:
        """A command is never wrapped or cut: it is there to be pasted."""
        return [f"{indent}$ {line}" for line in safe_lines(command or "") if line.strip()]

    def _look_alikes(self, finding: Finding) -> list[str]:
        lines: list[str] = []
        for other in finding.look_alikes:
            lines += self._wrapped(safe(f"{other.id}: {other.question}"), "     ", rest=" " * 7)
            if other.text:
                lines += self._wrapped(safe(other.text), " " * 7)
            lines += self._command(other.command, " " * 7)
        return lines

    def _open_questions(self, finding: Finding) -> list[str]:
        lines: list[str] = []
        for more in finding.next_evidence:
            lines += [*self._wrapped(safe(more.text), "     "), *self._command(more.command, " " * 7)]
        return lines

    def _consequences(self, findings: Sequence[Finding]) -> list[str]:
        by_id: dict[str, list[Finding]] = {}
        for finding in findings:
            by_id.setdefault(finding.id, []).append(finding)
        lines: list[str] = []
        for same in list(by_id.values())[: None if self.verbose else _CONSEQUENCES]:
            if len(same) == 1 or self.verbose:
                lines += [line for f in same for line in self._short(f, evidence=self.verbose)]
                continue
            names = subject_names(same)
            more = " …" if len(names) > _NAMES else ""
            mark = _styled(same[0].severity, self.words.severity(same[0].severity))
            text = safe(f"{len(same)} × {same[0].title}: {', '.join(names[:_NAMES])}{more}")
            lines += self._wrapped(f"{mark}  {text}", "     ", _ROWS, " " * 9)
        hidden = 0 if self.verbose else max(0, len(by_id) - _CONSEQUENCES)
        return [*lines, "     " + self.words.say("more", n=hidden)] if hidden else lines

    def _acknowledged(self, finding: Finding) -> list[str]:
        reason = f"{self.words['acknowledged']}{self.words.colon()}{finding.acknowledged}"
        return [*self._short(finding, evidence=False), *self._wrapped(safe(reason), " " * 9, 2)]

    def _not_judged(self) -> list[str]:
        lines: list[str] = []
        shown = self.v.open if self.verbose else self.v.open[:_OPEN]
        for item in shown:
            lines += self._command(item.collect, "  ") or ["  -"]
            lines += self._questions(item)
        if len(self.v.open) > len(shown):
            hidden = self.words.say("more", n=len(self.v.open) - len(shown))
            lines.append(f"  {hidden} ({self.words['all_open']})")
        return lines

    def _questions(self, item: Open) -> list[str]:
        shown = len(item.questions) if self.verbose else _QUESTIONS
        lines: list[str] = []
        said: set[str] = set()
        for unknown in item.questions[:shown]:
            because = said_by(unknown)
            because = f" ({because})" if because and because not in said else ""
            said.add(unknown.because)
            lines += self._wrapped(safe(unknown.question + because), "     ", 2)
        hidden = len(item.questions) - shown
        return lines if hidden <= 0 else [*lines, "     " + self.words.say("more", n=hidden)]
