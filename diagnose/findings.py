"""Firings -> findings: grouped by subject, folded under their causes, ranked; and what could not be judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import cast

from diagnose import reference
from diagnose.logic import Bindings, conjuncts, holds
from diagnose.model import (
    CONFIDENCES,
    SEVERITIES,
    UNNAMED_HOST,
    Compare,
    Const,
    Evidence,
    Fact,
    Finding,
    Firing,
    LookAlike,
    NextEvidence,
    Outcome,
    Pattern,
    Ref,
    Rule,
    Severity,
    Step,
    Subject,
    Texts,
    Unknown,
    fold_ranks,
    unfold_ranks,
)
from diagnose.vocabulary import vocabulary
from diagnose.wording import fill, render

MAX_EVIDENCE = 12
"""Evidence items kept per finding."""
MERGE_ABOVE = 4
"""So many findings of one rule stand alone; more become one finding about all their subjects."""
MAX_SUBJECTS = 60

_PLACELESS = frozenset({"host", "hosts", "group", "job", "lot", "fabric", "peer"})
"""Kinds of subjects that are no part of one host."""

DEPTH = ("gpu", "topo", "link", "rdma", "lossless", "fabric", "host", "k8s", "init", "nccl", "version", "storage",
         "gdr", "clock", "stall", "perf")  # fmt: skip
"""Families from cause to symptom: of two findings of equal severity the more causal one comes first."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A finding that the site knows about: id or `family/*`, host or None for all, reason."""

    id: str
    host: str | None
    reason: str


def judge(
    rules: Sequence[Rule], outcome: Outcome, lang: str = "en", acknowledged: Iterable[Acknowledgement] = ()
) -> tuple[Finding, ...]:
    """All findings, roots first."""
    facts = {f.id: f for f in outcome.facts}
    by_id = {r.id: r for r in rules}
    groups: dict[tuple[str, tuple[object, ...]], list[Firing]] = defaultdict(list)
    for firing in outcome.firings:
        rule = by_id[firing.rule]
        bound = {alias: facts[f] for alias, f in firing.bindings.items()}
        refs = rule.per or tuple(ref for _, ref in rule.about)
        key = tuple(bound[ref.alias].get(ref.field) if ref.alias in bound else None for ref in refs)
        groups[rule.id, key].append(firing)
    covered = _Coverage(outcome.facts)
    accepted = tuple(acknowledged)
    alike: dict[tuple[str, str | None], list[Finding]] = defaultdict(list)
    for (rule_id, _), firings in groups.items():
        finding = _acknowledge(_finding(by_id[rule_id], firings, facts, covered, lang), accepted)
        alike[rule_id, finding.acknowledged].append(finding)
    folded = _fold([f for findings in alike.values() for f in _merged(findings)], by_id)
    return tuple(sorted(folded, key=_order))


def _finding(
    rule: Rule, firings: Sequence[Firing], facts: Mapping[str, Fact], covered: _Coverage, lang: str
) -> Finding:
    texts = rule.texts.get(lang) or rule.texts["en"]
    bound = [{alias: facts[f] for alias, f in firing.bindings.items()} for firing in firings]
    severities = [_severity(rule, b) for b in bound]
    severity = SEVERITIES[min(SEVERITIES.index(s) for s in severities)]
    lead = bound[severities.index(severity)]
    supports = [facts[f] for firing in firings for ids in firing.supports.values() for f in ids]
    unchecked = [
        pattern.kind for n, pattern in enumerate(rule.unless)
        if any(n < len(firing.checked) and not firing.checked[n] for firing in firings)
    ]  # fmt: skip
    looks = _look_alikes(rule, lead)
    evidence = _evidence([f for b in bound for f in b.values()], supports)
    confidence = CONFIDENCES[min(CONFIDENCES.index(reference.confidence(rule, f)) for f in firings)]
    return Finding(
        id=rule.id, severity=severity, confidence=confidence,
        role="context" if severity == "info" else "root", title=texts.title,
        summary=render(texts.says, lead),
        subjects=_subjects(rule, bound), evidence=evidence, cause=texts.cause, remediation=_steps(rule, texts, lead),
        next_evidence=_next_evidence(rule, looks, unchecked, covered), look_alikes=looks,
        references=rule.references, shows_nothing=rule.shows_nothing,
    )  # fmt: skip


