"""Near-duplicate texts: similarity of 5-word shingles, exact at the threshold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.text import near_duplicates
from pipeline_src.text.documents import Document, ShardSlice, write_shard
from pipeline_src.text.near_duplicates import (
    Shingles,
    bands,
    digest,
    find_copies,
    hash_words,
    normal_words,
    shingle_slice,
)


def replace_words(words: list[bytes], share: float) -> list[bytes]:
    is_new = np.random.default_rng(7).random(len(words)) < share
    return [b"new%d" % n if new else word for n, (word, new) in enumerate(zip(words, is_new, strict=True))]


def text(book: int, words: int = 4000) -> list[bytes]:
    return [b"w%d" % n for n in np.random.default_rng(book).integers(0, 2000, words)]


def hashes_of(words: list[bytes]) -> np.ndarray:
    return np.fromiter(map(crc32, words), np.uint32)


def shingle(texts: list[list[bytes]]) -> Shingles:
    """The shingles of texts, each given as its words."""
    alone = [near_duplicates.shingle(hashes_of(words)) for words in texts]
    return Shingles(*map(np.concatenate, zip(near_duplicates.NONE, *alone, strict=True)))


def similarity(one: list[bytes], other: list[bytes]) -> float:
    shingles = [{tuple(words[n : n + 5]) for n in range(len(words) - 4)} for words in (one, other)]
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1]) if all(shingles) else 0.0


def expected_copies(texts: list[list[bytes]], threshold: float) -> list[int]:
    """Compare each text with all earlier ones that are no copies; the first of the most similar is its original."""
    originals: list[int] = []
    for index, words in enumerate(texts):
        similarities = {other: similarity(words, texts[other]) for other in range(index) if originals[other] < 0}
        nearest = max(similarities, key=lambda other: (similarities[other], -other), default=-1)
        originals.append(nearest if nearest >= 0 and similarities[nearest] >= threshold else -1)
    return originals


def test_normal_words_typography_is_ignored() -> None:
    one = normal_words("“Don’t go—please,” she\nsaid. THE END…")
    assert one == normal_words('"Don\'t go--please," she said. The end...') == b"dont goplease she said the end".split()
    assert digest("Don't go!") == digest("dont\nGO") != digest("dont")
    assert digest("... —\n!") == b""


def test_hash_words_of_long_text_covers_all_lines() -> None:
    text = "The mill—of 水车在河 – turns.\n\n“Don’t,” she\tsaid.\n"
    long = text * (near_duplicates.MAX_SPLIT_CHARACTERS // len(text) + 1)
    for lines in (text, long):
        assert np.array_equal(hash_words(lines), hashes_of(normal_words(lines)))
    assert digest(long) == digest(long.replace("\n", " "))
    assert len(hash_words("")) == len(hash_words("... —\n!")) == 0


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.6])
def test_shingle_signature_estimates_jaccard_similarity(share: float) -> None:
    errors = []
    for book in range(10):
        words = text(book)
        one, other = shingle([words, replace_words(words, share)]).minhashes
        errors.append(np.mean(one == other) - similarity(words, replace_words(words, share)))
    # Standard error 0.044 at the most.
    assert abs(np.mean(errors)) < 0.03 and max(map(abs, errors)) < 0.15


WORDS = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12)


@given(st.lists(WORDS, max_size=8))
def test_shingle_counts_unique_runs_of_five_words(texts: list[list[bytes]]) -> None:
    result = shingle(texts)
    assert result.counts.tolist() == [len({tuple(w[n : n + 5]) for n in range(len(w) - 4)}) for w in texts]
    assert len(result.hashes) == result.counts.sum() and len(result.minhashes) == len(texts)


@pytest.mark.parametrize("length", [0, 4, 5, 9, 100, 104, 105])
def test_shingle_batches_of_words_equal_one_batch(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = text(3, length)
    expected = shingle([words])
    monkeypatch.setattr(near_duplicates, "BATCH_WORDS", 20)
    for field, parts in zip(shingle([words]), expected, strict=True):
        assert np.array_equal(field, parts)


@given(st.lists(WORDS, max_size=25), st.sampled_from([0.2, 0.5, 0.8, 1.0]), st.integers(1, 7))
def test_find_copies_small_texts_equals_brute_force(texts: list[list[bytes]], threshold: float, size: int) -> None:
    batches = [shingle(texts[start : start + size]) for start in range(0, len(texts), size)] or [shingle([])]
    assert find_copies(batches, threshold, Path()).tolist() == expected_copies(texts, threshold)


def test_find_copies_similarity_at_the_threshold_is_a_copy(tmp_path: Path) -> None:
    """Copies just above the threshold and just below it, which an estimate of 128 hashes cannot tell apart."""
    originals = [text(book, 1500) for book in range(150)]
    copies = [replace_words(words, 0.012 + 0.0002 * book) for book, words in enumerate(originals)]
    similarities = list(map(similarity, originals, copies))
    assert (
        min(sum(0.75 < value < 0.8 for value in similarities), sum(0.8 <= value < 0.85 for value in similarities)) > 9
    )
    result = find_copies([shingle(originals), shingle(copies)], 0.8, tmp_path).tolist()
    assert result == [-1] * 150 + [book if value >= 0.8 else -1 for book, value in enumerate(similarities)]
    assert not list(tmp_path.iterdir())


def test_find_copies_full_buckets_still_find_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of one template share many buckets, which take few of them; a copy shares others with its original."""
    template = text(0, 60)
    stubs = [[*template, *text(n, 40)] for n in range(1, 60)]
    assert similarity(*stubs[:2]) > 0.4
    shingles = shingle([*stubs, *(words[:-1] for words in stubs)])
    nearest = near_duplicates._CopyIndex._nearest
    comparisons = {100: 0, 2: 0}
    for limit in comparisons:

        def count(self: near_duplicates._CopyIndex, number: int, candidates: np.ndarray, limit: int = limit) -> int:
            comparisons[limit] += len(candidates)
            return nearest(self, number, candidates)

        monkeypatch.setattr(near_duplicates, "MAX_BUCKET_TEXTS", limit)
        monkeypatch.setattr(near_duplicates._CopyIndex, "_nearest", count)
        assert find_copies([shingles], 0.8, tmp_path).tolist() == [-1] * 59 + list(range(59))
    assert comparisons[2] < comparisons[100] / 2


