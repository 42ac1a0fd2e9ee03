"""Counting the distinct words of a text of any size, in bounded memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tokenizers.normalizers import Normalizer

from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.progress import Progress
from pipeline_src.corpus.documents import ShardSlice, read_slice
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.tokenizer.wordpiece import LONGEST_WORD
from pipeline_src.tokenizer.words import WordSplitter

MOST_WORDS = 4_000_000  # held in memory, at some 200 bytes each; more go to disk
TOO_LONG = "longer_than_longest_word"


def count_words(
    paragraphs: Iterable[str], lowercase: bool, longest: int = LONGEST_WORD, dropped: Counter[str] | None = None
) -> Counter[str]:
    """Count the words BERT's tokenizer sees, those of more than ``longest`` characters only in ``dropped``.

    Chunks between spaces are counted as they stand, which is fast, and only distinct ones are normalised and split.
    """
    chunks: Counter[str] = Counter()
    for paragraph in paragraphs:
        chunks.update(paragraph.split(" "))
    split = WordSplitter(lowercase).split
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word in split(chunk):
            if len(word) <= longest:
                words[word] += count
            elif dropped is not None:
                dropped[TOO_LONG] += count
    return words


def count_chunks(
    paragraphs: Iterable[str], normalizer: Normalizer, longest: int, dropped: Counter[str] | None = None
) -> Counter[str]:
    """Count what stands between the spaces of normalised text, chunks of more than ``longest`` only in ``dropped``."""
    raw: Counter[str] = Counter()
    for paragraph in paragraphs:
        raw.update(paragraph.split())
    chunks: Counter[str] = Counter()
    for text, count in raw.items():
        for chunk in normalizer.normalize_str(text).split():
            if len(chunk) <= longest:
                chunks[chunk] += count
            elif dropped is not None:
                dropped[TOO_LONG] += count
    return chunks


class WordCounts:
    """Sums of counts, of which a part waits on disk in sorted runs when there are many words; the sums are the same.

    Args:
        folder: for the runs; the caller deletes it.
        most: distinct words held in memory between two additions.
    """

    def __init__(self, folder: Path, most: int = MOST_WORDS) -> None:
        self._folder, self._most = folder, most
        self._counts: Counter[str] = Counter()
        self._runs: list[Path] = []

    def add(self, counts: Mapping[str, int]) -> None:
        """Add counts of words."""
        self._counts.update(counts)
        if len(self._counts) > self._most:
            path = self._folder / f"{len(self._runs)}.tsv"
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\t{count}\n" for word, count in sorted(self._counts.items()))
            self._runs.append(path)
            self._counts.clear()

    def __bool__(self) -> bool:
        return bool(self._counts or self._runs)

    def items(self) -> Iterator[tuple[str, int]]:
        """Every word once with its count, by code points; can be asked for again and again."""
        if not self._runs:
            yield from sorted(self._counts.items())
            return
        entries = heapq.merge(sorted(self._counts.items()), *map(_read_run, self._runs))
        for word, same in groupby(entries, key=itemgetter(0)):
            yield word, sum(count for _, count in same)


def _read_run(path: Path) -> Iterator[tuple[str, int]]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            word, _, count = line.rpartition("\t")  # a word holds no white space
            yield word, int(count)


Count = Callable[..., Counter[str]]  # of texts, and `dropped`, where to count what is: how often each word occurs


def count_shards(
    slices: list[ShardSlice], words: WordCounts, count: Count, seed: int, validation: float
) -> Counter[str]:
    """Add the words of all documents but the validation ones to ``words``; returns what was dropped, by reason."""
    dropped: Counter[str] = Counter()
    count_slice = partial(_count_slice, count=count, seed=seed, validation=validation)
    with Progress("counting words", sum(part.bytes for part in slices), "B") as progress:
        for part, (counts, lost) in zip(slices, map_in_order(count_slice, slices), strict=True):
            words.add(counts)
            dropped.update(lost)
            progress.advance(part.bytes)
    return dropped


def _count_slice(part: ShardSlice, count: Count, seed: int, validation: float) -> tuple[Counter[str], Counter[str]]:
    dropped: Counter[str] = Counter()
    return count(training_texts(part, seed, validation), dropped=dropped), dropped


def training_texts(part: ShardSlice, seed: int, validation: float) -> Iterator[str]:
    """Texts of a slice's documents but the validation ones, each in one line."""
    return (
        document.text.replace("\n", " ")
        for document in read_slice(part)
        if not in_validation_split(document.id, seed, validation)
    )
