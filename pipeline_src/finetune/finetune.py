"""Stage ``finetune``: train a task from an encoder for every point of a grid, keep the best run, write its predictions.

Scores in ``run.json`` only choose a point of the grid; stage ``evaluate`` scores the prediction files for the report.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, atomic_file, checksum, read_json, write_json
from pipeline_src.base.paths import BASELINES, finetuned_model, predictions_folder, task_predictions
from pipeline_src.base.progress import log
from pipeline_src.base.registry import member_module
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.finetune.augmentation import augment, load_substitutes
from pipeline_src.finetune.distillation import (
    LayerImitation,
    SoftLabelLoss,
    file_checksums,
    find_teacher,
    load_fit_dense,
    load_task_teacher,
)
from pipeline_src.finetune.heads import CLASS_HEADS, LOSSES, POOLED, BertForTask, Loss, choose_bi_encoder
from pipeline_src.finetune.hyperparameter_grid import (
    BaselineGrid,
    Grid,
    GridPoint,
    grid_points,
    write_lines,
)
from pipeline_src.finetune.predict import SETTINGS, TaskSettings, model_outputs
from pipeline_src.finetune.task_data import EvalSet, TaskBatch, TaskData, balanced_class_weights, training_batches
from pipeline_src.model.adapter import ENCODER, POOLER
from pipeline_src.model.attention import Dropout, choose
from pipeline_src.model.bert import (
    INITIAL_STD,
    Bert,
    BertConfig,
    check_architecture,
    initialise,
    make_encoder,
    uninitialised,
)
from pipeline_src.model.flops import Workload
from pipeline_src.model.hub import MAX_LENGTH, fill, load_config, load_weights, read_tensors, save_model
from pipeline_src.model.model_card import FIRST_LAST, Source, finetuned_card
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.machine import DEFAULT_MACHINE, Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.schema import NO_TEACHER
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import Prediction, Rows
from pipeline_src.training.checkpoint import ROOT, Checkpointer, check_settings, environment, hash_values
from pipeline_src.training.distributed import single_process
from pipeline_src.training.stop import StopRequest, catch_stop_requests
from pipeline_src.training.trainer import (
    Callback,
    CurveLogger,
    LossTerm,
    Objective,
    OptimizerConfig,
    Trainer,
    make_trainer,
)

# Folder below the folder of checkpoints.
PHASE = "finetune"

# The encoder's initial weights.
WEIGHTS = ("pretrained", "random")

# Training on a part of the labels takes at least this many steps.
MIN_STEPS = 200

# Keys of ``finetune`` that are about other tasks, or are in the identity in another form.
OTHER_KEYS = {"seeds", "defaults", "per_task", "model"}

# Keys of a recipe that decide which runs there are, not how a run is trained.
OTHER_RUNS = {"random_baseline", "label_counts", "random_learning_rates", "random_epochs"}

# Prefix of the parameters of the masked language model's head.
MLM_TRANSFORM = "cls.predictions.transform."

# A pooler whose weights have a lower RMS was not trained: training makes weights larger, decay alone smaller, as in
# all-MiniLM.
MIN_POOLER_RMS = 0.6 * INITIAL_STD

# Training from random weights depends on these files of the encoder's folder alone.
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
    """Read the encoder's folder and ``data/tasks/<task>``; write the best model and its predictions.

    ``results/predictions/<task>/<seed>/predicted/`` has ``pretrained/<eval_set>.jsonl``, and
    ``pretrained/<eval_set>.test.jsonl`` if the set has a test file; with ``random_baseline`` also
    ``random/<eval_set>.jsonl``; for each of ``label_counts``, predictions for the first set in
    ``<weights>-<count>-labels/``; and ``run.json``, which lists every run on the complete training file and, by file,
    the number of truncated or dropped examples. A stage that was stopped resumes.

    Raises:
        Interrupted: a signal requested a stop; the training state is saved.
    """
    check_settings()
    torch.set_num_threads(machine.finetune.threads)
    hyperparameters = finetune.recipe(task)
    encoder = Path(finetune.model)
    spec = load_spec(task)
    config = load_task_config(encoder, model, hyperparameters)
    settings = task_settings(spec, hyperparameters, finetune, config)
    data = TaskData(spec, encoder, settings.max_length, settings.apart)
    task_seed = derive_seed(seed, task, finetune_seed) >> 1
    trainer = TaskTrainer(settings, hyperparameters, finetune, config, encoder, data.training(), task_seed, machine)
    teacher = {} if finetune.teacher == NO_TEACHER else set_teacher(trainer, data, seed)

    # Everything that determines the result: runs and checkpoints of another identity are not reused.
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

        # Training on few labels takes the best hyperparameters of training on the whole file.
        parts: dict[str, Grid] = {}
        for count in label_counts:
            if count >= data.num_training_examples:
                continue
            for weights, grid in grids.items():
                part = runs.part(count, grid.best())
                parts[predictions_folder(weights, count)] = part.train(weights)

    # The best model predicts the test files, which are not scored here.
    best_folder = grids["pretrained"].best_folder
    best = trainer.model()
    load_weights(best, best_folder / "model")
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


def load_task_config(encoder: Path, model: ModelParams, hyperparameters: TaskHyperparameters) -> BertConfig:
    """Load the encoder's config, with the study's initialisation of positions and the task's dropout."""
    # Positions are initialised in training from random weights.
    config = replace(load_config(encoder), position_init=model.position_init)
    check_architecture(config, model.architecture, encoder)
    if hyperparameters.reinit_layers > config.num_hidden_layers:
        problem = "more blocks to start from random weights than there are"
        hint = f"set reinit_layers in finetune of params.yaml to at most {config.num_hidden_layers}"
        raise PipelineError(problem, hyperparameters.reinit_layers, where=encoder, hint=hint)
    dropout = hyperparameters.dropout
    if dropout is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return config


