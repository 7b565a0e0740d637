"""Markdown and HTML: complete, and nothing from evidence becomes active in them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from diagnose.model import Diagnosis, Evidence, Unknown
from diagnose.report import mark
from diagnose.report.jsonform import from_json, to_json
from diagnose.report.page import html, markdown
from tests.report.sample import HOSTILE, QUIET, ROOT, SAMPLE, UNSOLVED, hostile

ALL = {"sample": SAMPLE, "quiet": QUIET, "unsolved": UNSOLVED, "hostile": hostile()}
every = pytest.mark.parametrize("diagnosis", ALL.values(), ids=ALL.keys())
GFM = MarkdownIt("gfm-like", {"html": True})


def tokens(text: str) -> list[Token]:
    flat: list[Token] = []
    for token in GFM.parse(text):
        flat += [token, *(token.children or [])]
    return flat


def links(text: str) -> set[str]:
    return {str(t.attrs["href"]) for t in tokens(text) if t.type == "link_open"}


# --- Markdown ---------------------------------------------------------------------------------------


@every
def test_markdown_holds_no_active_element(diagnosis: Diagnosis):
    found = tokens(markdown(diagnosis))
    kinds = {t.type for t in found}
    assert not kinds & {"html_inline", "html_block", "image", "table_open", "s_open", "em_open"}
    assert all(link.startswith("https://docs.example.org/") for link in links(markdown(diagnosis)))


@every
def test_markdown_prose_mentions_nobody(diagnosis: Diagnosis):
    plain = "\n".join(t.content for t in tokens(markdown(diagnosis)) if t.type == "text")
    assert not re.search(r"(?<!\w)@\w|#\d|http://", plain)


@every
def test_markdown_outline_is_ours(diagnosis: Diagnosis):
    found = tokens(markdown(diagnosis))
    headings = [found[i + 1].content for i, t in enumerate(found) if t.type == "heading_open"]
    assert all(not h.startswith("heading") for h in headings)
    assert sum(t.type == "heading_open" and t.tag == "h2" for t in found) == 1
    assert {t.info for t in found if t.type == "fence"} <= {"text", "sh"}
    assert "code_block" not in {t.type for t in found}


def test_markdown_says_it_all():
    text = markdown(SAMPLE)
    fences = [t.content for t in tokens(text) if t.type == "fence"]
    assert "  State: Down\n  Physical state: Polling\n" in fences
    for said in (ROOT.title, "run/torch.log:7", "**changes state**", "swap the old cable back in", "Do pauses spread?",
                 "planned for January", "run/empty.log", "NCCL versions differ", "0-36,38-63 · waiting"):  # fmt: skip
        assert said in text
    assert "scontrol requeue 42\n" in fences and "chronyc tracking\n" in fences


def test_markdown_headline_is_the_first_line():
    assert markdown(SAMPLE).startswith("## ✖ CRITICAL · nic mlx5\\_3 on node-b".replace("\\_", "_"))
    assert markdown(QUIET).startswith("## no fault found in 2 sources")
    assert markdown(UNSOLVED).startswith("## cannot tell: rank 37")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from("`~*_[]()<>!#@\\|&-+=: \n\t1.x/"), st.characters()), max_size=60))
def test_any_text_stays_text_in_markdown(text: str):
    found = tokens("x " + mark.prose(text))
    assert {t.type for t in found} <= {
        "paragraph_open",
        "paragraph_close",
        "inline",
        "text",
        "code_inline",
        "text_special",
    }
    found = tokens(mark.prose(text))
    assert not {t.type for t in found} & {
        "heading_open",
        "bullet_list_open",
        "ordered_list_open",
        "html_block",
        "fence",
        "hr",
    }
    assert [t.type for t in GFM.parse(mark.fenced(text) + "\n\nafter")] == [
        "fence",
        "paragraph_open",
        "inline",
        "paragraph_close",
    ]
    span = tokens("a " + mark.code(text) + " b")
    assert sum(t.type == "code_inline" for t in span) <= 1 and "link_open" not in {t.type for t in span}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It waits in #9126.", "It waits in `#9126`."),
        ('("@ops", see #7)', '("`@ops`", see `#7`)'),
        (":tada: is no `smile`", "`:tada:` is no \\`smile\\`"),
        ("as in http://192.0.2.9/y: gone", "as in `http://192.0.2.9/y`: gone"),
    ],
)
def test_the_full_stop_is_not_code(text: str, shown: str):
    assert mark.prose(text) == shown


def test_a_ticket_asks_for_five_things_and_counts_the_others():
    asked = tuple(Unknown(f"Question {n}?", "nothing was given", f"ask --number {n}") for n in range(19))
    text = markdown(replace(QUIET, unknowns=asked))
    listed = text.partition("### Not judged")[2]
    assert sum(t.content.startswith("ask --number") for t in tokens(listed) if t.type == "fence") == 5
    assert "… and 14 more (all of them: diagnose analyze -v, or --format json)" in text.replace("\\", "")


# --- HTML -------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


@every
def test_html_is_one_inert_file(diagnosis: Diagnosis):
    text = html(diagnosis)
    text.encode("utf-8")
    page = Page(text)
    assert page.open == []
    assert not set(page.tags) & {"script", "img", "iframe", "link", "object", "form", "base", "svg"}
    assert not [a for a in page.attributes if a[1].startswith("on") or a[1] in ("src", "style")]
    assert all(value.startswith("https://docs.example.org/") for _, name, value in page.attributes if name == "href")
    assert "default-src 'none'; style-src 'sha256-" in text
    assert "url(" not in text and "@import" not in text


def test_html_shows_evidence_as_text():
    page = Page(html(hostile()))
    assert "<script>alert(1)</script>" in page.text and "\\x1b]0;owned" in page.text and "{{7*7}}" in page.text


def test_html_says_it_all():
    text = Page(html(SAMPLE)).text
    for said in (ROOT.title, ROOT.cause, "run/torch.log:7", "changes state", "swap the old cable back in",
                 "Do pauses spread?", "planned for January", "run/empty.log",
                 "NCCL versions differ", "0-36,38-63", "PIX", "2025-11-14 03:12:45 UTC", "… and 3 more"):  # fmt: skip
        assert said in text


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_rerendered_pages_equal_the_first(lang: str):
    back = from_json(to_json(SAMPLE))
    assert markdown(back, lang=lang) == markdown(SAMPLE, lang=lang)
    assert html(back, lang=lang) == html(SAMPLE, lang=lang)


def test_many_findings_stay_bounded():
    many = tuple(replace(ROOT, evidence=tuple(Evidence("s1", i, i, HOSTILE) for i in range(50))) for _ in range(300))
    assert len(markdown(replace(SAMPLE, findings=many))) < 200_000
