"""Small task sets, an encoder with a vocabulary of their words, and the stage `finetune` on them."""

import json
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_src.base.files import read_json
from pipeline_src.finetune.finetune import run
from pipeline_src.model.bert import BertConfig, BertForPretraining, initialise
from pipeline_src.model.hub import save_model
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.machine import DEFAULT_MACHINE, Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece import save_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary
from pipeline_src.training.trainer import Trainer, make_trainer

# Only the architecture and the initial weights count in fine-tuning.
MODEL = ModelParams(num_hidden_layers=1, hidden_size=64)


def make_params(**changes: Any) -> FinetuneParams:
    """Parameters with a short training; ``changes`` are keys of ``finetune`` or of its ``defaults``."""
    own = {key: changes.pop(key) for key in FinetuneParams.model_fields.keys() & changes.keys()}
    recipe = {"learning_rates": 1e-3, "epochs": 1, "batch_sizes": 64, "max_length": 64, **changes}
    return FinetuneParams(defaults=TaskHyperparameters(**recipe), **own)


def fine_tune(
    task: str = "sst2", seed: str = "1", size: ModelParams = MODEL, machine: Machine = DEFAULT_MACHINE, **changes: Any
) -> Path:
    """Run the stage; return the model's folder."""
    run(seed=1, model=size, finetune=make_params(**changes), task=task, finetune_seed=seed, machine=machine)
    return Path(f"models/finetuned/{task}/{seed}/kept-model")


def predictions(task: str = "sst2", file: str = "", seed: str = "1", weights: str = "pretrained") -> list[dict]:
    path = Path(f"results/predictions/{task}/{seed}/predicted/{weights}/{file or task}.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def recorded_runs(task: str = "sst2", seed: str = "1") -> list[dict]:
    return read_json(f"results/predictions/{task}/{seed}/predicted/run.json")["runs"]


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for a stop after so many steps of all runs together."""
    taken: list[int] = []

    def count(step: int) -> None:
        taken.append(step)
        if len(taken) == steps:
            signal.raise_signal(signal.SIGTERM)

    watch_steps(count, monkeypatch)


def watch_steps(call: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*arguments: Any, **options: Any) -> Trainer[Any]:
        trainer = make_trainer(*arguments, **options)
        train_step = trainer.train_step
        trainer.train_step = lambda batch: (call(trainer.state.step + 1), train_step(batch))
        return trainer

    monkeypatch.setattr("pipeline_src.finetune.task_trainer.make_trainer", make)


@pytest.fixture(scope="session")
def make_study(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder with synthetic task sets and a random encoder of ``layers`` layers, 64 wide."""

    def make(tasks: Sequence[str], layers: int, change: Callable[[Path], None] = lambda root: None) -> Path:
        root = tmp_path_factory.mktemp("study")
        for task in tasks:
            write_task(task, root / "data/tasks" / task, seed=1)
        change(root)
        text = [path.read_text(encoding="utf-8") for path in sorted((root / "data/tasks").rglob("*")) if path.is_file()]
        folder = root / "models/pretrained/phase2"
        (folder / "v").mkdir(parents=True)
        pieces = learn_vocabulary(count_words(text, lowercase=True), 600, 80, 2)
        save_tokenizer(folder / "v", pieces, lowercase=True)
        config = BertConfig(len(pieces), 64, layers, layers, 128, 64)
        model = BertForPretraining(config)
        initialise(model, torch.Generator().manual_seed(0))
        save_model(folder, model, config, "BertForPreTraining", folder / "v")
        return root

    return make


@pytest.fixture
def study(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the module's ``inputs`` as working directory."""
    folder = shutil.copytree(inputs, tmp_path / "study")
    monkeypatch.chdir(folder)
    return folder
