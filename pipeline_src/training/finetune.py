"""Stage ``finetune``: train one task from the pretrained encoder, keep the best run, write its predictions.

Scores in ``run.json`` choose between learning rates; the published ones are computed by the stage ``evaluate`` from
the prediction files alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.examples.keyed import key
from pipeline_src.files import atomic_directory, read_json, write_json
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.card import Source, write_card
from pipeline_src.models.card_kinds import finetuned_card
from pipeline_src.models.heads import BertForTask
from pipeline_src.models.hub import load_config, load_weights, save_model
from pipeline_src.objectives.tasks import LOSSES
from pipeline_src.params.finetune import FinetuneParams, Recipe
from pipeline_src.progress import log
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.handlers import HANDLERS, Handler
from pipeline_src.tasks.spec import TaskSpec, load_spec
from pipeline_src.training.loop import Loop, Term
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.training.task_batches import TaskBatch, evaluation_batches, training_batches
from pipeline_src.training.team import alone
from pipeline_src.vocabulary.wordpiece import load_tokenizer

PRETRAINED, TASKS = Path("models/pretrained/long"), Path("data/tasks")
MODELS, PREDICTIONS = Path("models/finetuned"), Path("results/predictions")
EVALUATION_TOKENS = 16_384  # in one batch

ARCHITECTURES = {  # Hugging Face's names of what is saved
    "sequence": "BertForSequenceClassification",
    "choice": "BertForMultipleChoice",
    "span": "BertForQuestionAnswering",
    "token": "BertForTokenClassification",
}


@dataclass(frozen=True)
class Judged:
    """One score row: its examples and what the model is fed for them."""

    row: str
    examples: Sequence[Any]
    features: Features


def run(*, seed: int, finetune: FinetuneParams, task: str, restart: str) -> None:
    """Read ``models/pretrained/long`` and ``data/tasks/<task>``; write the best model and every prediction file.

    ``results/predictions/<task>/<restart>/`` holds ``pretrained/<row>.jsonl``, with ``finetune.random_baseline`` also
    ``random/<row>.jsonl``, and ``run.json`` with every run's score.

    Raises:
        PipelineError: an input is missing or malformed, or training diverges.
    """
    torch.set_num_threads(finetune.threads)
    spec = load_spec(task)
    handler, recipe = HANDLERS[spec.kind], finetune.recipe(task)
    tokenizer = load_tokenizer(PRETRAINED)
    config = load_config(PRETRAINED)
    folder = TASKS / task
    training = handler.features(spec, handler.read(spec, folder / spec.train), tokenizer, recipe.max_length)
    judged = []
    for row, score in spec.scores.items():
        examples = handler.read(spec, folder / score.file, row)
        judged.append(Judged(row, examples, handler.features(spec, examples, tokenizer, recipe.max_length)))

    trainer = TaskTrainer(spec, handler, recipe, finetune, config, training, judged, key(seed, task, restart) >> 1)
    best = trainer.best_of_grid("pretrained")
    runs = list(best.runs)
    with atomic_directory(PREDICTIONS / task / restart) as output:
        _write_predictions(output / "pretrained", best.predictions)
        if finetune.random_baseline:
            baseline = trainer.best_of_grid("random")
            runs += baseline.runs
            _write_predictions(output / "random", baseline.predictions)
        write_json(output / "run.json", {"task": task, "restart": restart, "recipe": recipe.model_dump(), "runs": runs})
    with atomic_directory(MODELS / task / restart) as output:
        judge = spec.scores[judged[0].row]
        card = finetuned_card(
            config,
            spec.name,
            ARCHITECTURES[handler.head],
            read_source(folder),
            {"seed": seed, "restart": restart, "learning_rate": best.run["learning_rate"], **recipe.model_dump()},
            [(judge.title, judge.file, metric, value) for metric, value in best.run["dev"].items()],
        )
        save_model(output, best.model, config, ARCHITECTURES[handler.head], PRETRAINED, write_card(card))


@dataclass(frozen=True)
class Best:
    """The best run of a grid: its model and predictions by score row, what is said of it, and of every run."""

    model: BertForTask
    predictions: dict[str, list[dict[str, Any]]]
    run: dict[str, Any]
    runs: tuple[dict[str, Any], ...]


class TaskTrainer:
    """Trains one task again and again: learning rates, pretrained or random weights; features are made once."""

    def __init__(
        self,
        spec: TaskSpec,
        handler: Handler,
        recipe: Recipe,
        params: FinetuneParams,
        config: BertConfig,
        training: Features,
        judged: Sequence[Judged],
        stream: int,
    ) -> None:
        self.spec, self.handler, self.recipe, self.params = spec, handler, recipe, params
        self.config, self.training, self.judged, self.stream = config, training, judged, stream
        self.team = alone()

    def best_of_grid(self, weights: str) -> Best:
        """Train with every learning rate; the best by the first row's main metric, ties to the first.

        Args:
            weights: ``pretrained`` or ``random``, where the encoder starts from.
        """
        runs: list[dict[str, Any]] = []
        best: tuple[float, BertForTask, dict[str, list[dict[str, Any]]], dict[str, Any]] | None = None
        for learning_rate in self.recipe.learning_rates:
            model, loss = self._train(weights, learning_rate)
            predictions = {judged.row: self._predict(model, judged) for judged in self.judged}
            first = self.judged[0]
            scores = self.handler.score(self.spec, first.row, first.examples, predictions[first.row])
            main = scores[self.spec.scores[first.row].metrics[0]]
            log.info("%s weights, learning rate %g: %s", weights, learning_rate, _spoken(scores))
            runs.append({"weights": weights, "learning_rate": learning_rate, "train_loss": loss, "dev": scores})
            if best is None or main > best[0]:
                best = main, model, predictions, runs[-1]
        assert best is not None  # a recipe has at least one learning rate
        return Best(*best[1:], tuple(runs))

    def _train(self, weights: str, learning_rate: float) -> tuple[BertForTask, float]:
        model = BertForTask(self.config, self.handler.head, self.handler.outputs(self.spec), self.params.bilstm)
        initialise(model, torch.Generator().manual_seed(self.stream))
        if weights == "pretrained":
            load_weights(model, PRETRAINED, only="bert.")
        model.to(self.team.device)
        loss = LOSSES[self.handler.head]

        def objective(batch: TaskBatch) -> dict[str, Term]:
            outputs = model(batch.ids, batch.segments, batch.starts)
            return {"task": Term(loss(outputs, batch.labels, batch.starts) * len(batch.labels))}

        recipe = self.recipe
        per_epoch = -(-self.training.items // recipe.batch)
        steps = recipe.epochs * per_epoch
        loop = Loop(
            model,
            objective,
            make_optimiser(model, learning_rate, self.params.weight_decay),
            linear_schedule(learning_rate, round(self.params.warmup_share * steps), steps),
            last=steps,
            row_ends=lambda step: step % per_epoch == 0,
            what=f"fine-tuning {self.spec.name}",
            stream=self.stream,
            team=self.team,
        )
        batches = training_batches(self.training, recipe.batch, recipe.epochs, self.stream, self.team.device)
        for _ in loop.run([batch] for batch in batches):
            pass
        return model, round(loop.rows[-1]["loss"], 5)

    @torch.inference_mode()
    def _predict(self, model: BertForTask, judged: Judged) -> list[dict[str, Any]]:
        model.eval()
        outputs: list[np.ndarray] = []
        for batch in evaluation_batches(judged.features, EVALUATION_TOKENS, self.team.device):
            outputs.append(model(batch.ids, batch.segments, batch.starts).float().cpu().numpy())
        flat = np.concatenate(outputs)
        if self.handler.head == "choice":
            flat = flat.reshape(-1, judged.features.per_item)
        return self.handler.predict(self.spec, judged.examples, judged.features, flat)


def read_source(folder: Path) -> Source | None:
    """Where a task's data came from, as its download wrote it down; None for data put there by hand."""
    if not (folder / "source.json").exists():
        return None
    about = read_json(folder / "source.json")
    return Source(about["name"], about["description"], about["licence"], about["citation"])


def _write_predictions(folder: Path, predictions: dict[str, list[dict[str, Any]]]) -> None:
    folder.mkdir()
    for row, lines in predictions.items():
        with open(folder / f"{row}.jsonl", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _spoken(scores: dict[str, float]) -> str:
    return ", ".join(f"{metric} {value:.1f}" for metric, value in scores.items())
