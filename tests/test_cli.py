"""The command line: exit codes, where output goes, and what a start costs."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose import cli, run
from diagnose.commands import analyse, output
from diagnose.model import Diagnosis, Problem
from diagnose.report.jsonform import from_json, to_json
from tests.report.sample import QUIET, SAMPLE

CLEAN = replace(QUIET, unknowns=())


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Lets `analyse` answer with `answer['diagnosis']`; what it was asked lies in `answer` afterwards."""
    told: dict[str, Any] = {"diagnosis": SAMPLE}

    def analyse(paths: Sequence[str], options: run.Options, on_progress: object = None) -> Diagnosis:
        told.update(paths=list(paths), options=options)
        if isinstance(told["diagnosis"], BaseException):
            raise told["diagnosis"]
        return told["diagnosis"]

    monkeypatch.setattr(run, "analyse", analyse)
    return told


def python(code: str, *arguments: str, **extra: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, **extra)


def diagnose(*arguments: str, **extra: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "diagnose", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **extra)


# --- exit codes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [("critical", 1), ("major", 1), ("minor", 1), ("info", 1), ("never", 3)],
)
def test_findings_decide_first(answer: dict[str, Any], fail_on: str, code: int):
    assert cli.main(["analyze", "x", "--fail-on", fail_on]) == code


def test_fail_on_looks_at_the_severity(answer: dict[str, Any]):
    answer["diagnosis"] = replace(CLEAN, findings=(SAMPLE.findings[2],))
    assert cli.main(["analyze", "x"]) == 0
    assert cli.main(["analyze", "x", "--fail-on", "minor"]) == 1


def test_acknowledged_findings_do_not_fail(answer: dict[str, Any]):
    answer["diagnosis"] = replace(CLEAN, findings=(SAMPLE.findings[3],))
    assert cli.main(["analyze", "x", "--fail-on", "info"]) == 0


def test_nothing_found_and_all_read(answer: dict[str, Any]):
    answer["diagnosis"] = QUIET
    assert cli.main(["analyze", "x"]) == 0


def test_something_failed(answer: dict[str, Any]):
    answer["diagnosis"] = replace(CLEAN, problems=(Problem("line is torn", "s1", 3, 3),))
    assert cli.main(["analyze", "x"]) == 3
    answer["diagnosis"] = replace(CLEAN, sources=(replace(CLEAN.sources[0], status="error"),))
    assert cli.main(["analyze", "x"]) == 3


def test_an_answer_of_the_stand_in_is_no_failure(answer: dict[str, Any]):
    answer["diagnosis"] = replace(CLEAN, problems=(SAMPLE.problems[1],))
    assert cli.main(["analyze", "x"]) == 0


