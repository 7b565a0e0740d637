"""What the export dialog writes: the report, with the ticks and comments of this screen in it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Literal

from diagnose.model import Diagnosis, Finding

from .notes import Notes
from .words import Words

Format = Literal["markdown", "html", "json"]
FORMATS: tuple[Format, ...] = ("markdown", "html", "json")
SUFFIXES: dict[Format, str] = {"markdown": ".md", "html": ".html", "json": ".json"}


def ticket(diagnosis: Diagnosis, notes: Notes, format: Format, words: Words) -> str:
    """The report in a format, with the notes in it."""
    return with_notes(render(diagnosis, format, words.lang), diagnosis, notes, format, words)


def render(diagnosis: Diagnosis, format: Format, lang: str) -> str:
    """The report as `diagnose analyze --format` prints it."""
    if format == "json":
        from diagnose.report.jsonform import to_json

        return to_json(diagnosis)
    from diagnose.report import page

    return (page.html if format == "html" else page.markdown)(diagnosis, lang=lang)


def _noted(diagnosis: Diagnosis, notes: Notes) -> Iterator[tuple[Finding, list[tuple[bool, str]], str]]:
    for finding in diagnosis.findings:
        ticked = notes.ticks.get(finding.key, set())
        comment = notes.comments.get(finding.key, "")
        if ticked or comment:
            yield finding, [(step.text in ticked, step.text) for step in finding.remediation], comment


def with_notes(report: str, diagnosis: Diagnosis, notes: Notes, format: Format, words: Words) -> str:
    """A report with the notes added: a section at the end, or the member `notes`."""
    if notes.empty:
        return report
    if format == "json":
        return json.dumps({**json.loads(report), "notes": notes.as_json()}, ensure_ascii=False, indent=2) + "\n"
    heading = words("Done so far")
    if format == "html":
        parts = [f"<section><h2>{html.escape(heading)}</h2>"]
        for finding, steps, comment in _noted(diagnosis, notes):
            parts.append(f"<h3>{html.escape(finding.title)}</h3>")
            parts.append(f"<p>{html.escape(comment)}</p>" if comment else "")
            parts.append(
                "<ul>" + "".join(f"<li>{'☑' if done else '☐'} {html.escape(text)}</li>" for done, text in steps)
            )
            parts.append("</ul>")
        section = "".join(parts) + "</section>\n"
        at = report.rfind("</body>")
        return report + section if at < 0 else report[:at] + section + report[at:]
    lines = ["", f"## {heading}", ""]
    for finding, steps, comment in _noted(diagnosis, notes):
        lines += [f"**{_flat(finding.title)}**", ""]
        lines += [_flat(comment), ""] if comment else []
        lines += [*(f"- [{'x' if done else ' '}] {_flat(text)}" for done, text in steps), ""]
    return report.rstrip("\n") + "\n" + "\n".join(lines)


def _flat(text: str) -> str:
    """Text that stays one paragraph of Markdown and is no HTML."""
    return " ".join(text.split()).replace("<", "&lt;").replace("`", "'").replace("|", "\\|")
