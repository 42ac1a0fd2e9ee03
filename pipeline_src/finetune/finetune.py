"""Stage ``finetune``: fine-tune an encoder on a task for every grid point, and keep the best run and its predictions.

The scores in ``run.json`` only serve to choose the best run. The stage ``evaluate`` computes the scores of the report
from the prediction files.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.files import atomic_directory, atomic_file, checksum, write_json
from pipeline_src.base.paths import BASELINES, finetuned_model, predictions_folder, task_predictions
from pipeline_src.base.progress import log
from pipeline_src.base.registry import member_module
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.finetune.augmentation import augment, load_substitutes
from pipeline_src.finetune.distillation import file_checksums, find_teacher, load_task_teacher
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.finetune.hyperparameter_grid import BaselineGrid, Grid, GridPoint, grid_points, write_lines
from pipeline_src.finetune.task_data import EvalSet, TaskData
from pipeline_src.finetune.task_model import save_task_model
from pipeline_src.finetune.task_trainer import EpochScore, TaskTrainer, load_task_config, task_settings
from pipeline_src.model.hub import fill, read_tensors
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.machine import DEFAULT_MACHINE, Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.schema import NO_TEACHER
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.task import Rows
from pipeline_src.training.checkpoint import ROOT, Checkpointer, check_settings, environment, hash_values
from pipeline_src.training.stop import StopRequest, catch_stop_requests

# Name of the subfolder of checkpoints.
PHASE = "finetune"

# Kinds of initial weights of the encoder.
WEIGHTS = ("pretrained", "random")

# Minimum number of training steps when only a part of the labels is used.
MIN_STEPS = 200

# Keys of the parameter block `finetune` that are not part of a run's identity. They concern other tasks, or the
# identity has them in another form.
OTHER_KEYS = {"seeds", "defaults", "per_task", "model"}

# Hyperparameters that decide which runs exist, but not how a run is trained.
OTHER_RUNS = {"random_baseline", "label_counts", "random_learning_rates", "random_epochs"}

# The only files of the encoder's folder that training from random weights depends on.
BASELINE_FILES = ("config.json", "tokenizer.json")


def run(
    *,
    seed: int,
    model: ModelParams,
    finetune: FinetuneParams,
    task: str,
    finetune_seed: str,
    machine: Machine = DEFAULT_MACHINE,
) -> None:
    """Fine-tune the encoder on ``data/tasks/<task>``, and write the best model and its predictions.

    The folder ``results/predictions/<task>/<seed>/predicted/`` has:

    - ``pretrained/<eval_set>.jsonl``: predictions for each evaluation set
    - ``pretrained/<eval_set>.test.jsonl``: predictions for the test file, if there is one
    - ``random/<eval_set>.jsonl``: predictions after training from random weights, with ``random_baseline``
    - ``<weights>-<count>-labels/``: predictions for the first evaluation set, for each of ``label_counts``
    - ``run.json``: every run on the complete training file, and the number of truncated or dropped examples by file

    A stage that was stopped resumes at the next start.

    Raises:
        Interrupted: a signal requested a stop. The training state is saved.
    """
    check_settings()
    torch.set_num_threads(machine.finetune.threads)
    hyperparameters = finetune.recipe(task)
    encoder = Path(finetune.model)
    spec = load_spec(task)
    config = load_task_config(encoder, model, hyperparameters)
    settings = task_settings(spec, hyperparameters, finetune, config)
    data = TaskData(spec, encoder, settings.max_length, settings.apart, settings.window_stride)
    task_seed = derive_seed(seed, task, finetune_seed) >> 1
    trainer = TaskTrainer(settings, hyperparameters, finetune, config, encoder, data.training(), task_seed, machine)
    teacher = {} if finetune.teacher == NO_TEACHER else set_teacher(trainer, data, seed)

    # Everything that determines the result. Runs and checkpoints with another identity are not reused.
    identity = {
        "seed": seed,
        "finetune_seed": finetune_seed,
        "finetune": finetune.model_dump(exclude=OTHER_KEYS),
        "task": spec.model_dump(),
        "data": data.checksums(),
        "position_init": model.position_init,
        "teacher": teacher,
        "encoder": {path.name: checksum(path) for path in sorted(encoder.iterdir()) if path.is_file()},
        "code": fingerprint("pipeline_src.finetune.finetune", member_module("models", model.architecture)),
    }

    initial_weights = WEIGHTS if hyperparameters.random_baseline else ("pretrained",)
    label_counts = hyperparameters.label_counts if trainer.teacher is None else ()
    with catch_stop_requests() as stop_request:
        eval_sets = [data.eval_set(name) for name in spec.scores]
        runs = TaskRuns(trainer, data, eval_sets, identity, stop_request)
        grids: dict[str, Grid] = {}
        for weights in initial_weights:
            grids[weights] = runs.train(weights)

        # Runs on few labels use the best hyperparameters of the run on the whole file.
        parts: dict[str, Grid] = {}
        for count in label_counts:
            if count >= data.num_training_examples:
                continue
            for weights, grid in grids.items():
                part = runs.part(count, grid.best())
                parts[predictions_folder(weights, count)] = part.train(weights)

    # The best model predicts the test files. They have no labels, so no scores are computed.
    best_folder = grids["pretrained"].best_folder
    best = trainer.model()
    saved = read_tensors(best_folder / "model", config.names)
    fill(best, settings.restored(saved, config), best_folder / "model")
    best.to(trainer.distributed.device)

    with atomic_directory(task_predictions(task, finetune_seed)) as output:
        for name, grid in {**grids, **parts}.items():
            shutil.copytree(grid.best_folder / "predictions", output / name)
        for name in data.eval_sets_with_test_file():
            lines = trainer.predict(best, data.eval_set(name, test=True))
            write_lines(output / "pretrained" / f"{name}.test.jsonl", lines)
        all_runs = []
        for grid in grids.values():
            all_runs += grid.runs
        summary = {
            "task": task,
            "seed": finetune_seed,
            "recipe": hyperparameters.model_dump(),
            "runs": all_runs,
            "counts": {file: reasons for file, reasons in data.counts.items() if reasons},
        }
        write_json(output / "run.json", summary)
    with atomic_directory(finetuned_model(task, finetune_seed)) as output:
        shutil.copytree(best_folder / "model", output, dirs_exist_ok=True)
    CHECKS.before_finishing()
    for grid in (*grids.values(), *parts.values()):
        grid.finish()


def set_teacher(trainer: TaskTrainer, data: TaskData, seed: int) -> dict[str, int]:
    """Set the trainer's teacher and, if ``num_augmentations`` is not 0, its augmented training data.

    Returns:
        Path -> checksum, for the files of the teacher's study on which the result depends.
    """
    hyperparameters = trainer.hyperparameters
    study = Path(trainer.params.teacher)
    name = data.spec.name
    device = trainer.distributed.device
    config = trainer.config
    task = data.task
    folder = find_teacher(study, name)
    layers = bool(hyperparameters.layer_epochs)
    trainer.teacher = load_task_teacher(folder, task.head, task.num_outputs, config, data.tokenizer, device, layers)
    folders = [folder]
    copies = hyperparameters.num_augmentations
    if copies:
        substitutes = load_substitutes(study, config, data.tokenizer, device)
        folders += substitutes.folders
        augmentation_seed = derive_seed(seed, name)
        make = partial(augment, copies=copies, seed=augmentation_seed, substitutes=substitutes)
        key = {"copies": copies, "seed": augmentation_seed, **file_checksums(study, substitutes.folders)}
        trainer.training = data.augmented(make, key)
        log.info("%s: %d sequences with their texts in other words", name, trainer.training.items)
    return file_checksums(study, folders)


@dataclass(frozen=True)
class TaskRuns:
    """Trains a task at every point of its grid, and reuses finished runs and checkpoints of an earlier start.

    Attributes:
        eval_sets: the evaluation sets that every run predicts. The score on the first set decides which run is best.
        identity: values that determine the result.
    """

    trainer: TaskTrainer
    data: TaskData
    eval_sets: Sequence[EvalSet]
    identity: Mapping[str, Any]
    stop_request: StopRequest

    def train(self, weights: str) -> Grid:
        """Train from the initial weights ``weights`` (a name in WEIGHTS) at every unfinished grid point.

        Raises:
            Interrupted: a stop was requested. The run's state is saved.
        """
        identity = self._identity_from(weights)
        grid = self._open_grid(identity)
        metrics = self.data.spec.eval_set(None).metrics
        seeds = {"seed": self.identity["seed"], "finetune_seed": self.identity["finetune_seed"]}
        for point in grid_points(self.trainer.hyperparameters.starting_from(weights)):
            name = (
                f"{weights} weights, learning rate {point.learning_rate:g}, epochs {point.epochs}, batch {point.batch}"
            )
            checkpointer = open_checkpointer(self.trainer, {**identity, **point._asdict()}, self.stop_request, point)
            if grid.has(point):
                log.info("%s: trained before, kept in %s", name, grid.folder)
                # An earlier process may have been killed before it removed the checkpoint.
                checkpointer.finish()
                continue

            start = self._imitate_layers(weights, grid.folder / "imitated.safetensors", identity)
            model, loss, epoch = self.trainer.train(weights, point, checkpointer, start, self._main_score)
            outputs = {eval_set.name: self.trainer.predict(model, eval_set) for eval_set in self.eval_sets}
            predictions = self.data.task.decide(self.eval_sets[0].examples, outputs)
            scores = self._score(predictions[self.eval_sets[0].name])
            log.info("%s: %s", name, ", ".join(f"{metric} {scores[metric]:.1f}" for metric in metrics))

            # Only predictions of a baseline are needed, so its model is not saved.
            save_best = None
            if weights == "pretrained":
                save_best = partial(
                    save_task_model,
                    model=model,
                    trainer=self.trainer,
                    data=self.data,
                    training={**seeds, **point._asdict()},
                    scores=scores,
                )
            grid.add(point, loss, scores, metrics[0], predictions, save_best, epoch)
            checkpointer.finish()
        return grid

    def part(self, count: int, best: Mapping[str, Any]) -> TaskRuns:
        # Returns runs on `count` labelled examples, at the grid point of the run `best`. If the examples are few, the
        # number of epochs is increased, so that training has at least MIN_STEPS steps.
        trainer = copy(self.trainer)
        trainer.training = self.data.training_part(count, self.identity["finetune_seed"])
        batch = best["batch"]
        epochs = max(best["epochs"], -(-MIN_STEPS // trainer.steps_per_epoch(batch)))
        point = {"learning_rates": (best["learning_rate"],), "epochs": (epochs,), "batch_sizes": (batch,)}
        # `point` already has the hyperparameters for these initial weights, so `starting_from` must not change it
        # again for random weights.
        same_grid = self.trainer.hyperparameters.starting_from("pretrained")
        trainer.hyperparameters = same_grid.model_copy(update=point)

        log.info("%d labelled examples of %d", count, self.data.num_training_examples)
        identity = {**self.identity, "labels": count}
        return replace(self, trainer=trainer, eval_sets=self.eval_sets[:1], identity=identity)

    def _identity_from(self, weights: str) -> dict[str, Any]:
        encoder = self.identity["encoder"]
        # With a teacher, other files count too, since the projection to its width may come from the encoder's folder.
        if weights == "random" and not self.identity["teacher"]:
            encoder = {name: encoder[name] for name in BASELINE_FILES if name in encoder}
        # Runs from random weights do not depend on the grid of the pretrained weights, and vice versa.
        recipe = self.trainer.hyperparameters.starting_from(weights).model_dump(exclude=OTHER_RUNS)
        return {**self.identity, "weights": weights, "recipe": recipe, "encoder": encoder}

    def _open_grid(self, identity: Mapping[str, Any]) -> Grid:
        weights = identity["weights"]
        finetune_seed = identity["finetune_seed"]
        # Baselines on a part of the labels get their own folder, so that they do not displace the baselines on the
        # complete file (see MAX_BASELINES).
        if "labels" in identity:
            finetune_seed = f"{finetune_seed}-{identity['labels']}-labels"
        folder = Path(self.data.spec.name, finetune_seed, hash_values(identity))
        if weights == "random":
            return BaselineGrid(BASELINES / folder, weights)
        return Grid(ROOT / PHASE / folder, weights)

    def _score(self, predictions: Rows) -> dict[str, float]:
        eval_set = self.eval_sets[0]
        return self.data.task.score(eval_set.name, eval_set.examples, predictions)

    def _main_score(self, model: BertForTask) -> float:
        first = self.eval_sets[0]
        outputs = {first.name: self.trainer.predict(model, first)}
        predictions = self.data.task.decide(first.examples, outputs)
        scores = self._score(predictions[first.name])
        return scores[self.data.spec.eval_set(None).metrics[0]]

    def _imitate_layers(self, weights: str, path: Path, identity: Mapping[str, Any]) -> Path | None:
        # A student imitates its teacher's layers once per grid. Returns the file with the weights after imitation, or
        # None if there is no teacher or no imitation.
        if self.trainer.teacher is None or not self.trainer.hyperparameters.layer_epochs:
            return None
        if not path.exists():
            checkpointer = open_checkpointer(self.trainer, {**identity, "learns": "layers"}, self.stop_request)
            model = self.trainer.imitate(weights, checkpointer)
            CHECKS.before_saving()
            tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
            with atomic_file(path, "wb") as file:
                file.write(save(tensors))
            checkpointer.finish()
        return path


def open_checkpointer(
    trainer: TaskTrainer, identity: Mapping[str, Any], stop_request: StopRequest, point: GridPoint | None = None
) -> Checkpointer:
    # `point`: the run's grid point; None while imitating layers. The checkpointer of a grid point also keeps the best
    # epoch if the hyperparameter `select` is "best".
    phase = f"{PHASE}/{identity['task']['name']}/{identity['finetune_seed']}"
    machine = environment(trainer.distributed, trainer.machine.settings("finetune"))
    has_dropout = bool(trainer.config.hidden_dropout_prob or trainer.config.attention_dropout)
    every = None
    best_by = None
    if point is not None and trainer.hyperparameters.select == "best":
        every = trainer.steps_per_epoch(point.batch)
        best_by = EpochScore.ERROR
    return Checkpointer(
        phase,
        identity,
        machine,
        trainer.distributed,
        stop_request,
        every=every,
        best_by=best_by,
        has_dropout=has_dropout,
    )
