"""A custom task, from its catalogue entry and files to its row in the results."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.evaluate.evaluate import run
from pipeline_src.report.columns import TERMINAL, score_rows, text_table
from pipeline_src.study import task_spec as specs
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.tasks import download_tasks
from pipeline_src.tasks.evaluation_texts import read_texts
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tokenizer.wordpiece import build_tokenizer
from tests.studies import corpus_of
from tests.unit.evaluate.conftest import write_predictions, write_run

TASK = """
kind: classification
columns: {texts: [text], label: verdict}
labels: [bad, good]
train: train.SUFFIX
scores: {reviews: {title: Reviews, file: dev.SUFFIX, metrics: [accuracy, f1, macro_f1],
                   test: {file: test.SUFFIX, submit: Reviews.tsv}}}
"""
SOURCE = """
description: Reviews of our own
licence: ours
citation: none
files:
  - {path: ., url: "file:data/own/reviews/*"}
"""
TEXTS = ['a "good" film', "a bad film", "good 中国", "bad", "so good"]
LABELS = ["good", "bad", "good", "bad", "good"]


def tsv(labelled: bool) -> str:
    if not labelled:
        return "text\n" + "".join(f"{text}\n" for text in TEXTS)
    return "text\tverdict\n" + "".join(f"{text}\t{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))


def jsonl(labelled: bool) -> str:
    rows = [
        {"text": text, **({"verdict": label} if labelled else {})} for text, label in zip(TEXTS, LABELS, strict=True)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def add_to_catalogue(catalogue: Path, project: Path, suffix: str) -> Path:
    """Declare the task; return the empty folder for its files."""
    (catalogue / "tasks/reviews.yaml").write_text(TASK.replace("SUFFIX", suffix))
    (catalogue / "task_sources/reviews.yaml").write_text(SOURCE)
    folder = project / "data/own/reviews"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("task_source", "suffix", "content"), [("synthetic", "tsv", tsv), ("official", "jsonl", jsonl)]
)
def test_custom_task_from_catalogue_entry_to_score_table(
    project: Path, catalogue: Path, caplog, task_source: str, suffix: str, content
):
    folder = add_to_catalogue(catalogue, project, suffix)
    assert "reviews" in specs.task_names()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.{suffix}").write_text(content(name != "test"), encoding="utf-8")
    tasks = ("rte", "reviews") if task_source == "synthetic" else ("reviews",)
    with caplog.at_level(logging.INFO):
        download_tasks.run(
            seed=1, task_source=task_source, tasks=tasks, corpus=corpus_of(), interpretation=InterpretationParams()
        )
    kinds = "2 tasks in data/tasks: 1 fetched, 1 synthetic" if "rte" in tasks else ": 1 fetched"
    assert kinds in caplog.text
    assert list(read_texts(project / "data/evaluation_texts")) == []  # `report`

    spec, folder = specs.load_spec("reviews"), project / "data/tasks/reviews"
    scorer = make_task(spec)
    tokenizer = build_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad"], lowercase=True)
    files = {"train": (None, False), "dev": ("reviews", False), "test": ("reviews", True)}
    for name, (row, test) in files.items():
        examples = scorer.read(folder / f"{name}.{suffix}", row, test=test)
        assert [example.texts[0] for example in examples] == TEXTS
        features = scorer.features(examples, tokenizer, 16)
        assert features.items == 5 and features.labels.tolist() == ([-1] * 5 if test else [1, 0, 1, 0, 1])
        if row:
            outputs = np.array([[0, 1], [1, 0], [3, 1], [1, 0], [0, 2]], np.float32)  # the third is wrong
            rows = scorer.predict(examples, features, outputs)
            write_predictions("reviews", "1", f"pretrained/reviews{'.test' if test else ''}.jsonl", rows)
    write_run("reviews", "1", {"weights": "pretrained", "dev": {"accuracy": 80.0, "f1": 80.0}})
    if "rte" in tasks:
        gold = [example.label for example in make_task(specs.load_spec("rte")).read("data/tasks/rte/dev.tsv")]
        labels = specs.load_spec("rte").labels
        write_predictions("rte", "1", "pretrained/rte.jsonl", [labels[label] for label in gold])
        write_run("rte", "1", {"weights": "pretrained", "dev": {"accuracy": 100.0}})

    run(task_source=task_source, tasks=tasks, finetune=FinetuneParams(seeds=(1,)))
    scores = read_json("results/scores.json")
    means = {row["metric"]: row["mean"] for row in scores["rows"] if row["task"] == "reviews"}
    assert means == {"accuracy": pytest.approx(80.0), "f1": pytest.approx(80.0), "macro_f1": pytest.approx(80.0)}
    first = scores["rows"][0]
    assert scores["further"] == ["reviews"] and first["task"] == "reviews"  # before synthetic ones
    assert first["baselines"]["bag_of_words"]["score"] >= 60
    errors = read_json("results/tasks/reviews.json")["errors"]["reviews"]
    assert errors["confusion"]["counts"] == [[2, 0], [1, 2]]
    recalls = [(row["label"], row["support"], row["recall"]) for row in errors["classes"]]
    assert recalls == [("bad", 2, 100.0), ("good", 3, pytest.approx(200 / 3))]
    assert [(error["text"], error["gold"], error["predicted"]) for error in errors["worst"]] == [
        (TEXTS[2], "good", "bad")
    ]
    submitted = (project / "results/submissions/Reviews.tsv").read_text().splitlines()
    assert submitted[:4] == ["index\tprediction", "0\tgood", "1\tbad", "2\tbad"]

    table = text_table(TERMINAL, score_rows(scores))
    assert "| Reviews " in table and "Reviews (synthetic)" not in table
    assert ("RTE (synthetic)" in table) == (task_source == "synthetic")


def documented(start: str) -> str:
    """Return the YAML block of docs/tasks.md that begins with ``start``."""
    text = (Path(__file__).parents[3] / "docs/tasks.md").read_text(encoding="utf-8")
    return start + text.split(f"```yaml\n{start}")[1].split("```")[0]


def test_documented_retrieval_task_in_beir_layout_is_read(project: Path, catalogue: Path):
    (catalogue / "tasks/nano_nq.yaml").write_text(documented("kind: retrieval"))
    own = "{path: ., url: 'file:data/own/nano_nq/*'}, {path: qrels, url: 'file:data/own/nano_nq/qrels/*'}"
    about = "description: NanoNQ\nlicence: ours\ncitation: none\n"
    (catalogue / "task_sources/nano_nq.yaml").write_text(f"{about}files: [{own}]\n")
    folder = project / "data/own/nano_nq"
    (folder / "qrels").mkdir(parents=True)
    files = {
        "train.tsv": "query\tpassage\nwho\ta king\nwhat\ta town\n",
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t1\n",
        "queries.jsonl": '{"_id": "q1", "text": "where"}\n',
        "corpus.jsonl": '{"_id": "d1", "text": "here"}\n{"_id": "d2", "text": "there"}\n',
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    fetch = {"seed": 1, "task_source": "official", "tasks": ("nano_nq",), "interpretation": InterpretationParams()}
    download_tasks.run(corpus=corpus_of(), **fetch)
    (query,) = make_task(specs.load_spec("nano_nq")).read("data/tasks/nano_nq/qrels/test.tsv", "nano_nq")
    assert (query.query, query.corpus, query.relevant) == ("where", ("here", "there"), {1})
    assert set(download_tasks.evaluation_texts("nano_nq", project / "data/tasks/nano_nq")) == {"where", "there"}
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(PipelineError, match="task file not found.*corpus.jsonl"):
        download_tasks.run(corpus=corpus_of(), **fetch)
