"""The stage that runs first checks the folders of models that no stage makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.code import check_models
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.pretrain import PretrainParams

STEPS = {"phase1": 1, "phase2": 0}
TEACHER = "models/teacher/pretrained/phase2"


@pytest.mark.parametrize(
    ("pretrain", "finetune", "key"),
    [
        ({"teacher": TEACHER}, {}, "pretrain.teacher"),
        ({}, {"teacher": "models/teacher"}, "finetune.teacher"),
        ({}, {"model": "models/mine"}, "finetune.model"),
    ],
)
def test_check_models_missing_folder_is_rejected_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretrain: dict[str, str], finetune: dict[str, str], key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = PretrainParams(steps=STEPS, **pretrain), FinetuneParams(**finetune)
    with pytest.raises(PipelineError, match="there is no such folder: models/") as caught:
        check_models(*blocks)
    assert key in str(caught.value.where)
    Path(TEACHER).mkdir(parents=True)
    Path("models/mine").mkdir()
    check_models(*blocks)


@pytest.mark.parametrize("model", ["models/pretrained/phase2", "models/word_vectors", "hub:acme/tiny@main"])
def test_check_models_folder_that_a_stage_makes_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    check_models(PretrainParams(steps=STEPS), FinetuneParams(model=model))
