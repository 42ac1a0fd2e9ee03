"""Books in Markdown: what is no prose, and that no text takes more than a look."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline_src.corpus.books.markdown import markdown_paragraphs
from tests.growth import TIMES, assert_linear

SENTENCE = "The old man sat by the river, and nobody spoke to him all day."


def test_comments_and_links_go() -> None:
    text = f"<!-- a\n\nb -->\n\n{SENTENCE} See [his house](http://a.b/c) there. <!-- not to be ended"
    (paragraph,) = markdown_paragraphs(text, Counter())
    assert paragraph == f"{SENTENCE} See his house there. <!-- not to be ended"


@pytest.mark.parametrize("piece", ["<!--", "_", "[", "[](", "*", "![", "`", "[a", "a\n", "# "])
def test_markdown_mark_that_never_ends_takes_linear_time(piece: str) -> None:
    """The text behind it is not searched again from each of its marks."""

    def read(count: int) -> None:
        markdown_paragraphs(f"{SENTENCE}\n\n{piece * count}", Counter())

    assert_linear(read, 6_000 // len(piece), 6_000 // len(piece) * TIMES)