def _severity(rule: Rule, bound: Mapping[str, Fact]) -> Severity:
    """What the rule says of these facts; a rule on trial never says more than minor."""
    severity = reference.severity(rule, bound)
    if rule.status != "stable" and SEVERITIES.index(severity) < SEVERITIES.index("minor"):
        return "minor"
    return severity


def _steps(rule: Rule, texts: Texts, bound: Mapping[str, Fact]) -> tuple[Step, ...]:
    """The steps whose conditions hold, with their placeholders filled in: a step may name the host or device of the
    finding."""
    filled: list[Step] = []
    spoken = (_spoken(bound, "HOST"), _spoken(bound, "the host"))
    conditions = dict(enumerate(rule.step_conditions))
    for n, step in enumerate(texts.steps):
        condition = conditions.get(n)
        if condition is not None and holds(condition, cast(Bindings, bound)) is not True:
            continue
        parts = {
            name: fill(value, spoken[name in ("text", "where")], shell=name not in ("text", "where"))
            if value
            else value
            for name, value in (
                ("text", step.text),
                ("command", step.command),
                ("where", step.where),
                ("verify", step.verify),
                ("rollback", step.rollback),
            )
        }
        if parts["where"] and parts["where"].startswith("<"):
            parts["where"] = None
        filled.append(replace(step, **parts))
    return tuple(filled)


def _look_alikes(rule: Rule, bound: Mapping[str, Fact]) -> tuple[LookAlike, ...]:
    commands, prose = _spoken(bound, "HOST"), _spoken(bound, "the host")
    return tuple(
        replace(
            look, text=fill(look.text, prose, shell=False) if look.text else None,
            command=fill(look.command, commands, shell=True) if look.command else None,
        ) for look in rule.look_alikes
    )  # fmt: skip


def _spoken(bound: Mapping[str, Fact], host: str) -> Mapping[str, Fact]:
    """The facts with `host` in the place of a host that no file names."""
    return {
        alias: replace(f, fields={**f.fields, "host": host}) if f.fields.get("host") == UNNAMED_HOST else f
        for alias, f in bound.items()
    }


def _evidence(bound: Iterable[Fact], supports: Iterable[Fact]) -> tuple[Evidence, ...]:
    """First the best item of every fact, then the rest, each once."""
    facts = list(dict.fromkeys(f.id for f in (*bound, *supports)))
    by_id = {f.id: f for f in (*bound, *supports)}
    items: dict[Evidence, None] = {}
    for depth in range(MAX_EVIDENCE):
        for fact_id in facts:
            evidence = by_id[fact_id].evidence
            if depth < len(evidence) and len(items) < MAX_EVIDENCE:
                items.setdefault(evidence[depth])
    return tuple(items)


def _subjects(rule: Rule, bound: Sequence[Mapping[str, Fact]]) -> tuple[Subject, ...]:
    found: dict[Subject, None] = {}
    ranks: set[int] = set()
    for facts in bound:
        for kind, ref in rule.about:
            fact = facts.get(ref.alias or "")
            value = fact.get(ref.field) if fact else None
            if fact is None or value is None or value == "":
                continue
            if kind == "rank":
                ranks.update(_ranks(value))
                continue
            host = fact.get("host")
            own = str(host) if host is not None and kind not in _PLACELESS else None
            found.setdefault(Subject(kind, str(value), own))
    hosts = {s.name for s in found if s.kind == "host"}
    if ranks:
        found = {Subject("rank", fold_ranks(ranks), next(iter(hosts)) if len(hosts) == 1 else None): None, **found}
    return tuple(found)[:MAX_SUBJECTS]


def _ranks(value: object) -> list[int]:
    return unfold_ranks(str(value))[:100_000]


# --- what is missing --------------------------------------------------------------------------------


