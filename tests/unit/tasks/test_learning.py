"""What makes a synthetic score worth printing: a model learns the rule, and learns nothing where there is none.

A task of each layout is learnt by a BERT-Tiny from random weights over the task's own words; then the same training
with shuffled labels must stay at the majority baseline. A pair task must fall once its second texts are exchanged among
examples, or left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_src.finetune.hyperparameter_grid import grid_points
from pipeline_src.finetune.task_data import EvalSet
from pipeline_src.finetune.task_trainer import TaskTrainer, task_settings
from pipeline_src.model.bert import BertConfig
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.machine import Machine
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.features import NO_TAG
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece import build_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary

RECIPE = TaskHyperparameters(learning_rates=1e-3, epochs=2, batch_sizes=32, max_length=64)
# One task of each layout -> number of epochs in which random weights learn it.
EPOCHS = {"sst2": 1, "mrpc": 2, "mnli": 6, "stsb": 4, "pos": 2, "squad2": 4, "swag": 10}
# Tasks for the test with shuffled labels. STS-B is left out, because predictions learnt from shuffled numbers hardly
# differ, but may depend on a word by chance, and a correlation magnifies such a dependence.
SHUFFLED = ("sst2", "mrpc", "mnli", "pos", "squad2", "swag")
# More seeds, each with its own development file, so that the baseline is measured on about 2,000 examples.
MORE_SEEDS = (2, 3, 4)


class Study:
    """One synthetic task, ready to be trained on as it is or with its labels shuffled."""

    def __init__(self, task: str, folder: Path) -> None:
        torch.set_num_threads(1)
        self.spec = load_spec(task)
        self.task = make_task(self.spec)
        for seed in (1, *MORE_SEEDS):
            write_task(task, folder / str(seed), seed)
        text = [path.read_text(encoding="utf-8") for path in sorted((folder / "1").iterdir())]
        pieces = learn_vocabulary(count_words(text, lowercase=True), 2000, 100, 1)
        self.tokenizer = build_tokenizer(pieces, lowercase=True)
        self.config = BertConfig(len(pieces), 128, 2, 2, 512, 64)
        self.folder = folder
        self.training = self.features(self.task.read(folder / "1" / self.spec.train))

    def features(self, examples: list[Any]) -> Any:
        return self.task.features(examples, self.tokenizer, RECIPE.max_length)

    def examples(self, row: str, seeds: tuple[int, ...] = (1,)) -> list[Any]:
        """The examples of an evaluation set, of several seeds together, renumbered so that each has its own id."""
        file = self.spec.scores[row].file
        result = [e for seed in seeds for e in self.task.read(self.folder / str(seed) / file, row)]
        return [replace(example, id=str(number)) for number, example in enumerate(result)]

    def train(self, training: Any, epochs: int) -> None:
        recipe = RECIPE.model_copy(update={"epochs": (epochs,)})
        settings = task_settings(self.spec, recipe, FinetuneParams(), self.config)
        self.trainer = TaskTrainer(settings, recipe, FinetuneParams(), self.config, Path(), training, 1, Machine())
        self.model, *_ = self.trainer.train("random", next(grid_points(recipe)))

    def main_score(self, row: str, examples: list[Any]) -> tuple[float, float]:
        """Main metric and the majority baseline, in percent."""
        predictions = self.trainer.predict(self.model, EvalSet(row, examples, self.features(examples)))
        metric = self.spec.scores[row].metrics[0]
        score = self.task.score(row, examples, predictions)[metric]
        return score, self.task.majority_baseline(row, examples)[metric]


@pytest.fixture(scope="module")
def study(request, tmp_path_factory) -> Study:
    return Study(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(
    "study", [pytest.param(task, marks=pytest.mark.slow if task == "swag" else ()) for task in EPOCHS], indirect=True
)
def test_task_trainer_synthetic_task_is_learned_above_baseline(study):
    study.train(study.training, EPOCHS[study.spec.name])
    for row in study.spec.scores:
        examples = study.examples(row)
        score, baseline = study.main_score(row, examples)
        assert score >= 90, f"{row}: {score:.1f}"
        if not study.spec.is_pair:
            continue
        order = np.random.default_rng(0).permutation(len(examples))
        for second in ([examples[other].texts[1] for other in order], [""] * len(examples)):
            changed = []
            for example, text in zip(examples, second, strict=True):
                changed.append(replace(example, texts=(example.texts[0], text)))
            without, _ = study.main_score(row, changed)
            assert without <= score - 15, f"{row}: {score:.1f} falls to {without:.1f} only"


@pytest.mark.parametrize("study", SHUFFLED, indirect=True)
def test_task_trainer_shuffled_labels_score_at_baseline(study):
    rng = np.random.default_rng(0)
    labels = study.training.labels
    if study.spec.kind == "span":
        # Replace each answer by a random token of the sequence.
        lengths = np.diff(study.training.cu_seqlens)
        first = (rng.random(len(labels)) * lengths).astype(np.int64)
        shuffled = np.stack([first, first], axis=1)
    elif study.spec.kind == "tagging":
        shuffled = labels.copy()
        shuffled[labels != NO_TAG] = rng.permutation(labels[labels != NO_TAG])
    else:
        shuffled = rng.permutation(labels)
    study.train(replace(study.training, labels=shuffled), 2)
    row = next(iter(study.spec.scores))
    score, baseline = study.main_score(row, study.examples(row, (1, *MORE_SEEDS)))
    if study.spec.kind == "span":
        assert score <= baseline + 5, f"{row}: {score:.1f}, baseline {baseline:.1f}"
    else:
        assert abs(score - baseline) <= 5, f"{row}: {score:.1f}, baseline {baseline:.1f}"
