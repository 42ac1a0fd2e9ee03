"""The stage: same bytes whatever the process, and figures that hold."""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.config.data import VocabularyParams
from pipeline_src.corpus.documents import Document, in_validation_split, slice_shards, write_manifest, write_shard
from pipeline_src.tokenizer import train_tokenizer as train
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.train_tokenizer import TOO_LONG, WordCounts, count_shards, count_words
from pipeline_src.tokenizer.wordpiece import UNK
from tests.sources import corpus_of

CORPUS = corpus_of(validation=0.1)
CODE = """
import sys
from pipeline_src.corpus import documents
documents.slice_shards.__defaults__ = (int(sys.argv[1]),)
from pipeline_src.tokenizer import train_tokenizer as train
train.WordCounts.__init__.__defaults__ = (int(sys.argv[2]),)
from pipeline_src.config.data import VocabularyParams
from tests.sources import corpus_of
vocabulary = VocabularyParams(vocab_size=150, alphabet=60, max_word_length=20)
train.run(seed=1, corpus=corpus_of(validation=0.1), vocabulary=vocabulary)
"""


def text(number: int) -> str:
    letters = "abcdefghijklmnop"
    words = [letters[(number * k) % 13 : (number * k) % 13 + 1 + k % 5] for k in range(1, 30)]
    return " ".join(words) + ".\nNaïve café, " + " ".join(words[::-1]) + " " + "z" * 30


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, prefix, count in (("wikipedia/clean-text", "wiki", 40), ("books/clean-text", "books", 9)):
        path = tmp_path / "data/text" / folder
        path.mkdir(parents=True)
        documents = [Document(f"{prefix}:{n}", "", text(n)) for n in range(count)]
        write_manifest(path, [write_shard(path / "x.jsonl", documents)], {})
    return tmp_path


def run(**params) -> dict:
    vocabulary = VocabularyParams(**{"vocab_size": 150, "alphabet": 60, "max_word_length": 20} | params)
    train.run(seed=1, corpus=CORPUS, vocabulary=vocabulary)
    return read_json("data/vocabulary/manifest.json")


def test_same_bytes_in_other_processes_with_other_workers_slices_and_memory(study, root):
    run()
    expected = {path.name: hash_file(path) for path in (study / "data/vocabulary").iterdir()}
    assert set(expected) == {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "manifest.json"}
    for seed, workers, size, most in ((1, 1, 10**6, 10**6), (2, 2, 3000, 10), (3, 5, 500, 0)):
        environment = os.environ | {
            "PYTHONHASHSEED": str(seed), "PIPELINE_WORKERS": str(workers), "PYTHONPATH": str(root)
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", CODE, str(size), str(most)], check=True, env=environment)
        assert {path.name: hash_file(path) for path in (study / "data/vocabulary").iterdir()} == expected


def test_the_manifest_measures_the_vocabulary(study):
    manifest = run(alphabet=26)
    tokenizer = load_tokenizer("data/vocabulary")
    documents = [json.loads(line) for path in study.rglob("*.jsonl") for line in path.read_text().splitlines()]
    kept = [document for document in documents if not in_validation_split(document["id"], 1, CORPUS.validation)]
    assert 0 < len(kept) < len(documents)
    lines = [line for document in kept for line in document["text"].split("\n")]
    words = count_words(lines, True)
    encoded = {word: tokenizer.encode(word, add_special_tokens=False).tokens for word in words}
    total = sum(words.values())
    assert manifest["words"] == total
    assert manifest["dropped"] == {train.TOO_LONG: len(kept)}
    assert manifest["distinct_words"] == len(words) - 1
    covered = sum(count for word, count in words.items() if UNK not in encoded[word])
    assert manifest["coverage"] == pytest.approx(covered / total, abs=1e-6) and covered < total
    assert manifest["pieces_per_word"] == pytest.approx(
        sum(count * len(encoded[word]) for word, count in words.items()) / total, abs=1e-4
    )


def test_cased_unused_and_longest_word_reach_the_files(study):
    manifest = run(lowercase=False, unused=10, min_frequency=1)
    pieces = (study / "data/vocabulary/vocab.txt").read_text().splitlines()
    assert pieces[:2] == ["[PAD]", "[unused0]"] and "N" in pieces and "ï" in "".join(pieces)
    assert manifest["entries"] == len(pieces)
    assert load_tokenizer("data/vocabulary").encode("z" * 21, add_special_tokens=False).tokens == [UNK]


@pytest.mark.parametrize("content", [None, ""])
def test_no_words_are_one_clear_error_and_leave_nothing(study, content):
    for path in (study / "data/text/wikipedia/clean-text", study / "data/text/books/clean-text"):
        documents = [] if content is None else [Document(f"{path.name}:0", "", content)]
        write_manifest(path, [write_shard(path / "x.jsonl", documents)], {})
    with pytest.raises(PipelineError, match="no text to learn a vocabulary from"):
        run()
    assert not (study / "data/vocabulary").exists() and len(list((study / "data").iterdir())) == 1


def test_a_size_without_room_is_one_clear_error_and_keeps_the_old_vocabulary(study):
    run()
    before = hash_file("data/vocabulary/vocab.txt")
    with pytest.raises(PipelineError, match="the vocabulary is too small"):
        run(vocab_size=100, unused=90)
    assert hash_file("data/vocabulary/vocab.txt") == before


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text() | st.text("Aá [].\u0301\u00a0\n北"), max_size=4), st.booleans())
def test_counting_by_chunks_is_counting_whole_text(paragraphs, lowercase):
    normalizer, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    whole = Counter(
        word for text in paragraphs for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    assert count_words(paragraphs, lowercase) == whole


def test_long_words_are_counted_but_not_kept():
    dropped: Counter[str] = Counter()
    words = count_words(["a " + "b" * 8 + " " + "c" * 9 + ", " + "c" * 9], True, longest=8, dropped=dropped)
    assert words == {"a": 1, "b" * 8: 1, ",": 1}
    assert dropped == {TOO_LONG: 2}


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text("abé\U0001f600", min_size=1, max_size=3), st.integers(1, 9)), max_size=6))
def test_sums_do_not_depend_on_the_limit_of_memory(tmp_path_factory, additions):
    folder = tmp_path_factory.mktemp("runs")
    expected: Counter[str] = Counter()
    for counts in additions:
        expected.update(counts)
    for most in (0, 2, 1000):
        (folder / str(most)).mkdir()
        words = WordCounts(folder / str(most), most)
        for counts in additions:
            words.add(counts)
        for _ in range(2):
            assert list(words.items()) == sorted(expected.items())
        assert bool(words) == bool(expected)


