"""Sentences of rules with facts filled in: `{pause.device} pauses {pause.value:.1%} of the time`.

A placeholder is `alias.field` with an optional format specification; nothing else of Python's format language is
allowed. What stands in `[[ … ]]` is said only when all its fields are known; `[[a||b]]` says b otherwise:
`{err.host}[[ {err.device}]] lost [[{err.peer}||its peer]]`. The format `w` writes the words of a name: `timed_out`
as "timed out". One of something is "1 time", and "Ranks {a.ranks} wait" of a single rank is "Rank 0 waits".

A sentence is silent about a host that nobody names (` on {a.host}`, `{a.host} {a.device}`) or says "the host", and
about brackets in which nothing is known. Any other unknown field is written as "unknown".
"""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping

from diagnose.model import UNNAMED_HOST, Fact, Value
from diagnose.vocabulary import Vocabulary, did_you_mean

UNKNOWN = "unknown"

_FORMATTER = string.Formatter()
_REFERENCE = re.compile(r"([a-z][a-z0-9_]*)\.([a-z][a-z0-9_]*)\Z")
_SPEC = re.compile(r"(?:[<>^]?\d{1,3})?[,_]?(?:\.\d{1,2})?[dfeg%sx]?\Z")
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\.([a-z][a-z0-9_]*)\}")
_OPTIONAL = re.compile(r"\[\[((?:(?!\[\[|\]\]).)*)\]\]", re.DOTALL)
_OTHERWISE = "||"
_CLIMBS = re.compile(r"(?:^|/)\.\.(?:/|$)")
_WORDS = "w"
_NAMES = re.compile(r"\{([a-z][^{}]*)\}")
_BRACKETS = re.compile(r" ?\([^()\[\]]*\)")
_START = re.compile(r"(?:On \{(?P<on>[a-z]\w*\.host)\},? |\{(?P<alone>[a-z]\w*\.host)\}: )")
_AT = re.compile(r" at \{(?P<device>[a-z]\w*\.device)\}")
_HOST = re.compile(r"(?P<lead>,? on )?\{(?P<host>[a-z]\w*\.host)\}(?: \{(?P<device>[a-z]\w*\.device)\})?")
_COUNTED = re.compile(
    r"\A( (?:time|host|rank|sibling|GPU|CPU|core|packet|byte|error|queue|period|channel|step|call|other))s\b"
)
_RANKS = re.compile(r"\b([Rr]ank)s \Z")
_WAIT = re.compile(r"\A( wait)\b")
_CJK = re.compile("[\u4e00-\u9fff]")
_SAMPLES: dict[str, Value] = {"string": "x", "integer": 1, "number": 1.5, "boolean": True}


def check_template(text: str, aliases: Mapping[str, str], vocabulary: Vocabulary) -> list[str]:
    """What is wrong with a template, in words; `aliases` maps aliases to kinds."""
    plain = _OPTIONAL.sub(lambda found: found[1].replace(_OTHERWISE, " "), text)
    try:
        parts = list(_FORMATTER.parse(plain))
    except ValueError as error:
        return [f"unreadable template: {error} (write {{{{ and }}}} for braces)"]
    wrong: list[str] = []
    if "[[" in plain or "]]" in plain:
        wrong.append("'[[' and ']]' must come in pairs, one pair not inside another")
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        found = _REFERENCE.match(name)
        if found is None or conversion:
            wrong.append(f"'{{{name}}}' is not of the form {{alias.field}}")
            continue
        problem = _reference_problem(found[1], found[2], aliases, vocabulary)
        if problem:
            wrong.append(problem)
        elif spec and (known := vocabulary.field(aliases[found[1]], found[2])):
            wrong += _spec_problems(name, spec, known.type)
    return wrong


def check_placeholders(text: str, aliases: Mapping[str, str], vocabulary: Vocabulary) -> list[str]:
    """What is wrong with the `{alias.field}` of a step or command; other braces are plain text there."""
    found = (_reference_problem(hit[1], hit[2], aliases, vocabulary) for hit in _PLACEHOLDER.finditer(text))
    return [problem for problem in found if problem]


def render(text: str, bindings: Mapping[str, Fact]) -> str:
    """The sentence; the template must have passed `check_template`."""
    words: list[str] = []
    at = 0
    for found in _OPTIONAL.finditer(text):
        words.append(_outside(text[at : found.start()], text[:at], bindings))
        words.append(_first_known(found[1], bindings))
        at = found.end()
    words.append(_outside(text[at:], text[:at], bindings))
    return "".join(words)


def _outside(text: str, before: str, bindings: Mapping[str, Fact]) -> str:
    """A part of a sentence outside of `[[ … ]]`, silent about a host, device or brackets of which nothing is known."""

    def known(name: str) -> bool:
        return _value(bindings, *name.split(":", 1)[0].split(".", 1)) is not None

    def kept(found: re.Match[str]) -> str:
        names = _NAMES.findall(found[0])
        return found[0] if not names or any(map(known, names)) else ""

    def of_host(found: re.Match[str]) -> str:
        host, device = found["host"], found["device"]
        said = [name for name in (host, device) if name and known(name)]
        if said:
            return (found["lead"] or "") + " ".join(f"{{{name}}}" for name in said)
        if found["lead"]:
            return ""
        start = (before + text[: found.start()]).rstrip()
        return ("T" if not start or start[-1] in ".!?" else "t") + "he host" if not _CJK.search(text) else "该主机"

    starts = None if before else _START.match(text)
    if starts and not known(starts["on"] or starts["alone"]):
        rest = text[starts.end() :]
        text = rest[:1].upper() + rest[1:]
    return _rendered(_AT.sub(kept, _HOST.sub(of_host, _BRACKETS.sub(kept, text))), bindings)