class _Coverage:
    """Topics that something was read of."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.topics = {str(f.fields["topic"]) for f in facts if f.kind == "covered"}

    def judges(self, pattern: Pattern) -> bool:
        """Whether the absence of a match means something anywhere."""
        return any(topic in ("derived", "site") or topic in self.topics for topic in _topics(pattern))


def _topics(pattern: Pattern) -> tuple[str, ...]:
    """Topics any of which lets this pattern be judged."""
    kind = vocabulary().kinds[pattern.kind]
    subjects = [
        c.right.value for c in conjuncts(pattern.where)
        if isinstance(c, Compare) and c.op == "==" and c.left == Ref(None, "subject") and isinstance(c.right, Const)
    ]  # fmt: skip
    if subjects and str(subjects[0]) in kind.by_subject:
        return (kind.by_subject[str(subjects[0])],)
    return kind.sources or (kind.topic,)


def _next_evidence(
    rule: Rule, looks: Sequence[LookAlike], unchecked: Sequence[str], covered: _Coverage
) -> tuple[NextEvidence, ...]:
    """Commands that would settle the open questions: unchecked exceptions, then look-alikes, then missing support."""
    topics = vocabulary().topics
    wanted: dict[NextEvidence, None] = {}
    for kind in unchecked:
        topic = topics[vocabulary().topic_of(kind)]
        wanted.setdefault(NextEvidence(f"not checked: {topic.title}", topic.collect))
    for look in looks:
        if look.command:
            wanted.setdefault(NextEvidence(look.text or look.question, look.command))
    for pattern in rule.supports:
        if not covered.judges(pattern):
            topic = topics[_topics(pattern)[0]]
            wanted.setdefault(NextEvidence(f"would strengthen this: {topic.title}", topic.collect))
    return tuple(wanted)[:8]


_KIN = {
    "nic_counters": ("nic_link", "nic_settings"), "nic_link": ("nic_counters",), "rdma_counters": ("rdma_port",),
    "pcie": ("gpu_topology",), "gpu_state": ("gpu_topology", "kernel_log"), "kernel_log": ("gpu_state",),
    "nccl_init": ("nccl_log", "torch_log", "benchmark_nccl"), "torch_log": ("nccl_log", "nccl_init", "process_exit"),
    "nic_rates": ("nic_counters",), "ip_link": ("nic_settings",), "cgroup_usage": ("cgroup_files",),
}  # fmt: skip
"""Topics whose evidence suggests that the key topic is worth asking for next."""


def unknowns(rules: Sequence[Rule], outcome: Outcome) -> tuple[Unknown, ...]:
    """Rules that nothing could be said about, gathered by the topic whose command would let them be judged."""
    covered = _Coverage(outcome.facts)
    fired = {f.rule for f in outcome.firings}
    known = vocabulary()
    missing: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        blind = [p for p in rule.when if not covered.judges(p)]
        if rule.id not in fired and blind:
            missing[_topics(blind[0])[0]].append(rule)
    found: list[tuple[tuple[bool, int, int, str], Unknown]] = []
    for topic_name, blind_rules in missing.items():
        topic = known.topics[topic_name]
        titles = [r.texts["en"].title for r in sorted(blind_rules, key=lambda r: r.id)]
        shown = "; ".join(titles[:3]) + (f"; and {len(titles) - 3} more" if len(titles) > 3 else "")
        worst = min(SEVERITIES.index(c.severity) for r in blind_rules for c in r.severity)
        unknown = Unknown(f"{topic.title}: {shown}?", f"no {topic.title} in the files supplied", topic.collect)
        related = topic_name.removesuffix("_rates") + "_counters" in covered.topics or bool(
            set(_KIN.get(topic_name, ())) & covered.topics
        )
        found.append(((not related, worst, -len(blind_rules), topic_name), unknown))
    return tuple(unknown for _, unknown in sorted(found, key=lambda item: item[0]))


# --- merging, folding, order ------------------------------------------------------------------------


def _merged(findings: list[Finding]) -> list[Finding]:
    """Many findings of one rule as one: the worst speaks, the subjects of all are listed."""
    findings.sort(key=_order)
    if len(findings) <= MERGE_ABOVE:
        return findings
    lead = findings[0]
    subjects: dict[Subject, None] = {}
    ranks: set[int] = set()
    for finding in findings:
        for subject in finding.subjects:
            if subject.kind == "rank":
                ranks.update(_ranks(subject.name))
            else:
                subjects.setdefault(subject)
    listed = tuple(subjects)[:MAX_SUBJECTS]
    if ranks:
        listed = (Subject("rank", fold_ranks(ranks)), *listed)
    evidence: dict[Evidence, None] = {}
    for finding in findings:
        for e in finding.evidence[:1]:
            evidence.setdefault(e)
    for e in lead.evidence:
        evidence.setdefault(e)
    hosts = {s.host or s.name for s in subjects if s.host or s.kind == "host"}
    others = f" (and {len(findings) - 1} more like it" + (f", on {len(hosts)} hosts in all)" if len(hosts) > 1 else ")")
    return [replace(lead, summary=lead.summary + others, subjects=listed, evidence=tuple(evidence)[:MAX_EVIDENCE])]


def _fold(findings: list[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Mark as consequences what a more causal finding explains; circles are cut at the more causal end."""
    ordered = sorted(findings, key=_causal)
    explained: dict[str, list[str]] = defaultdict(list)
    for cause in ordered:
        for explains in rules[cause.id].explains:
            for effect in ordered:
                if (
                    effect is not cause and fnmatchcase(effect.id, explains.id) and effect.id != cause.id
                    and effect.key not in _ancestors(cause.key, explained)
                    and SEVERITIES.index(effect.severity) >= SEVERITIES.index(cause.severity)
                    and (explains.scope == "job" or _touch(cause, effect))
                ):  # fmt: skip
                    explained[effect.key].append(cause.key)
    ids = {f.key: f.id for f in findings}
    return [
        replace(
            f, role="context" if f.role == "context" else "consequence",
            explained_by=tuple(dict.fromkeys(ids[k] for k in explained[f.key])),
        ) if explained.get(f.key) else f
        for f in findings
    ]  # fmt: skip


