"""Texts of the detail pane: what a finding, an unknown, a problem or a source has to say, as blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from diagnose.model import Diagnosis, Finding, Problem, Source, Step, Unknown

from .items import ACKNOWLEDGED_GLYPH, EFFECT_WORDS, GLYPHS, Group, Item, subject_text
from .plain import pad
from .widgets.page import Block

Say = Callable[[str], str]
WIDE = 70
"""From this width on, the effect of a step stands beside its text."""

_EFFECT_TOKENS = {"read-only": "ok", "changes-state": "minor", "maintenance": "critical"}


def _head(text: str) -> list[Block]:
    return [Block(""), Block(text, "head")]


def _command(command: str, indent: int = 2, item: int | None = None) -> Block:
    return Block(command, "command", ((" " * indent + "$ ", "muted"),), item)


def why(finding: Finding, diagnosis: Diagnosis, say: Say, comment: str = "") -> list[Block]:
    """Cause, grounds for the confidence, look-alikes and references of a finding."""
    word = (f"{GLYPHS[finding.severity]} {say(finding.severity.upper())}  ", finding.severity)
    if finding.acknowledged:
        word = (f"{ACKNOWLEDGED_GLYPH} {say('ACCEPTED')} ({say(finding.severity)})  ", "muted")
    blocks = [Block(finding.title, "head", (word,)), Block(finding.id, "muted")]
    if finding.acknowledged:
        blocks.append(Block(say("Acknowledged") + ": " + finding.acknowledged, "muted"))
    blocks += [Block(""), Block(finding.summary)]
    if finding.cause:
        blocks += [*_head(say("Cause")), Block(finding.cause)]
    blocks += [*_head(say("Confidence")), Block(say(finding.confidence + " confidence"))]
    if finding.next_evidence:
        open_ = "Would confirm it:" if finding.confidence == "high" else "Not settled; what would settle it:"
        blocks.append(Block(say(open_)))
        for wanted in finding.next_evidence:
            blocks.append(Block(wanted.text, lead=(("• ", "muted"),)))
            if wanted.command:
                blocks.append(_command(wanted.command))
    if finding.look_alikes:
        blocks += _head(say("Looks the same, but is not"))
        for other in finding.look_alikes:
            blocks.append(Block(other.question, lead=(("? ", "key"),)))
            if other.text:
                blocks.append(Block(other.text, "muted", (("  ", "text"),)))
            if other.command:
                blocks.append(_command(other.command))
            blocks.append(Block("→ " + other.id, "muted", (("  ", "text"),)))
    blocks += _kin(finding, diagnosis, say)
    numbers = _thresholds(finding, diagnosis)
    if numbers:
        blocks += [*_head(say("Thresholds in force")), *(Block(text, lead=(("• ", "muted"),)) for text in numbers)]
    if finding.references:
        blocks += [*_head(say("References")), *(Block(r, lead=(("• ", "muted"),)) for r in finding.references)]
    if finding.subjects:
        blocks += [*_head(say("About")), Block(", ".join(subject_text(s) for s in finding.subjects))]
    if comment:
        blocks += [*_head(say("Comment")), Block(comment)]
    return blocks


def _kin(finding: Finding, diagnosis: Diagnosis, say: Say) -> list[Block]:
    names = finding.explained_by
    causes = [f for f in diagnosis.findings if f.key in names or f.id in names]
    effects = [f for f in diagnosis.findings if finding.key in f.explained_by or finding.id in f.explained_by]
    blocks: list[Block] = []
    for title, kin in ((say("Explained by"), causes), (say("Explains"), effects)):
        if kin:
            blocks += _head(title)
            blocks += [Block(f"{f.title}  ({', '.join(subject_text(s) for s in f.subjects)})") for f in kin[:50]]
    return blocks


def _thresholds(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Thresholds of the finding's rule, as far as the diagnosis tells: `family/slug.name` -> value."""
    in_force = diagnosis.tool.get("thresholds_in_force")
    if not isinstance(in_force, Mapping):
        return []
    start = finding.id + "."
    overridden = diagnosis.tool.get("overridden") or ()
    return [
        f"{name.removeprefix(start)} = {value}" + (" (site file)" if name in overridden else "")
        for name, value in in_force.items()
        if isinstance(name, str) and name.startswith(start)
    ]


def fix(finding: Finding, ticked: Collection[str], say: Say, width: int, comment: str = "") -> list[Block]:
    """The checklist: one item per step."""
    if not finding.remediation:
        return [Block(say("No steps are known for this finding."), "muted")]
    blocks: list[Block] = []
    for number, step in enumerate(finding.remediation):
        blocks += _step(number, step, step.text in ticked, say, width)
    if comment:
        blocks += [*_head(say("Comment")), Block(comment)]
    blocks += [
        Block(""),
        Block(say("Nothing here is run by this tool. Copy a command with y, tick what is done."), "muted"),
    ]
    return blocks


