"""What holds for any page at all, checked on pages put together from marks, words and line breaks."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_src.wikipedia.wikitext import clean

PLAIN = "The river runs north through two counties before it meets the sea."
FORBIDDEN = ("{{", "}}", "[[", "]]", "{|", "|}", "==", "''", "<!--", "<ref", *map(chr, range(0xE000, 0xE008)))
MARKS = [
    "{{", "}}", "{{{", "}}}", "[[", "]]", "{|", "|}", "\n{|", "\n|-", "\n|", "|", "==", "\n== ", "==\n", "\n* ", "\n:",
    "\n#", "\n;", "\n ", "\n\n", "\n", "<ref>", "</ref>", "<ref name=a/>", "<ref ", "<!--", "-->", "'''", "''", "'",
    "[http://a.b ", "[//a ", "https://a.b", "]", "[", "<nowiki>", "</nowiki>", "<nowiki/>", "<math>", "</math>",
    "<code>", "</code>", "<pre>", "<br>", "<br/>", "<div ", ">", "<span>", "</span>", "<li>", "</ol>", "<sub>",
    "</sub>", "<sup>2</sup>", "<gallery>", "</gallery>", "<REF>", "[[File:a.jpg|thumb|", "[[Category:", "[[de:",
    "[[:Category:", "{{convert|5|km", "{{lang|x|", "{{IPA|/a/", "{{IPAc-en|a", "{{as of|", "{{frac|", "{{quote|",
    "{{nowrap|", "{{ordered list|", "{{val|", "{{!}}", "{{=}}", "{{'}}", "{{coord|",
    "{{odd|", "{{odd}}", "{{cn}}", "{{reign|", "{{sclass|", "<p>", "</blockquote>", "\ue003", "\ue004",
    "\ue005", "\ue006", "\ue007", "\ue008",
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
AROUND = [("", ""), (f"{PLAIN}\n\n", f"\n\n{PLAIN}"), (f"{PLAIN} ", f" {PLAIN}")]


def pages(*kinds: list[str]) -> st.SearchStrategy[str]:
    """Pages of such fragments and a little other text, alone or amid prose."""
    other = st.characters(exclude_characters="&", exclude_categories=["Cs"])  # a decoded dump holds no lone surrogates
    fragments = st.one_of(*map(st.sampled_from, kinds), st.text(other, max_size=6))
    body = st.lists(fragments, max_size=40).map("".join)
    return st.builds(lambda around, text: around[0] + text + around[1], st.sampled_from(AROUND), body)


SETTINGS = settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(pages(MARKS, WORDS, ESCAPED))
def test_never_raises_and_never_leaves_markup(page: str) -> None:
    result = clean(page)
    assert not any(mark in result.lower() for mark in FORBIDDEN)
    assert all(line == line.strip() and line for line in result.split("\n")) or not result
    assert result.splitlines() == (result.split("\n") if result else [])


@SETTINGS
@given(pages(MARKS, WORDS, ESCAPED))
def test_never_grows(page: str) -> None:
    assert len(clean(page)) <= len(page)


@SETTINGS
@given(pages(MARKS, WORDS))
def test_cleaning_its_own_output_changes_nothing(page: str) -> None:
    result = clean(page)
    assert clean(result.replace("\n", "\n\n")) == result  # in wikitext a blank line ends a paragraph
