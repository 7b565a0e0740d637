"""The whole chain on small bundles: order, isolation of failures, options, what a case keeps open."""

from __future__ import annotations

import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from diagnose import engine, facts, intake, packs, reference, rulebook, run, tables
from diagnose.model import Diagnosis, Fact, Source
from diagnose.report.jsonform import to_json
from diagnose.run import NothingAnalysed, Options, Progress

XID = "[  812.000001] NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n"
QUIET = "[  1.000001] Linux version 6.8.0\n[  1.000002] Command line: ro\n[  1.000003] x86/fpu: x87\n"
PARSER = """
from diagnose.model import Record
KIND, TOPICS = "broken", ("kernel_log",)
def sniff(head, name): return 0.9 if head.startswith("%%broken") else 0.0
def parse(lines, source):
    yield Record("clocksource", {"current": "hpet"})
    raise ZeroDivisionError("made for the test")
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_log", ".log").replace("_txt", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "b", n1__dmesg_txt=XID, n2__dmesg_txt=QUIET)


def analyse(*paths: Path | str, **options: Any) -> Diagnosis:
    return run.analyse([str(p) for p in paths], Options(**options))


# --- what comes out -------------------------------------------------------------------------------------


def test_from_a_line_to_a_finding(bundle: Path):
    said = analyse(bundle)
    finding = said.findings[0]
    assert (finding.id, finding.severity) == ("gpu/fallen-off-bus", "critical")
    assert (finding.evidence[0].source, finding.evidence[0].first) == ("n1/dmesg.txt", 1)
    assert {(s.kind, s.name) for s in finding.subjects} == {("host", "n1"), ("gpu", "0000:9b:00")}
    assert [(s.path, s.kinds, s.status) for s in said.sources] == [
        ("n1/dmesg.txt", ("kmsg",), "parsed"), ("n2/dmesg.txt", ("kmsg",), "parsed"),
    ]  # fmt: skip
    assert said.job["nodes"] == 2


def test_what_is_in_force_is_told(bundle: Path):
    tool = analyse(bundle).tool
    assert tool["engine"].startswith(("durable-rules ", "reference"))
    assert tool["rules"]["count"] == len(rulebook.load([packs.builtin("rules")]).rules)
    assert tool["thresholds_in_force"]["lossless/slow-receiver.max_tx_pause"] == 0.05
    assert tool["overridden"] == []


def test_no_absolute_path_and_equal_bytes(bundle: Path):
    first, second = to_json(analyse(bundle)), to_json(analyse(bundle))
    assert first == second
    assert str(bundle.parent) not in first


def test_steps_of_the_work_are_announced(bundle: Path):
    heard: list[Progress] = []
    run.analyse([str(bundle)], Options(), heard.append)
    assert heard[0].stage == "open" and heard[-1].stage == "judge"
    assert [(p.text, p.total) for p in heard if p.stage == "parse"] == [("n1/dmesg.txt", 2), ("n2/dmesg.txt", 2)]


def test_standard_input():
    said = run.analyse(["-"], Options(stdin=io.BytesIO(XID.encode())))
    assert said.findings[0].id == "gpu/fallen-off-bus"


# --- nothing to analyse ---------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [{}, {"notes_txt": "we met at noon\n"}, {"empty_log": ""}])
def test_nothing_of_a_known_kind(tmp_path: Path, files: dict[str, str]):
    folder = write(tmp_path / "b", **files)
    folder.mkdir(exist_ok=True)
    with pytest.raises(NothingAnalysed, match="no source of a known kind" + "".join(f": {n}" for n in names(files))):
        analyse(folder)


def names(files: dict[str, str]) -> list[str]:
    return [name.replace("_txt", ".txt").replace("_log", ".log") for name in files]


def test_a_path_that_is_not_there(tmp_path: Path):
    with pytest.raises(NothingAnalysed):
        analyse(tmp_path / "gone")


def test_a_parser_folder_that_cannot_be_loaded(tmp_path: Path, bundle: Path):
    write(tmp_path / "p").mkdir(exist_ok=True)
    (tmp_path / "p" / "bad.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(NothingAnalysed):
        analyse(bundle, parsers=(tmp_path / "p",))


# --- failures are kept apart ------------------------------------------------------------------------------


def test_a_failing_parser_loses_only_what_it_did_not_say(tmp_path: Path, bundle: Path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "broken.py").write_text(PARSER)
    write(bundle, n3__x_txt="%%broken\n")
    said = analyse(bundle, parsers=(tmp_path / "p",))
    assert "gpu/fallen-off-bus" in [f.id for f in said.findings]
    (problem,) = said.problems
    assert (problem.source, problem.text) == ("n3/x.txt", "parser broken failed: ZeroDivisionError: made for the test")
    assert {s.path: s.status for s in said.sources}["n3/x.txt"] == "partial"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "raise ZeroD",
            "yield 5; raise ZeroD",
            "parser broken failed: TypeError: yields int, neither Record nor Digest",
        ),
        ("kernel_log", "kernel_lg", "parser broken: unknown topic 'kernel_lg'; did you mean 'kernel_log'?"),
    ],
)
def test_what_is_wrong_with_a_parser_is_named(tmp_path: Path, bundle: Path, old: str, new: str, said: str):
    assert old in PARSER
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "broken.py").write_text(PARSER.replace(old, new))
    write(bundle, n3__x_txt="%%broken\n")
    assert said in [p.text for p in analyse(bundle, parsers=(tmp_path / "p",)).problems]


def test_a_broken_rule_of_the_user_is_a_problem(tmp_path: Path, bundle: Path):
    (tmp_path / "r" / "x").mkdir(parents=True)
    (tmp_path / "r" / "x" / "bad.yaml").write_text("id: x/bad\n")
    said = analyse(bundle, rules=(tmp_path / "r",))
    assert "gpu/fallen-off-bus" in [f.id for f in said.findings]
    assert any("rule not loaded" in p.text and str(tmp_path) not in p.text for p in said.problems)


def test_unreadable_lines_make_a_source_partial(tmp_path: Path):
    folder = write(
        tmp_path / "b", n1__ethtool_txt="Pause parameters for eth2:\nnetlink error: Operation not supported\n" + XID
    )
    said = analyse(folder)
    assert said.sources[0].status == "partial" and said.problems


# --- options ----------------------------------------------------------------------------------------------


def test_the_site_file_overrides_and_acknowledges(tmp_path: Path, bundle: Path):
    site = tmp_path / "site.toml"
    site.write_text(
        '[thresholds]\n"lossless/slow-receiver.max_tx_pause" = "10%"\n'
        '[[acknowledged]]\nid = "gpu/*"\nhost = "n1"\nreason = "ticket 7"\nexpires = 2026-01-31\n'
    )
    said = analyse(bundle, site=site, today=date(2026, 1, 31))
    assert said.findings[0].acknowledged == "ticket 7"
    assert said.tool["overridden"] == ["lossless/slow-receiver.max_tx_pause"]
    assert said.tool["thresholds_in_force"]["lossless/slow-receiver.max_tx_pause"] == 0.1
    assert analyse(bundle, site=site, today=date(2026, 2, 1)).findings[0].acknowledged is None


def test_a_threshold_that_no_rule_has(tmp_path: Path, bundle: Path):
    site = tmp_path / "site.toml"
    site.write_text('[thresholds]\n"lossless/slow-receiver.max_tx_pauses" = "10%"\n')
    assert [p.text for p in analyse(bundle, site=site).problems] == [
        'site file site.toml: thresholds."lossless/slow-receiver.max_tx_pauses": no rule has this threshold; '
        "did you mean 'lossless/slow-receiver.max_tx_pause'?"
    ]


def test_the_language_of_the_findings(bundle: Path):
    write(bundle, n1__tracking_txt=TRACKING)
    english, chinese = (
        next(f for f in analyse(bundle, lang=lang).findings if f.id.startswith("clock/")) for lang in ("en", "zh")
    )
    assert english.id == chinese.id and english.title != chinese.title


TRACKING = """\
Reference ID    : 00000000 ()
Stratum         : 0
Ref time (UTC)  : Thu Jan 01 00:00:00 1970
System time     : 0.000000000 seconds fast of NTP time
Last offset     : +0.000000000 seconds
RMS offset      : 0.000000000 seconds
Frequency       : 3.250 ppm slow
Residual freq   : +0.000 ppm
Skew            : 0.000 ppm
Root delay      : 1.000000000 seconds
Root dispersion : 1.000000000 seconds
Update interval : 0.0 seconds
Leap status     : Not synchronised
"""


def test_several_processes_say_the_same(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    alone = to_json(analyse(bundle, jobs=1))
    monkeypatch.setattr(intake, "PARALLEL_FROM_BYTES", 0)
    assert to_json(analyse(bundle, jobs=2)) == alone


# --- the engine sees what matters, and only that ----------------------------------------------------------


def test_leaving_irrelevant_facts_out_changes_no_firing():
    """Over all examples of the pack: what `relevant` drops could not have mattered."""
    rules = rulebook.load([packs.builtin("rules")]).rules
    given = [pair for rule in rules for example in rule.examples for pair in example.given]
    every = facts.numbered((Fact("", kind, fields) for kind, fields in given), "f")
    kept = run.relevant(rules, every)
    assert 0 < len(kept) < len(every)
    shown = [(f.rule, f.bindings) for f in reference.run(rules, kept).firings]
    assert shown == [(f.rule, f.bindings) for f in reference.run(rules, every).firings]


def test_the_engine_is_asked_once(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    original = engine.run
    monkeypatch.setattr(engine, "run", lambda rules, given: asked.append(len(rules)) or original(rules, given))
    analyse(bundle)
    assert len(asked) == 1


def test_derived_facts_are_judged_with_the_others(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    made = Fact("", "kernel_event", {"host": "n9", "event": "xid", "code": 79, "text": "t"})
    monkeypatch.setattr(tables, "derive", lambda base: [made])
    assert {s.name for f in analyse(bundle).findings for s in f.subjects if s.kind == "host"} >= {"n1", "n9"}


# --- a case keeps its sources open ------------------------------------------------------------------------


def test_excerpts_until_it_is_closed(bundle: Path):
    write(bundle, n1__dmesg_txt=QUIET + XID + QUIET)
    with run.open_case([str(bundle)]) as case:
        evidence = case.diagnosis.findings[0].evidence[0]
        assert evidence.first == 4
        shown = case.excerpt(evidence.source, evidence.first, evidence.last, context=1)
        assert [line.number for line in shown] == [3, 4, 5]
        assert "fallen off" in shown[1].text
        assert case.excerpt("no/such/source", 1, 1) == []
        assert case.lines("no/such/source") is None
        assert len(case.lines(evidence.source)) == 7  # type: ignore[arg-type]


def test_private_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with run.open_case(["-"], Options(stdin=io.BytesIO(XID.encode()))) as case:
        assert case.excerpt(case.diagnosis.sources[0].path, 1, 1)
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_behind_when_judging_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(engine, "run", lambda rules, given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.open_case(["-"], Options(stdin=io.BytesIO(XID.encode())))
    assert list(tmp_path.iterdir()) == []


def test_a_source_can_be_parsed_by_itself(tmp_path: Path):
    path = tmp_path / "dmesg.txt"
    path.write_text(XID)
    source = Source("s", "dmesg.txt", str(path), len(XID), kinds=("kmsg",))
    ((read, records, problems),) = intake.parse_batch(((source,), (), None))
    assert (read.status, read.line_count, problems) == ("parsed", 1, [])
    assert [r.kind for r in records] == ["kernel_event"]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("no stats available\n", intake.NO_ANSWER),
        ("Cannot get device pause settings: Operation not supported\nPause parameters for eth0:\n", intake.NO_ANSWER),
        ("00:1f.0 ISA bridge: Intel Corporation 82371SB PIIX3 ISA\n", intake.NOTHING_KNOWN),
    ],
)
def test_a_source_that_gave_nothing_was_not_read(text: str, note: str, tmp_path: Path):
    (tmp_path / "answer.txt").write_text(text)
    kind = "lspci" if "bridge" in text else "ethtool"
    source = Source("s", "answer.txt", str(tmp_path / "answer.txt"), len(text), kinds=(kind,))
    ((read, _, _),) = intake.parse_batch(((source,), (), None))
    assert (read.status, read.notes) == ("unrecognised", (note,))


def test_a_source_that_vanished(tmp_path: Path):
    source = Source("s", "gone.txt", str(tmp_path / "gone.txt"), 10, kinds=("kmsg",))
    ((read, records, problems),) = intake.parse_batch(((source,), (), None))
    assert (read.status, records) == ("error", [])
    assert problems[0].source == "gone.txt" and str(tmp_path) not in problems[0].text


def test_the_report_is_plain_json(bundle: Path):
    assert json.loads(to_json(analyse(bundle)))["findings"]