def _ancestors(key: str, explained: Mapping[str, list[str]]) -> set[str]:
    seen: set[str] = set()
    queue = [key]
    while queue:
        current = queue.pop()
        for parent in explained.get(current, ()):
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)
    return seen


def _touch(a: Finding, b: Finding) -> bool:
    """They share a host, or one of them is about the whole job."""
    hosts_a, hosts_b = _hosts(a), _hosts(b)
    return not hosts_a or not hosts_b or bool(hosts_a & hosts_b)


def _hosts(finding: Finding) -> set[str]:
    return {s.name if s.kind == "host" else s.host for s in finding.subjects if s.host or s.kind == "host"} - {None}  # type: ignore[return-value]


def _causal(finding: Finding) -> tuple[int, str]:
    family = finding.id.split("/", 1)[0]
    return (DEPTH.index(family) if family in DEPTH else len(DEPTH), finding.key)


def _order(finding: Finding) -> tuple[int, int, int, tuple[int, str]]:
    return (
        ("root", "consequence", "context").index(finding.role), SEVERITIES.index(finding.severity),
        CONFIDENCES.index(finding.confidence), _causal(finding),
    )  # fmt: skip


def _acknowledge(finding: Finding, acknowledged: tuple[Acknowledgement, ...]) -> Finding:
    """Mark a finding that the site has accepted: on any host, or on each of its hosts."""
    hosts = _hosts(finding)
    reasons: dict[str, None] = {}
    open_hosts = set(hosts)
    for known in acknowledged:
        if fnmatchcase(finding.id, known.id):
            if known.host is None:
                return replace(finding, acknowledged=known.reason)
            if known.host in hosts:
                reasons.setdefault(known.reason)
                open_hosts.discard(known.host)
    return replace(finding, acknowledged="; ".join(reasons)) if reasons and not open_hosts else finding
