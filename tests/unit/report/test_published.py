"""Published figures: equal to their sources, and of names that the catalogue has."""

import pytest

from pipeline_src.report.columns import GLUE_AVERAGE
from pipeline_src.report.published import model_of, published_scores, read_paper, split_of
from pipeline_src.study.task_spec import load_spec, task_names


def test_split_of_every_catalogue_file_is_known():
    splits = {row.file: split_of(row.file) for task in task_names() for row in load_spec(task).scores.values()}
    assert splits.pop("test.txt") == "test" and splits.pop("diagnostic-full.tsv") == "diagnostic"
    assert set(splits.values()) == {"dev"}
    assert split_of("reviews.tsv") == "reviews.tsv" and split_of("latest.txt") != "test"


def test_model_of_published_sizes_returns_model_name():
    sizes = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    assert model_of(sizes) == "BERT-base" and model_of(sizes | {"hidden_size": 64}) is None
    assert str(model_of(sizes | {"num_hidden_layers": 6, "num_attention_heads": 3})).endswith("three heads")


def test_published_scores_in_several_reports_use_the_first():
    scores = published_scores("BERT-base")
    assert str(scores["mnli", "accuracy", "dev"]) == "84.4 (a)"
    assert scores["squad1", "f1", "dev"].source == "BERT, table 5" and scores["squad1", "em", "dev"].letter == "b"
    assert scores["rte", "accuracy", "dev"].source.startswith("DistilBERT") and not published_scores(None)


def test_paper_scores_use_sets_and_metrics_of_the_catalogue():
    known = {
        (name, metric)
        for task in task_names()
        for name, row in load_spec(task).scores.items()
        for metric in row.metrics
    }
    paper = read_paper()
    names = {tuple(name.split(" ")) for report in paper["reports"] for name in report["scores"]}
    assert names - known == {("glue", "average")}
    assert {report["model"] for report in paper["reports"]} <= {model["name"] for model in paper["models"]}


def test_paper_glue_average_equals_mean_of_nine_scores():
    for model in ("BERT-base", "BERT-large"):
        published = published_scores(model)
        scores = [published[name, metric, "test server"].value for name, metric in GLUE_AVERAGE.items()]
        assert abs(sum(scores) / 9 - published["glue", "average", "test server"].value) <= 0.051


def test_paper_training_cost_equals_parameters_times_tokens():
    for cost in read_paper()["cost"]:
        product = cost["parameters"] * cost["steps"] * cost["tokens_per_batch"]
        assert product == pytest.approx(cost["normalised_computation"], rel=1e-3)
