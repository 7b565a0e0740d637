"""Markdown for tickets and one HTML file, both from templates. All that comes from evidence passes a filter."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import BaseLoader, Environment, FunctionLoader, StrictUndefined

from diagnose.model import Diagnosis
from diagnose.report import mark
from diagnose.report.safe import safe, safe_lines
from diagnose.report.tables import grids, progress
from diagnose.report.verdict import first_lines
from diagnose.report.view import View, job_line, said_by, subjects, unread, view
from diagnose.report.words import Words


def markdown(diagnosis: Diagnosis, *, lang: str = "en") -> str:
    """Markdown that GitHub, GitLab and Jira show alike: no HTML, no tables, nothing from evidence is active."""
    text = _markdown_templates().get_template("report.md.j2").render(_context(diagnosis, lang))
    return _single_blanks(text)


def html(diagnosis: Diagnosis, *, lang: str = "en") -> str:
    """One HTML file: no script, no network, style inside, light and dark, fit to print."""
    style = _resource("report.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    context = {**_context(diagnosis, lang), "style": style, "style_hash": f"sha256-{digest}"}
    return _html_templates().get_template("report.html.j2").render(context).strip() + "\n"


def _context(diagnosis: Diagnosis, lang: str) -> dict[str, Any]:
    v, words = view(diagnosis), Words(lang)
    what, found, command = first_lines(v, words)
    return {
        "v": v,
        "w": words,
        "what": what,
        "found": found,
        "command": command,
        "job": job_line(diagnosis.job, words),
        "tally": tally(v, words),
        "made_by": made_by(diagnosis.tool),
        "grids": grids(diagnosis.tables),
        "progress": progress(diagnosis.tables),
        "subjects": subjects,
        "said_by": said_by,
        "unread": unread(v, words),
    }


def tally(v: View, words: Words) -> str:
    """`3 of 5 sources read; 3 checks not judged; 2 problems`."""
    parts = [words.say("read_of", read=len(v.read), all=len(v.diagnosis.sources))]
    if v.diagnosis.unknowns:
        parts.append(words.say("checks_open", checks=words.count(len(v.diagnosis.unknowns), "check")))
    if v.diagnosis.problems:
        parts.append(words.count(len(v.diagnosis.problems), "problem"))
    return "; ".join(parts)


def made_by(tool: Mapping[str, Any]) -> str:
    """`diagnose 0.1.0, durable-rules 2.0.28, 120 rules (3f2a…)`."""
    rules = tool.get("rules")
    parts = [f"{tool.get('name', 'diagnose')} {tool.get('version', '')}".strip(), str(tool.get("engine", ""))]
    if isinstance(rules, Mapping):
        parts.append(f"{rules.get('count', 0)} rules ({str(rules.get('digest', ''))[:12]})")
    return ", ".join(part for part in parts if part)


def _single_blanks(text: str) -> str:
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        bare = line.strip()
        if not fence and not bare:
            if lines and lines[-1]:
                lines.append("")
            continue
        lines.append(line.rstrip() if not fence else line)
        if fence:
            fence = "" if bare == fence else fence
        elif bare.startswith("```") and "`" not in bare.lstrip("`"):
            fence = bare[: len(bare) - len(bare.lstrip("`"))]
    return "\n".join(lines).strip("\n") + "\n"


def _resource(name: str) -> str:
    return resources.files("diagnose.report").joinpath("templates", name).read_text("utf-8")


def _loader() -> BaseLoader:
    return FunctionLoader(_resource)


@cache
def _markdown_templates() -> Environment:
    made = Environment(
        loader=_loader(), autoescape=False, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(prose=mark.prose, code=mark.code, fenced=mark.fenced, reference=mark.reference)
    return made


@cache
def _html_templates() -> Environment:
    made = Environment(
        loader=_loader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(shown=safe, shown_lines=lambda text: "\n".join(safe_lines(text)), is_link=mark.is_link)
    return made
