"""The one file runs on every Python from 3.6 on that is on this machine, and gives a bundle that opens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.collect.pyz import build, program
from tests.collect.support import collect, everything, fake_rank, manifest

VERSIONS = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


def pythons() -> list[Path]:
    """Interpreters that pyenv has, oldest first."""
    found = []
    for folder in VERSIONS.glob("3.*"):
        numbers = tuple(int(n) for n in re.findall(r"\d+", folder.name)[:3])
        if numbers >= (3, 6) and (folder / "bin" / "python").exists():
            found.append((numbers, folder / "bin" / "python"))
    return [path for _, path in sorted(found)]


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dist") / "diagnose-collect.pyz"
    build(str(path), "1.2.3")
    return path


def test_the_same_sources_give_the_same_bytes(one_file: Path):
    assert program("1.2.3") == one_file.read_bytes()
    assert os.access(one_file, os.X_OK) and len(one_file.read_bytes()) < 200_000


@pytest.mark.skipif(not pythons(), reason=f"no Python from 3.6 on below {VERSIONS}")
@pytest.mark.parametrize("python", pythons(), ids=lambda p: p.parent.parent.name)
def test_collects_on_this_python(one_file: Path, python: Path, tmp_path: Path):
    out = tmp_path / "b.tar.gz"
    log = tmp_path / "nccl.log"
    log.write_text("node-a:77:80 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>\nHF_TOKEN=abcdef123456\n")
    rank = fake_rank(tmp_path, RANK="1", WORLD_SIZE="2", NCCL_DEBUG_FILE=str(log))
    try:
        command = [str(python), "-I", "-W", "error", str(one_file), "--quick", "--redact", "--host", "node-a"]
        command += ["--out", str(out), "--pid", str(rank.pid)]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)
    finally:
        rank.kill()
        rank.wait()
    assert done.returncode in (0, 3), done.stderr
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
    made = manifest(out)
    assert made["collector"]["python"] == python.parent.parent.name
    assert made["tool"]["version"] == "1.2.3"
    held = everything(out)
    # Whole words: command lines of tests that run beside this one may hold longer ones.
    left = re.findall(rb"(?<![\w.-])(?:abcdef123456|192\.0\.2\.7|node-a)(?![\w.-])", held)
    assert left == []
    verified = subprocess.run([sys.executable, "-m", "diagnose", "verify", str(out)], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout


@pytest.mark.skipif(not (VERSIONS / "2.7.18").is_dir(), reason="no Python 2.7 here")
def test_an_older_python_is_told_so(one_file: Path):
    done = subprocess.run([VERSIONS / "2.7.18" / "bin" / "python", one_file], capture_output=True, text=True)
    assert done.returncode == 1 and "needs Python 3.6 or newer" in done.stderr


def test_as_a_module_too(tmp_path: Path):
    done = subprocess.run([sys.executable, "-m", "diagnose.collect", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and "diagnose-collect" in done.stdout
    assert collect("--help").returncode == 0
