"""Scores come from files alone, in percent, beside their chance level."""

import json

import pytest

from pipeline_src.errors import PipelineError
from pipeline_src.evaluation import evaluate
from pipeline_src.evaluation.evaluate import run, score_task
from pipeline_src.files import read_json
from pipeline_src.params.finetune import FinetuneParams
from pipeline_src.params.wikipedia import WikipediaParams

WIKIPEDIA = WikipediaParams(dump="d", parts=("a", "b"))


def write_rte(root, labels: list[str]) -> None:
    folder = root / "data" / "tasks" / "rte"
    folder.mkdir(parents=True)
    lines = ["index\tsentence1\tsentence2\tlabel", *(f"{i}\ta\tb\t{label}" for i, label in enumerate(labels))]
    (folder / "dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_predictions(root, restart: str, weights: str, labels: list[str]) -> None:
    folder = root / "results" / "predictions" / "rte" / restart / weights
    folder.mkdir(parents=True)
    rows = [json.dumps({"id": str(i), "prediction": label}) for i, label in enumerate(labels)]
    (folder / "rte.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


GOLD = ["entailment", "not_entailment", "entailment", "entailment"]


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        evaluate, "corpus_statistics", lambda parts, tasks: {"parts": list(parts), "tasks": list(tasks)}
    )
    write_rte(tmp_path, GOLD)
    write_predictions(tmp_path, "1", "pretrained", GOLD)
    write_predictions(tmp_path, "2", "pretrained", ["entailment"] * 2 + ["not_entailment"] * 2)
    write_predictions(tmp_path, "1", "random", ["entailment"] * 4)
    return tmp_path


def test_mean_deviation_chance_and_baseline(study):
    run(task_source="synthetic", tasks=("rte",), finetune=FinetuneParams(restarts=(1, 2)), wikipedia=WIKIPEDIA)
    scores = read_json("results/scores.json")
    (row,) = scores["rows"]
    assert scores["synthetic"] and "rte" in scores["rules"]
    assert row["values"] == [100.0, 25.0] and row["mean"] == 62.5
    assert row["deviation"] == pytest.approx(53.033, abs=1e-3)
    assert row["chance"] == 75.0 == row["random_weights"]
    assert read_json("results/corpus.json") == {"parts": ["a", "b"], "tasks": ["rte"]}
    assert row["main"] and row["file"] == "dev.tsv" and row["examples"] == 4


def test_official_tasks_are_not_called_synthetic(study):
    run(task_source="official", tasks=("rte",), finetune=FinetuneParams(restarts=(1, 2)), wikipedia=WIKIPEDIA)
    scores = read_json("results/scores.json")
    assert not scores["synthetic"] and scores["rules"] == {}


def test_rescoring_needs_no_model(study):
    path = study / "results/predictions/rte/2/pretrained/rte.jsonl"
    path.write_text((study / "results/predictions/rte/1/pretrained/rte.jsonl").read_text())
    assert score_task("rte", (1, 2))[0]["values"] == [100.0, 100.0]


def test_missing_predictions_are_named(study):
    with pytest.raises(PipelineError, match="rte/3/pretrained"):
        score_task("rte", (1, 3))


def test_only_the_listed_restarts_count(study):
    assert score_task("rte", (1,))[0]["values"] == [100.0]


def test_a_broken_prediction_file_is_named_and_no_scores_are_written(study):
    path = study / "results/predictions/rte/1/pretrained/rte.jsonl"
    path.write_text('{"id": "0", "predic')
    with pytest.raises(PipelineError, match="rte.jsonl"):
        run(task_source="synthetic", tasks=("rte",), finetune=FinetuneParams(restarts=(1, 2)), wikipedia=WIKIPEDIA)
    assert not (study / "results/scores.json").exists()