def task_settings(
    spec: TaskSpec, hyperparameters: TaskHyperparameters, params: FinetuneParams, config: BertConfig
) -> TaskSettings:
    """Return what is saved with a task's model, so that its folder is enough to predict."""
    return TaskSettings(
        task=spec,
        max_length=hyperparameters.max_length,
        pooling=hyperparameters.pooling,
        feature_layers=hyperparameters.feature_layers,
        bilstm=params.bilstm,
        bi_encoder=choose_bi_encoder(spec, params, config, hyperparameters.feature_layers),
    )


def set_teacher(trainer: TaskTrainer, data: TaskData, seed: int) -> dict[str, int]:
    """Set the trainer's teacher and, if the hyperparameters ask for it, its augmented training data.

    Returns:
        Path -> checksum of the teacher's files, on which the result depends.
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
    """Trains a task at every point of its grid; finished runs and checkpoints of an earlier start are reused.

    Attributes:
        eval_sets: every run predicts these sets; the score on the first set decides between the runs.
        identity: values that determine the result.
    """

    trainer: TaskTrainer
    data: TaskData
    eval_sets: Sequence[EvalSet]
    identity: Mapping[str, Any]
    stop_request: StopRequest

    def train(self, weights: str) -> Grid:
        """Train from ``weights``, a name in WEIGHTS, at every grid point that is not finished yet.

        Raises:
            Interrupted: a stop was requested; the run's state is saved.
        """
        identity = self._identity_from(weights)
        grid = self._open_grid(identity)
        metrics = self.data.spec.eval_set(None).metrics
        for point in grid_points(self.trainer.hyperparameters.starting_from(weights)):
            name = f"{weights} weights, learning rate {point.learning_rate:g}, epochs {point.epochs}"
            name = f"{name}, batch {point.batch}"
            checkpointer = open_checkpointer(self.trainer, {**identity, **point._asdict()}, self.stop_request, point)
            if grid.has(point):
                log.info("%s: trained before, kept in %s", name, grid.folder)
                # An earlier process may have been killed before it did this.
                checkpointer.finish()
                continue

            start = self._imitate_layers(weights, grid.folder / "imitated.safetensors", identity)
            model, loss, epoch = self.trainer.train(weights, point, checkpointer, start, self._main_score)
            predictions = {eval_set.name: self.trainer.predict(model, eval_set) for eval_set in self.eval_sets}
            scores = self._score(predictions[self.eval_sets[0].name])
            log.info("%s: %s", name, ", ".join(f"{metric} {scores[metric]:.1f}" for metric in metrics))

            # Of a baseline, only the predictions are needed.
            save_best = None
            if weights == "pretrained":
                save_best = partial(self._save, model=model, point=point, scores=scores)
            grid.add(point, loss, scores, metrics[0], predictions, save_best, epoch)
            checkpointer.finish()
        return grid

    def part(self, count: int, best: Mapping[str, Any]) -> TaskRuns:
        """Return the runs on ``count`` labelled examples, at the grid point of the run ``best``.

        If they are few, there are more epochs, so that training has at least ``MIN_STEPS`` steps.
        """
        trainer = copy(self.trainer)
        trainer.training = self.data.training_part(count, self.identity["finetune_seed"])
        batch = best["batch"]
        epochs = max(best["epochs"], -(-MIN_STEPS // trainer.steps_per_epoch(batch)))
        point = {"learning_rates": (best["learning_rate"],), "epochs": (epochs,), "batch_sizes": (batch,)}
        # The point is already that of the initial weights.
        same_grid = self.trainer.hyperparameters.starting_from("pretrained")
        trainer.hyperparameters = same_grid.model_copy(update=point)

        log.info("%d labelled examples of %d", count, self.data.num_training_examples)
        identity = {**self.identity, "labels": count}
        return replace(self, trainer=trainer, eval_sets=self.eval_sets[:1], identity=identity)

    def _identity_from(self, weights: str) -> dict[str, Any]:
        encoder = self.identity["encoder"]
        # Not with a teacher: the projection to its width may come from the encoder's folder.
        if weights == "random" and not self.identity["teacher"]:
            encoder = {name: encoder[name] for name in BASELINE_FILES if name in encoder}
        # A baseline does not depend on the grid of the pretrained weights, nor they on its grid.
        recipe = self.trainer.hyperparameters.starting_from(weights).model_dump(exclude=OTHER_RUNS)
        return {**self.identity, "weights": weights, "recipe": recipe, "encoder": encoder}

    def _open_grid(self, identity: Mapping[str, Any]) -> Grid:
        weights = identity["weights"]
        finetune_seed = identity["finetune_seed"]
        # In a folder of their own, a part's baselines do not push out those of the complete file.
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
        scores = self._score(self.trainer.predict(model, self.eval_sets[0]))
        return scores[self.data.spec.eval_set(None).metrics[0]]

    def _imitate_layers(self, weights: str, path: Path, identity: Mapping[str, Any]) -> Path | None:
        """Train a student to imitate its teacher's layers, once per grid; return the file, or None if it does not."""
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

    def _save(self, folder: Path, model: BertForTask, point: GridPoint, scores: Mapping[str, float]) -> None:
        spec = self.data.spec
        trainer = self.trainer
        settings = trainer.settings
        classes = trainer.config.names.classes
        eval_set = spec.eval_set(None)
        # transformers has no class for two towers, the first-last average or a text's vector.
        without_class = settings.apart or model.first_last or model.head == "embedding"
        huggingface_class = classes["encoder" if without_class else model.head]
        training = {
            "seed": self.identity["seed"],
            "finetune_seed": self.identity["finetune_seed"],
            **point._asdict(),
            "max_length": settings.max_length,
            "frozen": settings.feature_layers,
        }
        results = [(eval_set.title, eval_set.file, metric, scores[metric]) for metric in eval_set.metrics]
        source = read_source(self.data.folder)
        # Its class for the task would leave out an LSTM without a word, so the card names that of the encoder.
        has_lstm = settings.bilstm or settings.feature_layers is not None
        card_class = classes["encoder"] if has_lstm else huggingface_class
        head = FIRST_LAST.format(layer=model.output_layer) if model.first_last else ""
        card = finetuned_card(trainer.config, spec.name, card_class, source, training, results, head)
        save_model(folder, model, trainer.config, huggingface_class, self.data.encoder, card)
        # With unanswerable questions, the scores have the best threshold.
        saved = settings.model_copy(update={"threshold": scores.get("threshold")})
        config = read_json(folder / "config.json", dict) | label_names(spec)
        config[SETTINGS] = saved.model_dump(mode="json")
        if model.head == "embedding":
            config[MAX_LENGTH] = settings.max_length
        write_json(folder / "config.json", config)


