"""Rule files of a folder: finding, reading, checking their shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from diagnose.model import Rule, Scalar
from diagnose.rulebook._build import Builder, RuleError
from diagnose.rulebook._yaml import Document
from diagnose.vocabulary import did_you_mean, vocabulary

MAX_FILE = 256 * 1024
"""Longest rule file read, in bytes."""

MAX_FILES = 5_000


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file as read: `rule` is None when there are errors. `refused`: overrides that do not fit, and why."""

    path: Path
    name: str
    text: str
    document: Document
    rule: Rule | None
    errors: tuple[RuleError, ...]
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def claimed_id(self) -> str:
        """The id that the document gives itself, whether a rule could be made of it or not."""
        return str(self.document.data.get("id", "")) if isinstance(self.document.data, dict) else ""


def read_folder(folder: Path, overrides: Mapping[str, Scalar], *, shape: bool) -> Iterator[RuleFile]:
    """All rule files of a folder, sorted; names that start with `.` or `_` are left out.

    `shape` says whether files are held against the JSON schema even when a rule could be built.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no rule folder at {folder}")
    found = (p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())
    for path in sorted(found)[:MAX_FILES]:
        relative = path.relative_to(folder)
        if not any(part.startswith((".", "_")) for part in relative.parts):
            yield read_file(path, relative.as_posix(), overrides, shape=shape)


def read_file(path: Path, name: str, overrides: Mapping[str, Scalar], *, shape: bool) -> RuleFile:
    """One rule file, built and checked."""
    data = path.read_bytes()
    if len(data) > MAX_FILE:
        error = RuleError(str(path), 1, 1, f"larger than {MAX_FILE} bytes")
        return RuleFile(path, name, "", Document(""), None, (error,))
    text = data.decode("utf-8", "replace")
    document = Document(text)
    if document.mistakes:
        mistakes = tuple(RuleError(str(path), *mistake) for mistake in document.mistakes)
        return RuleFile(path, name, text, document, None, mistakes)
    builder = Builder(document, str(path), name, vocabulary(), overrides)
    rule = builder.build()
    errors = list(builder.errors)
    if shape or errors:
        wrong = list(shape_errors(document, str(path)))
        told = {(e.line, e.column) for e in wrong}
        # A shape error explains what the builder stumbled over at the same place, or gave up on.
        errors = wrong + [
            e for e in errors if (e.line, e.column) not in told and not (wrong and "valid rule" in e.text)
        ]
    return RuleFile(path, name, text, document, None if errors else rule, tuple(sorted(errors)), builder.refused)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    text = resources.files("diagnose").joinpath("rule.schema.json").read_text("utf-8")
    return Draft202012Validator(json.loads(text))


def shape_errors(document: Document, path: str) -> Iterator[RuleError]:
    """What `rule.schema.json` says about a document, with places and suggestions."""
    for error in _validator().iter_errors(document.data):
        yield from _told(error, document, path)


def _told(error: Any, document: Document, path: str) -> Iterator[RuleError]:
    where = tuple(error.absolute_path)
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = list(error.schema.get("properties", {}))
        for key in error.instance:
            if key not in known:
                yield RuleError(
                    path, *document.key_place((*where, key)), f"unknown key '{key}'{did_you_mean(str(key), known)}"
                )
        return
    if error.validator in ("oneOf", "anyOf") and error.context:
        # Report the alternative that got furthest, not "is not valid under any of the given schemas".
        best = max(error.context, key=lambda e: (len(e.absolute_path), e.validator not in ("type", "enum")))
        if best.validator != "type" or len(best.absolute_path) > len(where):
            yield from _told(best, document, path)
            return
        wanted = " or ".join(dict.fromkeys(str(e.validator_value) for e in error.context if e.validator == "type"))
        yield RuleError(path, *document.place(where), f"{_name(where)} must be {wanted or 'one of the known forms'}")
        return
    yield RuleError(path, *document.place(where), f"{_name(where)}: {_words(error)}")


def _words(error: Any) -> str:
    match error.validator:
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return f"lacks '{missing[0]}'" if missing else error.message
        case "enum":
            value = str(error.instance)
            choices = [str(v) for v in error.validator_value]
            return f"'{value}' is none of {', '.join(choices)}{did_you_mean(value, choices)}"
        case "pattern":
            return f"'{error.instance!s:.60}' does not have the form {error.validator_value}"
        case "type":
            wanted = error.validator_value
            return f"must be {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
        case _:
            return str(error.message)[:200]


def _name(where: tuple[str | int, ...]) -> str:
    return ".".join(map(str, where)) or "rule"
