"""The command line of many hosts: what is refused, the dry run, redaction, exit codes."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import fleet_support as support
import pytest

from diagnose import cli
from diagnose.commands.fleet import exit_code, host_arguments
from diagnose.fleet import remote
from diagnose.fleet.visit import Visit

FAKE_SSH = """#!/bin/sh
for last; do :; done
case "$*" in *gpu02*) echo "ssh: connect to host gpu02 port 22: No route to host" >&2; exit 255;; esac
exec sh -c "$last"
"""


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(FAKE_SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--hosts=-oProxyCommand=id"], "no host name"),
        (["--hosts", "node[1-"], "node[1-"),
        (["--hosts", "a", "--pid", "7"], "--pid is for one host"),
        (["--hosts", "a", "--host", "b"], "--host is for one host"),
        (["--hosts", "a", "--out", "-"], "name a file"),
        (["--hosts", "a", "--out", "/nowhere/b.tar.gz"], "no folder"),
        (["--hosts-file", "/nowhere"], "/nowhere"),
        (["--slurm", "1", "--kubernetes", "x"], "do not go together"),
        (["--slurm", "1;id"], "no Slurm job id"),
        (["--hosts", "a", "--python", "x'; id"], "the path of a program"),
        (["--hosts", "a", "--fanout", "0"], "1 to 1024"),
        (["--hosts", "a", "--include", "nonsense"], "the topics are"),
    ],
)
def test_what_is_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["collect", *argv]) == 2
    assert said in capsys.readouterr().err


def test_partial_results_count(fake_ssh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = fake_ssh / "b.tar.gz"
    (fake_ssh / "hosts").write_text("gpu01 slots=8\n# gone\n\ngpu02 slots=8 # cold\n")
    argv = ["collect", "--hosts-file", str(fake_ssh / "hosts"), "--quick", "--include", "host", "--out", str(out)]
    assert cli.main([*argv, "--python", sys.executable]) == 3
    told = capsys.readouterr()
    assert told.out.strip() == str(out)
    assert "1 of 2 hosts" in told.err and "gpu02: ssh: connect to host gpu02 port 22: No route to host" in told.err
    manifest, files = support.contents(out)
    assert {name.partition("/")[0] for name in files} == {"gpu01"}
    assert {h["host"]: h["state"] for h in manifest["hosts"]} == {"gpu01": "arrived", "gpu02": "failed"}
    assert cli.main(["verify", str(out)]) == 0
    assert cli.main([*argv, "--python", sys.executable]) == 2, "nothing is overwritten"


def test_redacted(fake_ssh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = fake_ssh / "b.tar.gz"
    argv = ["collect", "--hosts", "gpu01", "--quick", "--include", "host", "--redact", "--out", str(out)]
    assert cli.main([*argv, "--python", sys.executable, "-q"]) in (0, 3)
    assert capsys.readouterr().out.strip() == str(out)
    manifest, files = support.contents(out)
    assert files
    assert "gpu01" not in json.dumps(manifest) and not [name for name in files if "gpu01" in name]
    assert [p.name for p in fake_ssh.glob("private-*")] == []


def test_dry_run_touches_nothing(fake_ssh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(fake_ssh.rglob("*"))
    assert cli.main(["collect", "--hosts", "gpu[01-03]", "--dry-run", "--quick"]) == 0
    told = capsys.readouterr().out
    assert told.count("run: ssh ") == 3 and "gpu03: collect --quick" in told
    assert sorted(fake_ssh.rglob("*")) == before


def test_options_for_the_hosts() -> None:
    from diagnose.collect.options import from_arguments

    words = ["--include", "gpu,net", "--exclude", "lspci", "--log", "/l/a b", "--since", "2026-11-24T09:00Z", "--quick"]
    args = cli.build_parser().parse_args(["collect", "--hosts", "a", *words, "--limit", "40s"])
    assert host_arguments(args, from_arguments(args, "v")) == [
        "--quick", "--limit", "40s", "--log-size", "4m", "--max-size", "1g", "--include", "gpu,net",
        "--exclude", "lspci", "--log", "/l/a b", "--since", "2026-11-24T09:00:00Z",
    ]  # fmt: skip


def test_exit_codes() -> None:
    good = Visit("a", "a", state="arrived", end={"exit": 0})
    less = Visit("b", "b", state="arrived", end={"exit": 3})
    none = Visit("c", "c", state="failed")
    assert [exit_code(v) for v in ([good], [good, less], [good, none], [none], [])] == [0, 3, 3, 2, 2]


def test_the_far_end_keeps_to_old_python() -> None:
    text = Path(remote.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert imported <= set(sys.stdlib_module_names) and not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert len(support.ssh.far_command()) < 400 and "!" not in support.ssh.far_command()
    assert "\n" not in support.ssh.far_command() and support.ssh.far_command().count("'") == 2


def test_long_messages_are_shortened_for_narrow_lines(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    remote.Talk("gpu01", 300).say("E", said="ü" * 5000, why="x" * 5000, exit=0, sha256="0" * 64)
    line = capfdbinary.readouterr().out
    assert len(line) < 400 and json.loads(line.split(b" ", 3)[3])["exit"] == 0
