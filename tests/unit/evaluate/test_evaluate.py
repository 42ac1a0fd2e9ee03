"""Scores from files of predictions, with baselines and every task's details."""

import re
import shutil

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.evaluate.evaluate import run
from pipeline_src.evaluate.scores import read_predictions, score_task
from pipeline_src.report.columns import score_rows
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.classification import Classification
from pipeline_src.tasks.examples import TextExample
from pipeline_src.tasks.kinds import KINDS, make_task
from tests.unit.evaluate.conftest import write_predictions, write_run

RTE = load_spec("rte")
GOLD = ["entailment", "not_entailment", "entailment", "entailment"]
HALF = ["entailment"] * 2 + ["not_entailment"] * 2


def one_run(score: float, rate: float = 2e-5, weights: str = "pretrained") -> dict:
    run = {"weights": weights, "learning_rate": rate, "epochs": 3, "batch": 32, "train_loss": 0.5}
    return run | {"dev": {"accuracy": score}, "main": score}


@pytest.fixture
def study(project):
    folder = project / "data/tasks/rte"
    folder.mkdir(parents=True)
    lines = ["index\tsentence1\tsentence2\tlabel", *(f"{i}\ta\tb{' c' * i}\t{label}" for i, label in enumerate(GOLD))]
    (folder / "dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n1\tc\td\n", encoding="utf-8")
    write_predictions("rte", "1", "pretrained/rte.jsonl", HALF)
    write_predictions("rte", "2", "pretrained/rte.jsonl", GOLD)
    write_predictions("rte", "3", "pretrained/rte.jsonl", ["of an older study"])
    write_predictions("rte", "1", "random/rte.jsonl", ["entailment"] * 4)
    write_predictions("rte", "1", "pretrained/rte.test.jsonl", ["entailment"] * 2)
    write_predictions("rte", "2", "pretrained/rte.test.jsonl", ["not_entailment", "entailment"])
    write_run("rte", "1", one_run(25.0), one_run(0.0, 5e-5), one_run(75.0, weights="random"))
    write_run("rte", "2", one_run(100.0), one_run(50.0, 5e-5), counts={"train.tsv": {"sequences cut to 128 tokens": 7}})
    return project


def evaluate_rte(task_source: str = "synthetic", seeds: tuple[int, ...] = (1, 2)) -> None:
    run(task_source=task_source, tasks=("rte",), finetune=FinetuneParams(seeds=seeds))


