"""The types that travel between the rooms: frozen, plain, stdlib only.

Everything flows one way: Source -> Record | Digest -> Fact -> Firing -> Finding -> Diagnosis -> views.
Units stand in field names (`rate_gbps`, `temp_c`); times are UTC epoch seconds; unknown is absent (None
or a missing key), never 0. Line numbers are 1-based and inclusive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]
Fields = Mapping[str, Value]

Severity = Literal["critical", "major", "minor", "info"]
Confidence = Literal["high", "medium", "low"]
Role = Literal["root", "consequence", "context"]
Effect = Literal["read-only", "changes-state", "maintenance"]
Status = Literal["draft", "trial", "stable"]
SourceStatus = Literal["parsed", "partial", "unrecognised", "empty", "error"]

SEVERITIES: tuple[Severity, ...] = ("critical", "major", "minor", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")

MAX_EXCERPT = 2_000
"""Longest evidence excerpt kept, in characters."""

UNNAMED_HOST = "unnamed-host"
"""Stands for the one host of files that name none (a lone `topo.txt` out of a ticket)."""


# --- what is read -----------------------------------------------------------------------------------


class Line(NamedTuple):
    """One line of a source: 1-based number, text without its line end, time if a prefix told it."""

    number: int
    text: str
    at: float | None = None


class Block(NamedTuple):
    """A run of whole lines (some MiB) for scanners of big logs: number of its first line, and its text."""

    first: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """One readable thing of the bundle.

    `path` is what the user sees: relative to the argument given, never absolute. `location` is where the bytes
    lie on this machine (a private copy for archives and stdin); it never reaches a report.
    `host`, `rank`, `taken_at` (epoch seconds), `snapshot` (0, 1, 2 …), `command` are what manifest, path or name
    told; content may know better.
    """

    id: str
    path: str
    location: str = field(repr=False, default="")
    size: int = 0
    digest: str = ""
    kinds: tuple[str, ...] = ()
    host: str | None = None
    rank: int | None = None
    command: str | None = None
    snapshot: int | None = None
    taken_at: float | None = None
    line_count: int = 0
    status: SourceStatus = "parsed"
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Lines of one source that show something. `spans` are (start, end) columns of `text` worth highlighting."""

    source: str
    first: int
    last: int
    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What a parser saw: one kind of the vocabulary with flat fields. `count` repetitions are folded into it."""

    kind: str
    fields: Fields
    evidence: tuple[Evidence, ...] = ()
    at: float | None = None
    host: str | None = None
    rank: int | None = None
    count: int = 1
    last_at: float | None = None


@dataclass(slots=True)
class Digest:
    """A log boiled down: bounded whatever the log's length, and mergeable.

    `tallies` holds each distinct observation once (first occurrence wins, counts add up). `tails` holds the last
    few records of each stream, in the order read; `totals` adds up plain numbers. Keys start with the record kind.
    """

    kind: str
    tallies: dict[tuple[Scalar | None, ...], Record] = field(default_factory=dict[Any, Any])
    tails: dict[tuple[Scalar | None, ...], list[Record]] = field(default_factory=dict[Any, Any])
    totals: dict[str, float] = field(default_factory=dict[str, float])
    max_tallies: int = 20_000
    max_tail: int = 4

    def add(self, key: tuple[Scalar | None, ...], record: Record) -> None:
        """Count `record` under `key`; the first record stays, later ones raise its count and last time."""
        seen = self.tallies.get(key)
        if seen is None:
            if len(self.tallies) < self.max_tallies:
                self.tallies[key] = record
            else:
                self.totals["tallies_dropped"] = self.totals.get("tallies_dropped", 0) + record.count
            return
        last_at = record.last_at if record.last_at is not None else record.at
        self.tallies[key] = Record(
            seen.kind, seen.fields, seen.evidence, seen.at, seen.host, seen.rank, seen.count + record.count,
            last_at if last_at is not None else seen.last_at,
        )  # fmt: skip

    def push(self, key: tuple[Scalar | None, ...], record: Record) -> None:
        """Keep `record` as the newest of its stream; only the last `max_tail` stay."""
        tail = self.tails.setdefault(key, [])
        tail.append(record)
        if len(tail) > self.max_tail:
            del tail[0]

    def merge(self, later: Digest) -> None:
        """Take in the digest of the part that follows."""
        for key, record in later.tallies.items():
            self.add(key, record)
        for key, tail in later.tails.items():
            for record in tail:
                self.push(key, record)
        for name, number in later.totals.items():
            self.totals[name] = self.totals.get(name, 0) + number

    def records(self) -> Iterator[Record]:
        """All records kept, tallies first."""
        yield from self.tallies.values()
        for tail in self.tails.values():
            yield from tail


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read or judged because it failed. Nothing else is lost by it."""

    text: str
    source: str | None = None
    first: int | None = None
    last: int | None = None


