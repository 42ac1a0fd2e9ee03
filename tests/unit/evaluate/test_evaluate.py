"""Scores from files of predictions, with baselines and every task's details."""

import shutil

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.evaluate.evaluate import run
from pipeline_src.evaluate.predictions import read_task
from pipeline_src.evaluate.scores import score_table, score_task
from pipeline_src.report.columns import score_rows
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.classification import Classification
from pipeline_src.tasks.kinds import KINDS
from tests.unit.evaluate.conftest import write_predictions, write_run, write_table

GOLD = ["entailment", "not_entailment", "entailment", "entailment"]
AX = "Premise\tHypothesis\tLabel"
HALF = ["entailment"] * 2 + ["not_entailment"] * 2


def one_run(score: float, rate: float = 2e-5, weights: str = "pretrained") -> dict:
    run = {"weights": weights, "learning_rate": rate, "epochs": 3, "batch": 32, "train_loss": 0.5}
    return run | {"dev": {"accuracy": score}, "main": score}


@pytest.fixture
def study(project):
    rows = [f"{index}\ta\tb{' c' * index}\t{label}" for index, label in enumerate(GOLD)]
    write_table(project / "data/tasks/rte/dev.tsv", "index\tsentence1\tsentence2\tlabel", *rows)
    write_table(project / "data/tasks/rte/test.tsv", "index\tsentence1\tsentence2", "0\ta\tb", "1\tc\td")
    for seed, file, predictions in (
        ("1", "pretrained/rte", HALF),
        ("2", "pretrained/rte", GOLD),
        ("3", "pretrained/rte", ["of an older study"]),
        ("1", "random/rte", ["entailment"] * 4),
        ("1", "pretrained/rte.test", ["entailment"] * 2),
        ("2", "pretrained/rte.test", ["not_entailment", "entailment"]),
    ):
        write_predictions("rte", seed, f"{file}.jsonl", predictions)
    write_run("rte", "1", one_run(25.0), one_run(0.0, 5e-5), one_run(75.0, weights="random"))
    write_run("rte", "2", one_run(100.0), one_run(50.0, 5e-5), counts={"train.tsv": {"sequences cut to 128 tokens": 7}})
    return project


def evaluate_rte(task_source: str = "synthetic", seeds: tuple[int, ...] = (1, 2)) -> None:
    run(task_source=task_source, tasks=("rte",), finetune=FinetuneParams(seeds=seeds))


def score(task: str, *seeds: int) -> list[dict]:
    files = read_task(load_spec(task), seeds, with_training=False, label_counts=())
    return score_table(files, *score_task(files, bag_of_words=False))


@pytest.mark.parametrize("task_source", ["synthetic", "official"])
def test_evaluate_bag_of_words_baseline_is_only_on_official_task(project, task_source):
    for file in ("train.tsv", "dev.tsv"):
        rows = ["a cat\ta cat\t5", "a cat\tno dog\t0", "a cat\ta cat sat\t3"]
        write_table(project / "data/tasks/stsb" / file, "sentence1\tsentence2\tscore", *rows)
    write_predictions("stsb", "1", "pretrained/stsb.jsonl", [1.0, 2.0, 3.0])
    write_run("stsb", "1", one_run(50.0))
    run(task_source=task_source, tasks=("stsb",), finetune=FinetuneParams())
    scores = read_json("results/scores.json")
    baselines = [row["baselines"].get("bag_of_words", {"score": 0})["score"] for row in scores["rows"]]
    assert scores["synthetic"] is (task_source == "synthetic")
    assert min(baselines) > 95 if task_source == "official" else max(baselines) == 0


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


def test_evaluate_task_with_best_epoch_is_listed(study):
    evaluate_rte()
    assert read_json("results/scores.json")["best_epoch"] == []
    write_run("rte", "2", one_run(100.0), recipe={"select": "best"})
    evaluate_rte()
    scores = read_json("results/scores.json")
    assert scores["best_epoch"] == ["rte"]
    assert read_json("results/tasks/rte.json")["select"] == "best"
    assert score_rows(scores)[0].marks == " (synthetic, best epoch, best of a grid)"


