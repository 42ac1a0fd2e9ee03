"""Statistics of the corpus, counted from the files of the corpus stages."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from pipeline_src.base.files import write_json
from pipeline_src.engine.fingerprint import imported_files
from pipeline_src.examples import build_examples
from pipeline_src.examples import corpus_statistics as module
from pipeline_src.examples import tokenize_corpus as tokens
from pipeline_src.examples.corpus_statistics import (
    MAX_PASSAGE_WORDS,
    corpus_statistics,
    describe,
    overlap_warning,
    sample_passages,
)
from pipeline_src.examples.token_store import SAMPLE_INDEX
from pipeline_src.stages import STAGES
from pipeline_src.study.data import ExamplesParams, Lengths, VocabularyParams
from pipeline_src.text.documents import Document, in_validation_split, read_documents
from pipeline_src.tokenizer import train_tokenizer as train
from tests.studies import corpus_of, write_clean_text

CORPUS = corpus_of(validation=0.2)
WORDS = "river town road bridge tower field forest valley harbour market garden island castle".split()


def sentence_of(seed: int, count: int = 15) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, count)).capitalize() + "."


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Outputs of the corpus stages on two small sources, and three tasks."""
    monkeypatch.chdir(tmp_path)
    for source, seed, more in (
        ("wikipedia", 0, {"language": "fr", "unknown_templates": [["odd", 3], ["a", 1]]}),
        ("books", 1000, {}),
    ):
        texts = ["\n".join(sentence_of(seed + 10 * n + i) for i in range(6)) for n in range(30)]
        documents = [Document(f"{source}:{n}", "", text) for n, text in enumerate(texts)]
        write_clean_text(source, documents, dropped_lines={"list": 7}, **more)
    train.run(seed=1, corpus=CORPUS, vocabulary=VocabularyParams(vocab_size=100, limit_alphabet=30))
    tokens.run(seed=1, corpus=CORPUS)
    build_examples.run(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=64, phase2=128), dupe_factor=2))

    number = next(n for n in range(30) if not in_validation_split(f"wikipedia:{n}", 1, CORPUS.validation))
    known = sentence_of(10 * number + 2)
    unknown = "A passage of which no word stands in the corpus, nor will it ever do so at all."
    paragraphs = []
    for index, passage in enumerate((known, unknown, known)):
        question = {"id": str(index), "question": "Where?", "answers": [{"text": "A", "answer_start": 0}]}
        paragraphs.append({"context": passage, "qas": [question]})
    Path("data/tasks/qnli").mkdir(parents=True)
    for name in ("train", "dev"):
        write_json(f"data/tasks/squad1/{name}-v1.1.json", {"data": [{"title": "t", "paragraphs": paragraphs}]})
        Path(f"data/tasks/qnli/{name}.tsv").write_text(
            f"index\tquestion\tsentence\tlabel\n0\tWhere?\t{known}\tentailment\n"
        )
    return tmp_path


def test_corpus_statistics_counts_every_stage(study):
    result = corpus_statistics(CORPUS.sources, ("squad1", "qnli", "cola"))
    part = result["parts"]["wikipedia"]
    assert part["documents"] == part["train"]["documents"] + part["validation"]["documents"] == 30
    assert part["train"]["sentences"] == 6 * part["train"]["documents"]
    assert part["dropped_inside"] == {"list": 7}
    assert result["unknown_templates"] == {"fr": [["odd", 3], ["a", 1]]}
    assert result["vocabulary"]["entries"] > 90
    examples = result["examples"]["phase1"]
    assert (examples["pairs"], examples["length"]) == ("nsp", 64)
    assert examples["train"] == describe(np.load("data/examples/phase1/train.npy"), 64, 3)