def _first_known(text: str, bindings: Mapping[str, Fact]) -> str:
    """The first of two variants whose fields are all known; the second as it comes, nothing without one."""
    first, _, otherwise = text.partition(_OTHERWISE)
    names = [name for _, name, _, _ in _FORMATTER.parse(first) if name is not None]
    known = all(_value(bindings, *name.split(".", 1)) is not None for name in names)
    return _rendered(first if known else otherwise, bindings)


def _rendered(text: str, bindings: Mapping[str, Fact]) -> str:
    words: list[str] = []
    alone = False
    for literal, name, spec, _ in _FORMATTER.parse(text):
        before = words[-1] if words else ""
        literal = literal[1:] if literal.startswith(".") and before.endswith(".") else literal
        literal = _COUNTED.sub(r"\1", literal) if before == "1" else literal
        literal = _WAIT.sub(r"\1s", literal) if alone else literal
        alias, _, field = (name or "").partition(".")
        value = _written(bindings, alias, field, spec or "") if name else ""
        alone = value.isdecimal() and bool(_RANKS.search(literal))
        words += [_RANKS.sub(r"\1 ", literal) if alone else literal, value]
    return "".join(words)


def fill(text: str, bindings: Mapping[str, Fact], *, shell: bool = False) -> str:
    """A step or command with its exact `{alias.field}` filled in; `shell` quotes the values, they come from evidence.

    `[[--pid {late.pid}||--pid PID]]` says the second where the first cannot be filled in. Without that, unknown values
    keep the field's name in angle brackets, as in `ethtool -S <device>`. So do values that quoting does not make safe
    in a command: options, paths that climb, and odd names between quotes of the command itself.
    """

    def value(found: re.Match[str], before: str) -> str | None:
        alias, field = found.groups()
        if bindings[alias].get(field) is None:
            return None
        written = _written(bindings, alias, field, "")
        return _argument(written, _inside_quotes(before)) if shell else written

    def variant(found: re.Match[str]) -> str:
        first, _, otherwise = found[1].partition(_OTHERWISE)
        names = list(_PLACEHOLDER.finditer(first))
        if not names or any(name[1] not in bindings for name in names):
            return found[0]
        known = all(
            _value(bindings, *name.groups()) is not None
            and value(name, text[: found.start()] + first[: name.start()]) is not None
            for name in names
        )
        return first if known else otherwise

    def put(found: re.Match[str]) -> str:
        alias, field = found.groups()
        return found[0] if alias not in bindings else value(found, chosen[: found.start()]) or f"<{field}>"

    chosen = _OPTIONAL.sub(variant, text)
    return _PLACEHOLDER.sub(put, chosen)


def _argument(value: str, quoted: bool) -> str | None:
    """A value as (part of) one argument of a command, or None when it could be more than that."""
    if value.startswith("-") or _CLIMBS.search(value) or not value.isprintable():
        return None
    plain = shlex.quote(value)
    return None if quoted and plain != value else plain


def _inside_quotes(before: str) -> bool:
    """Whether a shell command is inside single or double quotes after these characters."""
    mark = ""
    escaped = False
    for char in before:
        if escaped:
            escaped = False
        elif char == "\\" and mark != "'":
            escaped = True
        elif mark:
            mark = "" if char == mark else mark
        elif char in "'\"":
            mark = char
    return bool(mark)


def _reference_problem(alias: str, field: str, aliases: Mapping[str, str], vocabulary: Vocabulary) -> str | None:
    if alias not in aliases:
        return f"unknown alias '{alias}' in {{{alias}.{field}}}{did_you_mean(alias, aliases)}"
    kind = vocabulary.kinds.get(aliases[alias])
    if kind and field not in kind.fields:
        return f"{kind.name} has no field '{field}'{did_you_mean(field, kind.fields)}"
    return None


def _spec_problems(name: str, spec: str, type_name: str) -> list[str]:
    if spec == _WORDS:
        return [] if type_name == "string" else [f"format ':w' is for texts, {{{name}}} is a {type_name}"]
    if not _SPEC.match(spec):
        return [f"format ':{spec}' of {{{name}}} is not allowed (width, ',', precision and one of d f e g % s x, or w)"]
    try:
        format(_SAMPLES[type_name], spec)
    except ValueError:
        hint = f"; write ':{spec[:-1]}.0f'" if type_name == "number" and spec.endswith("d") else ""
        return [f"format ':{spec}' does not fit {{{name}}}, a {type_name}{hint}"]
    return []


def _value(bindings: Mapping[str, Fact], alias: str, field: str) -> Value | None:
    """The value, or None where it is not known, empty, or a host that no file names."""
    value = fact.get(field) if (fact := bindings.get(alias)) else None
    return None if value in ("", UNNAMED_HOST) else value


def _written(bindings: Mapping[str, Fact], alias: str, field: str, spec: str) -> str:
    value = _value(bindings, alias, field)
    if value is None:
        return UNKNOWN
    if spec == _WORDS:
        return str(value).replace("_", " ")
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        if spec:
            return format(value, spec)
    except ValueError:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)