def test_evaluate_task_with_grid_is_listed(study):
    evaluate_rte()
    scores = read_json("results/scores.json")
    assert scores["best_of_grid"] == ["rte"] and score_rows(scores)[0].marks == " (synthetic, best of a grid)"
    write_run("rte", "1", one_run(25.0), one_run(75.0, weights="random"))
    write_run("rte", "2", one_run(100.0))
    evaluate_rte()
    assert "best_of_grid" not in read_json("results/scores.json")


def test_evaluate_task_with_grid_of_random_weights_alone_is_not_listed(study):
    random_runs = [one_run(75.0, weights="random"), one_run(50.0, 5e-5, weights="random")]
    write_run("rte", "1", one_run(25.0), *random_runs)
    write_run("rte", "2", one_run(100.0), *random_runs)
    evaluate_rte()
    assert "best_of_grid" not in read_json("results/scores.json")


def test_evaluate_missing_predictions_are_rejected(study):
    shutil.rmtree(study / "results/predictions/rte/2/predicted/pretrained")
    with pytest.raises(PipelineError, match=r"rte/2/predicted/pretrained/rte.jsonl[\s\S]*finetune"):
        evaluate_rte()
    with pytest.raises(PipelineError, match=r"rte/4/predicted/pretrained/rte.jsonl"):
        score("rte", 1, 4)


def test_score_task_equal_seeds_select_the_first_seed(study):
    (row,) = score("rte", 1)
    assert row["values"] == [25.0] and row["deviation"] is None and row["best"] == 25.0
    write_predictions("rte", "1", "pretrained/rte.jsonl", GOLD)
    (row,) = score("rte", 1, 2)
    assert row["values"] == [100.0, 100.0] and row["best_seed"] == 1


def test_evaluate_missing_run_json_is_rejected(study):
    (study / "results/predictions/rte/2/predicted/run.json").unlink()
    with pytest.raises(PipelineError, match=r"file not found: results/predictions/rte/2/predicted/run.json"):
        evaluate_rte()


def test_evaluate_damaged_predictions_are_rejected_before_writing(study):
    path = study / "results/predictions/rte/1/predicted/pretrained/rte.jsonl"
    path.write_text('{"id": "0", "predic')
    with pytest.raises(PipelineError, match="rte.jsonl"):
        evaluate_rte()
    assert [path.name for path in (study / "results").iterdir()] == ["predictions"]
    path.write_text("[0]\n")
    with pytest.raises(PipelineError, match="rte.jsonl:1"):
        evaluate_rte()


def test_score_task_best_seed_is_the_same_for_all_eval_sets(project):
    mnli = "sentence1\tsentence2\tgold_label"
    for name, header in (("dev_matched", mnli), ("dev_mismatched", mnli), ("diagnostic-full", AX)):
        write_table(project / f"data/tasks/mnli/{name}.tsv", header, "a\tb\tneutral", "c\td\tentailment")
    for seed, matched, mismatched in (
        ("7", ["neutral"] * 2, ["neutral", "entailment"]),
        ("3", ["neutral", "entailment"], ["entailment", "neutral"]),
    ):
        for name, predicted in (("mnli", matched), ("mnli_mm", mismatched), ("ax", matched)):
            write_predictions("mnli", seed, f"pretrained/{name}.jsonl", predicted)
        write_run("mnli", seed, one_run(50.0))
    rows = {row["eval_set"]: row for row in score("mnli", 7, 3)}
    assert rows["mnli"]["values"] == [50.0, 100.0]
    # On the second set, seed 7 is better.
    assert rows["mnli_mm"]["values"] == [100.0, 0.0]
    assert {row["best_seed"] for row in rows.values()} == {3}


def test_evaluate_values_other_than_metrics_are_in_task_details(study, monkeypatch):
    class WithThreshold(Classification):
        def score(self, *given):
            return {**super().score(*given), "threshold": -1.5}

    monkeypatch.setitem(KINDS, "classification", WithThreshold)
    evaluate_rte()
    assert read_json("results/tasks/rte.json")["figures"] == {"rte": {"threshold": [-1.5, -1.5]}}
    assert [row["metric"] for row in read_json("results/scores.json")["rows"]] == ["accuracy"]
