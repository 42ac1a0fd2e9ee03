"""Passages and examples for the report: real ones, keyed, and few bytes read."""

import numpy as np
import pytest

from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.evaluation import samples
from pipeline_src.evaluation.samples import MOST, corpus_samples
from pipeline_src.examples import plan, tokens
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.examples import ExamplesParams, Lengths
from pipeline_src.params.pretrain import PretrainParams, Steps
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.vocabulary import train

WORDS = "river town road bridge tower field forest valley harbour market garden island castle".split()
PRETRAIN = PretrainParams(steps=Steps(short=1, long=1))
TEXTS: dict[str, str] = {}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A corpus of two parts up to its examples."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for part in ("wikipedia/a", "books"):
        folder = tmp_path / "data/text" / part
        folder.mkdir(parents=True)
        documents = []
        for number in range(20):
            lines = [" ".join(draw.choice(WORDS, 30)).capitalize() + "." for _ in range(8)]
            documents.append(Document(f"{part}:{number}", f"Title {number}", "\n".join(lines)))
            TEXTS[documents[-1].id] = documents[-1].text.replace("\n", " ")
        write_manifest(folder, [write_shard(folder / "x.jsonl", documents)], {})
    wikipedia, corpus = WikipediaParams(dump="d", parts=("a",)), CorpusParams(heldout=0.1)
    vocabulary = VocabularyParams(entries=100, alphabet=30)
    train.run(seed=1, corpus=corpus, vocabulary=vocabulary, wikipedia=wikipedia)
    tokens.run(seed=1, corpus=corpus, wikipedia=wikipedia)
    plan.run(seed=1, examples=ExamplesParams(lengths=Lengths(short=64, long=128), duplicates=2))


def test_passages_are_whole_lines_of_the_corpus_from_every_part(study):
    passages = corpus_samples(("a",), 1, 0.15, PRETRAIN)["passages"]
    assert len(passages) == 5 and {passage["part"] for passage in passages} == {"books", "wikipedia-a"}
    for passage in passages:
        assert passage["text"].removesuffix(" …") in TEXTS[passage["id"]]
        assert len(passage["text"].removesuffix(" …").split()) == passage["words"] <= MOST
    assert corpus_samples(("a",), 1, 0.15, PRETRAIN)["passages"] == passages
    assert corpus_samples(("a",), 2, 0.15, PRETRAIN)["passages"] != passages


def test_examples_are_shown_as_training_sees_them(study):
    shown = corpus_samples(("a",), 1, 0.5, PRETRAIN)["shown_examples"]
    assert len(shown) == 5 and all(isinstance(example["is_random"], bool) for example in shown)
    pieces = [piece for example in shown for segment in example["segments"] for piece in segment]
    assert all(len(example["segments"]) == 2 for example in shown)
    predicted = [piece for piece in pieces if piece["fate"]]
    assert 0.4 < len(predicted) / len(pieces) < 0.6 and all(piece["was"] for piece in predicted)
    assert {piece["text"] for piece in predicted if piece["fate"] == "mask"} == {"[MASK]"}
    assert all(piece["text"] == piece["was"] for piece in predicted if piece["fate"] == "keep")


def test_a_long_line_is_cut_and_a_short_document_is_shown_whole():
    long = samples._passage(Document("a", "", "\n".join(["word " * 300] * 3)))
    assert long["words"] == MOST and long["text"].endswith(" …")
    assert samples._passage(Document("b", "", "Two lines.\nOf text.")) == {"text": "Two lines. Of text.", "words": 4}
