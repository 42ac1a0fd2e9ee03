"""No page is too strange or too slow: time stays linear in its length."""

from __future__ import annotations

import time

import pytest

from benchmarks._hostile_pages import pages
from pipeline_src.wikipedia.wikitext import clean

PLAIN = "The river runs north through two counties before it meets the sea."
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_hostile_pages_take_linear_time(name: str) -> None:
    page = f"{PLAIN}\n\n{PAGES[name]}\n\n{PLAIN}"
    seconds = []
    while len(seconds) < 3 and min(seconds, default=1.0) >= 0.5:  # a busy machine slows one run; a bad pattern all
        start = time.process_time()
        clean(page)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.5  # the target is 0.1; a quadratic pattern takes many seconds


@pytest.mark.parametrize(
    "page", ["{{convert|5|" + "e3" * 2000 + "|m}}", "It is given by\n\ue008 \ue008\nwhere x goes on."]
)
def test_no_page_ends_the_cleaning_of_the_others(page: str) -> None:
    assert PLAIN in clean(f"{page}\n\n{PLAIN}")
