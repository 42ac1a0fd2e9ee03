"""A custom task, from its catalogue entry and files to its row in the results."""

from __future__ import annotations

import json
from pathlib import Path

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
PREDICTED = ["good", "bad", "bad", "bad", "good"]


def tsv(labelled: bool) -> str:
    rows = zip(["text", *TEXTS], ["verdict", *LABELS], strict=True)
    return "".join(f"{text}\t{label}\n" if labelled else f"{text}\n" for text, label in rows)


def jsonl(labelled: bool) -> str:
    keys = ("text", "verdict") if labelled else ("text",)
    return "".join(json.dumps(dict(zip(keys, row, strict=False))) + "\n" for row in zip(TEXTS, LABELS, strict=True))


@pytest.mark.parametrize(("suffix", "content"), [("tsv", tsv), ("jsonl", jsonl)])
def test_custom_task_from_catalogue_entry_appears_in_score_table(project: Path, catalogue: Path, suffix: str, content):
    (catalogue / "tasks/reviews.yaml").write_text(TASK.replace("SUFFIX", suffix))
    (catalogue / "task_sources/reviews.yaml").write_text(SOURCE)
    folder = project / "data/own/reviews"
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.{suffix}").write_text(content(name != "test"), encoding="utf-8")
    tasks = ("reviews", "rte")
    options = {"corpus": corpus_of(), "interpretation": InterpretationParams()}
    download_tasks.run(seed=1, task_source="synthetic", tasks=tasks, **options)
    assert list(read_texts(project / "data/evaluation_texts")) == []  # `report`

    task = make_task(specs.load_spec("reviews"))
    for name, test in (("dev", False), ("test", True)):
        examples = task.read(project / f"data/tasks/reviews/{name}.{suffix}", "reviews", test=test)
        assert [example.texts[0] for example in examples] == TEXTS
    write_predictions("reviews", "1", "pretrained/reviews.jsonl", PREDICTED)
    write_predictions("reviews", "1", "pretrained/reviews.test.jsonl", PREDICTED)
    write_run("reviews", "1", {"weights": "pretrained", "dev": {"accuracy": 80.0, "f1": 80.0}})
    rte = make_task(specs.load_spec("rte"))
    gold = [rte.spec.labels[example.label] for example in rte.read("data/tasks/rte/dev.tsv")]
    write_predictions("rte", "1", "pretrained/rte.jsonl", gold)
    write_run("rte", "1", {"weights": "pretrained", "dev": {"accuracy": 100.0}})

    run(task_source="synthetic", tasks=tasks[::-1], finetune=FinetuneParams(seeds=(1,)))
    scores = read_json("results/scores.json")
    means = {row["metric"]: row["mean"] for row in scores["rows"] if row["task"] == "reviews"}
    assert means == pytest.approx({"accuracy": 80.0, "f1": 80.0, "macro_f1": 80.0})
    first = scores["rows"][0]
    assert scores["further"] == ["reviews"] and first["task"] == "reviews"  # before synthetic ones
    assert first["baselines"]["bag_of_words"]["score"] >= 60
    errors = read_json("results/tasks/reviews.json")["errors"]["reviews"]
    assert errors["confusion"]["counts"] == [[2, 0], [1, 2]]
    assert [(error["text"], error["gold"]) for error in errors["worst"]] == [(TEXTS[2], "good")]
    submitted = (project / "results/submissions/Reviews.tsv").read_text().splitlines()
    assert submitted[:4] == ["index\tprediction", "0\tgood", "1\tbad", "2\tbad"]
    table = text_table(TERMINAL, score_rows(scores))
    assert "| Reviews " in table and "Reviews (synthetic)" not in table and "RTE (synthetic)" in table


def documented(start: str) -> str:
    """Return the YAML block of docs/tasks.md that begins with ``start``."""
    text = (Path(__file__).parents[3] / "docs/tasks.md").read_text(encoding="utf-8")
    return start + text.split(f"```yaml\n{start}")[1].split("```")[0]


def test_documented_retrieval_task_in_beir_layout_is_readable(project: Path, catalogue: Path):
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