def open_checkpointer(
    trainer: TaskTrainer, identity: Mapping[str, Any], stop_request: StopRequest, point: GridPoint | None = None
) -> Checkpointer:
    """Open the checkpoints of one run, which keep the best epoch too if the run of a grid point selects it."""
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


class TaskObjective(Objective[TaskBatch]):
    """A task's model and its loss."""

    def __init__(self, model: BertForTask, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.weights = {"task": 1.0}

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"task": work.predictions}

    def forward(self, batch: TaskBatch) -> dict[str, LossTerm]:
        outputs = self.model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        # The loss is a mean; a term is a sum.
        return {"task": LossTerm(self.loss(outputs, batch) * batch.losses)}


class EpochScore(Callback):
    """Scores the model after every epoch, of ``per_epoch`` steps, so that the checkpointer keeps the best epoch."""

    # A column of the curve: 100 - score.
    ERROR = "development_error"

    def __init__(self, score_model: Callable[[BertForTask], float], model: BertForTask, per_epoch: int) -> None:
        super().__init__([per_epoch])
        self.score_model = score_model
        self.model = model

    def after_step(self, trainer: Trainer[Any]) -> None:
        trainer.metrics = {self.ERROR: 100.0 - self.score_model(self.model)}
        trainer.state.row().update(trainer.metrics)
        self.model.train()