def test_corpus_statistics_task_passages_in_corpus_are_counted(study):
    overlap = corpus_statistics(CORPUS.sources, ("squad1", "qnli", "cola"))["overlap"]
    train_text = {"squad1/train-v1.1.json", "squad1/dev-v1.1.json", "qnli/train.tsv", "qnli/dev.tsv"}
    assert set(overlap) == {"validation documents"} | train_text
    assert overlap["validation documents"]["found"] == 0  # no sentence_of stands in two documents
    assert (overlap["squad1/dev-v1.1.json"]["texts"], overlap["squad1/dev-v1.1.json"]["found"]) == (2, 1)
    assert overlap["qnli/dev.tsv"]["share"] == 1.0
    assert list(corpus_statistics(CORPUS.sources, ("cola",))["overlap"]) == ["validation documents"]


@pytest.mark.parametrize(
    ("found", "texts", "expected"),
    [(11, 100, "11 of 100 validation documents share a run of 13 words"), (10, 100, ""), (0, 5, ""), (0, 0, "")],
)
def test_overlap_warning_more_than_a_tenth_of_validation_is_logged_and_recorded(caplog, found, texts, expected):
    share = found / texts if texts else None
    warning = overlap_warning({"texts": texts, "found": found, "share": share})
    assert warning.startswith(expected)
    assert bool(warning) == bool(expected) == bool(caplog.text)
    assert warning in caplog.text


def test_corpus_statistics_shared_validation_text_is_recorded(study, monkeypatch):
    assert "overlap_warning" not in corpus_statistics(CORPUS.sources, ("cola",))
    monkeypatch.setattr(module, "MAX_SHARED", -1)
    assert "validation documents share" in corpus_statistics(CORPUS.sources, ("cola",))["overlap_warning"]


def test_describe_counts_tokens_lengths_and_random_pairs():
    index = np.zeros(4, SAMPLE_INDEX)
    index["a_length"] = [61, 20, 5, 1]
    index["b_length"] = [64, 9, 5, 1]
    index["is_random"] = [1, 0, 0, 0]
    assert describe(index, 128, 3) == {
        "examples": 4,
        "tokens": 128 + 32 + 13 + 5,
        "fill": round(178 / 512, 4),
        "random_next": 0.25,
        "lengths": {"up_to": list(range(8, 129, 8)), "examples": [1, 1, 0, 0, 1, *[0] * 10, 1]},
    }


def test_corpus_statistics_runs_without_training_results(root):
    """A changed metric or masking rate reads no text again."""
    imported = imported_files(STAGES["corpus_statistics"].module)
    assert not {"pipeline_src/tasks/metrics.py", "pipeline_src/evaluate/scores.py"} & set(imported)
    stage = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]["corpus_statistics"]
    assert not [path for path in stage["deps"] if path.startswith(("models", "results"))]
    assert set(stage["params"]) == {"seed", "tasks", "corpus.sources"}


def test_sample_passages_takes_lines_from_every_source(study):
    folders = {source: study / "data/text" / source / "clean-text" for source in ("books", "wikipedia")}
    passages = sample_passages(folders, 1)
    assert len(passages) == 5
    assert {passage["part"] for passage in passages} == {"books", "wikipedia"}
    texts = {document.id: document.text for folder in folders.values() for document in read_documents(folder)}
    for passage in passages:
        text = passage["text"].removesuffix(" …")
        assert text in texts[passage["id"]].replace("\n", " ")
        assert len(text.split()) == passage["words"] <= MAX_PASSAGE_WORDS
    assert sample_passages(folders, 1) == passages
    assert sample_passages(folders, 2) != passages


@pytest.mark.parametrize(
    ("text", "passage", "words"),
    [
        ("\n".join(["word " * 300] * 3), "word " * MAX_PASSAGE_WORDS + "…", MAX_PASSAGE_WORDS),
        ("水车在河边转动。" * 100, "水车在河边转动。" * 22 + "水车在河 …", MAX_PASSAGE_WORDS),
        ("Two lines.\nOf text.", "Two lines. Of text.", 4),
    ],
)
def test_passage_long_line_is_truncated(text, passage, words):
    assert module._passage(Document("a", "", text)) == {"text": passage, "words": words}
