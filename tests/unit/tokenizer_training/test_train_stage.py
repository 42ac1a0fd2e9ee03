"""The stage: same bytes whatever the process, and figures that hold."""

import json
import os
import subprocess
import sys

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.wordpiece import UNK
from pipeline_src.tokenizer_training import counting
from pipeline_src.tokenizer_training import train_tokenizer as train
from pipeline_src.tokenizer_training.counting import count_words

WIKIPEDIA = WikipediaParams(dump="d", parts=("a",))
CORPUS = CorpusParams(validation=0.1)
CODE = """
import sys
from pipeline_src.corpus import documents
documents.slice_shards.__defaults__ = (int(sys.argv[1]),)
from pipeline_src.tokenizer_training import counting, train_tokenizer as train
counting.WordCounts.__init__.__defaults__ = (int(sys.argv[2]),)
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
vocabulary = VocabularyParams(entries=150, alphabet=60, longest_word=20)
wikipedia = WikipediaParams(dump="d", parts=("a",))
train.run(seed=1, corpus=CorpusParams(validation=0.1), vocabulary=vocabulary, wikipedia=wikipedia)
"""


def text(number: int) -> str:
    letters = "abcdefghijklmnop"
    words = [letters[(number * k) % 13 : (number * k) % 13 + 1 + k % 5] for k in range(1, 30)]
    return " ".join(words) + ".\nNaïve café, " + " ".join(words[::-1]) + " " + "z" * 30


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, prefix, count in (("wikipedia/a/clean-text", "wiki", 40), ("books", "books", 9)):
        path = tmp_path / "data/text" / folder
        path.mkdir(parents=True)
        documents = [Document(f"{prefix}:{n}", "", text(n)) for n in range(count)]
        write_manifest(path, [write_shard(path / "x.jsonl", documents)], {})
    return tmp_path


def run(**params) -> dict:
    vocabulary = VocabularyParams(**{"entries": 150, "alphabet": 60, "longest_word": 20} | params)
    train.run(seed=1, corpus=CORPUS, vocabulary=vocabulary, wikipedia=WIKIPEDIA)
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
    assert manifest["dropped"] == {counting.TOO_LONG: len(kept)}
    assert manifest["distinct_words"] == len(words) - 1
    covered = sum(count for word, count in words.items() if UNK not in encoded[word])
    assert manifest["coverage"] == pytest.approx(covered / total, abs=1e-6) and covered < total
    assert manifest["pieces_per_word"] == pytest.approx(
        sum(count * len(encoded[word]) for word, count in words.items()) / total, abs=1e-4
    )


def test_cased_unused_and_longest_word_reach_the_files(study):
    manifest = run(lowercase=False, unused=10, min_count=1)
    pieces = (study / "data/vocabulary/vocab.txt").read_text().splitlines()
    assert pieces[:2] == ["[PAD]", "[unused0]"] and "N" in pieces and "ï" in "".join(pieces)
    assert manifest["entries"] == len(pieces)
    assert load_tokenizer("data/vocabulary").encode("z" * 21, add_special_tokens=False).tokens == [UNK]


@pytest.mark.parametrize("content", [None, ""])
def test_no_words_are_one_clear_error_and_leave_nothing(study, content):
    for path in (study / "data/text/wikipedia/a/clean-text", study / "data/text/books"):
        documents = [] if content is None else [Document(f"{path.name}:0", "", content)]
        write_manifest(path, [write_shard(path / "x.jsonl", documents)], {})
    with pytest.raises(PipelineError, match="no text to learn a vocabulary from"):
        run()
    assert not (study / "data/vocabulary").exists() and len(list((study / "data").iterdir())) == 1


def test_a_size_without_room_is_one_clear_error_and_keeps_the_old_vocabulary(study):
    run()
    before = hash_file("data/vocabulary/vocab.txt")
    with pytest.raises(PipelineError, match="the vocabulary is too small"):
        run(entries=100, unused=90)
    assert hash_file("data/vocabulary/vocab.txt") == before
