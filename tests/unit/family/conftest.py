"""Fixtures: a folder in which a tiny encoder can be pretrained in a second, with a teacher."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.finetune.finetune import run as finetune
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.model import ModelParams
from pipeline_src.tasks.made.synthetic import write_task
from tests.unit.pretrain.small import EXAMPLES, build_teacher, make_study


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Make tokens, a vocabulary and a teacher."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    build_teacher(folder)
    return folder


@pytest.fixture
def study(made, tmp_path, monkeypatch) -> Path:
    """Make a study folder with pretraining examples, and make it the working directory."""
    folder = shutil.copytree(made, tmp_path / "study")
    monkeypatch.chdir(folder)
    plan_examples(seed=1, examples=EXAMPLES)
    return folder


@pytest.fixture
def fine_tune(study) -> Callable[..., Path]:
    """Return a function that fine-tunes the second phase's model on a small task, and returns its output folder."""

    def tuned(**sizes) -> Path:
        write_task("sst2", study / "data/tasks/sst2", seed=1)
        recipe = TaskHyperparameters(learning_rates=1e-3, epochs=1, batch_sizes=128, max_length=16)
        model = ModelParams(**{"num_hidden_layers": 1, "hidden_size": 64} | sizes)
        params = FinetuneParams(model="models/pretrained/phase2", defaults=recipe)
        finetune(seed=1, model=model, finetune=params, task="sst2", finetune_seed="1")
        return study / "models/finetuned/sst2/1/kept-model"

    return tuned