def test_nothing_analysed(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    answer["diagnosis"] = run.NothingAnalysed("no source of a known kind")
    assert cli.main(["analyze", "x", "--format", "json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "no source of a known kind" in err


def test_interrupted(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    answer["diagnosis"] = KeyboardInterrupt()
    assert cli.main(["analyze", "x"]) == 130
    assert capsys.readouterr().out == ""


def test_internal_errors_are_said_in_one_line(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    answer["diagnosis"] = RuntimeError("boom\x1b[31m")
    assert cli.main(["analyze", "x"]) == 2
    err = capsys.readouterr().err
    assert "internal error: RuntimeError: boom" in err and "--debug" in err and "\x1b" not in err
    with pytest.raises(RuntimeError):
        cli.main(["analyze", "x", "--debug"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze"], ["nonsense"], ["analyze", "x", "--format", "pdf"], ["analyze", "x", "--fail-on", "all"],
        ["collect", "--include", "gpus"], ["collect", "--since", "yesterday"], ["verify", "/no/such/file"],
        ["redact", "/no/such/file"], ["collect", "--out", "/no/such/folder/x"],
        ["analyze", "x", "--tz", "Europe/Belrin"], ["analyze", "x", "--jobs", "0"],
        ["analyze", "x", "--rules", "/no/such/folder"], ["analyze", "x", "--parsers", "/no/such/folder"],
        ["analyze", "x", "--site", "/no/such/file"], ["analyze", "x", "-o", "/no/such/folder/x"],
        ["analyze", "x", "-o", "/"], ["analyze", "x", "-o", "x.pdf"], ["report", "x", "-o", "x.pdf"],
        ["explain", "gpu/application-fault", "-o", "x.json"],
        ["analyze", "x", "--form", "json"], ["report", "/no/such/file"], ["schema", "nonsense"], ["rules"],
        ["explain", "no/such-rule-at-all"], ["rules", "lint", "/no/such/folder"], ["rules", "lint", "/proc/sys/net"],
        ["view"],
    ],
)  # fmt: skip
def test_usage_errors(answer: dict[str, Any], arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "\ndiagnose" in "\n" + err and "paths" not in answer


def test_hints(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "nccl.log").touch()
    cli.main([str(tmp_path / "nccl.log")])
    assert "did you mean: diagnose analyze" in capsys.readouterr().err
    cli.main(["analyse", "x"])
    assert "did you mean 'analyze'" in capsys.readouterr().err
    cli.main(["analyze", "x", "--tz", "Europe/Belrin"])
    assert "did you mean 'Europe/Berlin'" in capsys.readouterr().err


# --- options and output -----------------------------------------------------------------------------


def test_options_reach_the_analysis(answer: dict[str, Any], tmp_path: Path):
    site = tmp_path / "site.toml"
    site.touch()
    folder = str(tmp_path)
    arguments = ["--rules", folder, "--parsers", folder, "--site", str(site), "--tz", "Asia/Shanghai", "--lang", "zh"]
    cli.main(["analyze", "a", "b", *arguments, "--jobs", "3", "--drafts"])
    assert answer["paths"] == ["a", "b"]
    assert answer["options"].today is not None
    assert replace(answer["options"], today=None) == run.Options(
        rules=(tmp_path,), parsers=(tmp_path,), site=site, tz="Asia/Shanghai", lang="zh", drafts=True, jobs=3
    )


def test_stdout_holds_the_report_only(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    cli.main(["analyze", "-", "--format", "json"])
    out, err = capsys.readouterr()
    assert out == to_json(SAMPLE) and err == ""
    assert cli.main(["analyze", "x", "--format", "json", "--fail-on", "never"]) == 3
    assert json.loads(capsys.readouterr().out)["schema"] == "diagnose.report/1"


@pytest.mark.parametrize(
    ("name", "start"), [("r.json", "{"), ("r.html", "<!doctype"), ("r.md", "## "), ("r.txt", "✖ CRITICAL")]
)
def test_output_file(answer: dict[str, Any], tmp_path: Path, name: str, start: str, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / name
    target.write_text("old")
    target.chmod(0o640)
    assert cli.main(["analyze", "x", "-o", str(target)]) == 1
    assert target.read_text("utf-8").startswith(start) and target.stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().out == "" and [p.name for p in tmp_path.iterdir()] == [name]


def test_old_output_stays_when_writing_fails(
    answer: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    target = tmp_path / "r.json"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["analyze", "x", "-o", str(target)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert target.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_output_to_a_device(answer: dict[str, Any]):
    assert cli.main(["analyze", "x", "-o", "/dev/null"]) == 1
    assert Path("/dev/null").is_char_device()


def test_quiet_is_the_verdict(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    cli.main(["analyze", "x", "-q"])
    assert len(capsys.readouterr().out.splitlines()) <= 10


@pytest.mark.parametrize("kind", ["text", "markdown", "html", "json"])
def test_saved_reports_render_alike(
    answer: dict[str, Any], tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
):
    saved = tmp_path / "r.json"
    cli.main(["analyze", "x", "-o", str(saved)])
    cli.main(["analyze", "x", "--format", kind])
    first = capsys.readouterr().out
    assert cli.main(["report", str(saved), "--format", kind]) == 0
    assert capsys.readouterr().out == first


def test_report_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "x.json"
    for content in (b"{}", b"\xff\xfe\x00", b'{"schema": "diagnose.report/9"}'):
        other.write_bytes(content)
        assert cli.main(["report", str(other)]) == 2
    assert "diagnose.report/1" in capsys.readouterr().err


def test_newest_bundle(tmp_path: Path):
    assert analyse.newest_bundle(tmp_path) is None
    for age, name in ((300, "diagnose-a.tar.gz"), (200, "b/manifest.json"), (100, "other.tar.gz")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (1_700_000_000 - age,) * 2)
        os.utime(path.parent, (1_700_000_000 - age,) * 2)
    assert analyse.newest_bundle(tmp_path) == tmp_path / "b"


def test_without_arguments_short_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert "diagnose analyze nccl.log" in out and len(out.splitlines()) < 20


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]):
    for command in ("analyze", "view", "report", "collect", "verify", "redact", "explain", "rules lint", "rules new"):
        assert cli.main([*command.split(), "--help"]) == 0
        assert "usage: diagnose " + command in capsys.readouterr().out


@pytest.mark.parametrize("name", cli.SCHEMAS)
def test_schemas_are_printed(name: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["schema", name]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].endswith("2020-12/schema")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, quiet: bool):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with output.progress(argparse.Namespace(quiet=quiet)) as show:
        show(run.Progress("parse", "logs/\x1b[31mnccl.log", 3, 9))
    if quiet:
        assert screen.getvalue() == ""
    else:
        assert "4/9 logs/\\x1b[31mnccl.log" in screen.getvalue() and screen.getvalue().endswith("\r\x1b[K")


def test_colour_follows_the_terminal(monkeypatch: pytest.MonkeyPatch):
    args = argparse.Namespace(output=None, lang="en", verbose=False, quiet=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in output.render(SAMPLE, "text", args)
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b[" in output.render(SAMPLE, "text", args)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in output.render(SAMPLE, "text", args)


# --- rules ------------------------------------------------------------------------------------------


def test_rules_of_a_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = str(tmp_path / "mine")
    Path(folder).mkdir()
    assert cli.main(["rules", "new", "site/slow-switch", "--folder", folder]) == 0
    path = capsys.readouterr().out.strip()
    assert Path(path).is_file()
    assert cli.main(["rules", "lint", folder]) == 0
    assert cli.main(["rules", "test", folder]) == 1
    capsys.readouterr()
    text = Path(path).read_text("utf-8")
    Path(path).write_text(text.replace("severity:", "sverity:"), "utf-8")
    assert cli.main(["rules", "lint", folder]) == 1
    assert ".yaml:" in capsys.readouterr().out
    assert cli.main(["rules", "new", "no family", "--folder", folder]) == 2


def test_explain_is_the_page(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["rules", "list", "--format", "json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert rules
    for form in ("text", "markdown"):
        assert cli.main(["explain", rules[0]["id"], "--format", form]) == 0
        page = capsys.readouterr().out
        assert rules[0]["id"] in page
    assert page.startswith("# ")


# --- fresh interpreters -----------------------------------------------------------------------------

ALLOWED = """
import sys
before = set(sys.modules)
from diagnose.cli import main
code = main(sys.argv[1:])
new = set(sys.modules) - before
print(sorted(m for m in new if m.split(".")[0] not in {"diagnose", *sys.stdlib_module_names}), file=sys.stderr, end=" ")
print(sorted(m for m in new if m.startswith("diagnose.")), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["analyze", "--help"], ["rules", "lint", "--help"]])
def test_help_and_version_import_nothing_else(arguments: list[str]):
    done = python(ALLOWED, *arguments)
    assert done.returncode == 0
    assert done.stderr.strip() == "[] ['diagnose.cli']"


def test_saved_reports_need_no_heavy_imports(tmp_path: Path):
    saved = tmp_path / "r.json"
    saved.write_text(to_json(SAMPLE), "utf-8")
    done = python(ALLOWED, "report", str(saved))
    assert done.returncode == 0 and done.stderr.startswith("[] [")
    done = python(ALLOWED, "report", str(saved), "--format", "html")
    assert not any(name in done.stderr for name in ("textual", "pandas", "durable", "yaml", "pyparsing", "jsonschema"))


def test_closed_pipe_is_quiet(tmp_path: Path):
    saved = tmp_path / "r.json"
    many = replace(SAMPLE, problems=tuple(Problem(f"problem {i}") for i in range(50_000)))
    saved.write_text(to_json(many), "utf-8")
    command = f"{sys.executable} -m diagnose report {saved} --format json | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and done.stdout == "{\n0\n"


@pytest.mark.parametrize("command", ["diagnose collect --dry-run", "diagnose.collect --dry-run"])
def test_a_closed_pipe_is_no_error_of_a_dry_run(command: str):
    shell = f"{sys.executable} -m {command} | {{ exec 0<&-; sleep 4; }}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_closed_pipe_changes_no_exit_code(tmp_path: Path):
    manifest = {"schema": "diagnose.manifest/1", "files": [{"path": "gone.txt", "sha256": "0" * 64}]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    shell = f"{sys.executable} -m diagnose verify {tmp_path} | {{ exec 0<&-; sleep 3; }}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_an_ending_that_tells_no_form_needs_format(
    answer: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    target = tmp_path / "x.pdf"
    assert cli.main(["analyze", "x", "-o", str(target)]) == 2 and not target.exists()
    said = capsys.readouterr().err
    assert "unknown ending '.pdf'" in said and all(e in said for e in (".txt", ".md", ".html", ".json", "--format"))
    assert cli.main(["analyze", "x", "-o", str(target), "--format", "text"]) == 1 and target.exists()
    assert cli.main(["analyze", "x", "-o", str(tmp_path / "report")]) == 1


def test_a_page_of_a_rule_is_what_the_name_ends_in(tmp_path: Path):
    assert cli.main(["explain", "gpu/application-fault", "-o", str(tmp_path / "x.md")]) == 0
    assert (tmp_path / "x.md").read_text("utf-8").startswith("#")


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_path_that_is_not_there_is_said_on_stderr(
    answer: dict[str, Any], tmp_path: Path, quiet: list[str], capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "a.txt").write_text("x")
    assert cli.main(["analyze", str(tmp_path / "a.txt"), str(tmp_path / "nope.txt"), *quiet]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/nope.txt: no such file or folder" in line


def test_other_encodings_survive(tmp_path: Path):
    saved = tmp_path / "r.json"
    saved.write_text(to_json(SAMPLE), "utf-8")
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = diagnose("report", str(saved), env=latin, encoding="latin-1")
    assert done.returncode == 0 and done.stdout.startswith("x CRITICAL")
    done = diagnose("report", str(saved), "--format", "json", env=latin)
    assert done.stdout == saved.read_text("utf-8")


def test_same_bytes_from_two_processes(tmp_path: Path):
    saved = tmp_path / "r.json"
    saved.write_text(to_json(from_json(to_json(SAMPLE))), "utf-8")
    outputs = {
        diagnose("report", str(saved), "--format", "json", env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert outputs == {saved.read_text("utf-8")}


def test_version_tells_what_is_in_force():
    done = diagnose("--version", "-v")
    assert done.returncode == 0
    for word in ("diagnose ", "engine ", "parsers ", "rules ", "site file "):
        assert f"\n{word}" in "\n" + done.stdout


@pytest.mark.parametrize("command", ["--version", "schema facts", "rules list", "analyze {log}"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_in_one_line(command: str, tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("n1:1:2 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.1<0>\n")
    words = [sys.executable, "-m", "diagnose", *command.format(log=log).split()]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr == "diagnose: cannot write: No space left on device\n"


def test_closed_streams_change_no_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("n1:1:2 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.1<0>\n")
    words = f"exec '{sys.executable}' -m diagnose analyze '{log}' --fail-on never"
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        ended = subprocess.run(["sh", "-c", f"{words} {closed}"], capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (0, ""), closed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_leave_nothing_behind(number: signal.Signals, code: int, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "diagnose", "analyze", "-"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}

    def heed() -> None:  # whoever runs the tests in the background may have it ignored
        signal.signal(number, signal.SIG_DFL)

    piped = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=env, preexec_fn=heed, **piped) as process:
        until = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(1)  # by now it waits for its input
        process.send_signal(number)
        assert process.wait(60) == code
        assert process.stderr and "Traceback" not in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_marks_have_a_plain_form_where_the_terminal_lacks_them() -> None:
    assert output._encoded("● MAJOR … 5 °C", "utf-8") == "● MAJOR … 5 °C".encode()
    assert output._encoded("● MAJOR … 東", "ascii") == b"* MAJOR ... \\u6771"


def test_an_endless_report_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(analyse, "MAX_REPORT", 1 << 20)
    assert cli.main(["report", "/dev/zero"]) == 2
    assert capsys.readouterr() == ("", "diagnose: /dev/zero: more than 1 MiB are no report\n")


@pytest.mark.parametrize("zone", ["+02:00", "-0930", "UTC", "Asia/Kolkata"])
def test_zones_are_names_or_offsets(zone: str) -> None:
    analyse._check_zone(zone)
