"""Runs of 13 words that two texts share, and the texts of evaluation sets."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import write_json
from pipeline_src.examples import contamination
from pipeline_src.examples.contamination import RUN_WORDS, EvaluationRuns, Words, end_to_end, measure_overlap
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.tasks.evaluation_texts import FILE, read_texts, write_texts
from pipeline_src.tokenizer import unigram, wordpiece

VOCAB_SIZE = 1000
CONTINUES = np.arange(VOCAB_SIZE) >= 700  # continue a word
IS_WORD = np.arange(VOCAB_SIZE) >= 20  # the first twenty are punctuation
WORDS = Words(CONTINUES, IS_WORD)


def text(seed: int, words: int) -> list[int]:
    """Words of one to three pieces, a stop after every seventh."""
    rng = random.Random(seed)
    ids = []
    for number in range(words):
        ids += [rng.randrange(20, 700), *(rng.randrange(700, VOCAB_SIZE) for _ in range(rng.randrange(3)))]
        ids += [5] if number % 7 == 6 else []
    return ids


def word_starts(ids: list[int]) -> list[int]:
    return [position for position, number in enumerate(ids) if 20 <= number < 700]


@pytest.fixture
def corpus(tmp_path) -> TokenStore:
    writer = TokenWriter(tmp_path, "train", 100)
    for seed in range(20):
        ids = np.asarray(text(seed, 200))
        writer.add(ids, np.asarray([len(ids) - 10, 10]), np.asarray([2]))
    write_json(tmp_path / "manifest.json", {"splits": {"train": writer.close()}})
    return TokenStore(tmp_path, "train")


def measure(corpus, texts: list[list[int]], **more):
    return measure_overlap(corpus, WORDS, {"set": end_to_end(texts)}, **more)["set"]


LETTERS = "水车在河边转动磨坊ぐるまわกังหนำ้"
UNSPACED = {
    "unigram": unigram.build_tokenizer(
        [
            *((token, 0.0) for token in unigram.SPECIAL_TOKENS),
            *((piece, -5.0) for piece in ("▁", *LETTERS, "。", "水车")),
        ],
        lowercase=True,
    ),
    "WordPiece": wordpiece.build_tokenizer(
        [*wordpiece.reserved_tokens(0), *LETTERS, *(f"##{letter}" for letter in LETTERS), "。"], lowercase=False
    ),
}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("unigram", "水车在河边转动。磨坊在河边转动"), ("unigram", "กังหนำกังหนำกังหนำกังหนำ"),
     ("WordPiece", "水车ぐるぐるまわる。水车在河边"), ("WordPiece", "กังหนำกังหนำกังหนำ")],
)  # fmt: skip
def test_words_chinese_subwords_are_words(kind: str, text: str) -> None:
    tokenizer = UNSPACED[kind]
    words = Words.of(tokenizer)
    ids = np.asarray(tokenizer.encode(text, add_special_tokens=False).ids)
    num_words = int(words.written[ids].sum())
    assert num_words >= RUN_WORDS
    runs, _ = words.runs(ids, np.zeros(1, np.int64))
    assert len(runs) == num_words - RUN_WORDS + 1


def test_measure_overlap_copy_of_thirteen_words_is_counted(corpus):
    ids = text(4, 200)
    start = word_starts(ids)[30:]
    copied = ids[start[0] : start[RUN_WORDS]]
    twelve = ids[start[0] : start[RUN_WORDS - 1]] + text(99, 30)
    strangers = [text(seed, 50) for seed in range(100, 110)]
    result = measure(corpus, [copied, twelve, *strangers])
    assert (result["texts"], result["found"], result["share"]) == (12, 1, round(1 / 12, 4))
    assert 0 < result["share_of_runs"] < 0.01
    assert measure(corpus, [twelve[:12]]) == {"texts": 0, "found": 0, "share": None, "runs": 0, "share_of_runs": None}


def test_measure_overlap_run_across_two_training_documents_is_not_counted(corpus):
    first, second = text(3, 200), text(4, 200)
    across = first[word_starts(first)[-7] :] + second[: word_starts(second)[7]]
    assert measure(corpus, [across])["found"] == 0
    within = second[: word_starts(second)[RUN_WORDS]]
    assert measure(corpus, [within])["found"] == 1


def test_measure_overlap_any_blocks_and_workers_give_same_result(corpus, monkeypatch):
    texts = [text(seed, 40) for seed in (1, 2, 300, 301)]
    whole = measure(corpus, texts)
    monkeypatch.setattr(contamination, "BLOCK_TOKENS", 500)
    assert measure(corpus, texts, workers=2) == whole == measure(corpus, texts, workers=1)
    assert whole["found"] == 2


NUM_IDS = 12
IDS_WORDS = Words(np.arange(NUM_IDS) >= 8, np.arange(NUM_IDS) >= 2)  # two marks, six words, four continuations
IDS = st.lists(st.integers(0, NUM_IDS - 1), max_size=60)


def words_of(ids: list[int]) -> list[tuple[int, ...]]:
    """Words as tuples of pieces, without marks; the first piece opens one."""
    words: list[list[int]] = []
    for number in ids:
        if number >= 8 and words:
            words[-1].append(number)
        elif number >= 2:
            words.append([number])
    return [tuple(word) for word in words]


def runs_of(ids: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    words = words_of(ids)
    return [tuple(words[start : start + RUN_WORDS]) for start in range(len(words) - RUN_WORDS + 1)]


@given(st.lists(IDS, max_size=4), IDS, st.integers(0, 60), st.integers(0, 60))
def test_shared_text_equals_brute_force_search(
    texts: list[list[int]], document: list[int], start: int, length: int
) -> None:
    texts = [*texts, [3, *document[start : start + length]]]  # so that many do
    shared = EvaluationRuns.of(IDS_WORDS, *end_to_end(texts)).shared_text(np.asarray(document, np.uint16))
    known = {run: number for number, text in reversed(list(enumerate(texts))) for run in runs_of(text)}
    assert shared == next((known[run] for run in runs_of(document) if run in known), None)


@given(st.lists(st.tuples(st.text(max_size=5), st.text(st.characters(codec="utf-8"), max_size=30)), max_size=5))
def test_read_texts_returns_what_write_texts_wrote(texts: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        texts = [(task.encode("utf-8", "replace").decode(), text) for task, text in texts]
        assert write_texts(Path(folder), texts) == len(texts)
        assert list(read_texts(Path(folder))) == texts


def test_read_texts_damaged_line_is_rejected_with_line_number(tmp_path: Path) -> None:
    for line in ("[", '{"task": "rte"}', ""):
        (tmp_path / FILE).write_text(f'{{"task": "rte", "text": "x"}}\n{line}\n')
        with pytest.raises(PipelineError, match=r"invalid text of an evaluation set[\s\S]*texts\.jsonl:2"):
            list(read_texts(tmp_path))


def test_words_unknown_characters_are_no_shared_words() -> None:
    tokenizer = wordpiece.build_tokenizer([*wordpiece.SPECIAL_TOKENS, *"abcdefghijklm"], lowercase=True)
    words = Words.of(tokenizer)
    for text, runs in (("水 車 在 河 邊 轉 動 磨 坊 的 老 人 說 話", 0), (" ".join("abcdefghijklm"), 1)):
        ids = np.asarray(tokenizer.encode(text, add_special_tokens=False).ids)
        assert len(words.runs(ids, np.zeros(1, np.int64))[0]) == runs