# --- what is known ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement of the vocabulary. `fields` is flat: scalars and tuples of scalars; host and rank are fields."""

    id: str
    kind: str
    fields: Fields
    evidence: tuple[Evidence, ...] = ()

    def get(self, name: str) -> Value | None:
        """Field value, or None when unknown."""
        return self.fields.get(name)


@dataclass(frozen=True, slots=True)
class FactBase:
    """What is known before any arithmetic.

    `observations` are unfolded, in source order; `facts` are folded and hold the coverage; `hosts` are all host names
    with evidence; `rank_host` maps global ranks to hosts as far as the evidence tells; `world` is the job's size.
    """

    observations: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    problems: tuple[Problem, ...]
    hosts: tuple[str, ...]
    rank_host: Mapping[int, str]
    world: int | None


# --- conditions of rules (built by `conditions`, compiled by `engine`, interpreted by `reference`) -----


@dataclass(frozen=True, slots=True)
class Ref:
    """A field of a fact: of the pattern's own fact when `alias` is None."""

    alias: str | None
    field: str


@dataclass(frozen=True, slots=True)
class Const:
    """A literal; units are already folded in (10s -> 10.0, 4MiB -> 4194304, 5% -> 0.05)."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Arith:
    """Arithmetic on two numbers; unknown or non-numeric operands, and division by zero, give unknown."""

    op: Literal["+", "-", "*", "/"]
    left: Expr
    right: Expr


Expr = Ref | Const | Arith


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison. Unknown on either side gives unknown; `<` and its kin hold between numbers only."""

    op: Literal["==", "!=", "<", "<=", ">", ">="]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Member:
    """`left in (a, b, …)`, constants only; a list-valued field is a member when any of its items is."""

    left: Expr
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """`known field`: true or false, never unknown."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Not:
    """Kleene negation: not unknown is unknown."""

    item: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Kleene conjunction; no items is true."""

    items: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Kleene disjunction; no items is false."""

    items: tuple[Condition, ...]


Condition = Compare | Member | Known | Not | And | Or


# --- rules ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pattern:
    """Facts of one kind that satisfy a condition; earlier aliases of the rule may be referred to."""

    alias: str
    kind: str
    where: Condition = And(())


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number (or text) of a rule, with its reason and source; `value` is after the site file's override."""

    name: str
    value: Scalar
    text: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Step:
    """One remediation step, with what it does to running jobs, how to see it worked and how to undo it."""

    text: str
    effect: Effect
    command: str | None = None
    where: str | None = None
    verify: str | None = None
    rollback: str | None = None


@dataclass(frozen=True, slots=True)
class LookAlike:
    """Another pathology that looks the same, the question that separates them, and the command that answers it."""

    id: str
    question: str
    text: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """A fact that a firing makes for a later phase; values are constants or fields of bound facts."""

    kind: str
    fields: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences of a rule in one language; `says` is a template of `{alias.field:spec}`."""

    title: str
    says: str
    cause: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class SeverityChoice:
    """First choice whose condition holds wins; `when` is None for the last."""

    severity: Severity
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Explains:
    """Findings that this rule's finding folds beneath itself: an id or `family/*`, on the same host or job-wide."""

    id: str
    scope: Literal["host", "job"] = "host"


