"""Copies: exact at the threshold, whatever the signatures estimate, and typesetting does not count."""

from __future__ import annotations

import numpy as np
import pytest
from datasketch import MinHash

from pipeline_src.corpus.books.near_duplicates import Copies, bands, digest, normal_words, shingle, shingle_hashes


def changed(words: list[bytes], share: float) -> list[bytes]:
    """A copy with that share of the words replaced, at places a keyed generator draws."""
    places = np.random.default_rng(7).random(len(words)) < share
    return [b"new%d" % n if new else word for n, (word, new) in enumerate(zip(words, places, strict=True))]


def text(book: int, words: int = 4000) -> list[bytes]:
    return [b"w%d" % n for n in np.random.default_rng(book).integers(0, 2000, words)]


def similarity(one: list[bytes], other: list[bytes]) -> float:
    shingles = [{tuple(words[n : n + 5]) for n in range(len(words) - 4)} for words in (one, other)]
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])


def test_typesetting_does_not_count() -> None:
    one = normal_words("“Don’t go—please,” she\nsaid. THE END…")
    assert one == normal_words('"Don\'t go--please," she said. The end...') == b"dont goplease she said the end".split()
    assert digest(one) == digest(list(one)) != digest(one[:-1])


def test_the_signature_is_datasketchs_own() -> None:
    words = text(1)
    theirs = MinHash(128, seed=1, hashfunc=int)
    theirs.update_batch(shingle_hashes(words).tolist())
    ours = MinHash(
        hashvalues=shingle(words).lowest, scheme="affine32"
    )  # it mixes each hash once more: only shares compare
    other = changed(words, 0.05)
    theirs_other = MinHash(128, seed=1, hashfunc=int)
    theirs_other.update_batch(shingle_hashes(other).tolist())
    ours_other = MinHash(hashvalues=shingle(other).lowest, scheme="affine32")
    assert ours.jaccard(ours_other) == pytest.approx(theirs.jaccard(theirs_other), abs=0.15)
    assert shingle(words[:4]) is None


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.6])
def test_the_estimate_is_near_the_truth(share: float) -> None:
    errors = []
    for book in range(10):
        words = text(book)
        one, other = shingle(words), shingle(changed(words, share))
        assert one is not None and other is not None
        errors.append(np.mean(one.lowest == other.lowest) - similarity(words, changed(words, share)))
    assert abs(np.mean(errors)) < 0.03 and max(map(abs, errors)) < 0.15  # standard error 0.044 at the most


@pytest.mark.parametrize(("share", "dropped"), [(0.01, 40), (0.1, 0), (0.6, 0)])
def test_planted_copies(share: float, dropped: int) -> None:
    copies = Copies(0.8)
    for book in range(40):
        words = text(book)
        assert copies.find(f"book{book}", digest(words), shingle(words)) is None
    found = []
    for book in range(40):
        words = changed(text(book), share)
        if copy := copies.find(f"copy{book}", digest(words), shingle(words)):
            assert copy == ("near_duplicate", f"book{book}")
            found.append(book)
    assert len(found) == dropped


def test_near_copies_are_found_by_their_true_similarity() -> None:
    """Copies just above the threshold and just below it, which an estimate of 128 hashes cannot tell apart."""
    copies = Copies(0.8)
    near = {True: 0, False: 0}
    for book in range(150):
        words = text(book, 1500)
        copy = changed(words, 0.012 + 0.0002 * book)
        assert copies.find(f"book{book}", digest(words), shingle(words)) is None
        true = similarity(words, copy)
        near[true >= 0.8] += 0.75 < true < 0.85
        assert (copies.find(f"copy{book}", digest(copy), shingle(copy)) is not None) == (true >= 0.8)
    assert min(near.values()) >= 15


def test_the_first_is_kept_and_exact_copies_need_no_threshold() -> None:
    copies = Copies(None)
    words = text(1)
    assert copies.find("a", digest(words), None) is None
    assert copies.find("b", digest(words), None) == ("duplicate", "a")
    assert copies.find("c", digest(words[:3]), shingle(words[:3])) is None


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.8, 0.9, 1.0])
def test_the_index_finds_nearly_all_at_the_threshold(threshold: float) -> None:
    count, rows = bands(threshold)
    assert count * rows <= 128
    assert 1 - (1 - threshold**rows) ** count >= 0.99999 or rows == 1
