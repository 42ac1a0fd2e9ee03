"""Documents to token shards: sentences kept apart, held-out documents apart, only listed parts read."""

import pytest

from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.corpus.heldout import is_heldout
from pipeline_src.errors import PipelineError
from pipeline_src.examples.store import TokenStore
from pipeline_src.examples.tokens import run
from pipeline_src.files import hash_file, read_json
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.vocabulary import train
from pipeline_src.vocabulary.wordpiece import load_tokenizer

WIKIPEDIA = WikipediaParams(dump="d", parts=("a",))
CORPUS = CorpusParams(heldout=0.3)


def write_corpus(folder, prefix: str, count: int) -> None:
    folder.mkdir(parents=True)
    documents = [
        Document(f"{prefix}:{n}", f"T{n}", f"Number {n} is first. It has words.\nA second paragraph, number {n}.")
        for n in range(count)
    ]
    write_manifest(folder, [write_shard(folder / "x.jsonl", documents)], {"redirect": 2})


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "data/text/wikipedia/a", "wiki", 30)
    write_corpus(tmp_path / "data/text/wikipedia/left-over", "old", 30)
    write_corpus(tmp_path / "data/text/books", "books", 10)
    vocabulary = VocabularyParams(size=150, alphabet=60)
    train.run(seed=1, corpus=CORPUS, vocabulary=vocabulary, wikipedia=WIKIPEDIA)
    return tmp_path


def test_every_document_lands_in_its_split(study):
    run(seed=1, corpus=CORPUS, wikipedia=WIKIPEDIA)
    ids = [f"books:{n}" for n in range(10)] + [f"wiki:{n}" for n in range(30)]
    tokenizer = load_tokenizer("data/vocabulary")
    for split, wanted in (("train", False), ("heldout", True)):
        store = TokenStore("data/tokens", split)
        expected = [name for name in ids if is_heldout(name, 1, 0.3) is wanted]
        assert store.documents == len(expected)
        for number, name in enumerate(expected):
            offsets = store.document(number)
            assert len(offsets) == 4  # three sentences
            first = f"Number {name.split(':')[1]} is first."
            assert store.span(offsets[0], offsets[1]).tolist() == tokenizer.encode(first, add_special_tokens=False).ids


def test_statistics_count_what_was_written(study):
    run(seed=1, corpus=CORPUS, wikipedia=WIKIPEDIA)
    corpus = read_json("results/corpus.json")
    assert set(corpus["parts"]) == {"books", "wikipedia-a"}  # the left-over part is not read
    part = corpus["parts"]["wikipedia-a"]
    assert part["train"]["documents"] + part["heldout"]["documents"] == 30 == part["documents"]
    assert part["dropped"] == {"redirect": 2} and corpus["vocabulary"]["coverage"] > 0.9


def test_same_bytes_again(study):
    def hashes() -> list[str]:
        run(seed=1, corpus=CORPUS, wikipedia=WIKIPEDIA)
        return [hash_file(path) for path in sorted((study / "data/tokens").rglob("*")) if path.is_file()]

    assert hashes() == hashes()


def test_a_split_without_documents_is_one_clear_error(study):
    with pytest.raises(PipelineError, match="no document in split 'heldout'"):
        run(seed=1, corpus=CorpusParams(heldout=1e-9), wikipedia=WIKIPEDIA)
    assert not (study / "data/tokens").exists()
