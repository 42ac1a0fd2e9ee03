"""A made-up dump of Wikipedia of any size: markup of the sample's articles around words drawn by Zipf's law.

An article takes consecutive blocks (paragraphs, headings, lists, tables, templates) of the sample's articles, from a
random paragraph on, until its length, which is log-normal, is reached; so markup has about the sample's rates.
Headings, templates, tables, tags and the targets of files and categories stay as they are; every other word is drawn.
The frequency of a word falls with its rank r as 1 / (r + 2.7), Zipf's law as Mandelbrot corrected it, and past rank
10,000 as r^-1.7 (Ferrer i Cancho and Solé, 2001). Ranks are unbounded, so the number of distinct words grows as the
power 1 / 1.7 of the text, Heaps' law. The commonest words are the sample's; rarer ones are made of syllables.
"""

from __future__ import annotations

import bz2
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.material import articles_text, sample_pages
from pipeline_src.base.files import atomic_file
from pipeline_src.base.parallel import map_in_order

# Number of pages in a bz2 stream, as in Wikimedia's dumps.
PAGES_A_STREAM = 100
# English Wikipedia: 3,150 bytes of prose an article (Hugging Face's wikimedia/wikipedia, 20231101.en); 45 % of the
# sample's wikitext is prose. The spread of lengths is assumed.
# Mean size of an article's wikitext, and the standard deviation of its logarithm.
MEAN_BYTES, SPREAD = 7_000, 1.2
# Fewest words of a block that begins a paragraph.
PARAGRAPH = 20
HEAD_RANKS, TAIL = 10_000, 1.7
ONSETS = "b bl br c ch d dr f g gr h k l m n p pl r s st t".split()
SYLLABLES = [onset + rest for onset in ONSETS for rest in "a an ar e en er i in o on u".split()]
KEPT = re.compile(
    r"\{\{|\}\}|\{\||\|\}|&lt;.*?&gt;|&\w+;|\[\[[^\[\]|\n]*:[^\[\]|\n]*|https?://\S+|^=.*=$|[A-Za-z]{2,}", re.MULTILINE
)


class Block(NamedTuple):
    """Block of wikitext: the text between random words, the indices of capitalised words, and its size in bytes."""

    between: list[str]
    capitals: list[int]
    bytes: int


def write_dump(path: Path, articles: int) -> None:
    """Write a dump of about ``articles`` articles and as many redirects. The same number gives the same bytes."""
    opening, pages = sample_pages()
    count = math.ceil(articles * len(pages) / sum(b"<redirect" not in page for page in pages) / PAGES_A_STREAM)
    with atomic_file(path, "wb") as file:
        file.write(bz2.compress(opening))
        file.writelines(map_in_order(_stream, range(count)))
        file.write(bz2.compress(b"</mediawiki>\n"))


def _stream(number: int) -> bytes:
    sample, draw, pages = sample_pages()[1], np.random.default_rng(number), []
    for page_id in range(number * PAGES_A_STREAM + 1, (number + 1) * PAGES_A_STREAM + 1):
        page, title = sample[page_id % len(sample)].decode(), f"{spelled(page_id).capitalize()} {page_id}"
        page = re.sub("<title>.*?</title>", f"<title>{title}</title>", page, count=1)
        page = re.sub(r"<id>\d+</id>", f"<id>{page_id}</id>", page, count=1)
        if "<redirect" not in page:
            start, end = _text_span(page)
            page = page[:start] + _article(draw) + page[end:]
        pages.append(page + "\n  ")
    return bz2.compress("".join(pages).encode())


def _text_span(page: str) -> tuple[int, int]:
    return page.index(">", page.index("<text")) + 1, page.index("</text>")


