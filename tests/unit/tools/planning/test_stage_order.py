"""What comes after what, as dvc.yaml says, and how long the way through it is."""

import pytest
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.study import check_study
from pipeline_src.tools.planning.estimate import critical_path
from pipeline_src.tools.planning.jobs import STAGES
from pipeline_src.tools.planning.stage_order import stage_order


@pytest.fixture(scope="module")
def raw(root):
    return yaml.safe_load((root / "workflow/presets/test.yaml").read_text(encoding="utf-8"))


def test_every_stage_of_dvc_yaml_has_an_estimate(root, raw):
    assert set(stage_order(check_study(raw), root / "dvc.yaml")) == set(STAGES)


def test_stages_come_after_those_whose_outputs_they_read(root, raw):
    order = stage_order(check_study(raw), root / "dvc.yaml")
    assert order["download_tasks"] == ("clean_wikipedia", "clean_books")
    assert order["clean_wikipedia"] == ("download_wikipedia",)
    assert order["tokenize"] == ("clean_wikipedia", "clean_books", "train_tokenizer")
    assert set(order["pretrain_long"]) == {"train_tokenizer", "tokenize", "build_examples", "pretrain_short"}
    assert order["finetune"] == ("download_tasks", "pretrain_long")
    assert order["evaluate"] == ("download_tasks", "finetune")
    assert set(order["report"]) == {"corpus_statistics", "pretrain_short", "pretrain_long", "interpret", "evaluate"}


def test_finetuning_of_another_model_waits_for_no_pretraining(root, raw):
    raw = {**raw, "finetune": {**raw["finetune"], "model": "models/imported"}}
    assert stage_order(check_study(raw), root / "dvc.yaml")["finetune"] == ("download_tasks",)


def test_outputs_with_options_and_outputs_inside_a_dependency_count(tmp_path, raw):
    stages = {
        "make": {"cmd": "a", "outs": [{"data/a": {"cache": False}}, "data/b/${item.part}"]},
        "read": {"cmd": "b", "deps": ["data/b"], "metrics": [{"m.json": {"cache": False}}]},
        "both": {"cmd": "c", "deps": ["data", "m.json"]},
        "none": {"cmd": "d", "deps": ["data/ab"]},
    }
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    order = stage_order(check_study(raw), tmp_path / "dvc.yaml")
    assert order == {"make": (), "read": ("make",), "both": ("make", "read"), "none": ()}


def test_without_dvc_yaml_it_says_where_to_run(tmp_path, raw):
    with pytest.raises(PipelineError, match="project's root"):
        stage_order(check_study(raw), tmp_path / "dvc.yaml")


def test_the_critical_path_is_the_longest_way():
    order = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}
    assert critical_path({"a": 1, "b": 5, "c": 2, "d": 1, "e": 6.5}, order) == 7
    assert critical_path({"e": 3}, order) == 3  # the others take no time
