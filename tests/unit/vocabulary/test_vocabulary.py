"""Learning pieces, writing the tokenizer's files, and encoding with a cache."""

import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.errors import PipelineError
from pipeline_src.vocabulary.encode import Encoder
from pipeline_src.vocabulary.learn import choose_alphabet, count_words, learn_vocabulary
from pipeline_src.vocabulary.wordpiece import SPECIAL_TOKENS, build_tokenizer, load_tokenizer, save_tokenizer

TEXT = [
    "the river ran through the old town and the new town",
    "an older river, a newer town; the oldest walls were walls of the river",
    "walls, towns, rivers: the newest are not the oldest",
]


def learn(size: int = 120) -> list[str]:
    return learn_vocabulary(count_words(TEXT, lowercase=True), size, alphabet=60, min_count=1)


def test_merges_follow_the_counts():
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}  # Sennrich et al. 2016, algorithm 1
    pieces = learn_vocabulary(words, 100, alphabet=26, min_count=1)
    merged = [piece for piece in pieces if len(piece.removeprefix("##")) > 1 and piece not in SPECIAL_TOKENS]
    assert merged[:2] == ["##es", "##est"] or merged[:2] == ["##st", "##est"]
    assert {"low", "newest", "widest"} <= set(pieces)


def test_size_is_kept_and_entries_are_distinct():
    pieces = learn(70)
    assert len(pieces) == 70 == len(set(pieces))
    assert tuple(pieces[:5]) == SPECIAL_TOKENS


def test_every_count_is_exact_after_merging():
    """The incremental pair counts give the same merges as counting afresh before each one."""
    rng = random.Random(3)
    words = {"".join(rng.choices("abc", k=rng.randint(1, 7))): rng.randint(1, 9) for _ in range(60)}
    spelled = {word: [word[0], *("##" + c for c in word[1:])] for word in words}
    expected = []
    for _ in range(25):
        counts: dict[tuple[str, str], int] = {}
        for word, pieces in spelled.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                counts[pair] = counts.get(pair, 0) + words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        piece = best[0] + best[1].removeprefix("##")
        if piece not in expected:
            expected.append(piece)
        for word, pieces in spelled.items():
            merged, i = [], 0
            while i < len(pieces):
                if tuple(pieces[i : i + 2]) == best:
                    merged.append(piece)
                    i += 2
                else:
                    merged.append(pieces[i])
                    i += 1
            spelled[word] = merged
    found = [p for p in learn_vocabulary(words, 5 + 6 + 20, 3, 1) if len(p.removeprefix("##")) > 1 and p[0] != "["]
    assert found == expected[: len(found)] and len(found) >= 15


def test_same_bytes_in_another_process():
    """String hashing differs from process to process; the vocabulary must not."""
    code = (
        f"from pipeline_src.vocabulary.learn import *\nprint(learn_vocabulary(count_words({TEXT!r}, True), 120, 60, 1))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{learn()}\n"}


def test_alphabet_keeps_the_frequent_characters_sorted():
    assert choose_alphabet({"aab": 3, "cb": 2, "z": 1}, 3) == ["a", "b", "c"]


def test_counting_by_chunks_is_counting_whole_text():
    text = "Ångström's café—naïve, 北京 [SEP] x́y"
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    whole = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    assert sorted(count_words([text], True).elements()) == sorted(whole)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(learn(), lowercase=True)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_the_cached_encoder_gives_the_tokenizers_ids(tokenizer, text):
    assert Encoder(tokenizer).encode(text) == tokenizer.encode(text, add_special_tokens=False).ids


def test_text_never_yields_control_tokens(tokenizer):
    special = {tokenizer.token_to_id(token) for token in SPECIAL_TOKENS} - {tokenizer.token_to_id("[UNK]")}
    assert not special & set(Encoder(tokenizer).encode("[CLS] the [SEP] river [MASK] [PAD]"))


def test_saved_files_load(tmp_path):
    save_tokenizer(tmp_path, learn(), lowercase=True)
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode("The OLDEST river").tokens[0] == "[CLS]"
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")[:5] == list(SPECIAL_TOKENS)
    assert loaded.encode("[SEP]", add_special_tokens=False).ids != [loaded.token_to_id("[SEP]")]


def test_a_folder_without_tokenizer_is_one_clear_error(tmp_path):
    with pytest.raises(PipelineError, match="no tokenizer here"):
        load_tokenizer(tmp_path)
