"""The stage that trains a tokenizer: same bytes in any process, counts of words, and extended vocabularies."""

import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json
from pipeline_src.study.data import VocabularyParams
from pipeline_src.text.documents import Document, in_validation_split, read_documents
from pipeline_src.tokenizer import train_tokenizer as train
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.train_tokenizer import TOO_LONG, WordCounts, count_words
from pipeline_src.tokenizer.wordpiece import UNK
from tests.studies import corpus_of, write_clean_text

CORPUS = corpus_of(validation=0.1)
CODE = """
import sys
from pipeline_src.text import documents
documents.slice_shards.__defaults__ = (int(sys.argv[1]),)
from pipeline_src.tokenizer import train_tokenizer as train
train.WordCounts.__init__.__defaults__ = (int(sys.argv[2]),)
from pipeline_src.study.data import VocabularyParams
from tests.studies import corpus_of
vocabulary = VocabularyParams(vocab_size=150, limit_alphabet=60, max_word_length=20)
train.run(seed=1, corpus=corpus_of(validation=0.1), vocabulary=vocabulary)
"""


def text(number: int) -> str:
    letters = "abcdefghijklmnop"
    words = [letters[(number * k) % 13 : (number * k) % 13 + 1 + k % 5] for k in range(1, 30)]
    return " ".join(words) + ".\nNaïve café, " + " ".join(words[::-1]) + " " + "z" * 30


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source, count in (("wikipedia", 40), ("books", 9)):
        write_clean_text(source, [Document(f"{source}:{n}", "", text(n)) for n in range(count)])
    return tmp_path


def run(**params) -> dict:
    vocabulary = VocabularyParams(**{"vocab_size": 150, "limit_alphabet": 60, "max_word_length": 20} | params)
    train.run(seed=1, corpus=CORPUS, vocabulary=vocabulary)
    return read_json("data/vocabulary/manifest.json")


def test_train_tokenizer_same_bytes_for_any_workers_slices_and_memory(study, root):
    run()
    expected = {path.name: hash_file(path) for path in (study / "data/vocabulary").iterdir()}
    assert set(expected) == {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "manifest.json"}
    for seed, workers, slice_size, limit in ((1, 1, 10**6, 10**6), (2, 2, 3000, 10), (3, 5, 500, 0)):
        environment = os.environ | {
            "PYTHONHASHSEED": str(seed), "PIPELINE_WORKERS": str(workers), "PYTHONPATH": str(root)
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", CODE, str(slice_size), str(limit)], check=True, env=environment)
        assert {path.name: hash_file(path) for path in (study / "data/vocabulary").iterdir()} == expected


def test_train_tokenizer_manifest_measures_the_vocabulary(study):
    manifest = run(limit_alphabet=26)
    tokenizer = load_tokenizer("data/vocabulary")
    folders = [study / "data/text" / source / "clean-text" for source in ("wikipedia", "books")]
    documents = [document for folder in folders for document in read_documents(folder)]
    training = [document for document in documents if not in_validation_split(document.id, 1, CORPUS.validation)]
    assert 0 < len(training) < len(documents)
    words = count_words([document.text.replace("\n", " ") for document in training], lowercase=True)
    tokens = {word: tokenizer.encode(word, add_special_tokens=False).tokens for word in words}
    total = sum(words.values())
    covered = sum(count for word, count in words.items() if UNK not in tokens[word])
    assert covered < total
    # The word of 30 letters in each document is longer than max_word_length.
    assert manifest == {
        "entries": tokenizer.get_vocab_size(),
        "words": total,
        "distinct_words": len(words) - 1,
        "coverage": pytest.approx(covered / total, abs=1e-6),
        "pieces_per_word": pytest.approx(sum(words[word] * len(tokens[word]) for word in words) / total, abs=1e-4),
        "dropped": {TOO_LONG: len(training)},
    }


def test_train_tokenizer_settings_are_written_to_the_files(study):
    manifest = run(lowercase=False, unused=10, min_frequency=1)
    pieces = (study / "data/vocabulary/vocab.txt").read_text().splitlines()
    assert pieces[:2] == ["[PAD]", "[unused0]"] and "N" in pieces and "ï" in "".join(pieces)
    assert manifest["entries"] == len(pieces)
    assert load_tokenizer("data/vocabulary").encode("z" * 21, add_special_tokens=False).tokens == [UNK]


@pytest.mark.parametrize("texts", [[], [""]])
def test_train_tokenizer_no_words_is_rejected_and_writes_nothing(study, texts):
    for source in ("wikipedia", "books"):
        write_clean_text(source, [Document(f"{source}:0", "", text) for text in texts])
    with pytest.raises(PipelineError, match="no text to learn a vocabulary from"):
        run()
    assert [path.name for path in (study / "data").iterdir()] == ["text"]


def test_train_tokenizer_vocab_size_too_small_keeps_old_files(study):
    run()
    before = hash_file("data/vocabulary/vocab.txt")
    with pytest.raises(PipelineError, match="the vocabulary is too small"):
        run(vocab_size=100, unused=90)
    assert hash_file("data/vocabulary/vocab.txt") == before


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text() | st.text("Aá [].\u0301\u00a0\n北"), max_size=4), st.booleans())
def test_count_words_equals_tokenizers_on_whole_text(paragraphs, lowercase):
    normalizer, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    words = [splitter.pre_tokenize_str(normalizer.normalize_str(text)) for text in paragraphs]
    assert count_words(paragraphs, lowercase) == Counter(word for text in words for word, _ in text)