class TaskTrainer:
    """Trains a task's model from pretrained or random weights, and predicts with it.

    Args:
        settings: the task and its head; see ``task_settings``.
        encoder: folder of the pretrained encoder.
        seed: seed of the head's weights, the order of the data and dropout.

    Attributes:
        teacher: the fine-tuned model that the student learns from; None if the model learns from labels.
    """

    def __init__(
        self,
        settings: TaskSettings,
        hyperparameters: TaskHyperparameters,
        params: FinetuneParams,
        config: BertConfig,
        encoder: Path,
        training: Features,
        seed: int,
        machine: Machine,
    ) -> None:
        self.settings = settings
        self.spec = settings.task
        self.task = make_task(self.spec)
        self.hyperparameters = hyperparameters
        self.params = params
        self.encoder = encoder
        self.training = training
        self.seed = seed
        self.machine = machine
        self.teacher: BertForTask | None = None
        self.distributed = single_process(machine.precision, machine.device)
        attention = choose(machine.attention, self.distributed.device, config.head_size)
        checkpointing = machine.finetune.activation_checkpointing
        self.config = replace(config, attention=attention, activation_checkpointing=checkpointing)

    def model(self) -> BertForTask:
        """Return the task's model with random weights."""
        model = self._with_head(None)
        initialise(model, torch.Generator().manual_seed(self.seed))
        model.drop_unread_pooler()
        return model

    def pretrained(self) -> BertForTask:
        """Return the task's model with the pretrained encoder.

        Weights are random in the head, in blocks of ``reinit_layers``, and in a pooler that is missing or untrained.
        """
        tensors = read_tensors(self.encoder, self.config.names)
        generator = torch.Generator().manual_seed(self.seed)
        # Initialising weights that are replaced would take seconds.
        with uninitialised():
            bert = make_encoder(self.config)
        bert.to_empty(device="cpu")

        if self.config.pooler_is_mlm_head:
            for name in list(tensors):
                if name.startswith(MLM_TRANSFORM):
                    tensors.setdefault(POOLER + name.removeprefix(MLM_TRANSFORM), tensors[name])
        parts: tuple[str, ...] = (*ENCODER, POOLER)
        reason = self._why_new_pooler(tensors)
        if reason:
            parts = ENCODER
            initialise(bert.pooler, generator)
        fill(bert, tensors, self.encoder, parts)

        num_layers = self.hyperparameters.reinit_layers
        if num_layers:
            random = make_encoder(self.config)
            initialise(random, generator)
            blocks = list(zip(bert.encoder.blocks(), random.encoder.blocks(), strict=True))
            for block, random_block in blocks[-num_layers:]:
                block.load_state_dict(random_block.state_dict())

        model = self._with_head(bert)
        model.drop_unread_pooler()
        if reason and self.task.head in POOLED and not self.settings.apart and not model.first_last:
            log.info("%s %s; it is trained from random weights", self.encoder, reason)
        for name, part in model.named_children():
            if name != "bert":
                initialise(part, generator)
        return model

    def _why_new_pooler(self, tensors: Mapping[str, Tensor]) -> str:
        """Return why the pooler starts from random weights, or "" if it is read from the encoder's file."""
        weights = [tensor for name, tensor in tensors.items() if name.startswith(POOLER) and tensor.ndim == 2]
        if not weights:
            return "has no pooler"
        if self.hyperparameters.reinit_layers:
            return "gives up its pooler with its top blocks (reinit_layers)"
        rms = float(weights[0].square().mean().sqrt())
        if rms >= MIN_POOLER_RMS or self.config.pooler_is_mlm_head:
            return ""
        return f"has a pooler that was not trained (RMS of its weights {rms:.4f})"

    def _with_head(self, bert: Bert | None) -> BertForTask:
        model = self.settings.with_head(self.config, bert)
        if self.teacher is not None:
            # As in huawei-noah/Pretrained-Language-Model, TinyBERT.
            model.dropout = Dropout(0.0)
        return model

    def _initial_model(self, weights: str) -> BertForTask:
        model = self.model() if weights == "random" else self.pretrained()
        return model.to(self.distributed.device)

    def imitate(self, weights: str, checkpointer: Checkpointer) -> BertForTask:
        """Train the layers to imitate the teacher's, at a constant learning rate; arguments as in ``train``."""
        assert self.teacher is not None
        model = self._initial_model(weights)
        generator = torch.Generator().manual_seed(self.seed)
        fit = load_fit_dense(self.encoder, self.config, self.teacher.bert.config.hidden_size, generator)
        objective = LayerImitation(model.bert, fit, self.teacher.bert).to(self.distributed.device)
        point = GridPoint(
            learning_rate=self.hyperparameters.layer_learning_rate,
            epochs=self.hyperparameters.layer_epochs,
            batch=self.hyperparameters.batch_sizes[0],
        )
        self._train(objective, point, False, "imitating layers for", checkpointer)
        return model

    def train(
        self,
        weights: str,
        point: GridPoint,
        checkpointer: Checkpointer | None = None,
        start: Path | None = None,
        score_model: Callable[[BertForTask], float] | None = None,
    ) -> tuple[BertForTask, float, int]:
        """Train at one grid point; return the model, the mean training loss of the selected epoch, and that epoch.

        Args:
            weights: initial weights of the encoder, a name in WEIGHTS.
            checkpointer: saves the run from time to time and when a stop is requested, and resumes it.
            start: file with the weights that ``imitate`` trained.
            score_model: scores the model after each epoch if the best epoch is selected; needs a checkpointer.

        Raises:
            Interrupted: a stop was requested; the run's state is saved.
        """
        model = self._initial_model(weights)
        if start is not None:
            model.load_state_dict(load_file(start))
        loss = LOSSES[self.task.head] if self.teacher is None else SoftLabelLoss(self.teacher)
        objective = TaskObjective(model, loss)
        steps_per_epoch = self.steps_per_epoch(point.batch)
        callbacks = []
        if self.hyperparameters.select == "best" and score_model is not None and checkpointer is not None:
            callbacks.append(EpochScore(score_model, model, steps_per_epoch))
        curve = self._train(objective, point, True, "fine-tuning", checkpointer, callbacks).state.curve
        epoch = point.epochs
        if callbacks:
            assert checkpointer is not None
            epoch = checkpointer.restore_best(objective) // steps_per_epoch
        return model, round(curve[epoch - 1]["loss"], 5), epoch

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches of the training set; the last batch may be smaller."""
        return -(-self.training.items // batch_size)

    def _train(
        self,
        objective: Objective[TaskBatch],
        point: GridPoint,
        decays: bool,
        description: str,
        checkpointer: Checkpointer | None,
        callbacks: Sequence[Callback] = (),
    ) -> Trainer[TaskBatch]:
        """Train the objective; the learning rate has linear warm-up and decay if ``decays``, else it is constant."""
        steps_per_epoch = self.steps_per_epoch(point.batch)
        steps = point.epochs * steps_per_epoch
        config = OptimizerConfig(
            point.learning_rate,
            steps,
            decay_steps=0,
            weight_decay=self.params.weight_decay,
            optimizer=self.params.optimizer,
        )
        if decays:
            config = replace(config, warmup_steps=round(self.params.warmup_ratio * steps), decay_steps=None)
        trainer = make_trainer(
            objective,
            config,
            self.distributed,
            name=f"{description} {self.spec.name}",
            last=steps,
            seed=self.seed,
            requests=checkpointer.requests if checkpointer else None,
            callbacks=[CurveLogger([steps_per_epoch], steps), *callbacks],
        )
        if checkpointer is not None:
            trainer.callbacks.append(checkpointer)
            if checkpointer.find():
                checkpointer.restore(trainer)
        done = trainer.state.step
        # The loss of `embedding` compares all texts of a batch, which is not divided.
        tokens = None if self.task.head == "embedding" else self.machine.finetune.microbatch_tokens
        weights = self._class_weights()
        trainer.run(training_batches(self.training, point.batch, point.epochs, self.seed, tokens, done, weights))
        return trainer

    def _class_weights(self) -> np.ndarray | None:
        """Return the weight of each class in the loss; None if all count alike or the labels are not classes."""
        has_classes = self.task.head in CLASS_HEADS and self.spec.range is None
        if self.hyperparameters.class_weights is None or not has_classes:
            return None
        return balanced_class_weights(self.training.labels, self.task.num_outputs)

    def predict(self, model: BertForTask, eval_set: EvalSet) -> list[Prediction]:
        """Return the prediction for each example, in the order of the examples; see ``Task.predict``."""
        outputs = model_outputs(model, self.task, eval_set.features, self.distributed)
        return self.task.predict(eval_set.examples, eval_set.features, outputs)


def label_names(spec: TaskSpec) -> dict[str, Any]:
    """Return the keys on labels for Hugging Face's config.json; empty if the outputs are not labels."""
    labels = spec.labels if spec.range is None else (spec.name,)
    if not labels or spec.kind == "retrieval":
        return {}
    names: dict[str, Any] = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    if spec.range is not None:
        names["problem_type"] = "regression"
    return names


def read_source(folder: Path) -> Source | None:
    """Read the source that was recorded when a task's data was downloaded; None if data was placed by hand."""
    if not (folder / "source.json").exists():
        return None
    fields = ("name", "description", "licence", "citation")
    source = read_json(folder / "source.json", dict.fromkeys(fields, str))
    return Source(*(source[field] for field in fields))
