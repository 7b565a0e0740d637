"""The text report: its first three lines, what it folds, and what it lets through."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.model import UNNAMED_HOST, Diagnosis, Evidence, Problem, Step, Subject, Unknown
from diagnose.report import page, view
from diagnose.report.jsonform import from_json, to_json
from diagnose.report.safe import columns, cut, safe, safe_lines, wrap
from diagnose.report.text import render
from diagnose.report.words import LANGUAGES
from tests.report.sample import CONSEQUENCE, MINOR, QUIET, ROOT, SAMPLE, UNKNOWNS, UNSOLVED, hostile


def head(diagnosis: Diagnosis, **options: object) -> list[str]:
    return render(diagnosis, **options).split("\n")[:3]  # type: ignore[arg-type]


def test_first_three_lines_of_a_fault():
    what, found, then = head(SAMPLE)
    assert what.startswith("✖ CRITICAL") and "rank 37 on node-b" in what and ROOT.title in what
    assert found == "run/node-b/ibstat.txt:31: State: Down"
    assert then.startswith("next: ibstat mlx5_3") and "node-b" in then


def test_another_rank_changes_the_first_line():
    swapped = replace(ROOT, subjects=(*ROOT.subjects[:2], Subject("rank", "38", "node-b")))
    assert head(replace(SAMPLE, findings=(swapped,)))[0] != head(SAMPLE)[0]


def test_first_three_lines_when_only_the_symptom_is_known():
    what, found, then = head(UNSOLVED)
    assert what.startswith("cannot tell: rank 37 on node-b")
    assert found.startswith("run/torch.log:7: ")
    assert then.startswith("next: py-spy dump")


def test_a_rule_that_says_it_cannot_tell():
    vague = replace(CONSEQUENCE, id="stall/undetermined", role="root", title="It stands still", explained_by=())
    assert head(replace(SAMPLE, findings=(vague,)))[0] == "cannot tell: rank 37 on node-b, group 0: It stands still"


def test_a_snapshot_that_may_be_progress_is_a_question_and_no_fault():
    note = replace(MINOR, id="stall/snapshot-difference", severity="info", role="context", subjects=())
    what, _, then = head(replace(QUIET, findings=(note,)))
    assert what == f"cannot tell: {MINOR.title}"
    assert then.startswith("next: ")


def test_the_unnamed_host_is_not_named():
    alone = replace(ROOT, subjects=(Subject("gpu", "3", UNNAMED_HOST),))
    alone = replace(alone, remediation=(replace(ROOT.remediation[1], where=UNNAMED_HOST),))
    assert UNNAMED_HOST not in "".join(head(replace(SAMPLE, findings=(alone,))))


def test_long_lines_keep_their_telling_part():
    line = "Epoch 0: " + "#" * 400 + " [rank3] Watchdog caught collective operation timeout"
    found = replace(ROOT, evidence=(Evidence("s1", 5, 5, line),))
    assert "Watchdog caught" in head(replace(SAMPLE, findings=(found,)))[1]


def test_stalled_job_without_any_finding_is_not_called_healthy():
    what, _, then = head(replace(SAMPLE, findings=()))
    assert what.startswith("cannot tell: job stalled since 2025-11-14")
    assert then == "next: ethtool -S IFACE"


def test_first_three_lines_when_nothing_is_wrong():
    what, found, then = head(QUIET)
    assert what == "no fault found in 2 sources (3 checks not judged)"
    assert "ibstat" in found
    assert then == "next: ethtool -S IFACE"


def test_an_acknowledged_cause_is_called_that():
    known = replace(ROOT, acknowledged="ticket 4711")
    what, found, _ = head(replace(SAMPLE, findings=(known,)))
    assert what.startswith("Acknowledged: ") and ROOT.title in what
    assert ":" in found


def test_notes_are_no_faults():
    note = replace(MINOR, severity="info")
    assert head(replace(QUIET, findings=(note,)))[0].startswith("no fault found")
    assert MINOR.title in render(replace(QUIET, findings=(note,)))


def test_evidence_that_shows_nothing_is_no_clean_bill():
    """Alone it means that nothing can be told; beside other sources it is named with their clean bill."""
    note = replace(MINOR, severity="info", role="context", shows_nothing=True)
    silent = next(iter({e.source for e in note.evidence}))
    (alone,) = (s for s in SAMPLE.sources if silent in (s.id, s.path))
    what, found, _ = head(replace(QUIET, sources=(alone,), findings=(note,)))
    assert what.startswith("cannot tell: ") and MINOR.title in what
    assert found.startswith(alone.path)
    others = tuple(s for s in QUIET.sources if s is not alone)
    what = head(replace(QUIET, sources=(alone, *others), findings=(note,)))[0]
    assert what.startswith(f"no fault found in {len(others)} source") and MINOR.title in what


def test_nothing_readable_is_no_clean_bill():
    unread = tuple(replace(s, status="unrecognised", kinds=("ethtool",)) for s in QUIET.sources)
    problem = Problem("ethtool gave no data: no stats available", unread[0].id, 1, 1)
    what, found, then = head(replace(QUIET, sources=unread, problems=(problem,)))
    assert what == "cannot tell: nothing readable in 2 sources, so nothing was judged"
    assert found == f"{unread[0].path}:1: ethtool gave no data: no stats available"
    assert then == "next: ethtool -S IFACE"
    assert "nothing readable" in head(replace(QUIET, sources=unread))[0]


def test_next_command_never_changes_state():
    steps = (Step("Restart", "changes-state", "reboot"), Step("Drain", "maintenance", "scontrol drain"))
    bare = replace(ROOT, remediation=steps, next_evidence=(), look_alikes=())
    assert head(replace(SAMPLE, findings=(bare,)))[2] == "next: ethtool -S IFACE"
    assert "no safe command" in head(replace(SAMPLE, findings=(bare,), unknowns=()))[2]


def test_the_next_command_loads_nothing():
    steps = (Step("Measure", "read-only", "ib_write_bw -d DEV   # on drained hosts"),)
    asked = (Unknown("q", "b", "all_reduce_perf -g 8   # on drained nodes"), Unknown("q", "b", "dmesg -T"))
    bare = replace(ROOT, remediation=steps, next_evidence=(), look_alikes=())
    assert head(replace(SAMPLE, findings=(bare,), unknowns=asked))[2] == "next: dmesg -T"


def test_the_line_that_decides_is_the_highlighted_one():
    text = "a" * 50 + "\nirrelevant\n" + "b" * 600 + " ERROR here"
    at = text.index("ERROR")
    found = Evidence("s2", 10, 12, text, ((at, at + 5),))
    line = head(replace(SAMPLE, findings=(replace(ROOT, evidence=(found,)),)))[1]
    assert line.startswith("run/node-b/ibstat.txt:12: …") and "ERROR" in line and columns(line) <= 240


def test_verdict_has_at_most_ten_lines():
    wordy = replace(ROOT, summary="word " * 200)
    brief = render(replace(SAMPLE, findings=(wordy, *SAMPLE.findings[1:])), brief=True)
    assert brief.count("\n") <= 10
    assert render(SAMPLE).startswith(render(SAMPLE, brief=True))


def test_consequences_stand_beneath_their_root_only():
    text = render(SAMPLE)
    after = text[text.index("Explains") : text.index("2. ▲ MINOR")]
    assert CONSEQUENCE.title in after
    assert text.count(CONSEQUENCE.title) == 1


@pytest.mark.parametrize("explained_by", [(), ("nothing/known",), ("stall/missing-rank",)])
def test_a_consequence_without_its_root_is_not_lost(explained_by: tuple[str, ...]):
    alone = replace(CONSEQUENCE, explained_by=explained_by)
    text = render(replace(SAMPLE, findings=(alone, MINOR)))
    assert f"1. ● MAJOR  {CONSEQUENCE.title}" in text


def test_chains_of_explanations_end_at_the_root():
    far = replace(CONSEQUENCE, id="stall/timeout", title="Watchdog fired", explained_by=("stall/missing-rank",))
    text = render(replace(SAMPLE, findings=(ROOT, CONSEQUENCE, far)))
    assert text.index("Explains") < text.index("Watchdog fired") and "\n2. " not in text


def test_rings_of_explanations_lose_nothing():
    one = replace(CONSEQUENCE, id="a/a", title="First", explained_by=("b/b",))
    two = replace(CONSEQUENCE, id="b/b", title="Second", explained_by=("a/a",))
    text = render(replace(SAMPLE, findings=(one, two)))
    assert "First" in text and "Second" in text


def test_many_of_one_kind_fold():
    many = tuple(replace(MINOR, subjects=(Subject("host", f"node-{i:03}"),)) for i in range(300))
    effects = tuple(replace(CONSEQUENCE, subjects=(Subject("rank", str(i), "node-b"),)) for i in range(500))
    diagnosis = replace(SAMPLE, findings=(ROOT, *effects, *many), unknowns=UNKNOWNS * 40)
    text = render(diagnosis)
    assert text.count("\n") < 130
    assert "500 × A rank did not enter the collective" in text
    assert len(render(diagnosis, verbose=True)) > 4 * len(text)


def test_steps_say_what_they_do():
    text = render(SAMPLE)
    for words in ("[maintenance] Reseat", "[read-only] Read the state", "[changes state] Restart"):
        assert words in text
    assert "undo: swap the old cable back in" in text and "verify: State: Active" in text


def test_not_judged_is_folded_by_command():
    text = render(SAMPLE)
    part = text[text.index("Not judged") : text.index("Problems")]
    assert part.count("$ ethtool -S IFACE") == 1 and "Do pauses spread?" in part


def test_who_stands_where():
    text = render(SAMPLE)
    part = text[text.index("Who stands where") : text.index("Context")]
    assert "37 · absent · never entered it · node-b" in part and "0-36,38-63 · waiting" in part


def test_tables_of_any_shape():
    for table in (
        None,
        3,
        "x",
        [],
        {},
        [1, 2],
        {"a": 1},
        {"groups": 3},
        {"groups": [1]},
        {"hosts": [{}]},
        {"rows": [[1]]},
    ):
        render(replace(SAMPLE, tables={"progress": table, "topology": table}), verbose=True)
        page.html(replace(SAMPLE, tables={"progress": table, "topology": table}))
        page.markdown(replace(SAMPLE, tables={"progress": table, "topology": table}))


def test_problems_and_unread_sources_are_named():
    text = render(SAMPLE)
    assert "run/node-c/dmesg.txt:76-77: lines are cut in the middle" in text
    assert "  no known format\n     run/notes.docx" in text and "  empty\n     run/empty.log" in text


def test_acknowledged_findings_do_not_lead():
    diagnosis = replace(SAMPLE, findings=(SAMPLE.findings[3],), job={})
    assert head(diagnosis)[0].startswith("no fault found")
    assert "planned for January" in render(diagnosis)


def test_colour_only_when_asked():
    assert "\x1b" not in render(SAMPLE)
    coloured = render(SAMPLE, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(SAMPLE)


@pytest.mark.parametrize("width", [10, 60, 80, 100, 200])
def test_prose_keeps_to_the_width(width: int):
    lines = render(SAMPLE, width=width).split("\n")
    prose = [x for x in lines[4:] if not re.search(r" \$ |://|confidence\)$", x) and " " in x.strip()]
    assert [x for x in prose if columns(x) > max(width, 40)] == []


def test_rerendered_report_equals_the_first():
    for lang in ("en", "zh"):
        assert render(from_json(to_json(SAMPLE)), lang=lang) == render(SAMPLE, lang=lang)


def test_chinese_words():
    text = render(SAMPLE, lang="zh")
    assert "✖ 严重" in text and "node-b 上的 rank 37" in text and "[只读]" in text and "Evidence" not in text


FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ue000-\uf8ff]"
)


def test_hostile_evidence_stays_visible_text():
    text = render(hostile())
    assert not FORBIDDEN.search(text)
    assert "\\x1b]0;owned\\x07" in text and "[bold]x[/bold]" in text
    coloured = render(hostile(), colour=True)
    assert not FORBIDDEN.search(re.sub(r"\x1b\[[0-9;]*m", "", coloured))


@settings(max_examples=100, deadline=None)
@given(st.text(), st.integers(2, 50))
def test_safe_is_one_line_of_visible_characters(text: str, limit: int):
    shown = safe(text)
    assert not FORBIDDEN.search(shown) and "\n" not in shown
    assert columns(cut(shown, limit)) <= limit
    assert safe(shown) == shown
    assert all("\n" not in line for line in safe_lines(text))
    assert "".join(wrap(shown, limit)).replace(" ", "") == shown.replace(" ", "") or not shown.isascii()


def test_cut_and_wrap():
    assert cut("abcdef", 4) == "abc…" and cut("abc", 4) == "abc" and cut("中文字", 5) == "中文…"
    assert wrap("aa bb cc", 5) == ["aa bb", "cc"]
    assert wrap("aa bb cc", 7, lines=1) == ["aa bb …"] and wrap("aa bb cc", 5, lines=1) == ["aa b…"]
    assert wrap("/a/very/long/path x", 5) == ["/a/very/long/path", "x"]
    assert wrap("中文中文中文", 6) == ["中文中", "文中文"]


def test_both_languages_have_the_same_words():
    assert set(LANGUAGES["en"]) == set(LANGUAGES["zh"])
    blanks = re.compile(r"\{\w+\}")
    for key, text in LANGUAGES["en"].items():
        assert sorted(blanks.findall(text)) == sorted(blanks.findall(LANGUAGES["zh"][key]))


def test_times_that_are_none_stay_as_they_are():
    for at in (10**400, -1, float("nan"), float("inf"), 1e308, "soon"):
        assert view.moment(at) == str(at)


def test_a_host_is_said_once_among_the_names_of_many():
    about = (Subject("host", "kite-1"), Subject("nic", "mlx5_1", "kite-1"), Subject("rank", "3", "kite-1"))
    other = (Subject("host", "kite-2"),)
    found = [replace(MINOR, subjects=about), replace(MINOR, subjects=other)]
    assert view.subject_names(found) == ["kite-1 mlx5_1 rank 3", "kite-2"]
