"""Books in Markdown: what is no prose, and that no text takes more than a look."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from pipeline_src.corpus.books.markdown import markdown_paragraphs

SENTENCE = "The old man sat by the river, and nobody spoke to him all day."


def test_comments_and_links_go() -> None:
    text = f"<!-- a\n\nb -->\n\n{SENTENCE} See [his house](http://a.b/c) there. <!-- not to be ended"
    (paragraph,) = markdown_paragraphs(text, Counter())
    assert paragraph == f"{SENTENCE} See his house there. <!-- not to be ended"


@pytest.mark.parametrize("piece", ["<!--", "_", "[", "[](", "*", "![", "`", "[a", "a\n", "# "])
def test_what_never_ends_is_looked_at_once(piece: str) -> None:
    """Not from each place on to the end of the text."""
    begun = time.process_time()
    markdown_paragraphs(f"{SENTENCE}\n\n{piece * (100_000 // len(piece))}", Counter())
    assert time.process_time() - begun < 3
