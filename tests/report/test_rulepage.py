"""The page of a rule: complete in both forms, conditions as they could stand in a rule file."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from diagnose import packs
from diagnose.conditions import parse_condition
from diagnose.model import (
    And,
    Condition,
    Const,
    Example,
    Explains,
    Known,
    LookAlike,
    Or,
    Pattern,
    Ref,
    Rule,
    SeverityChoice,
    Step,
    Texts,
    Threshold,
)
from diagnose.report import rulepage
from diagnose.rulebook import load
from diagnose.vocabulary import vocabulary
from tests.report.sample import HOSTILE
from tests.report.test_page import tokens

KIND = "nic_rate"


def condition(text: str) -> Condition:
    return parse_condition(text, KIND, {}, {}, vocabulary())


RULE = Rule(
    id="lossless/example", status="trial", severity=(SeverityChoice("major"),), confidence="medium",
    when=(Pattern("pause", KIND, condition("metric == 'tx_pause_share' and value > 5%")),),
    supports=(Pattern("link", "pcie_link"),), unless=(Pattern("u0", KIND),),
    about=(("host", Ref("pause", "host")),), per=(),
    texts={
        "en": Texts("It pauses", "{pause.host} pauses", "It is slow.", (
            Step("Look", "read-only", "ethtool -S IFACE", "the host", "numbers stand still", None),
            Step("Drain", "maintenance", None, None, None, "resume it"))),
        "zh": Texts("它在暂停", "{pause.host} 暂停", "太慢。"),
    },
    explains=(Explains("stall/*", "job"),),
    look_alikes=(LookAlike("lossless/other", "Who starts?", "pause frames", "ethtool -S"),),
    thresholds=(Threshold("max_pause", 0.05, "5%", "healthy hosts stay below", "chosen by us"),),
    references=("A paper",), examples=(Example("one host pauses", (), False),),
)  # fmt: skip


def test_pages_hold_everything():
    for page in (rulepage.text(RULE, vocabulary(), width=500), rulepage.markdown(RULE, vocabulary())):
        for said in ("It pauses", "lossless/example", "MAJOR", "trial", "<host> pauses", "value > 0.05", "It is slow.",
                     "anywhere in the job",
                     "ethtool -S IFACE", "read-only", "numbers stand still", "resume it", "Who starts?",
                     "max_pause = 5%",
                     "chosen by us", "A paper", "one host pauses", "stall/*", "pcie_link",
                     vocabulary().topics[vocabulary().topic_of(KIND)].collect):  # fmt: skip
            assert said in page.replace("\\", "")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("[[{lost.who}||Rank {lost.rank}]] died: {lost.detail}.", "Rank <rank> died: <detail>."),
        ("{a.host} lost [[{a.peer}||its peer]][[ ({a.times:,d} times)]].", "<host> lost its peer (<times> times)."),
        ("[[Rank {a.rank}||A rank]] waits {a.value:.1%}[[ in {a.pg_name}]]", "Rank <rank> waits <value> in <pg name>"),
        ("py-spy dump --pid [[{late.pid}||PID]]", "py-spy dump --pid PID"),
        ("[[ -d /x || -d /y ]] && awk '{print $1}' {a.device}", "[[ -d /x || -d /y ]] && awk '{print $1}' <device>"),
    ],
)
def test_templates_read_as_sentences(template: str, said: str):
    assert rulepage.sentence(template) == said


def test_no_page_shows_a_template():
    book = load([packs.builtin("rules")])
    for rule in book.rules:
        for lang in ("en", "zh"):
            page = rulepage.text(rule, vocabulary(), lang)
            assert not re.search(r"\{[a-z]\w*\.[a-z]\w*(?::[^{}]*)?\}|\[\[\{|\|\|[A-Z]+\]\]", page), rule.id
            assert not re.search(r"(?m): \((?:job|host)\)$", page), rule.id


def test_chinese_page():
    assert rulepage.markdown(RULE, vocabulary(), "zh").startswith("# 它在暂停")
    assert "太慢" in rulepage.text(RULE, vocabulary(), "zh")
    only_english = replace(RULE, texts={"en": RULE.texts["en"]})
    assert "It is slow." in rulepage.text(only_english, vocabulary(), "zh")


def test_conditions_in_words():
    for text in (
        "value > 1 and not (metric == 'x' or known times_median)",
        "metric in ('a', 'b')",
        "value * 2 > value + 1",
    ):
        assert condition(rulepage.describe(condition(text))) == condition(text)
    assert rulepage.describe(And(())) == ""
    assert rulepage.describe(Or((Known(Ref("a", "b")),))) == "known a.b"
    assert rulepage._value(Const(True)) == "true"


def test_a_users_rule_cannot_break_the_page():
    text = HOSTILE.replace("\ud800", "")
    odd = replace(RULE, texts={"en": Texts(text, text, text, (Step(text, "read-only", text, text, text, text),))})
    found = tokens(rulepage.markdown(odd, vocabulary()))
    assert not {t.type for t in found} & {"html_inline", "html_block", "image", "link_open"}
    assert "\x1b" not in rulepage.text(odd, vocabulary())
