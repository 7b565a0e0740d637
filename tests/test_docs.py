"""Every shell block of the guides is executed: in order, in a fresh folder, with doubles for whatever needs a network.

A block stands between fences. A comment above it, `<!-- test: … -->`, may say how it is tested: `tmux "TEXT"` (each
line is started in a terminal of its own and left with `q` once TEXT is on the screen), `needs PROGRAM`, `may exit 1`,
or `the test command itself` (read, not run). Any other words only explain the double. `pip` asks no index, and for `.`
it takes the wheel of this checkout; `pipx`, `uv`, `uvx`, `podman` and `kubectl` are scripts that check what they are
asked.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import diagnose

TOP = Path(diagnose.__file__).resolve().parent.parent
DOCS = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (TOP / "docs").glob("*.md")))
SHELLS = ("sh", "bash")
OTHERS = ("text", "yaml", "toml", "dockerfile", "zsh", "json")
SECONDS = 40.0

pytestmark = pytest.mark.skipif(not (TOP / "dev.py").is_file(), reason="needs the checkout")


@dataclass(frozen=True)
class Block:
    """One fenced block with the comment above it; `line` is where its text starts."""

    language: str
    text: str
    marker: str
    line: int


_BLOCK = re.compile(r"(?:^<!-- test: (?P<marker>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(doc: str) -> list[Block]:
    text = (TOP / doc).read_text("utf-8")
    return [
        Block(m["language"], m["text"], m["marker"] or "", text.count("\n", 0, m.start("text")) + 1)
        for m in _BLOCK.finditer(text)
    ]


# --- the place where they run ------------------------------------------------------------------------------

LISTED = """#!{python}
import os, subprocess, sys
name, args = os.path.basename(sys.argv[0]), sys.argv[1:]
if name == "kubectl":
    assert args[:1] == ["logs"] and len(args) == 2, args
    sys.stdout.write(open("{log}", encoding="utf-8", errors="replace").read())
elif name == "pipx":
    assert args == ["install", "."], args
elif name == "uv":
    assert args == ["tool", "install", "."], args
elif name == "uvx":
    assert args[:3] == ["--from", ".", "diagnose"], args
    sys.exit(subprocess.run(args[2:]).returncode)
elif name == "podman" and args[0] == "build":
    assert args == ["build", "-t", "diagnose", "."] and os.path.isfile("Containerfile"), args
else:
    assert args[0] == "run" and "--network" in args and args[args.index("--network") + 1] == "none", args
    if "-v" in args:
        where, inside, how = args[args.index("-v") + 1].split(":")
        assert (inside, how) == ("/evidence", "ro"), args
        os.chdir(where)
    sys.exit(subprocess.run(args[args.index("diagnose"):]).returncode)
