#!/usr/bin/env python3
"""Development commands that set up what they need: `python3 dev.py demo`, `test`, `lint` and more. Stdlib only."""

import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent
VENV = Path(os.environ.get("DIAGNOSE_VENV", TOP / ".venv"))
BIN = VENV / "bin"
# What the stalled job of `e2e` needs; never a dependency of diagnose.
TORCH = ("torch==2.13.0", "numpy", "py-spy>=0.4")
# durable-rules 2.0.28 uses a C function that CPython 3.13 removed; its successor has the same signature.
BUILD_FLAGS = "-DPyEval_CallObject=PyObject_CallObject"


def call(*command):
    """Run a command in the checkout; its exit code ends this script when it fails."""
    done = subprocess.run([str(c) for c in command], cwd=TOP)
    if done.returncode:
        sys.exit(done.returncode)


def setup():
    """Create the virtual environment with the locked dependencies; nothing happens when it is up to date."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an old python3 must get this sentence
        sys.exit("diagnose needs Python 3.11 or newer; this is " + sys.version.split()[0])
    lock = TOP / "requirements-dev.lock"
    stamp = VENV / ".lock-installed"
    if stamp.is_file() and stamp.read_bytes() == lock.read_bytes():
        return
    print("setting up .venv with the locked dependencies; this takes a minute or two", file=sys.stderr, flush=True)
    if not (BIN / "python").exists():
        call(sys.executable, "-m", "venv", VENV)
    pip = (BIN / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    call(*pip, "-r", lock)
    if sys.version_info >= (3, 13):
        engine_on_new_python(pip)
    call(*pip, "--no-deps", "--no-build-isolation", "-e", TOP)
    stamp.write_bytes(lock.read_bytes())


def engine_on_new_python(pip):
    """The rule engine, which the lock leaves out here; without a compiler the reference evaluator stands in."""
    command = [str(c) for c in (*pip, "durable-rules==2.0.28")]
    if subprocess.run(command, cwd=TOP, env={**os.environ, "CPPFLAGS": BUILD_FLAGS}).returncode:
        print("durable-rules could not be built: the reference evaluator answers in its place", file=sys.stderr)


def demo():
    """Analyse a shipped example bundle."""
    setup()
    done = subprocess.run([str(BIN / "diagnose"), "analyze", "fixtures/stall-missing-rank"], cwd=TOP)
    sys.exit(0 if done.returncode in (0, 1) else done.returncode)


def lint():
    """Style, types and room contracts."""
    setup()
    call(BIN / "ruff", "check", ".")
    call(BIN / "pyright")
    call(BIN / "lint-imports")


def pages():
    """Write what is made from the argument tree and the rules: man page, completions, docs/rules."""
    setup()
    call(BIN / "python", "-m", "tools.pages")


def test():
    """Lint, then all tests."""
    lint()
    call(BIN / "python", "-m", "pytest", "-q", "-n", "auto", *sys.argv[2:])


def other():
    """The tests that another Python could break: engine, rules, parsers, tables, scenarios."""
    setup()
    chosen = ["tests/parsers", "tests/tables", "tests/scenarios", "tests/test_engine.py", "tests/test_engine_fuzz.py"]
    chosen += ["tests/test_rulebook.py", "tests/test_conditions.py", "tests/test_bundle.py", "tests/test_findings.py"]
    call(BIN / "python", "-m", "pytest", "-q", "-n", "auto", *chosen)


def pyz():
    """Build dist/diagnose-collect.pyz: the collector as one file for hosts that have nothing but python3 (3.6+)."""
    sys.path.insert(0, str(TOP))
    from diagnose import __version__
    from diagnose.collect.pyz import build

    target = str(TOP / "dist" / "diagnose-collect.pyz")
    build(target, __version__)
    print(target)


def e2e():
    """Collect from a real stalled PyTorch job on this machine; torch goes into a virtual environment of its own."""
    setup()
    python = os.environ.get("DIAGNOSE_TORCH_PYTHON")
    if not python:
        folder = TOP / ".venv-torch"
        python = str(folder / "bin" / "python")
        if not Path(python).exists() or subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
            call(BIN / "python", "-m", "venv", folder)
            call(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *TORCH)
    os.environ["DIAGNOSE_TORCH_PYTHON"] = python
    call(BIN / "python", "-m", "pytest", "-q", "--torch", "-m", "torch", "tests", *sys.argv[2:])


TASKS = {
    "setup": setup, "demo": demo, "lint": lint, "pages": pages, "pyz": pyz, "e2e": e2e, "test": test,
    "other": other,
}  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TASKS:
        sys.exit("usage: python3 dev.py " + "|".join(TASKS))
    TASKS[sys.argv[1]]()