@pytest.mark.parametrize("task_source", ["synthetic", "official"])
def test_evaluate_bag_of_words_baseline_only_on_official_task(project, task_source):
    folder = project / "data/tasks/stsb"
    folder.mkdir(parents=True)
    lines = ["sentence1\tsentence2\tscore", "a cat\ta cat\t5", "a cat\tno dog\t0", "a cat\ta cat sat\t3"]
    for file in ("train.tsv", "dev.tsv"):
        (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_predictions("stsb", "1", "pretrained/stsb.jsonl", [1.0, 2.0, 3.0])
    write_run("stsb", "1", one_run(50.0))
    run(task_source=task_source, tasks=("stsb",), finetune=FinetuneParams())
    assert read_json("results/scores.json")["synthetic"] is (task_source == "synthetic")
    for row in read_json("results/scores.json")["rows"]:
        if task_source == "synthetic":
            assert "bag_of_words" not in row["baselines"]
        else:
            assert row["baselines"]["bag_of_words"]["score"] > 95


def test_evaluate_row_has_mean_deviation_best_and_baselines(study):
    evaluate_rte()
    scores = read_json("results/scores.json")
    (row,) = scores["rows"]
    assert scores["synthetic"] and "rte" in scores["rules"]
    assert row["values"] == [25.0, 100.0] and row["mean"] == 62.5
    assert (row["best"], row["best_seed"]) == (100.0, 2)
    assert row["deviation"] == pytest.approx(53.033, abs=1e-3)
    assert row["majority_baseline"] == 75.0 == row["random_weights"]
    assert row["main"] and row["file"] == "dev.tsv" and row["examples"] == 4


def test_evaluate_task_details_list_runs_spread_and_errors(study):
    evaluate_rte()
    details = read_json("results/tasks/rte.json")
    assert (details["synthetic"], details["seeds"], details["best_seed"]) == (True, [1, 2], 2)
    assert details["rows"] == read_json("results/scores.json")["rows"]
    runs = [(run["seed"], run["weights"], run["learning_rate"]) for run in details["runs"]]
    assert runs == [
        *((1, "pretrained", 2e-5), (1, "pretrained", 5e-5), (1, "random", 2e-5)),
        *((2, "pretrained", 2e-5), (2, "pretrained", 5e-5)),
    ]
    assert details["runs"][0] == {"seed": 1, **one_run(25.0)}
    spread = details["spread"]["pretrained"]["accuracy"]
    assert (spread["seeds"]["count"], spread["seeds"]["mean"], spread["seeds"]["best"]) == (2, 62.5, 100.0)
    assert (spread["runs"]["count"], spread["runs"]["mean"], spread["runs"]["best"]) == (4, 43.75, 100.0)
    random_runs = {"count": 1, "mean": 75.0, "deviation": None, "best": 75.0}
    assert details["spread"]["random"]["accuracy"]["runs"] == random_runs
    assert details["counts"] == {"train.tsv": {"sequences cut to 128 tokens": 7}, "dev.tsv": {}}
    errors = details["errors"]["rte"]
    assert errors["confusion"] == {"labels": ["entailment", "not_entailment"], "counts": [[3, 0], [0, 1]]}
    assert (errors["wrong"], errors["worst"]) == (0, [])
    assert sum(members["examples"] for members in errors["lengths"]) == 4


def test_evaluate_best_epoch_is_marked(study):
    evaluate_rte()
    assert read_json("results/scores.json")["best_epoch"] == []
    write_run("rte", "2", one_run(100.0), recipe={"select": "best"})
    evaluate_rte()
    scores = read_json("results/scores.json")
    assert scores["best_epoch"] == ["rte"]
    assert read_json("results/tasks/rte.json")["select"] == "best"
    assert score_rows(scores)[0].marks == " (synthetic, best epoch, best of a grid)"


def test_evaluate_best_of_a_grid_is_marked(study):
    evaluate_rte()
    scores = read_json("results/scores.json")
    assert scores["best_of_grid"] == ["rte"] and score_rows(scores)[0].marks == " (synthetic, best of a grid)"
    write_run("rte", "1", one_run(25.0), one_run(75.0, weights="random"))
    write_run("rte", "2", one_run(100.0))
    evaluate_rte()
    assert "best_of_grid" not in read_json("results/scores.json")


def test_evaluate_missing_predictions_are_rejected(study):
    shutil.rmtree(study / "results/predictions/rte/2/predicted/pretrained")
    with pytest.raises(PipelineError, match=r"rte/2/predicted/pretrained/rte.jsonl[\s\S]*finetune"):
        evaluate_rte()
    with pytest.raises(PipelineError, match=r"rte/4/predicted/pretrained/rte.jsonl"):
        score_task(RTE, (1, 4))


def test_score_task_best_of_equal_seeds_is_the_first_and_other_seeds_are_ignored(study):
    (row,) = score_task(RTE, (1,)).table()
    assert row["values"] == [25.0] and row["deviation"] is None and row["best"] == 25.0
    write_predictions("rte", "1", "pretrained/rte.jsonl", GOLD)
    scores = score_task(RTE, (1, 2))
    assert scores.table()[0]["values"] == [100.0, 100.0] and scores.best == 1


def test_evaluate_missing_runs_are_rejected(study):
    (study / "results/predictions/rte/2/predicted/run.json").unlink()
    with pytest.raises(PipelineError, match=r"file not found: results/predictions/rte/2/predicted/run.json"):
        evaluate_rte()
    write_run("rte", "2")
    with pytest.raises(PipelineError, match=r"no runs are listed.*: results/predictions/rte/2/predicted/run.json"):
        evaluate_rte()


def test_evaluate_damaged_predictions_are_rejected_and_nothing_is_written(study):
    path = study / "results/predictions/rte/1/predicted/pretrained/rte.jsonl"
    path.write_text('{"id": "0", "predic')
    with pytest.raises(PipelineError, match="rte.jsonl"):
        evaluate_rte()
    assert [path.name for path in (study / "results").iterdir()] == ["predictions"]
    path.write_text("[0]\n")
    with pytest.raises(PipelineError, match="rte.jsonl:1"):
        evaluate_rte()


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ('"confidence": 1e999', "confidence"),
        (f'"null_score_difference": {"9" * 400}', "null_score_difference"),
        ('"nbest": [{"text": "a", "probability": -1e999}]', "nbest[0].probability"),
        ('"nbest": ["a"]', "nbest[0]"),
    ],
)
def test_read_predictions_infinite_number_is_rejected(tmp_path, extra, field):
    (tmp_path / "p.jsonl").write_text(f'{{"id": "0", "prediction": "a", {extra}}}\n')
    with pytest.raises(PipelineError, match=rf"{re.escape(field)}[\s\S]*p.jsonl:1"):
        read_predictions(tmp_path / "p.jsonl")


