"""What each room may import, held against fresh interpreters; import-linter holds the same statically (pyproject.toml).

A room is a module or package directly below `diagnose`. A new room needs a line in ROOMS.
"""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

import diagnose
from diagnose import packs

PACKAGE = Path(diagnose.__file__).resolve().parent
FOREIGN = {
    "ClusterShell", "durable", "jinja2", "jsonschema", "numpy", "pandas", "pyparsing", "rich", "textual", "yaml",
}  # fmt: skip

# room -> (rooms it may load, third-party packages it may load); what those load themselves is allowed too
ROOMS: dict[str, tuple[set[str], set[str]]] = {
    "model": (set(), set()),
    "vocabulary": (set(), set()),
    "packs": (set(), set()),
    "units": ({"model"}, set()),
    "logic": ({"model"}, set()),
    "wording": ({"model", "vocabulary"}, set()),
    "parsing": ({"model"}, set()),
    "bundle": ({"model", "packs", "parsing"}, set()),
    "site": ({"model"}, set()),
    "conditions": ({"model", "vocabulary", "units"}, {"pyparsing"}),
    "rulebook": (
        {"model", "vocabulary", "conditions", "reference", "packs", "units", "logic", "wording"},
        {"pyparsing", "yaml", "jsonschema"},
    ),
    "ages": ({"model"}, set()),
    "facts": ({"model", "vocabulary", "ages"}, set()),
    "tables": ({"model"}, {"pandas", "numpy"}),
    "reference": ({"model", "vocabulary", "logic"}, set()),
    "_durable": ({"model", "vocabulary", "logic", "reference"}, {"durable"}),
    "engine": ({"model", "vocabulary", "logic", "reference", "_durable"}, {"durable"}),
    "findings": ({"model", "vocabulary", "reference", "logic", "wording"}, set()),
    "guarded": ({"model", "packs"}, set()),
    "intake": ({"model", "packs"}, set()),
    "cluster": ({"model", "packs", "intake"}, set()),
    "run": ({"model", "packs"}, set()),
    "report": ({"model", "vocabulary"}, {"jinja2", "rich"}),
    "tui": ({"model", "vocabulary", "packs", "run", "report"}, {"textual", "rich", "jinja2"}),
    "cli": ({"model"}, set()),
    "commands": ({"model", "packs", "cli", "report"}, set()),
    "collect": (set(), set()),
    "fleet": ({"model", "collect"}, {"ClusterShell"}),
    "__main__": ({"cli"}, set()),
}

_LOAD_ROOM = """
import importlib, json, pkgutil, sys
room = importlib.import_module("diagnose." + sys.argv[1])
for found in pkgutil.walk_packages(getattr(room, "__path__", []), room.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(json.dumps(sorted(sys.modules)))
"""
_RUN_COMMAND = """
import contextlib, io, json, sys
sys.argv = ["diagnose", *sys.argv[1:]]
from diagnose.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(json.dumps(sorted(sys.modules)))
"""
_LOAD_PARSER = """
import json, sys
from pathlib import Path
from diagnose import packs
packs._load(Path(sys.argv[1]), Path(sys.argv[2]))
print(json.dumps(sorted(sys.modules)))
"""


def rooms() -> list[str]:
    found = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    return sorted(found - {"__init__"} - {"parsers", "rules"})


def fresh(code: str, *arguments: str) -> set[str]:
    """Names of the modules that a new interpreter has loaded after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@functools.cache
def always_there() -> frozenset[str]:
    return frozenset(foreign(fresh("import json, sys; print(json.dumps(sorted(sys.modules)))")))


def foreign(modules: set[str]) -> set[str]:
    return {name.split(".", 1)[0] for name in modules} & FOREIGN


def of_ours(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("diagnose.")}


def test_every_room_has_its_rule() -> None:
    assert [room for room in rooms() if room not in ROOMS] == []


@pytest.mark.parametrize("room", [room for room in rooms() if room in ROOMS and room != "__main__"])
def test_a_room_loads_only_what_it_may(room: str) -> None:
    may, packages = ROOMS[room]
    modules = fresh(_LOAD_ROOM, room)
    assert of_ours(modules) - {room} - may == set()
    assert foreign(modules) - always_there() - packages == set()


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["analyze", "--help"]])
def test_help_and_version_load_nothing_foreign(arguments: list[str]) -> None:
    modules = fresh(_RUN_COMMAND, *arguments)
    assert foreign(modules) - always_there() == set()
    assert not of_ours(modules) & {"run", "bundle", "engine", "tables", "rulebook", "tui"}


def parser_files() -> list[Path]:
    folder = packs.builtin("parsers")
    files = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    return sorted(f for f in files if not f.name.startswith("_") or f.name == "__init__.py")


@pytest.mark.parametrize("file", parser_files(), ids=lambda f: f.parent.name if f.name == "__init__.py" else f.stem)
def test_a_parser_loads_only_the_kit(file: Path) -> None:
    folder = packs.builtin("parsers")
    modules = fresh(_LOAD_PARSER, str(file), str(folder))
    assert of_ours(modules) <= {"model", "parsing", "packs"}
    assert foreign(modules) - always_there() <= {"pyparsing"}
    own = file.parent.name if file.name == "__init__.py" else file.stem
    loaded = {name.split(".")[0].split("_", 4)[-1] for name in modules if name.startswith("_diagnose_pack_")}
    assert loaded == {own}


_FORBIDDEN_CALLS = {"open", "eval", "exec", "compile", "__import__", "input", "print"}
_FORBIDDEN_ATTRIBUTES = {
    ("time", "time"), ("time", "monotonic"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today"),
    ("os", "environ"), ("pickle", "loads"), ("pickle", "load"), ("marshal", "loads"),
}  # fmt: skip
_FORBIDDEN_MODULES = {
    "os",
    "pathlib",
    "pickle",
    "subprocess",
    "socket",
    "marshal",
    "shelve",
    "io",
    "tempfile",
    "random",
}


@pytest.mark.parametrize(
    "file", sorted(packs.builtin("parsers").rglob("*.py")), ids=lambda f: f"{f.parent.name}/{f.name}"
)
def test_parsers_are_pure(file: Path) -> None:
    """No file, no clock, no evaluation of evidence."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in _FORBIDDEN_CALLS, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in _FORBIDDEN_ATTRIBUTES, node.lineno
        elif isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & _FORBIDDEN_MODULES, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").split(".")[0] not in _FORBIDDEN_MODULES, node.lineno
