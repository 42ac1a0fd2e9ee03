"""No page is too strange or too slow: time stays linear in its length."""

from __future__ import annotations

import time

import pytest

from benchmarks._hostile_pages import pages
from pipeline_src.corpus.wikitext import clean

PLAIN = "The river runs north through two counties before it meets the sea."
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_hostile_pages_take_linear_time(name: str) -> None:
    page = f"{PLAIN}\n\n{PAGES[name]}\n\n{PLAIN}"
    start = time.process_time()
    clean(page)
    assert (
        time.process_time() - start < 2
    )  # the target is 0.1; a quadratic pattern takes many more, and a busy machine a few
