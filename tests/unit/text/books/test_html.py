"""Pages of HTML as plain text."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.text.books.html import html_text, is_html
from pipeline_src.text.books.plain_text import HEADING, plain_paragraphs
from tests.growth import TIMES, assert_linear
from tests.unit.text.books.published import html_page
from tests.unit.text.cases import read_cases

SENTENCE = "The old man sat by the river, and nobody spoke to him all day."


def lines(page: str, dropped: Counter[str] | None = None) -> list[str]:
    """Return the lines of a page's text that are not blank."""
    text = html_text(page, "page.html", Counter() if dropped is None else dropped, {})
    return [" ".join(line.split()) for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize(("markup", "text"), read_cases("books/html.yaml", "html text blocks lines and characters"))
def test_html_text_examples_become_plain_text(markup: str, text: list[str]) -> None:
    assert lines(f"<body>{markup}</body>") == text


@pytest.mark.parametrize(
    ("markup", "reason"), read_cases("books/html.yaml", "html text what is no prose is dropped and counted")
)
def test_html_text_non_prose_is_dropped_and_counted(markup: str, reason: str) -> None:
    dropped: Counter[str] = Counter()
    text = html_text(f"<p>The mill{markup} stood.</p>", "page.html", dropped, {})
    assert " ".join(text.split()) in ("The mill stood.", "The mill stood .")
    assert dropped[reason] >= 1


def test_html_text_headings_are_marked() -> None:
    page = "<h2>One<br>and <i>more</i></h2><p>a</p><hgroup><h2>2</h2><p epub:type='title'>Two</p></hgroup><p>b</p>"
    assert lines(page) == [f"{HEADING} One and more".replace(" O", "O"), "a", f"{HEADING} 2 Two", "b"]


def test_html_text_heading_mark_in_input_is_removed() -> None:
    assert lines(f"<p>{HEADING}One.</p>") == ["One."]


def test_html_text_doctype_entities_are_not_resolved() -> None:
    entities = '<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">'
    page = f"<!DOCTYPE html [{entities}]><html><body><p>One &b; &c; two</p></body></html>"
    assert lines(page) == ["One &b; &c; two"]


@pytest.mark.parametrize("tag", ["div", "b", "blockquote"])
def test_html_text_deeply_nested_page_is_rejected(tag: str) -> None:
    assert lines(f"<{tag}>" * 500 + "One.") == ["One."]
    with pytest.raises(PipelineError, match="invalid HTML"):
        html_text(f"<{tag}>" * 20_000, "page.html", Counter(), {})


@pytest.mark.parametrize(
    "piece", ["<a href='#x'>", "<sup>1", "<p>", "<li>1", "<!--", "<!DOCTYPE [", "&", "<br>", "<i>x</i>", "</p>", "<?"]
)
def test_html_text_hostile_page_takes_linear_time(piece: str) -> None:
    def read(count: int) -> None:
        is_html(piece * count)
        with suppress(PipelineError):
            html_text(piece * count, "page.html", Counter(), {})

    assert_linear(read, 1_500, 1_500 * TIMES)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_html_text_any_input_leaves_no_markup(page: str) -> None:
    page = page.encode("utf-8", "replace").decode()
    assert "\0" not in html_text(page, "page.html", Counter(), {}).replace(page, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (html_page([("The Mill", [SENTENCE])]), True),
        ("\ufeff<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC 'x'><html>".removeprefix("\ufeff"), True),
        ("<HTML><BODY>", True),
        (f"<p>{SENTENCE}</p>\n" * 9, True),
        (f"{SENTENCE}<br>\n" * 9, True),
        (f"{SENTENCE}\n\n" * 99 + "He wrote <p> and <br> there.", False),
        (f"{SENTENCE}\n\n" * 99, False),
        ("a < b and c > d", False),
    ],
)
def test_is_html_pages_and_fragments_are_recognised(text: str, expected: bool) -> None:
    assert is_html(text) is expected


def test_plain_paragraphs_html_page_gives_its_paragraphs() -> None:
    paragraphs = [f"This is paragraph {number} & it is long enough <to> be one." for number in range(60)]
    headings: list[int] = []
    text = html_text(
        html_page([("The Mill", paragraphs[:30]), ("Is It He?", paragraphs[30:])]), "page.html", Counter(), {}
    )
    assert plain_paragraphs(text, Counter(), headings) == paragraphs
    assert headings == [0, 30]
