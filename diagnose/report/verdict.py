"""The first three lines of every report: what and where, how it is known, what to do next."""

from __future__ import annotations

import re

from diagnose.model import UNNAMED_HOST, Finding
from diagnose.report.view import Quote, View, known, moment, subjects, undetermined, unread
from diagnose.report.words import Words

_DRAINED = re.compile(r"#[^\n]*\bdrained\b")


def safe_command(finding: Finding) -> tuple[str, str | None] | None:
    """The first command that changes nothing, and where to run it: a read-only step, else what would settle more."""
    for step in finding.remediation:
        if step.effect == "read-only" and step.command and not loads(step.command):
            return step.command, None if step.where == UNNAMED_HOST else step.where
    for more in finding.next_evidence:
        if more.command and not loads(more.command):
            return more.command, None
    for other in finding.look_alikes:
        if other.command and not loads(other.command):
            return other.command, None
    return None


def loads(command: str) -> bool:
    """Whether a command says that it is for drained hosts: a benchmark, say. It is never the first thing to do."""
    return _DRAINED.search(command) is not None


def first_lines(v: View, words: Words) -> tuple[str, Quote | str, tuple[str, str | None] | str]:
    """The verdict: what and where · the deciding evidence, or why there is none · the next safe command, or a word."""
    not_judged = words.say("checks_open", checks=words.count(len(v.diagnosis.unknowns), "check"))
    ask = next(((item.collect, None) for item in v.open if not loads(item.collect)), None)
    if v.state == "no-fault":
        head = words.say("no_fault", sources=words.count(len(v.judged), "source"))
        kinds = ", ".join(sorted({kind for s in v.judged for kind in s.kinds}))
        head += "".join(f"; {title}" for title in dict.fromkeys(f.title for f in v.limits)) + f" ({not_judged})"
        return head, words.say("nothing_seen", kinds=kinds or "-"), ask or words["nothing_to_do"]
    lead = v.lead
    if lead is None and not v.judged and not known(v.diagnosis.job, "stalled_since"):
        nothing = words.say("nothing_read", sources=words.count(len(v.unread), "source"))
        head = f"{words['cannot_tell']}{words.colon()}{nothing}"
        return head, _why_unread(v, words), _closest(v) or ask or words["no_command"]
    if lead is None:
        since = words.say("stalled_since", at=moment(v.diagnosis.job["stalled_since"]))
        head = f"{words['cannot_tell']}{words.colon()}{words['job']} {since}; {words['no_cause']}"
        return head, words["nothing_decides"], ask or words["no_command"]
    what = f"{subjects(lead, words)}{words.colon()}{lead.title}" if lead.subjects else lead.title
    if v.state == "acknowledged":
        what = f"{words['acknowledged']}{words.colon()}{what}"
    elif v.state == "cannot-tell":
        what = f"{words['cannot_tell']}{words.colon()}{what}"
        what += "" if undetermined(lead) else f"; {words['no_cause']}"
    decides = next((e for e in lead.evidence if e.spans), lead.evidence[0] if lead.evidence else None)
    found: Quote | str = v.quote(decides) if decides else words["no_evidence"]
    return what, found, safe_command(lead) or ask or words["no_command"]


def _why_unread(v: View, words: Words) -> str:
    """The first problem of a source, else why the first one gave nothing."""
    told = next((p for p in v.diagnosis.problems if p.source is not None), None)
    if told is not None:
        return f"{place}: {told.text}" if (place := v.place(told)) else told.text
    reasons = unread(v, words)
    return f"{reasons[-1][1][0]}: {reasons[-1][0]}" if reasons else words["nothing_decides"]


def _closest(v: View) -> tuple[str, str | None] | None:
    """The command for what was meant to be sent: of a kind that was recognised but gave nothing."""
    kinds = {kind.partition("_")[0] for s in v.unread for kind in s.kinds}
    found = next((item.collect for item in v.open if kinds & set(re.findall(r"[a-z]+", item.collect))), None)
    return (found, None) if found else None
