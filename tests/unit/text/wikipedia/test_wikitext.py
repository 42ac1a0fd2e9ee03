"""Wikitext to prose: what goes and what kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_src.text.wikipedia.siteinfo import make_siteinfo
from pipeline_src.text.wikipedia.wikitext import clean
from tests.growth import TIMES, assert_linear
from tests.unit.text.cases import PLAIN, read_cases
from tests.unit.text.wikipedia.hostile_pages import RUN, pages


@pytest.mark.parametrize(("markup", "prose"), read_cases("wikipedia/wikitext.yaml"))
def test_clean_markup_between_two_paragraphs_becomes_expected_text(markup: str, prose: str) -> None:
    lines = clean(f"{PLAIN}\n\n{markup}\n\n{PLAIN}").split("\n")
    assert lines[0] == lines[-1] == PLAIN
    assert "\n".join(lines[1:-1]) == prose


@pytest.mark.parametrize(("language", "markup", "prose"), read_cases("wikipedia/languages.yaml"))
def test_clean_page_of_each_language_becomes_expected_text(language: str, markup: str, prose: str) -> None:
    # The Wikipedia in Norwegian (nb) is at no.wikipedia.org.
    name = "nowiki" if language == "nb" else f"{language}wiki"
    assert clean(markup, make_siteinfo(name, language, {})) == prose


@pytest.mark.parametrize(("markup", "prose"), read_cases("wikipedia/lists.yaml"))
def test_clean_list_items_that_are_sentences_are_kept_on_request(markup: str, prose: str) -> None:
    assert clean(f"{PLAIN}\n\n{markup}", lists="sentences") == f"{PLAIN}\n{prose}".rstrip("\n")


def test_clean_pagename_becomes_the_title() -> None:
    text = "They say that {{PAGENAME}} is a village in the north."
    assert clean(text, title=r"Mill (\1)") == r"They say that Mill (\1) is a village in the north."
    assert clean(text) == ""


def test_clean_sentences_with_unknown_template_are_dropped_and_counted() -> None:
    dropped: Counter[str] = Counter()
    clean(rf"{PLAIN} Here <math>\odd12</math> is small. So is <math>\odd x</math> too.", dropped=dropped)
    assert dropped == {"gap": 2}


def test_clean_sections_without_prose_are_removed() -> None:
    text = f"{PLAIN}\n== References ==\nA source that ends with a stop.\n=== Books ===\nAnother one of those.\n"
    text += "== Later years ==\nHe went home and wrote his memoirs.\n=== See also ===\nOther people like him are known."
    dropped: Counter[str] = Counter()
    assert clean(text, dropped=dropped) == f"{PLAIN}\nHe went home and wrote his memoirs."
    assert dropped["section"] == 2


def test_clean_italian_namespaces_and_headings_are_removed() -> None:
    italian = make_siteinfo("itwiki", "it", {6: "File", 14: "Categoria", -1: "Speciale"})
    text = f"[[Immagine:a.jpg|thumb|Una didascalia che finisce con un punto.]]\n\n{PLAIN}\n\n[[Categoria:Fiumi]]"
    text += "\n== Voci correlate ==\nUn'altra voce che finisce con un punto."
    assert clean(text, italian) == PLAIN


def test_clean_unclosed_markup_drops_one_line() -> None:
    for opener in ("{{Infobox", "{| class=x", "[[File:a.jpg|thumb", "<ref name=x", "<gallery>", "'''"):
        assert clean(f"{PLAIN}\n\n{opener}\n\n{PLAIN}\n\n{PLAIN}").count(PLAIN) >= 2, opener


MARKUP = ("{{", "}}", "[[", "]]", "{|", "|}", "==", "''", "<!--", "<ref", *map(chr, range(0xE000, 0xE008)))
MARKS = [
    "{{", "}}", "{{{", "}}}", "[[", "]]", "{|", "|}", "\n{|", "\n|-", "\n|", "|", "==", "\n== ", "==\n", "\n* ", "\n:",
    "\n#", "\n;", "\n ", "\n\n", "\n", "<ref>", "</ref>", "<ref name=a/>", "<ref ", "<!--", "-->", "'''", "''", "'",
    "[http://a.b ", "[//a ", "https://a.b", "]", "[", "<nowiki>", "</nowiki>", "<nowiki/>", "<math>", "</math>",
    "<code>", "</code>", "<pre>", "<br>", "<br/>", "<div ", ">", "<span>", "</span>", "<li>", "</ol>", "<sub>",
    "</sub>", "<sup>2</sup>", "<gallery>", "</gallery>", "<REF>", "[[File:a.jpg|thumb|", "[[Category:", "[[de:",
    "[[:Category:", "{{convert|5|km", "{{lang|x|", "{{IPA|/a/", "{{IPAc-en|a", "{{as of|", "{{frac|", "{{quote|",
    "{{nowrap|", "{{ordered list|", "{{val|", "{{!}}", "{{=}}", "{{'}}", "{{coord|",
    "{{odd|", "{{odd}}", "{{cn}}", "{{reign|", "{{sclass|", "<p>", "</blockquote>", "\ue003", "\ue004",
    "\ue005", "\ue006", "\ue007",
    '<span style="display:none">', "</span>", "<s>", "</s>", "<i hidden>", "</i>", "<sup>n</sup>", "x<sub>n</sub>",
    "。。", "https://a.b/c_(d)", "[http://a'b [c]", "<ref a<ref>",
    "{{chem|", "{{e|", "<math>\\frac</math>", "\n:<math>a</math>\n", "l'''a''",
    "__TOC__", "(", ")", ",", ";", ":", "=", "{", "}", "<", ">",
    "*", "#", '""', '"', ".", " ", "  ", "\u00a0", "\t", "\r", "~", "\ue000", "\ue001", "\ue002", "İ", "$", "!", "–",
]  # fmt: skip
ESCAPED = [
    "&lt;ref&gt;", "&lt;!--", "&#91;&#91;", "&#93;", "&#123;&#123;", "&#125;&#125;", "&#123;|", "&#61;&#61;", "&lt;",
    "&amp;lt;ref", "&nbsp;", "&amp;", "&#39;&#39;", "&#10;", "&#x7b;", "&#124;", "&lt;/ref", "&",
]  # fmt: skip
WORDS = [
    "A sentence of more than twenty-five characters stands here.", "and meets the sea", "As follows:", "Mr. J. Smith",
    "word", "a", "日本語の文章です。", "(born 1900)", "1,234", "U.S.", "?",
]  # fmt: skip
SURROUNDINGS = [("", ""), (f"{PLAIN}\n\n", f"\n\n{PLAIN}"), (f"{PLAIN} ", f" {PLAIN}")]


def pages_of(*kinds: list[str]) -> st.SearchStrategy[str]:
    """Pages of such fragments and a little other text, alone or amid prose."""
    # A decoded dump holds no lone surrogates.
    other = st.characters(exclude_characters="&", exclude_categories=["Cs"])
    fragments = st.one_of(*map(st.sampled_from, kinds), st.text(other, max_size=6))
    body = st.lists(fragments, max_size=40).map("".join)
    return st.builds(lambda around, text: around[0] + text + around[1], st.sampled_from(SURROUNDINGS), body)


SETTINGS = settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(pages_of(MARKS, WORDS, ESCAPED))
def test_clean_any_page_leaves_no_markup_and_does_not_grow(page: str) -> None:
    result = clean(page)
    assert len(result) <= len(page)
    assert not any(mark in result.lower() for mark in MARKUP)
    assert all(line == line.strip() and line for line in result.split("\n")) or not result
    assert result.splitlines() == (result.split("\n") if result else [])


@SETTINGS
@given(pages_of(MARKS, WORDS))
def test_clean_clean_text_is_unchanged(page: str) -> None:
    result = clean(page)
    # In wikitext a blank line ends a paragraph.
    assert clean(result.replace("\n", "\n\n")) == result


PAGES, SHORTER = pages(), pages(RUN // TIMES)


@pytest.mark.parametrize("name", PAGES)
def test_clean_hostile_page_takes_linear_time(name: str) -> None:
    assert_linear(clean, f"{PLAIN}\n\n{SHORTER[name]}\n\n{PLAIN}", f"{PLAIN}\n\n{PAGES[name]}\n\n{PLAIN}")


@pytest.mark.parametrize(
    "page",
    ["{{convert|5|" + "e3" * 2000 + "|m}}", "It is given by\n\ue005 \ue005\nwhere x goes on."],
    ids=["overflowing number", "private characters"],
)
def test_clean_hostile_paragraph_keeps_the_other_paragraphs(page: str) -> None:
    assert PLAIN in clean(f"{page}\n\n{PLAIN}")
