"""Rule files -> `Rule`: reading, validation, lint, examples, scaffolding.

    book = load([builtin("rules")])       # book.rules, book.errors
    problems = lint([folder])             # what `load` finds, and what a careful reviewer would
    failures = run_examples(rule)
    path = new_rule(folder, "family/slug")

A broken rule never stops the others, and all errors come at once. Names, types, templates and thresholds are checked
for every file. The shape (`rule.schema.json`) is checked for users' folders and for files that cannot be built; for
the rest of the built-in pack the tests do it, because importing jsonschema would cost as much as reading the pack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose import packs
from diagnose.model import Rule, Scalar, Status
from diagnose.rulebook._build import RuleError
from diagnose.rulebook._examples import new_rule, run_examples
from diagnose.rulebook._files import read_folder
from diagnose.rulebook._lint import lint
from diagnose.vocabulary import did_you_mean

__all__ = ["RuleError", "Rulebook", "lint", "load", "new_rule", "run_examples"]


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Rules sorted by id, what was wrong with files, a digest of the files' contents, and the thresholds overridden."""

    rules: tuple[Rule, ...]
    errors: tuple[RuleError, ...]
    digest: str
    overridden: tuple[str, ...] = ()


def load(
    folders: Sequence[Path],
    *,
    overrides: Mapping[str, Scalar] | None = None,
    site_file: str = "site file",
    statuses: Sequence[Status] = ("trial", "stable"),
) -> Rulebook:
    """Rules of the folders; a later folder replaces a rule with the same id.

    `overrides` maps `rule-id.threshold` to a value of the site file, which errors call `site_file`; a value that does
    not fit is an error, and the rule keeps its own. FileNotFoundError when a folder does not exist.
    """
    rules: dict[str, Rule] = {}
    errors: list[RuleError] = []
    refused: dict[str, str] = {}
    unread: set[str] = set()
    digest = hashlib.sha256()
    for folder in folders:
        here: dict[str, str] = {}
        for file in read_folder(folder, overrides or {}, shape=not _is_built_in(folder)):
            digest.update(f"{file.name}\0{file.text}\0".encode())
            errors += file.errors
            if file.rule is None:
                unread.add(file.claimed_id)
                continue
            if file.rule.id in here:
                errors.append(RuleError(str(file.path), 1, 1, f"{file.rule.id} is also in {here[file.rule.id]}"))
                continue
            here[file.rule.id] = str(file.path)
            rules[file.rule.id] = file.rule
            refused.update(file.refused)
    known = {f"{rule.id}.{threshold.name}" for rule in rules.values() for threshold in rule.thresholds}
    for name in overrides or {}:
        if name not in known and name.rpartition(".")[0] not in unread:
            refused[name] = f"no rule has this threshold{did_you_mean(name, known)}"
    errors += [RuleError(site_file, 0, 0, f'thresholds."{name}": {why}') for name, why in refused.items()]
    overridden = tuple(sorted(known.intersection(overrides or {}) - refused.keys()))
    chosen = tuple(rules[name] for name in sorted(rules) if rules[name].status in statuses)
    return Rulebook(chosen, tuple(errors), digest.hexdigest(), overridden)


def _is_built_in(folder: Path) -> bool:
    try:
        return folder.resolve() == packs.builtin("rules").resolve()
    except FileNotFoundError:
        return False
