"""The wheel: what is in it, and that it works from a folder that holds hostile packages of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import diagnose

TOP = Path(diagnose.__file__).resolve().parent.parent
EVIDENCE = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
"""

pytestmark = pytest.mark.skipif(not (TOP / "pyproject.toml").is_file(), reason="needs the checkout")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(TOP)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def hostile(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where the wheel lies unpacked, and a working folder with packages that must never be imported."""
    installed = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    folder = tmp_path_factory.mktemp("work")
    for name in ("parsers", "rules", "fixtures", "tests", "tools", "benchmarks"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise SystemExit('imported a foreign {name}')\n")
        (folder / name / "nccl_log.py").write_text("raise SystemExit('imported a foreign parser')\n")
    (folder / "rules" / "bad.yaml").write_text("id: [")
    (folder / "topo.txt").write_text(EVIDENCE)
    return installed, folder


def call(where: tuple[Path, Path], *arguments: str, more: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    installed, folder = where
    path = os.pathsep.join(str(p) for p in (installed, *more))
    environment = {**os.environ, "PYTHONPATH": path, "XDG_CONFIG_HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "diagnose", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_wheel_holds_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    version = diagnose.__version__
    info, data = f"nccl_diagnose-{version}.dist-info", f"nccl_diagnose-{version}.data"
    assert {name.split("/")[0] for name in names} == {"diagnose", info, data}
    shared = {name.removeprefix(data + "/data/") for name in names if name.startswith(data)}
    assert shared == {
        "share/man/man1/diagnose.1", "share/bash-completion/completions/diagnose", "share/zsh/site-functions/_diagnose",
    }  # fmt: skip
    assert not [name for name in names if name.endswith(".pyc") or "__pycache__" in name or "/." in name]


def test_wheel_holds_every_file_of_the_packs(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for pack, pattern in (("parsers", "*.py"), ("rules", "*.yaml")):
        wanted = {f"diagnose/{p.relative_to(TOP).as_posix()}" for p in (TOP / pack).rglob(pattern)}
        assert wanted <= names
    for name in ("report", "facts", "rule", "manifest", "site"):
        assert f"diagnose/{name}.schema.json" in names
    assert {
        "diagnose/report/templates/report.html.j2",
        "diagnose/report/templates/report.css",
        "diagnose/py.typed",
    } <= names


def test_version_from_a_hostile_folder(hostile: tuple[Path, Path]):
    done = call(hostile, "--version", "-v")
    assert done.returncode == 0, done.stderr
    assert f"{hostile[0]}/diagnose/parsers" in done.stdout and f"{hostile[0]}/diagnose/rules" in done.stdout
    assert "foreign" not in done.stdout + done.stderr


def test_analysis_from_a_hostile_folder(hostile: tuple[Path, Path]):
    done = call(hostile, "analyze", "topo.txt", "--format", "json", "--fail-on", "never", more=(hostile[1],))
    assert done.returncode in (0, 3), done.stderr
    report = json.loads(done.stdout)
    assert report["sources"][0]["kinds"] == ["nvidia_smi_topo"]
    assert report["tool"]["rules"]["count"] > 0
    assert str(hostile[1]) not in done.stdout


def test_reports_of_the_wheel(hostile: tuple[Path, Path]):
    for kind in ("text", "markdown", "html"):
        done = call(hostile, "analyze", "topo.txt", "--format", kind, "--fail-on", "never")
        assert done.returncode in (0, 3) and done.stdout, done.stderr


def test_schemas_of_the_wheel(hostile: tuple[Path, Path]):
    for name in ("report", "facts", "rule", "manifest", "site"):
        assert json.loads(call(hostile, "schema", name).stdout)


def test_lock_is_of_this_project():
    lock = (TOP / "requirements-dev.lock").read_text("utf-8")
    for name in ("textual", "pyparsing", "pandas", "hatchling", "editables", "shtab", "pytest", "ruff"):
        assert f"\n{name}==" in lock
    assert "nvidia-" not in lock and "cuda" not in lock
