"""What a careful reviewer would refuse in a folder of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from diagnose import packs
from diagnose.conditions import names_used
from diagnose.model import SEVERITIES, Rule
from diagnose.rulebook._advice import only_longer_timeouts, step_problems
from diagnose.rulebook._build import RuleError
from diagnose.rulebook._examples import TO_FILL_IN
from diagnose.rulebook._files import RuleFile, read_folder
from diagnose.vocabulary import did_you_mean


def lint(folders: Sequence[Path]) -> list[RuleError]:
    """Errors and warnings of all rule files of the folders, sorted by place. Examples are not run: `run_examples`.

    Rules may also name those of the built-in pack.
    """
    files = [file for folder in folders for file in read_folder(folder, {}, shape=True)]
    found = [error for file in files for error in file.errors]
    built: dict[str, tuple[RuleFile, Rule]] = {}
    for file in files:
        rule = file.rule
        if rule is None:
            continue
        if rule.id in built:
            found.append(_error(file, ("id",), f"{rule.id} is also in {built[rule.id][0].path}"))
        built[rule.id] = (file, rule)
    own = {name: rule for name, (_, rule) in built.items()}
    alone = packs.builtin("rules").resolve() not in (folder.resolve() for folder in folders)
    rules = {**_built_in(), **own} if alone else own
    for file, rule in built.values():
        found += _own(file, rule)
        found += _unfilled(file)
        found += _steps(file)
        found += _explained(file, rule, rules)
        found += _look_alikes(file, rule, rules)
        found += _phases(file, rule, rules)
    return sorted(found)


@cache
def _built_in() -> dict[str, Rule]:
    return {file.rule.id: file.rule for file in read_folder(packs.builtin("rules"), {}, shape=False) if file.rule}


def _error(file: RuleFile, path: tuple[str | int, ...], text: str, *, warning: bool = False) -> RuleError:
    return RuleError(str(file.path), *file.document.place(path), text, "warning" if warning else "error")


def _own(file: RuleFile, rule: Rule) -> Iterator[RuleError]:
    if file.name.rsplit(".", 1)[0] != rule.id:
        yield _error(file, ("id",), f"the file must be {rule.id}.yaml, not {file.name}")
    used = _names(file.document.data)
    for threshold in rule.thresholds:
        if threshold.name not in used:
            yield _error(file, ("thresholds", threshold.name), f"threshold '{threshold.name}' is not used")
    seen = {pattern.kind for pattern in rule.when}
    for n, pattern in enumerate(rule.unless):
        if pattern.kind == "covered":
            yield _error(file, ("unless", n), "coverage is not for rules to ask; it decides what counts as checked")
    if "covered" in seen:
        yield _error(file, ("when",), "coverage is not for rules to ask; it decides what counts as checked")


def _unfilled(file: RuleFile) -> Iterator[RuleError]:
    """One warning where the text of `rules new` still stands."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), file.document.data)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, str) and TO_FILL_IN in part:
            yield _error(file, path, f"'{TO_FILL_IN}' still stands here", warning=True)
            return
        if isinstance(part, Mapping):
            items = cast(Mapping[str, Any], part).items()
        else:
            items = enumerate(cast(list[Any], part)) if isinstance(part, list) else ()
        waiting += [((*path, key), value) for key, value in reversed(list(items))]


def _names(data: Mapping[str, Any]) -> set[str]:
    patterns = [*data["when"].values(), *(data.get("supports") or {}).values(), *(data.get("unless") or ())]
    texts = [pattern.get("where") for pattern in patterns]
    if not isinstance(data["severity"], str):
        texts += [choice.get("when") for choice in data["severity"]]
    return {name for text in texts if text for name in names_used(text)}


def _steps(file: RuleFile) -> Iterator[RuleError]:
    steps: list[dict[str, Any]] = file.document.data["steps"]
    if steps[0]["effect"] != "read-only":
        yield _error(file, ("steps", 0), "the first step must be read-only")
    if all("when" in step for step in steps):
        yield _error(file, ("steps",), "at least one step must hold whatever the facts: without 'when'")
    for n, step in enumerate(steps):
        if step["effect"] != "read-only":
            for needed in ("verify", "rollback"):
                if not step.get(needed):
                    yield _error(file, ("steps", n), f"a {step['effect']} step needs '{needed}'")
        for problem in step_problems(step):
            yield _error(file, ("steps", n), problem)
    for n, entry in enumerate(file.document.data.get("look_alikes") or ()):
        following = {"effect": "read-only", "asked": True, **(entry.get("next") or {"text": ""})}
        for problem in step_problems(following):
            yield _error(file, ("look_alikes", n), problem)
    if only_longer_timeouts(steps):
        yield _error(
            file, ("steps",), "a longer timeout is the only fix; name a cause, or 'allow' the step with a reason"
        )


def _worst(rule: Rule) -> int:
    return min(SEVERITIES.index(choice.severity) for choice in rule.severity)


def _explained(file: RuleFile, rule: Rule, rules: Mapping[str, Rule]) -> Iterator[RuleError]:
    for n, entry in enumerate(rule.explains):
        family = entry.id.removesuffix("*") if entry.id.endswith("/*") else None
        hidden = [r for r in rules.values() if (r.id.startswith(family) if family else r.id == entry.id) and r != rule]
        if not hidden and entry.id != rule.id:
            suggestion = did_you_mean(entry.id, rules)
            yield _error(
                file, ("explains", n), f"explains {entry.id}, which is not in these folders{suggestion}", warning=True
            )
        if entry.id == rule.id:
            yield _error(file, ("explains", n), "a rule cannot explain itself")
        for other in hidden:
            if _worst(other) < _worst(rule):
                worse, own = SEVERITIES[_worst(other)], SEVERITIES[_worst(rule)]
                yield _error(file, ("explains", n), f"would hide {other.id}, which can be {worse}, beneath {own}")
            if any(e.id in (rule.id, f"{rule.family}/*") for e in other.explains):
                yield _error(file, ("explains", n), f"{other.id} explains this rule as well; one must be the cause")


def _look_alikes(file: RuleFile, rule: Rule, rules: Mapping[str, Rule]) -> Iterator[RuleError]:
    for n, entry in enumerate(rule.look_alikes):
        if entry.id == rule.id:
            yield _error(file, ("look_alikes", n), "a rule cannot look like itself")
        elif entry.id not in rules:
            text = f"look-alike {entry.id} is not in these folders{did_you_mean(entry.id, rules)}"
            yield _error(file, ("look_alikes", n), text, warning=True)


def _phases(file: RuleFile, rule: Rule, rules: Mapping[str, Rule]) -> Iterator[RuleError]:
    reads = {pattern.kind for pattern in (*rule.when, *rule.supports, *rule.unless)}
    for other in rules.values():
        for kind in sorted({d.kind for d in other.derives} & reads):
            if other.phase >= rule.phase:
                text = f"reads {kind}, which {other.id} derives in phase {other.phase}: set phase: {other.phase + 1}"
                yield _error(file, ("phase",), text)
