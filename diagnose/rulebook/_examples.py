"""The examples of a rule, run; and a new rule file to start from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diagnose import reference
from diagnose.model import Example, Fact, Firing, Rule, Value
from diagnose.vocabulary import vocabulary
from diagnose.wording import render


def run_examples(rule: Rule) -> list[str]:
    """What each example of the rule expects and does not get, in words; evaluated with `reference`."""
    return [f"example '{example.name}': {failure}" for example in rule.examples for failure in _failures(rule, example)]


def _failures(rule: Rule, example: Example) -> list[str]:
    known = vocabulary()
    wrong = [problem for kind, fields in example.given for problem in known.check(kind, fields)]
    if wrong:
        return wrong
    facts = [Fact(f"f{n}", kind, fields) for n, (kind, fields) in enumerate(example.given)]
    outcome = reference.run([rule], facts)
    failures = [problem.text for problem in outcome.problems]
    by_id = {fact.id: fact for fact in facts}
    firings = [(firing, {a: by_id[i] for a, i in firing.bindings.items()}) for firing in outcome.firings]
    if example.quiet:
        if firings:
            failures.append(f"must stay quiet, but fires: {render(rule.texts['en'].says, firings[0][1])}")
        return failures
    if not firings:
        return [*failures, "must fire, but stays quiet"]
    keys = {tuple(_name(bound, ref) for ref in rule.per) for _, bound in firings}
    count = example.fires.get("count")
    if count is not None and len(keys) != count:
        failures.append(f"must give {count} findings, but gives {len(keys)}")
    tried = [_mismatches(rule, example.fires, firing, bound) for firing, bound in firings]
    return failures + min(tried, key=len)


def _name(bound: Mapping[str, Fact], ref: Any) -> Value | None:
    return bound[ref.alias].get(ref.field)


def _mismatches(rule: Rule, fires: Mapping[str, Any], firing: Firing, bound: Mapping[str, Fact]) -> list[str]:
    wrong: list[str] = []
    got = {"severity": reference.severity(rule, bound), "confidence": reference.confidence(rule, firing)}
    wrong += [f"{k} is {v}, not {fires[k]}" for k, v in got.items() if k in fires and fires[k] != v]
    says = fires.get("says", [])
    sentence = render(rule.texts["en"].says, bound)
    parts: list[str] = [says] if isinstance(says, str) else says
    wrong += [f"'{part}' is not in: {sentence}" for part in parts if part not in sentence]
    about = {kind: str(_name(bound, ref)) for kind, ref in rule.about}
    for kind, name in fires.get("about", {}).items():
        if about.get(kind) != str(name):
            wrong.append(f"is about {kind} {about.get(kind)}, not {name}")
    return wrong


_ID = re.compile(r"[a-z][a-z0-9-]*/[a-z0-9][a-z0-9-]*\Z")

TO_FILL_IN = "FILL IN"
"""Stands in a new rule file where its author has to write."""

_TEMPLATE = """\
id: {id}
status: draft                        # draft (only when asked for) | trial (at most minor) | stable
title: "{title}"
severity: minor                      # or major | critical | info, or [{{when: "…", is: critical}}, {{else: major}}]
confidence: medium                   # high | medium | low, when all evidence is present
thresholds:
  max_errors: {{value: 0, why: "FILL IN why this number", source: "FILL IN where it comes from"}}
when:
  seen: {{kind: nic_rate, where: "metric == 'FILL IN' and value > max_errors"}}
unless: []                           # e.g. {{kind: kernel_event, where: "host == seen.host and event == 'xid'"}}
about: [{{host: seen.host}}, {{nic: seen.device}}]
says: "FILL IN: {{seen.host}} {{seen.device}} shows {{seen.value}}"
explains: []
cause: "FILL IN what physically or logically goes wrong, in two or three sentences."
look_alikes: []                      # e.g. {{id: family/slug, question: "What tells them apart?"}}
steps:
  - {{text: "FILL IN what to look at first", command: "ethtool -S {{seen.device}}", effect: read-only}}
references: ["FILL IN a manual, a paper or a report"]
examples:
  - name: fires
    given:
      - {{kind: nic_rate, host: node-a, device: eth2, metric: "REPLACE ME", seconds: 10, value: 5}}
    fires: {{about: {{host: node-a, nic: eth2}}}}
  - name: near miss
    given:
      - {{kind: nic_rate, host: node-a, device: eth2, metric: "REPLACE ME", seconds: 10, value: 0}}
    quiet: true
"""


def new_rule(folder: Path, rule_id: str) -> Path:
    """Write `folder/family/slug.yaml`: it loads, and fails its own example until it is filled in.

    ValueError for an id that is not `family/slug`, FileExistsError when the file is there already.
    """
    if not _ID.match(rule_id):
        raise ValueError(f"'{rule_id}' is not of the form family/slug (small letters, digits, hyphens)")
    path = folder / f"{rule_id}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    title = "FILL IN: " + rule_id.split("/")[1].replace("-", " ")
    with path.open("x", encoding="utf-8") as file:
        file.write(_TEMPLATE.format(id=rule_id, title=title))
    return path
