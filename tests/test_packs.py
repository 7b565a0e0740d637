"""Packs: loaded by path, never taken from the working folder or PYTHONPATH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import diagnose
from diagnose import packs

PARSER = """
KIND = "{kind}"
TOPICS = ("host_state",)
def sniff(head, name): return {score}
def parse(lines, source): return ()
"""


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def kinds(*folders: Path) -> dict[str, object]:
    return {module.KIND: module for module in packs.load_parsers(folders)}


def test_the_built_in_packs_lie_beside_the_package() -> None:
    top = Path(diagnose.__file__).resolve().parent.parent
    assert packs.builtin("parsers") == top / "parsers"
    assert packs.builtin("rules") == top / "rules"
    with pytest.raises(FileNotFoundError, match="reinstall"):
        packs.builtin("nothing")


def test_the_pack_inside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "diagnose"
    (package / "parsers").mkdir(parents=True)
    (package.parent / "parsers").mkdir()  # somebody else's top-level package of that name
    monkeypatch.setattr(diagnose, "__file__", str(package / "__init__.py"))
    assert packs.builtin("parsers") == package / "parsers"


def test_built_in_parsers_keep_the_contract() -> None:
    loaded = packs.load_parsers()
    names = [module.KIND for module in loaded]
    assert names == sorted(set(names))
    for module in loaded:
        assert isinstance(module.TOPICS, tuple), module.KIND
        assert module.TOPICS, module.KIND
        if hasattr(module, "sniff_bytes"):
            assert 0.0 <= module.sniff_bytes(b"", "") < 0.5, module.KIND
            assert 0.0 <= module.sniff_bytes(b"nothing of interest\n" * 50, "notes.txt") < 0.5, module.KIND
        else:
            assert 0.0 <= module.sniff("", "") < 0.5, module.KIND
            assert 0.0 <= module.sniff("nothing of interest\n" * 50, "notes.txt") < 0.5, module.KIND
        assert module.__name__.startswith("_diagnose_pack_")
        assert module.__doc__, module.KIND


def test_a_users_folder_adds_and_replaces(tmp_path: Path) -> None:
    write(tmp_path, "mine.py", PARSER.format(kind="mine", score=0.9))
    write(tmp_path, "ethtool/__init__.py", PARSER.format(kind="ethtool", score=0.1) + "from ._part import VALUE\n")
    write(tmp_path, "ethtool/_part.py", "VALUE = 7\n")
    write(tmp_path, "_private.py", "raise RuntimeError('never imported')\n")
    write(tmp_path, "notes.txt", "no parser\n")
    loaded = kinds(tmp_path)
    assert "mine" in loaded
    assert loaded["ethtool"].VALUE == 7  # type: ignore[attr-defined]
    assert len(loaded) == len(kinds()) + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def sniff(:\n", "cannot be loaded"),
        ("import nothing_of_that_name\n", "broken.py cannot be loaded.*nothing_of_that_name"),
        ("KIND = 'x'\nTOPICS = ()\n", "defines no sniff"),
        ("raise SystemExit(3)\n", "cannot be loaded"),
    ],
)
def test_a_broken_parser_is_an_import_error_every_time(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, "broken.py", text)
    for _ in range(2):
        with pytest.raises(ImportError, match=said):
            packs.load_parsers((tmp_path,))


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no parser folder"):
        packs.load_parsers((tmp_path / "gone",))


def test_a_parsers_package_in_the_working_folder_is_never_imported(tmp_path: Path) -> None:
    write(tmp_path, "parsers/__init__.py", "raise RuntimeError('hijacked')\n")
    write(tmp_path, "parsers/ethtool.py", "raise RuntimeError('hijacked')\n")
    code = "from diagnose import packs; print(len(packs.load_parsers()))"
    top = str(Path(diagnose.__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": f"{tmp_path}:{top}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(packs.load_parsers())
