"""Published figures: carried over rightly, and compared with what they may be compared with alone."""

import dataclasses

import pytest
import yaml

from pipeline_src.common.files import read_json, write_json
from pipeline_src.report.headline import (
    Score,
    difference,
    headline,
    model_of,
    published_scores,
    read_paper,
    split_of,
)
from pipeline_src.report.results import GLUE_AVERAGE, read_results
from pipeline_src.report.traced import FORMULAS, JsonRef, plain
from pipeline_src.tasks.spec import load_spec, task_names
from tests.unit.report.conftest import ROWS, score_row, write_scores

OURS = Score("mnli", "accuracy", "dev", False, JsonRef(85.0, "ours"))


@pytest.mark.parametrize(
    "other",
    [{"split": "test"}, {"split": "test server"}, {"metric": "f1"}, {"eval_set": "mnli_mm"}, {"synthetic": True}],
)
def test_scores_of_different_splits_metrics_or_data_have_no_difference(other):
    published = Score("mnli", "accuracy", "dev", False, JsonRef(84.4, "theirs"))
    assert difference(OURS, published).value == pytest.approx(0.6)
    assert difference(OURS, dataclasses.replace(published, **other)) is None
    assert difference(dataclasses.replace(OURS, **other), published) is None


def test_no_line_of_the_table_compares_a_dev_score_with_the_test_server(results):
    write_scores(results, [score_row("mnli", "accuracy", 85.0), score_row("qqp", "f1", 88.0), *ROWS], [])
    lines = {(line.title.value, line.metric): line for line in headline(read_results()).lines}
    mnli, qqp = lines["MNLI", "accuracy"], lines["QQP", "F1"]
    assert plain(mnli.difference, "signed") == "+0.6" and plain(mnli.test_server.value, "one") == "84.6"
    assert qqp.published is None and qqp.difference is None and qqp.test_server.split == "test server"
    assert plain(lines["SQUAD1", "F1"].difference, "signed") == "-38.5"  # table 2, dev
    assert plain(lines["SWAG", "accuracy"].difference, "signed") == "-51.6"
    assert plain(lines["RTE", "accuracy"].published.source).startswith("DistilBERT")


def test_synthetic_scores_have_no_difference_but_tasks_of_ones_own_data_do(results):
    assert all(line.synthetic and line.difference is None for line in headline(read_results()).lines)
    write_scores(results, ROWS, ["rte", "mrpc", "wnli", "squad1"])
    lines = [line for line in headline(read_results()).lines if line.difference]
    assert [line.title.value for line in lines] == ["SWAG"] and not lines[0].synthetic


def test_splits_are_told_by_the_files_of_the_tasks():
    files = {(task, row.file) for task in task_names() for row in load_spec(task).scores.values()}
    splits = {file: split_of(file) for _, file in files}
    assert splits.pop("test.txt") == "test" and splits.pop("diagnostic-full.tsv") == "diagnostic"
    assert (
        set(splits.values()) == {"dev"}
        and split_of("reviews.tsv") == "reviews.tsv"
        and split_of("latest.txt") != "test"
    )


def test_models_are_known_by_their_sizes():
    sizes = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    assert model_of(read_paper(), sizes).value["name"] == "BERT-base"
    assert (
        model_of(read_paper(), sizes | {"num_hidden_layers": 6, "num_attention_heads": 3})
        .value["name"]
        .endswith("three heads")
    )
    assert model_of(read_paper(), sizes | {"hidden_size": 64}) is None


def test_a_model_of_no_published_size_has_its_report_too(results):
    for phase in ("phase1", "phase2"):
        path = results / "pretrain" / f"{phase}.json"
        pretrain = read_json(path)
        write_json(path, pretrain | {"config": pretrain["config"] | {"hidden_size": 64}})
    found = headline(read_results())
    assert found.model is None and not found.sources and all(line.published is None for line in found.lines)


def test_every_published_score_is_of_a_row_and_metric_of_the_catalogue():
    known = {
        (name, metric)
        for task in task_names()
        for name, row in load_spec(task).scores.items()
        for metric in row.metrics
    }
    paper = read_paper().value
    names = {tuple(name.split(" ")) for block in paper["reports"] for name in block["scores"]}
    assert names - known == {("glue", "average")}
    assert {report["model"] for report in paper["reports"]} <= {model["name"] for model in paper["models"]}


def test_the_papers_average_is_the_mean_of_its_nine_numbers():
    for model in ("BERT-base", "BERT-large"):
        found = published_scores(read_paper(), model)
        scores = [found[row, metric, "test server"].value.value for row, metric in GLUE_AVERAGE.items()]
        assert abs(sum(scores) / 9 - found["glue", "average", "test server"].value.value) <= 0.051


def test_published_computation_is_the_product_it_says():
    for cost in read_paper().value["cost"]:
        product = FORMULAS["normalised computation"](cost["parameters"], cost["steps"], cost["tokens_per_batch"])
        assert product == pytest.approx(cost["normalised_computation"], rel=1e-3)


def test_figures_are_those_of_the_reference_file(root):
    path = root.parent / "shared" / "reference" / "paper_tables.yaml"
    if not path.exists():
        pytest.skip(f"no {path}")
    bert = yaml.safe_load(path.read_text(encoding="utf-8"))
    names = {"mnli accuracy": "mnli_m", "mnli_mm accuracy": "mnli_mm", "glue average": "avg"}
    for model, key in (("BERT-base", "bert_base"), ("BERT-large", "bert_large")):
        table = bert["bert"]["table1_glue_test"]["rows"][key]
        (ours,) = [
            report["scores"]
            for report in read_paper().value["reports"]
            if report["model"] == model and report["source"] == "BERT, table 1"
        ]
        assert {names.get(name, name.split(" ")[0]): value for name, value in ours.items()} == table
    small = bert["bert_small_models"]["glue_test"]
    short = {
        "mnli accuracy": "mnli_m",
        "mnli_mm accuracy": "mnli_mm",
        "qnli accuracy": "qnli_v2",
        "stsb pearson": "stsb_p",
    }
    short |= {"stsb spearman": "stsb_s"} | {f"{task} f1": f"{task}_f1" for task in ("mrpc", "qqp")}
    short |= {f"{task} accuracy": f"{task}_acc" for task in ("mrpc", "qqp")}
    for report in read_paper().value["reports"]:
        if "README" in report["source"]:
            table = small[report["model"].removeprefix("BERT-").lower()]
            shown = {short.get(name, name.split(" ")[0]): value for name, value in report["scores"].items()}
            assert shown == {name: value for name, value in table.items() if name != "score"}
