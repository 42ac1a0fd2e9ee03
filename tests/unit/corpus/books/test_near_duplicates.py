"""Near-duplicate books: similarity of 5-word shingles, exact at the threshold."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_src.corpus.books.near_duplicates import Copies, bands, digest, normal_words, shingle


def replace_words(words: list[bytes], share: float) -> list[bytes]:
    is_new = np.random.default_rng(7).random(len(words)) < share
    return [b"new%d" % n if new else word for n, (word, new) in enumerate(zip(words, is_new, strict=True))]


def text(book: int, words: int = 4000) -> list[bytes]:
    return [b"w%d" % n for n in np.random.default_rng(book).integers(0, 2000, words)]


def similarity(one: list[bytes], other: list[bytes]) -> float:
    shingles = [{tuple(words[n : n + 5]) for n in range(len(words) - 4)} for words in (one, other)]
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])


def test_normal_words_typography_is_ignored() -> None:
    one = normal_words("“Don’t go—please,” she\nsaid. THE END…")
    assert one == normal_words('"Don\'t go--please," she said. The end...') == b"dont goplease she said the end".split()
    assert digest(one) == digest(list(one)) != digest(one[:-1])
    assert shingle(one[:4]) is None


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.6])
def test_shingle_signature_estimates_jaccard_similarity(share: float) -> None:
    errors = []
    for book in range(10):
        words = text(book)
        one, other = shingle(words), shingle(replace_words(words, share))
        assert one is not None and other is not None
        errors.append(np.mean(one.minhash == other.minhash) - similarity(words, replace_words(words, share)))
    assert abs(np.mean(errors)) < 0.03 and max(map(abs, errors)) < 0.15  # standard error 0.044 at the most


def test_copies_find_near_copy_exactly_at_the_threshold() -> None:
    """Copies just above the threshold and just below it, which an estimate of 128 hashes cannot tell apart."""
    copies = Copies(0.8)
    near = {True: 0, False: 0}
    for book in range(150):
        words = text(book, 1500)
        copy = replace_words(words, 0.012 + 0.0002 * book)
        assert copies.find(f"book{book}", digest(words), shingle(words)) is None
        true = similarity(words, copy)
        near[true >= 0.8] += 0.75 < true < 0.85
        assert (copies.find(f"copy{book}", digest(copy), shingle(copy)) is not None) == (true >= 0.8)
    assert min(near.values()) >= 15


def test_copies_find_exact_copy_without_threshold() -> None:
    copies = Copies(None)
    words = text(1)
    assert copies.find("a", digest(words), None) is None
    assert copies.find("b", digest(words), None) == ("duplicate", "a")
    assert copies.find("c", digest(words[:3]), shingle(words[:3])) is None


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.8, 0.9, 1.0])
def test_bands_find_nearly_all_at_the_threshold(threshold: float) -> None:
    count, rows = bands(threshold)
    assert count * rows <= 128
    assert 1 - (1 - threshold**rows) ** count >= 0.99999 or rows == 1
