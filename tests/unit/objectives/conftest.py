"""A folder in which a tiny encoder can be pretrained in a second, with a teacher at hand."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.finetuning.finetune import run as finetune
from pipeline_src.params.finetune import FinetuneParams, Recipe
from pipeline_src.params.model import ModelParams
from pipeline_src.task_sources.synthetic import write_task
from tests.unit.pretraining.small import EXAMPLES, make_study, make_teacher


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Tokens, vocabulary and teacher."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    make_teacher(folder)
    return folder


@pytest.fixture
def study(made, tmp_path, monkeypatch) -> Path:
    """The same and plans of examples, in the working directory."""
    folder = shutil.copytree(made, tmp_path / "study")
    monkeypatch.chdir(folder)
    plan_examples(seed=1, examples=EXAMPLES)
    return folder


@pytest.fixture
def fine_tune(study) -> Callable[..., Path]:
    """Fine-tunes the second phase's model on a small task; gives the folder that it leaves."""

    def tuned(**sizes) -> Path:
        write_task("sst2", study / "data/tasks/sst2", seed=1)
        recipe = Recipe(learning_rates=1e-3, epochs=1, batches=128, max_length=16)
        model = ModelParams(**{"layers": 1, "hidden": 64} | sizes)
        params = FinetuneParams(model="models/pretrained/long", default=recipe)
        finetune(seed=1, model=model, finetune=params, task="sst2", restart="1")
        return study / "models/finetuned/sst2/1/kept-model"

    return tuned