"""
GUARD = """set -uo pipefail
trap 'code=$?; case "$code:$BASH_COMMAND" in ALLOWED) ;; *) echo "exit $code of: $BASH_COMMAND" >&2; exit 97;; esac' ERR
"""


@dataclass
class Place:
    """A folder that looks like the reader's, with the doubles on PATH."""

    folder: Path
    env: dict[str, str]

    def shell(self, text: str, allowed: str = "[13]:*diagnose*") -> subprocess.CompletedProcess[str]:
        script = GUARD.replace("ALLOWED", allowed) + text
        return subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=240
        )


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package index: a folder with one wheel."""
    out = tmp_path_factory.mktemp("index")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(TOP)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


def dependencies(folder: Path) -> Path:
    """What this environment has installed, without this project and pip: an environment of the reader finds it here."""
    made = folder / "dependencies"
    made.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"_*(?:editable|nccl_diagnose|diagnose|pip|setuptools|pkg_resources|distutils)", entry.name):
            (made / entry.name).symlink_to(entry)
    return made


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    folder, bin_ = tmp_path / "work", tmp_path / "bin"
    evidence = TOP / "fixtures" / "stall-missing-rank"
    logs = sorted(evidence.rglob("*.log"))
    for name in ("logs", "bundle", "evidence", "fixtures/stall-missing-rank"):
        shutil.copytree(evidence, folder / name)
    (folder / "nccl.log").write_bytes(logs[0].read_bytes())
    (folder / "dev.py").symlink_to(TOP / "dev.py")
    shutil.make_archive(str(folder / "bundle"), "gztar", evidence)
    pasted = tmp_path / "pod.log"
    pasted.write_bytes(b"".join(log.read_bytes() for log in logs))
    diagnose_here = f'#!/bin/sh\nPYTHONPATH="{TOP}" exec "{sys.executable}" -m diagnose "$@"\n'
    program(bin_ / "diagnose", diagnose_here)
    dry = 'case "$1" in install) shift; set -- install --dry-run "$@";; esac\n'
    dry += 'for a; do shift; [ "$a" = . ] && a=$(echo "$PIP_FIND_LINKS"/*.whl); set -- "$@" "$a"; done\n'
    program(bin_ / "pip", f'#!/bin/sh\n{dry}exec "{sys.executable}" -m pip "$@"\n')
    for name in ("pipx", "uv", "uvx", "podman", "kubectl"):
        program(bin_ / name, LISTED.format(python=sys.executable, log=pasted))
    made = tmp_path / "venv"
    program(made / "bin" / "diagnose", diagnose_here)
    (made / ".lock-installed").write_bytes((TOP / "requirements-dev.lock").read_bytes())
    env = {
        **os.environ, "HOME": str(tmp_path / "home"), "PATH": f"{bin_}:{os.environ['PATH']}",
        "PYTHONPATH": str(dependencies(tmp_path)),
        "DIAGNOSE_VENV": str(made), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    (tmp_path / "home").mkdir()
    if any("pip" in block.text for block in blocks(request.getfixturevalue("doc"))):
        env["PIP_FIND_LINKS"] = str(request.getfixturevalue("index"))
    yield Place(folder, env)


# --- the blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("doc", DOCS)
def test_shell_blocks_work(doc: str, place: Place):
    for block in blocks(doc):
        where = f"{doc}:{block.line}"
        if block.language == "dockerfile":
            (place.folder / "Containerfile").write_text(block.text)
        if block.language not in SHELLS:
            continue
        needed = re.match(r"needs (\w+)", block.marker)
        if block.marker == "the test command itself" or (needed and not shutil.which(needed[1])):
            assert os.environ.get("DIAGNOSE_NO_SKIP") != "1" or not needed, f"{where}: needs {needed and needed[1]}"
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
            assert done.returncode == 0, f"{where}: {done.stderr}"
        elif block.marker.startswith("tmux "):
            for line in block.text.splitlines():
                on_a_terminal(line, shlex.split(block.marker)[1], place, where)
        else:
            done = place.shell(block.text, "[13]:*" if block.marker == "may exit 1" else "[13]:*diagnose*analyze*")
            assert done.returncode in (0, 1, 3), f"{where}: {done.stderr[-1500:]}"
            assert "Traceback" not in done.stderr, f"{where}: {done.stderr[-1500:]}"


def on_a_terminal(line: str, wanted: str, place: Place, where: str) -> None:
    """Start a line under tmux, wait for a text, press q; it must end with 0."""
    if shutil.which("tmux") is None:
        assert os.environ.get("DIAGNOSE_NO_SKIP") != "1", f"{where}: needs tmux"
        return
    socket, code = place.folder / "tmux.socket", place.folder / "code"
    code.unlink(missing_ok=True)
    script = place.folder / "line.sh"
    script.write_text(f"{line}\necho $? > {code}\nsleep 30\n")

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-S", str(socket), "-f", "/dev/null", *arguments]
        env = {k: v for k, v in place.env.items() if k not in ("TMUX", "COLUMNS", "LINES")}
        return subprocess.run(command, cwd=place.folder, env=env, capture_output=True, text=True).stdout

    tmux("new-session", "-d", "-x", "120", "-y", "36", "bash", str(script))
    try:
        end = time.monotonic() + SECONDS
        while wanted not in (shown := tmux("capture-pane", "-p")):
            assert time.monotonic() < end and not code.exists(), f"{where}: {line}\n{shown}"
            time.sleep(0.1)
        tmux("send-keys", "q")
        while not code.exists() or not code.read_text().strip():
            assert time.monotonic() < end, f"{where}: {line} does not end with q"
            time.sleep(0.1)
        assert code.read_text().strip() in ("0", "1"), f"{where}: {line}"
    finally:
        tmux("kill-server")


@pytest.mark.parametrize("doc", DOCS)
def test_every_block_says_its_language(doc: str):
    for block in blocks(doc):
        assert block.language in (*SHELLS, *OTHERS), f"{doc}:{block.line}: ```{block.language}"


@pytest.mark.parametrize("doc", DOCS)
def test_no_command_hides_outside_a_fence(doc: str):
    text = _BLOCK.sub(lambda m: "\n" * m[0].count("\n"), (TOP / doc).read_text("utf-8"))
    indented = re.findall(r"(?:^|\n)\n    (?![-*\d])\S.*", text)
    assert indented == []


@pytest.mark.parametrize("doc", DOCS)
def test_links_lead_somewhere(doc: str):
    text = (TOP / doc).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert re.match(r"https?://", target) or ((TOP / doc).parent / target).exists(), target


def test_containerfile_commands_are_shell():
    found = [b for b in blocks("docs/install.md") if b.language == "dockerfile"]
    assert len(found) == 1
    for line in found[0].text.splitlines():
        if line.startswith("RUN "):
            done = subprocess.run(["bash", "-n"], input=line[4:], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    assert re.findall(r"^ENTRYPOINT (.*)$", found[0].text, re.M) == ['["diagnose"]']


# --- what the guides say of other files ---------------------------------------------------------------------


def test_requirements_written_out_are_those_of_the_project():
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    without_engine = {re.sub(r"\s*;.*", "", d) for d in project["dependencies"] if "durable" not in d}
    (line,) = re.findall(r"^pip install ('.*)$", (TOP / "docs/install.md").read_text("utf-8"), re.M)
    assert set(shlex.split(line)) == without_engine
    assert project["name"] == "nccl-diagnose"


def test_nothing_is_installed_from_an_index_by_our_name():
    for doc in DOCS:
        for block in blocks(doc):
            for line in block.text.splitlines():
                local = "nccl-diagnose" not in line or "--no-index" in line or "uninstall" in line
                assert local, f"{doc}:{block.line}: {line}"


def test_the_flag_for_new_pythons_is_that_of_the_setup():
    guide, setup = ((TOP / name).read_text("utf-8") for name in ("docs/install.md", "dev.py"))
    (flag,) = re.findall(r"CPPFLAGS=(\S+) pip install (?:durable-rules==\S+)", guide)
    assert f'"{flag}"' in setup
    assert re.findall(r"durable-rules==([\d.]+)", guide) == re.findall(r"durable-rules==([\d.]+)", setup)


def test_the_sample_of_a_report_is_what_the_command_prints() -> None:
    (sample,) = [b for b in blocks("docs/reports.md") if b.language == "text"]
    command = [sys.executable, "-m", "diagnose", "analyze", "stall-late-rank", "-q"]
    said = subprocess.run(command, cwd=TOP / "fixtures", capture_output=True, text=True, timeout=SECONDS)
    assert said.stdout.splitlines()[:3] == sample.text.splitlines()
