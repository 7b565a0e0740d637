"""Reads the vocabulary of facts (`facts.schema.json`) and answers questions about it.

The schema is data: each kind of fact has its fields, types, meaning, origin (who makes it) and topic (what must
have been read for its absence to mean something). `check` is what `facts` and the tests hold records against.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a kind: JSON type name and meaning (with unit)."""

    name: str
    type: str
    description: str
    required: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fact.

    `sources` are the topics that a derived kind is made from, any of which lets it be judged; where its `subject` field
    decides the topic, `by_subject` tells which.
    """

    name: str
    origin: str
    topic: str
    description: str
    fields: Mapping[str, Field]
    sources: tuple[str, ...] = ()
    by_subject: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Topic:
    """What a set of kinds is read from; `collect` is the command that supplies it."""

    name: str
    title: str
    collect: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All kinds and topics. Every kind also has the common fields (host, rank, at, times)."""

    kinds: Mapping[str, Kind]
    topics: Mapping[str, Topic]

    def field(self, kind: str, name: str) -> Field | None:
        """The field, or None when the kind or field does not exist."""
        found = self.kinds.get(kind)
        return found.fields.get(name) if found else None

    def topic_of(self, kind: str) -> str:
        """Topic whose coverage makes the absence of this kind meaningful."""
        return self.kinds[kind].topic

    def check(self, kind: str, fields: Mapping[str, Any]) -> list[str]:
        """What is wrong with these fields, in words; empty when they conform."""
        found = self.kinds.get(kind)
        if found is None:
            return [f"unknown kind '{kind}'{did_you_mean(kind, self.kinds)}"]
        wrong: list[str] = []
        for name, value in fields.items():
            known = found.fields.get(name)
            if known is None:
                wrong.append(f"{kind} has no field '{name}'{did_you_mean(name, found.fields)}")
            elif not _fits(value, known.type):
                wrong.append(f"{kind}.{name} must be {known.type}, not {value!r:.80}")
        wrong += [f"{kind} lacks '{f.name}'" for f in found.fields.values() if f.required and f.name not in fields]
        return wrong


def _fits(value: Any, type_name: str) -> bool:
    if isinstance(value, bool) and type_name != "boolean":
        return False
    return isinstance(value, _TYPES[type_name])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def schema() -> dict[str, Any]:
    """The raw schema document."""
    text = resources.files("diagnose").joinpath("facts.schema.json").read_text("utf-8")
    return json.loads(text)


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary, read once."""
    raw = schema()
    common = {n: Field(n, f["type"], f["description"], False) for n, f in raw["x-common"].items()}
    kinds: dict[str, Kind] = {}
    for name, d in raw["$defs"].items():
        own = {n: Field(n, f["type"], f["description"], n in d["required"]) for n, f in d["properties"].items()}
        kinds[name] = Kind(
            name,
            d["x-origin"],
            d["x-topic"],
            d["description"],
            {**common, **own},
            tuple(d.get("x-from", ())),
            d.get("x-by-subject", {}),
        )
    topics = {n: Topic(n, t["title"], t["collect"]) for n, t in raw["x-topics"].items()}
    return Vocabulary(kinds, topics)