def _article(draw: np.random.Generator) -> str:
    articles, starts = _articles()
    left = draw.lognormal(math.log(MEAN_BYTES) - SPREAD**2 / 2, SPREAD)
    blocks: list[Block] = []
    while left > 0:
        article, start = starts[draw.integers(len(starts))]
        for block in articles[article][start:]:
            blocks.append(block)
            left -= block.bytes
            if left <= 0:
                break
    words = draw_words(draw, sum(len(block.between) - 1 for block in blocks))
    return "".join(chain.from_iterable(_filled(block, words) for block in blocks))


def _filled(block: Block, words: Iterator[str]) -> Iterator[str]:
    drawn = list(islice(words, len(block.between) - 1))
    for index in block.capitals:
        drawn[index] = drawn[index].capitalize()
    yield block.between[0]
    yield from chain.from_iterable(zip(drawn, block.between[1:], strict=True))


def draw_words(draw: np.random.Generator, count: int) -> Iterator[str]:
    head = _head_words()
    return (head[rank] if rank < HEAD_RANKS else spelled(rank) for rank in draw_ranks(draw, count).tolist())


def draw_ranks(draw: np.random.Generator, count: int) -> np.ndarray:
    # From 0 on; int64 [count].
    cumulative = _law()
    uniform = draw.random(count)
    ranks = np.searchsorted(cumulative, uniform, side="right")
    rare = ranks >= HEAD_RANKS
    # Share of the tail that lies beyond the word, in (0, 1].
    share = (1 - uniform[rare]) / (1 - cumulative[-1])
    ranks[rare] = HEAD_RANKS * share ** (-1 / (TAIL - 1))
    return ranks


@lru_cache(1 << 20)
def spelled(number: int) -> str:
    # Different numbers give different words.
    word = ""
    while number:
        number, digit = divmod(number, len(SYLLABLES))
        word += SYLLABLES[digit]
    return word


@lru_cache
def _law() -> np.ndarray:
    # Cumulative probabilities of the ranks up to HEAD_RANKS; the tail has what is missing to 1.
    weights = 1 / (np.arange(HEAD_RANKS) + 1 + 2.7)
    # The integral of the tail's power law.
    tail = weights[-1] * HEAD_RANKS / (TAIL - 1)
    return np.cumsum(weights) / (weights.sum() + tail)


@lru_cache
def _head_words() -> list[str]:
    counts = Counter(re.findall(r"[a-z]+", " ".join(articles_text()).lower()))
    return [word for word, _ in counts.most_common(HEAD_RANKS)]


@lru_cache
def _articles() -> tuple[list[list[Block]], list[tuple[int, int]]]:
    # Each article of the sample in blocks; and (article, block) where a paragraph starts.
    articles = [
        [_block(block) for block in split_blocks(page[slice(*_text_span(page))])]
        for page in map(bytes.decode, sample_pages()[1])
        if "<redirect" not in page and "{{disambig" not in page
    ]
    starts = [
        (number, index)
        for number, blocks in enumerate(articles)
        for index, block in enumerate(blocks)
        if len(block.between) > PARAGRAPH
    ]
    return articles, starts


def split_blocks(wikitext: str) -> Iterator[str]:
    # The lines of a template, table or reference stay together.
    block, depth = "", 0
    for line in wikitext.splitlines(keepends=True):
        block += line
        depth += len(re.findall(r"\{\{|\{\||&lt;ref(?![^/]*/&gt;)", line))
        depth -= len(re.findall(r"\}\}|\|\}|&lt;/ref", line))
        if depth <= 0:
            yield block
            block, depth = "", 0
    if block:
        yield block


def _block(text: str) -> Block:
    between: list[str] = []
    capitals: list[int] = []
    depth = end = 0
    for match in KEPT.finditer(text):
        token = match[0]
        depth += (token in ("{{", "{|")) - (token in ("}}", "|}"))
        if token.isalpha() and not depth:
            if token[0].isupper():
                capitals.append(len(between))
            between.append(text[end : match.start()])
            end = match.end()
    return Block([*between, text[end:]], capitals, len(text.encode()))
