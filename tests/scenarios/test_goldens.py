"""Whole bundles through the whole chain: who is blamed, on what evidence, in which words, and who is left alone.

Every scenario is stored in `fixtures/`, what is expected of it in `expected/`, and it is made once more with somebody
else guilty: the same must be said of them, and line 1 must change. `PYTHONPATH=tests/scenarios python -m forge` writes
the stored ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from forge import SCENARIOS, make

from diagnose.commands.analyse import exit_code
from diagnose.model import SEVERITIES, Diagnosis
from diagnose.report import jsonform, text
from diagnose.run import Options, analyse

FIXTURES = Path(__file__).parents[2] / "fixtures"
EXPECTED = Path(__file__).parent / "expected"
COUNTED = SEVERITIES[: SEVERITIES.index("minor") + 1]
MAX_STORED = 300_000
DIRT: dict[str, Callable[[int, int, str], str]] = {
    "srun -l, CRLF": lambda task, n, line: f"{task}: {line}\r\n",
    "kubectl --timestamps": lambda task, n, line: f"2026-01-02T03:04:{n % 60:02d}.{n:09d}Z {line}\n",
    "colours": lambda task, n, line: f"\x1b[2m{line[:7]}\x1b[0m{line[7:]}\x1b[K\n",
    "line numbers": lambda task, n, line: f"{n:6d}\t{line}\n",
}
"""How a line of a log arrives: (number of the file, number of the line, line) -> what is stored."""
SICK = sorted(name for name in SCENARIOS if not name.startswith("healthy-"))


class Said:
    """What the program says of one bundle, as a reader of its reports sees it."""

    def __init__(self, folder: Path, site: str | None) -> None:
        options = Options(site=folder / site if site else FIXTURES / "site" / "none.toml")
        diagnosis: Diagnosis = analyse([str(folder)], options)
        self.report: dict[str, Any] = jsonform.to_data(diagnosis)
        self.exit = exit_code(diagnosis, "major")
        self.text = text.render(diagnosis)
        self.first = self.text.splitlines()[:3]
        self.findings = self.report["findings"]
        self.counted = [f for f in self.findings if f["severity"] in COUNTED]

    def of(self, rule: str) -> list[dict[str, Any]]:
        return [f for f in self.findings if f["id"] == rule]

    def asked(self) -> str:
        wanted = [n["text"] + " " + (n["command"] or "") for f in self.findings for n in f["next_evidence"]]
        return "\n".join([*wanted, *(u["collect"] or "" for u in self.report["unknowns"])])


@cache
def stored(name: str) -> tuple[Said, dict[str, Any]]:
    expected = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text(encoding="utf-8"))
    return Said(FIXTURES / name, expected.get("site")), expected


def check(said: Said, expected: dict[str, Any]) -> None:
    """Everything that `forge.core.Truth` says."""
    ids = [(f["id"], f["role"], f["severity"]) for f in said.counted]
    roots = [f["id"] for f in said.counted if f["role"] != "consequence"]
    consequences = {f["id"] for f in said.counted if f["role"] == "consequence"}
    assert roots == expected["roots"], ids
    missing = set(expected.get("consequences", [])) - {f["id"] for f in said.findings if f["role"] == "consequence"}
    assert not missing, ids
    known = {*expected.get("consequences", []), *expected.get("may", [])}
    assert consequences <= known | set(roots), ids
    for pattern in expected.get("absent", []):
        assert not [f["id"] for f in said.counted if fnmatchcase(f["id"], pattern)], ids
    for rule, subjects in expected.get("subjects", {}).items():
        about = [s for f in said.of(rule) for s in f["subjects"]]
        for kind, names in subjects.items():
            assert sorted({s["name"] for s in about if s["kind"] == kind}) == sorted(names), (rule, about)
    for rule, places in expected.get("evidence", {}).items():
        quoted = [e for f in said.of(rule) for e in f["evidence"]]
        for place in places:
            source, _, line = place.rpartition(":")
            inside = [e for e in quoted if e["source"] == source and e["lines"][0] <= int(line) <= e["lines"][1]]
            assert inside, (rule, place, [(e["source"], e["lines"]) for e in quoted])
    for line, tokens in zip(said.first, expected.get("first", []), strict=False):
        for token in tokens:
            assert any(choice in line for choice in token.split("|")), (token, said.first)
    for name in expected.get("never", []):
        assert name not in said.first[0], said.first
    for token in expected.get("asks", []):
        assert token in said.asked(), (token, said.asked())
    assert said.exit == expected["exit"], (said.exit, said.report["problems"])


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_stored(name: str) -> None:
    said, expected = stored(name)
    check(said, expected)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_stored_is_what_the_generator_writes(name: str, tmp_path: Path) -> None:
    made = make(name)
    made.bundle.write(tmp_path)
    written = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    kept = {str(p.relative_to(FIXTURES / name)): p.read_bytes() for p in (FIXTURES / name).rglob("*") if p.is_file()}
    expected = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text(encoding="utf-8"))
    assert kept == written
    assert expected == yaml.safe_load(yaml.safe_dump(made.truth.as_data()))
    assert sum(map(len, kept.values())) < MAX_STORED


@pytest.mark.parametrize("name", SICK)
def test_somebody_else_guilty(name: str, tmp_path: Path) -> None:
    made = make(name, swapped=True)
    folder = made.bundle.write(tmp_path / name)
    said = Said(folder, made.truth.site)
    check(said, made.truth.as_data())
    if made.truth.roots:
        assert said.first[0] != stored(name)[0].first[0]


@pytest.mark.parametrize("dirt", sorted(DIRT))
@pytest.mark.parametrize("name", [name for name in SICK if name.startswith("stall-")])
def test_the_same_from_dirty_logs(name: str, dirt: str, tmp_path: Path) -> None:
    """Without a manifest, and with logs as launchers, editors and terminals leave them: nothing else is said."""
    made = make(name, swapped=True)
    folder = made.bundle.write(tmp_path / name)
    (folder / "manifest.json").unlink()
    for number, file in enumerate(sorted(folder.rglob("*.log"))):
        lines = file.read_text(encoding="utf-8").splitlines()
        file.write_bytes("".join(DIRT[dirt](number, n, line) for n, line in enumerate(lines, 1)).encode())
    check(Said(folder, made.truth.site), made.truth.as_data())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_engine_answered_itself(name: str) -> None:
    engine = stored(name)[0].report["tool"]["engine"]
    if sys.version_info >= (3, 13) and find_spec("durable") is None:
        pytest.skip("durable-rules could not be built for this Python")
    assert engine.startswith("durable-rules"), engine