@dataclass(frozen=True, slots=True)
class Example:
    """Facts given and what must follow: `fires` maps aliases or texts to expectations, or the rule stays quiet."""

    name: str
    given: tuple[tuple[str, Fields], ...]
    quiet: bool
    fires: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """One pathology: everything that is said about it lies here."""

    id: str
    status: Status
    severity: tuple[SeverityChoice, ...]
    confidence: Confidence
    when: tuple[Pattern, ...]
    supports: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]
    about: tuple[tuple[str, Ref], ...]
    per: tuple[Ref, ...]
    texts: Mapping[str, Texts]
    explains: tuple[Explains, ...] = ()
    look_alikes: tuple[LookAlike, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    references: tuple[str, ...] = ()
    derives: tuple[Derivation, ...] = ()
    phase: int = 0
    examples: tuple[Example, ...] = ()
    path: str = ""

    @property
    def family(self) -> str:
        """First part of the id."""
        return self.id.split("/", 1)[0]


@dataclass(frozen=True, slots=True)
class Firing:
    """One joint match: `bindings` alias -> fact id, `supports` alias -> ids of the facts that strengthen it.

    `checked` tells for each `unless` of the rule whether its topic was covered for the hosts bound (True), or the
    rule fires with that question open (False).
    """

    rule: str
    bindings: Mapping[str, str]
    order: int
    supports: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    checked: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What rules made of facts: the firings in a fixed order, and all facts including those that rules derived.

    `engine` names what answered: "durable-rules 2.0.28", or "reference" with the reason in brackets.
    """

    firings: tuple[Firing, ...]
    facts: tuple[Fact, ...]
    engine: str
    problems: tuple[Problem, ...] = ()


# --- what is said -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about. A rank's name is decimal numbers and ranges (`37`, `0-16,18-1023`)."""

    kind: str
    name: str
    host: str | None = None


@dataclass(frozen=True, slots=True)
class NextEvidence:
    """What would settle an open question, and the command that supplies it."""

    text: str
    command: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with its grounds and its remedy."""

    id: str
    severity: Severity
    confidence: Confidence
    role: Role
    title: str
    summary: str
    subjects: tuple[Subject, ...]
    evidence: tuple[Evidence, ...]
    cause: str
    remediation: tuple[Step, ...]
    explained_by: tuple[str, ...] = ()
    next_evidence: tuple[NextEvidence, ...] = ()
    look_alikes: tuple[LookAlike, ...] = ()
    references: tuple[str, ...] = ()
    acknowledged: str | None = None

    @property
    def key(self) -> str:
        """Id plus subjects: unique within a diagnosis, stable between runs."""
        return self.id + "@" + ",".join(f"{s.host or ''}:{s.kind}:{s.name}" for s in self.subjects)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that could not be judged, why, and the command that would supply the evidence."""

    question: str
    because: str
    collect: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer. `tables`, `job` and `tool` hold JSON values only, bounded and folded."""

    findings: tuple[Finding, ...]
    unknowns: tuple[Unknown, ...]
    sources: tuple[Source, ...]
    problems: tuple[Problem, ...]
    job: Mapping[str, Any]
    tables: Mapping[str, Any]
    tool: Mapping[str, Any]
    bundle_digest: str = ""


# --- ranges of ranks --------------------------------------------------------------------------------


def fold_ranks(ranks: Any) -> str:
    """Numbers as sorted ranges: {0,1,2,5} -> '0-2,5'. Empty gives ''."""
    numbers = sorted({int(r) for r in ranks})
    parts: list[str] = []
    start = previous = None
    for n in [*numbers, None]:
        if previous is not None and n == previous + 1:
            previous = n
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = n
    return ",".join(parts)


def unfold_ranks(text: str) -> list[int]:
    """The reverse of `fold_ranks`; ValueError on anything else."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranks.extend(range(int(first), int(last or first) + 1))
    return ranks