def test_count_words_long_words_are_dropped_and_counted():
    dropped: Counter[str] = Counter()
    words = count_words(["a " + "b" * 8 + " " + "c" * 9 + ", " + "c" * 9], True, max_length=8, dropped=dropped)
    assert words == {"a": 1, "b" * 8: 1, ",": 1}
    assert dropped == {TOO_LONG: 2}


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text("abé\U0001f600", min_size=1, max_size=3), st.integers(1, 9)), max_size=6),
    st.sampled_from([0, 2, 1000]),
)
def test_word_counts_any_memory_limit_gives_same_counts(tmp_path_factory, additions, limit):
    words = WordCounts(tmp_path_factory.mktemp("runs"), limit)
    expected: Counter[str] = Counter()
    for counts in additions:
        words.add(counts)
        expected.update(counts)
    for _ in range(2):
        assert list(words.items()) == sorted(expected.items())
    assert bool(words) == bool(expected)


def test_word_counts_beyond_limit_go_to_disk(tmp_path):
    words = WordCounts(tmp_path, 1)
    words.add({"a": 1})
    assert not list(tmp_path.iterdir())
    words.add({"b": 1})
    assert (tmp_path / "0.tsv").exists()


@pytest.fixture
def start_tokenizer(study):
    """The tokenizer of a start model, with two unused entries."""
    run(vocab_size=100, unused=2)
    (study / "data/vocabulary").rename(study / "data/start_model")
    return load_tokenizer("data/start_model")


def test_train_tokenizer_kind_given_copies_start_model_files(start_tokenizer):
    manifest = run(kind="given")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        assert hash_file(f"data/vocabulary/{name}") == hash_file(f"data/start_model/{name}")
    assert manifest["entries"] == 100


def test_train_tokenizer_extend_adds_entries_for_split_words(start_tokenizer):
    before = run(kind="given")
    manifest = run(kind="given", num_added_tokens=5)
    old = start_tokenizer.get_vocab()
    new = load_tokenizer("data/vocabulary").get_vocab()
    # Two of the five are in place of unused ones.
    assert manifest["entries"] == len(new) == 103
    assert old.keys() - new.keys() == {"[unused0]", "[unused1]"}
    assert all(new[entry] == number for entry, number in old.items() if entry in new)
    assert manifest["pieces_per_word"] < before["pieces_per_word"]
    subwords = read_json("data/vocabulary/extended.json")
    added = new.keys() - old.keys()
    assert subwords.keys() == {str(new[entry]) for entry in added}
    for entry in added:
        parts = subwords[str(new[entry])]
        assert len(parts) > 1
        spelt = "".join(start_tokenizer.id_to_token(part).removeprefix("##") for part in parts)
        assert spelt == entry.removeprefix("##")
        if not entry.startswith("##"):
            assert parts == start_tokenizer.encode(entry, add_special_tokens=False).ids


def test_train_tokenizer_extend_stops_when_no_pairs_remain(start_tokenizer):
    manifest = run(kind="given", num_added_tokens=100_000)
    assert run(kind="given", num_added_tokens=100_000) == manifest and manifest["entries"] < 2000


def test_train_tokenizer_extend_byte_bpe_is_rejected(study):
    run(kind="byte_bpe", vocab_size=300)
    (study / "data/vocabulary").rename(study / "data/start_model")
    assert run(kind="given")["entries"] == 300
    with pytest.raises(PipelineError, match="this kind of vocabulary cannot be extended: BPE"):
        run(kind="given", num_added_tokens=1)
