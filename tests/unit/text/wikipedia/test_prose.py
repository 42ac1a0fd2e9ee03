"""Paragraphs of prose; the other cases are those of ``test_wikitext.py``."""

from __future__ import annotations

import textwrap

from pipeline_src.text.wikipedia import prose
from pipeline_src.text.wikipedia.wikitext import clean


def test_prose_docstring_example_is_correct() -> None:
    blocks = textwrap.dedent(prose.__doc__ or "").split("\n\n")
    page, marked, kept = (textwrap.dedent(block) for block in blocks if block.startswith("    "))
    assert marked.count("‹hole›") == page.count("{{odd") == 2
    assert clean(page) == kept.replace(" .", ".")