def test_many_words_go_to_disk(tmp_path):
    words = WordCounts(tmp_path, most=1)
    words.add({"a": 1})
    assert not list(tmp_path.iterdir())
    words.add({"b": 1})
    assert (tmp_path / "0.tsv").read_text() == "a\t1\nb\t1\n"


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    documents = [Document(f"d:{n}", f"T{n}", f"Number {n}, naïve café.\nSecond: x{n % 7} " * 5) for n in range(60)]
    shards = [write_shard(folder / f"{n}.jsonl", part) for n, part in enumerate([documents[:40], [], documents[40:]])]
    write_manifest(folder, shards, {})
    return folder, documents


@pytest.mark.parametrize(("size", "workers", "most"), [(1 << 20, 1, 1000), (700, 2, 5), (97, 1, 0)])
def test_sums_do_not_depend_on_slices_workers_or_memory(corpus, tmp_path, monkeypatch, size, workers, most):
    folder, documents = corpus
    monkeypatch.setenv("PIPELINE_WORKERS", str(workers))
    words = WordCounts(tmp_path, most)
    dropped = count_shards(slice_shards(folder, size), words, partial(count_words, lowercase=True, longest=5), 3, 0.3)
    training = [document.text for document in documents if not in_validation_split(document.id, 3, 0.3)]
    assert 0 < len(training) < 60
    lost: Counter[str] = Counter()
    expected = count_words((line for text in training for line in text.split("\n")), True, 5, lost)
    assert dict(words.items()) == expected
    assert dropped == lost == {TOO_LONG: 10 * len(training)}  # "number" and "second"


@pytest.fixture
def start(study):
    """A start model's vocabulary, with two unused entries."""
    run(vocab_size=100, unused=2)
    (study / "data/vocabulary").rename(study / "data/start_model")
    return load_tokenizer("data/start_model")


def test_a_given_vocabulary_is_the_start_model_s(start):
    manifest = run(kind="given")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        assert hash_file(f"data/vocabulary/{name}") == hash_file(f"data/start_model/{name}")
    assert manifest["entries"] == 100


def test_added_entries_are_learnt_from_words_that_the_old_vocabulary_cuts(start):
    before, manifest = run(kind="given"), run(kind="given", extend=5)
    old, new = start.get_vocab(), load_tokenizer("data/vocabulary").get_vocab()
    assert manifest["entries"] == len(new) == 103  # two in place of unused ones
    assert old.keys() - new.keys() == {"[unused0]", "[unused1]"}
    assert all(new[entry] == number for entry, number in old.items() if entry in new)
    assert manifest["pieces_per_word"] < before["pieces_per_word"]
    parts = read_json("data/vocabulary/extended.json")
    spelt = {number: entry for entry, number in old.items()}
    assert {int(number) for number in parts} == set(new.values()) - {new[each] for each in old if each in new}
    for entry, number in new.items():
        if entry not in old:
            whole = "".join(spelt[part].removeprefix("##") for part in parts[str(number)])
            assert whole == entry.removeprefix("##") and len(parts[str(number)]) > 1
            if not entry.startswith("##"):
                assert parts[str(number)] == start.encode(entry, add_special_tokens=False).ids


def test_more_entries_than_pairs_of_subwords_are_as_many_as_there_are(start):
    manifest = run(kind="given", extend=100_000)
    assert run(kind="given", extend=100_000) == manifest and manifest["entries"] < 2000


def test_byte_level_vocabularies_are_not_extended(study):
    run(kind="byte_bpe", vocab_size=300)
    (study / "data/vocabulary").rename(study / "data/start_model")
    assert run(kind="given")["entries"] == 300
    with pytest.raises(PipelineError, match="only a WordPiece vocabulary can be extended: BPE"):
        run(kind="given", extend=1)