def _step(number: int, step: Step, ticked: bool, say: Say, width: int) -> list[Block]:
    box = f"[{'x' if ticked else ' '}] {number + 1:<2} "
    effect = say(EFFECT_WORDS[step.effect])
    token = _EFFECT_TOKENS[step.effect]
    inset = " " * len(box)
    blocks: list[Block] = []
    if width >= WIDE:
        blocks.append(Block(step.text, lead=((box, "key"), (pad(effect, 14), token)), item=number))
    else:
        blocks += [
            Block(effect, token, ((box, "key"),), number),
            Block(step.text, lead=((inset, "text"),), item=number),
        ]
    for label, text in ((say("on"), step.where), (say("check"), step.verify), (say("undo"), step.rollback)):
        if label == say("check") and step.command:
            blocks.append(_command(step.command, len(inset), number))
        if text:
            blocks.append(Block(text, "text", ((f"{inset}{label}: ", "muted"),), number))
    return blocks


def unknown(thing: Unknown, say: Say) -> list[Block]:
    """A question that could not be judged."""
    blocks = [Block(thing.question, "head"), Block(""), Block(thing.because)]
    if thing.collect:
        blocks += [*_head(say("What would let it be judged")), _command(thing.collect)]
    return blocks


def problem(thing: Problem, say: Say) -> list[Block]:
    """Something that failed."""
    blocks = [Block(say("Could not be read or judged"), "head"), Block(""), Block(thing.text)]
    if thing.source:
        lines = f":{thing.first}" if thing.first else ""
        lines += f"-{thing.last}" if thing.last and thing.last != thing.first else ""
        blocks += [Block(""), Block(thing.source + lines, lead=((say("where") + ": ", "muted"),))]
    return blocks


def source(thing: Source, say: Say) -> list[Block]:
    """What is known of a source, and which parsers read it."""
    rows = {
        "status": say(thing.status),
        "read as": ", ".join(thing.kinds) or say("nothing known"),
        "host": thing.host,
        "rank": thing.rank,
        "command": thing.command,
        "snapshot": thing.snapshot,
        "lines": thing.line_count,
        "bytes": thing.size,
        "digest": thing.digest or None,
    }
    blocks = [Block(thing.path, "head"), Block("")]
    blocks += [Block(str(v), lead=((pad(say(k), 10), "muted"),)) for k, v in rows.items() if v is not None]
    blocks += [Block(note, "minor", (("• ", "muted"),)) for note in thing.notes]
    return blocks


def group(thing: Group, say: Say) -> list[Block]:
    """All members of a group; unknowns by the command that would answer them."""
    blocks: list[Block] = []
    if thing.name == "unknowns":
        by_command: dict[str, list[Unknown]] = {}
        for member in thing.members:
            if isinstance(member, Unknown):
                by_command.setdefault(member.collect, []).append(member)
        blocks += [Block(say("Not judged, because the evidence is missing"), "head")]
        for command, members in by_command.items():
            blocks += [Block(""), _command(command, 0) if command else Block(say("no command known"), "muted")]
            blocks += [Block(f"{m.question} {m.because}".strip(), lead=(("  ○ ", "muted"),)) for m in members]
        return blocks
    for member in thing.members:
        if isinstance(member, Problem):
            blocks += [*problem(member, say)[2:], Block("")]
        elif isinstance(member, Source):
            blocks.append(
                Block(f"{member.path}  {', '.join(member.kinds)}", lead=((pad(say(member.status), 13), "muted"),))
            )
        elif isinstance(member, Finding):
            blocks.append(
                Block(
                    member.title, lead=((f"{GLYPHS[member.severity]} {pad(say(member.severity), 9)}", member.severity),)
                )
            )
    return blocks


def about(item: Item, diagnosis: Diagnosis, say: Say) -> list[Block]:
    """The text of anything in the list."""
    thing = item.thing
    if isinstance(thing, Finding):
        return why(thing, diagnosis, say)
    if isinstance(thing, Unknown):
        return unknown(thing, say)
    if isinstance(thing, Problem):
        return problem(thing, say)
    if isinstance(thing, Source):
        return source(thing, say)
    return group(thing, say)


def finding_text(finding: Finding, say: Say) -> str:
    """A finding as plain text, for the clipboard."""
    lines = [
        f"{say(finding.severity.upper())}: {finding.title} ({', '.join(subject_text(s) for s in finding.subjects)})",
        f"{finding.id} · {say(finding.confidence + ' confidence')}",
        finding.summary,
        "",
        finding.cause,
    ]
    for e in finding.evidence:
        place = f"{e.source}:{e.first}" + (f"-{e.last}" if e.last != e.first else "")
        lines += ["", place, *("    " + part for part in e.text.split("\n"))]
    for number, step in enumerate(finding.remediation, 1):
        lines += ["", f"{number}. [{say(EFFECT_WORDS[step.effect])}] {step.text}"]
        lines += [f"    {step.command}"] if step.command else []
    return "\n".join(lines).strip() + "\n"