def test_shingle_slice_batches_equal_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(f"Word{n % (5 + number)}," for n in range(3 * number)) for number in range(20)]
    shard = write_shard(tmp_path / "x.jsonl", [Document(f"a:{n}", "", words) for n, words in enumerate(texts)])
    monkeypatch.setattr(near_duplicates, "BATCH_WORDS", 40)
    result = shingle_slice(ShardSlice(tmp_path / "x.jsonl", 0, shard["bytes"]))
    for field, expected in zip(result, shingle([normal_words(words) for words in texts]), strict=True):
        assert np.array_equal(field, expected)


# 900 letters in sentences of 15, of letters that occur as often as in real text.
LETTERS = {"zh": "的一是了我不在人们有来他这上着个地到大里说去子得也和那要下看天时过出小么起你都把好还多没为又可家学",
           "ja": "のにはをたがでてとしれさいるなもすからあこりまうくそよ水車川人日本年大会国時行見",
           "th": "านรอกเงมยลวดทสตะปบคห่้ัีิุ"}  # fmt: skip


def unspaced_text(language: str, seed: int, length: int = 900) -> str:
    rng = np.random.default_rng(seed)
    letters = list(LETTERS[language])
    share = 1 / np.arange(1, len(letters) + 1)
    drawn = rng.choice(letters, length, p=share / share.sum())
    return "。".join("".join(drawn[start : start + 15]) for start in range(0, length, 15))


@pytest.mark.parametrize("language", LETTERS)
def test_find_copies_chinese_text_finds_only_near_copies(language: str, tmp_path: Path) -> None:
    texts = [unspaced_text(language, seed) for seed in range(12)]
    # One letter in a hundred left out or put in, other punctuation, a sentence more.
    near = [
        "".join(letter for index, letter in enumerate(texts[0]) if index % 100 != 50),
        "".join(letter + "X" * (index % 100 == 50) for index, letter in enumerate(texts[1])),
        texts[2].replace("。", ", "),
        f"{unspaced_text(language, 99, 30)}。{texts[3]}",
    ]
    # Half of the text is the same, or one letter in ten is another.
    far = [
        texts[4][:450] + unspaced_text(language, 100, 450),
        "".join("X" if index % 10 == 5 else letter for index, letter in enumerate(texts[5])),
    ]
    hashes = list(map(hash_words, [*texts, *near, *far]))
    copies = find_copies(map(near_duplicates.shingle, hashes), 0.8, tmp_path)
    assert copies.tolist() == [-1] * 12 + [0, 1, 2, 3] + [-1] * 2


def test_find_copies_texts_of_one_template_are_copies(tmp_path: Path) -> None:
    common = " ".join(f"common{number}" for number in range(500))
    own = [" ".join(f"own{text}x{number}" for number in range(60)) for text in range(20)]
    hashes = [hash_words(f"{common} {words}") for words in own]
    assert find_copies(map(near_duplicates.shingle, hashes), 0.8, tmp_path).tolist() == [-1] + [0] * 19


KILLED = """
import sys
from pathlib import Path
from pipeline_src.text.near_duplicates import find_copies, hash_words, shingle

def batches():
    yield shingle(hash_words("a " * 9))
    print("open", flush=True)
    sys.stdin.read()

find_copies(batches(), 0.8, Path(sys.argv[1]))
"""


def test_find_copies_killed_process_leaves_no_temporary_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.8, 0.9, 1.0])
def test_bands_pairs_at_the_threshold_are_found(threshold: float) -> None:
    count, rows = bands(threshold)
    assert count * rows <= 128
    assert 1 - (1 - threshold**rows) ** count >= 0.99999 or rows == 1