@pytest.mark.parametrize("value", [float("inf"), -0.1, 10**400, "2", None])
def test_label_numbers_value_out_of_range_is_rejected(value):
    task = make_task(load_spec("stsb"))
    with pytest.raises(PipelineError, match="allowed: numbers from 0 to 5"):
        task.label_numbers([TextExample("0", ("a", "b"), 1.0)], [{"id": "0", "prediction": value}])


def test_score_task_best_seed_is_the_same_for_all_eval_sets(project):
    folder = project / "data/tasks/mnli"
    folder.mkdir(parents=True)
    mnli, ax = "sentence1\tsentence2\tgold_label", "Premise\tHypothesis\tLabel"
    for name, header in (("dev_matched", mnli), ("dev_mismatched", mnli), ("diagnostic-full", ax)):
        (folder / f"{name}.tsv").write_text(f"{header}\na\tb\tneutral\nc\td\tentailment\n")
    for seed, matched, mismatched in (
        ("7", ["neutral"] * 2, ["neutral", "entailment"]),
        ("3", ["neutral", "entailment"], ["entailment", "neutral"]),
    ):
        write_predictions("mnli", seed, "pretrained/mnli.jsonl", matched)
        write_predictions("mnli", seed, "pretrained/mnli_mm.jsonl", mismatched)
        write_predictions("mnli", seed, "pretrained/ax.jsonl", matched)
    table = {row["eval_set"]: row for row in score_task(load_spec("mnli"), (7, 3)).table()}
    assert (table["mnli"]["values"], table["mnli"]["best"], table["mnli"]["best_seed"]) == ([50.0, 100.0], 100.0, 3)
    assert (table["mnli_mm"]["values"], table["mnli_mm"]["best"]) == ([100.0, 0.0], 0.0)  # though seed 7 had more
    assert table["ax"]["best_seed"] == 3


def test_evaluate_other_figures_are_kept_with_the_task(study, monkeypatch):
    class WithThreshold(Classification):
        def score(self, *given):
            return {**super().score(*given), "threshold": -1.5}

    monkeypatch.setitem(KINDS, "classification", WithThreshold)
    evaluate_rte()
    assert read_json("results/tasks/rte.json")["figures"] == {"rte": {"threshold": [-1.5, -1.5]}}
    assert [row["metric"] for row in read_json("results/scores.json")["rows"]] == ["accuracy"]
