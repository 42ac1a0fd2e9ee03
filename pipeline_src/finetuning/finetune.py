"""Stage ``finetune``: train a task from an encoder for every point of a grid, keep the best run, write its predictions.

Scores in ``run.json`` choose between the points of the grid; the published scores are computed by the stage
``evaluate`` from the prediction files alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.dependencies import CHECKS
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, checksum, read_json, write_json
from pipeline_src.common.fingerprint import fingerprint
from pipeline_src.common.paths import BASELINES, finetuned_model, predictions_folder, task_predictions
from pipeline_src.common.progress import log
from pipeline_src.config.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.config.machine import DEFAULT_MACHINE, Machine
from pipeline_src.config.model import ModelParams
from pipeline_src.config.schema import NO_TEACHER
from pipeline_src.finetuning.augmentation import augment, load_substitutes
from pipeline_src.finetuning.distillation import (
    LayerImitation,
    SoftLabelLoss,
    file_checksums,
    find_teacher,
    load_fit_dense,
    load_task_teacher,
)
from pipeline_src.finetuning.heads import LOSSES, POOLED, BertForTask, Loss, choose_bi_encoder
from pipeline_src.finetuning.hyperparameter_grid import (
    FEWEST_STEPS,
    BaselineGrid,
    Grid,
    GridPoint,
    grid_points,
    write_lines,
)
from pipeline_src.finetuning.task_data import EvalSet, TaskBatch, TaskData, evaluation_batches, training_batches
from pipeline_src.models.adapter import ENCODER, POOLER
from pipeline_src.models.attention import Dropout, choose
from pipeline_src.models.bert import (
    INITIAL_STD,
    Bert,
    BertConfig,
    check_architecture,
    initialise,
    make_encoder,
    uninitialised,
)
from pipeline_src.models.flops import Workload
from pipeline_src.models.hub import fill, load_config, load_weights, read_tensors, save_model
from pipeline_src.models.model_card import Source, finetuned_card
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.spec import TaskSpec, load_spec
from pipeline_src.training.batches import to_device
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

PHASE = "finetune"  # folder below that of checkpoints
EVALUATION_TOKENS = 16_384  # in one batch
OTHER_KEYS = {"seeds", "defaults", "per_task", "model"}  # of other tasks, or part of the identity in another form
OTHER_RUNS = {"random_baseline", "label_counts"}  # decide which runs there are, not what one learns
MLM_TRANSFORM = "cls.predictions.transform."  # in names of parameters
MIN_POOLER_RMS = 0.6 * INITIAL_STD  # of weights; training makes them larger, decay alone smaller, as in all-MiniLM
FORM = ("config.json", "tokenizer.json")  # files of an encoder's folder that random weights depend on


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
    ``random/<eval_set>.jsonl``; the same of the first set in
    ``pretrained-<count>-labels/`` and ``random-<count>-labels/`` for each of ``label_counts``; and ``run.json`` with
    the score of every run on the whole file and the number of truncated or dropped examples, by file. A stage that was
    stopped resumes.

    Raises:
        Interrupted: a signal requested a stop; the training state is saved.
    """
    check_settings()
    torch.set_num_threads(machine.finetune.threads)
    hyperparameters, encoder = finetune.recipe(task), Path(finetune.model)

    config, spec = load_task_config(encoder, model, hyperparameters), load_spec(task)
    bi_encoder = choose_bi_encoder(spec, finetune, config, hyperparameters.feature_layers)
    data = TaskData(spec, encoder, hyperparameters.max_length, apart=bi_encoder is not None)
    task_seed = derive_seed(seed, task, finetune_seed) >> 1
    trainer = TaskTrainer(data.spec, hyperparameters, finetune, config, encoder, data.training(), task_seed, machine)
    identity = {  # determines the result; checkpoints are stored under its hash
        "seed": seed,
        "finetune_seed": finetune_seed,
        "recipe": hyperparameters.model_dump(exclude=OTHER_RUNS),
        "finetune": finetune.model_dump(exclude=OTHER_KEYS),
        "task": data.spec.model_dump(),
        "data": data.checksums(),
        "position_init": model.position_init,
        "teacher": {} if finetune.teacher == NO_TEACHER else set_teacher(trainer, data, seed),
        "encoder": {path.name: checksum(path) for path in sorted(encoder.iterdir()) if path.is_file()},
        "code": fingerprint("pipeline_src.finetuning.finetune", f"pipeline_src.models.{model.architecture}"),
    }

    eval_sets, grids = [data.eval_set(name) for name in data.spec.scores], []
    with catch_stop_requests() as stop_request:
        for weights in WEIGHTS if hyperparameters.random_baseline else ("pretrained",):
            own_identity = identity_of_weights(weights, identity)
            grids.append(open_grid(own_identity))
            run_grid(grids[-1], trainer, data, eval_sets, own_identity, stop_request)

        parts = [
            run_part(count, grid, trainer, data, eval_sets[:1], identity, stop_request)
            for count in (hyperparameters.label_counts if trainer.teacher is None else ())
            if count < data.num_training_examples
            for grid in grids
        ]

    kept, best = grids[0].best_folder, trainer.model()
    load_weights(best, kept / "model")
    best.to(trainer.distributed.device)
    with atomic_directory(task_predictions(task, finetune_seed)) as output:
        for grid in grids:
            shutil.copytree(grid.best_folder / "predictions", output / grid.weights)
        for folder, part in parts:
            shutil.copytree(part.best_folder / "predictions", output / folder)
        for name in data.eval_sets_with_test_file():
            lines = trainer.predict(best, data.eval_set(name, test=True))
            write_lines(output / "pretrained" / f"{name}.test.jsonl", lines)
        counts = {file: reasons for file, reasons in data.counts.items() if reasons}
        runs = [run for grid in grids for run in grid.runs]
        recipe = hyperparameters.model_dump()
        summary = {"task": task, "seed": finetune_seed, "recipe": recipe, "runs": runs, "counts": counts}
        write_json(output / "run.json", summary)
    with atomic_directory(finetuned_model(task, finetune_seed)) as output:
        shutil.copytree(kept / "model", output, dirs_exist_ok=True)
    CHECKS.before_finishing()
    for grid in [*grids, *(part for _, part in parts)]:
        grid.finish()


def load_task_config(encoder: Path, model: ModelParams, hyperparameters: TaskHyperparameters) -> BertConfig:
    """Load the encoder's config with the position initialisation of the study and the task's own dropout."""
    config = replace(load_config(encoder), position_init=model.position_init)  # for training from random weights
    check_architecture(config, model.architecture, encoder)
    if hyperparameters.reinit_layers > config.num_hidden_layers:
        raise PipelineError(
            "more blocks to start from random weights than there are", hyperparameters.reinit_layers, where=encoder,
            hint=f"set reinit_layers in finetune of params.yaml to at most {config.num_hidden_layers}",
        )  # fmt: skip
    if (dropout := hyperparameters.dropout) is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return config


def set_teacher(trainer: TaskTrainer, data: TaskData, seed: int) -> dict[str, int]:
    """Give a trainer its teacher for the task and, if the hyperparameters ask for it, augmented training data.

    Returns:
        Checksums of the teacher's files, which determine the result.
    """
    hyperparameters, study = trainer.hyperparameters, Path(trainer.params.teacher)
    device, config = trainer.distributed.device, trainer.config
    folder = find_teacher(study, data.spec.name)
    layers = bool(hyperparameters.layer_epochs)
    head, outputs = data.task.head, data.task.num_outputs
    trainer.teacher = load_task_teacher(folder, head, outputs, config, data.tokenizer, device, layers)
    folders = [folder]
    if copies := hyperparameters.num_augmentations:
        substitutes = load_substitutes(study, config, data.tokenizer, device)
        augmentation_seed = derive_seed(seed, data.spec.name)
        make = partial(augment, copies=copies, seed=augmentation_seed, words=substitutes)
        decides = {"copies": copies, "seed": augmentation_seed, **file_checksums(study, substitutes.folders)}
        trainer.training = data.augmented(make, decides)
        log.info("%s: %d sequences with their texts in other words", data.spec.name, trainer.training.items)
        folders += substitutes.folders
    return file_checksums(study, folders)


def identity_of_weights(weights: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of the runs that start from ``weights``, a name in WEIGHTS.

    Random weights depend on the encoder's form only, unless the task is distilled by layers: the projection to the
    teacher's width may come from the encoder's folder.
    """
    encoder = identity["encoder"]
    if weights == "random" and not identity["teacher"]:
        encoder = {name: encoder[name] for name in FORM if name in encoder}
    return {**identity, "weights": weights, "encoder": encoder}


def open_grid(identity: Mapping[str, Any]) -> Grid:
    """Open the grid of one kind of initial weights, with the runs of an earlier start of the stage."""
    weights, task, finetune_seed = identity["weights"], identity["task"]["name"], identity["finetune_seed"]
    if "labels" in identity:  # a part's baselines do not push out those of the whole file
        finetune_seed = f"{finetune_seed}-{identity['labels']}-labels"
    folder = Path(task, finetune_seed, hash_values(identity))
    if weights == "random":
        return BaselineGrid(BASELINES / folder, weights)
    return Grid(ROOT / PHASE / folder, weights)


def run_grid(
    grid: Grid,
    trainer: TaskTrainer,
    data: TaskData,
    eval_sets: Sequence[EvalSet],
    identity: Mapping[str, Any],
    stop_request: StopRequest,
) -> None:
    """Train every grid point that ``grid`` does not have yet, and predict ``eval_sets`` with each.

    Args:
        eval_sets: the first one decides between the points.

    Raises:
        PipelineError, Interrupted: as :func:`run`.
    """
    first, metrics = eval_sets[0], data.spec.eval_set(None).metrics
    for point in grid_points(trainer.hyperparameters):
        shown = (
            f"{grid.weights} weights, learning rate {point.learning_rate:g}, epochs {point.epochs}, batch {point.batch}"
        )
        checkpointer = open_checkpointer(trainer, {**identity, **point._asdict()}, stop_request, point)
        if grid.has(point):
            log.info("%s: trained before, kept in %s", shown, grid.folder)
            checkpointer.finish()  # if it was killed before it could
            continue
        start = imitate_layers(grid, trainer, identity, stop_request)
        score_model = partial(main_score, trainer, data, first)
        model, loss, epoch = trainer.train(grid.weights, point, checkpointer, start, score_model)
        predictions = {each.name: trainer.predict(model, each) for each in eval_sets}
        scores = data.task.score(first.name, first.examples, predictions[first.name])
        log.info("%s: %s", shown, ", ".join(f"{metric} {scores[metric]:.1f}" for metric in metrics))
        about = {"seed": identity["seed"], "finetune_seed": identity["finetune_seed"], **point._asdict()}
        save = partial(save_finetuned, model=model, trainer=trainer, data=data, about=about, scores=scores)
        save_best = save if grid.weights == "pretrained" else None  # a baseline needs its predictions only
        grid.keep(point, loss, scores, metrics[0], predictions, save_best, epoch)
        checkpointer.finish()


def run_part(
    count: int,
    grid: Grid,
    trainer: TaskTrainer,
    data: TaskData,
    eval_sets: Sequence[EvalSet],
    identity: Mapping[str, Any],
    stop_request: StopRequest,
) -> tuple[str, Grid]:
    """Train on ``count`` labelled examples at the best point of a grid; return the folder of its predictions, and it.

    Few examples are seen for more epochs, so that training has ``FEWEST_STEPS`` steps.
    """
    best = grid.best()
    part = copy(trainer)
    part.training = data.training_part(count, identity["finetune_seed"])
    epochs = max(best["epochs"], -(-FEWEST_STEPS // -(-part.training.items // best["batch"])))
    point = {"learning_rates": (best["learning_rate"],), "epochs": (epochs,), "batch_sizes": (best["batch"],)}
    part.hyperparameters = trainer.hyperparameters.model_copy(update=point)
    recipe = part.hyperparameters.model_dump(exclude=OTHER_RUNS)
    identity = {**identity_of_weights(grid.weights, identity), "labels": count, "recipe": recipe}
    log.info("%d labelled examples of %d", count, data.num_training_examples)
    found = open_grid(identity)
    run_grid(found, part, data, eval_sets, identity, stop_request)
    return predictions_folder(grid.weights, count), found


def main_score(trainer: TaskTrainer, data: TaskData, eval_set: EvalSet, model: BertForTask) -> float:
    """Return the main score of a model on an evaluation set."""
    spec = data.spec.scores[eval_set.name]
    return data.task.score(eval_set.name, eval_set.examples, trainer.predict(model, eval_set))[spec.metrics[0]]


def open_checkpointer(
    trainer: TaskTrainer, identity: Mapping[str, Any], stop_request: StopRequest, point: GridPoint | None = None
) -> Checkpointer:
    """Open the checkpoints of one run; those of a grid point have its best epoch, if that is to be kept."""
    phase = f"{PHASE}/{identity['task']['name']}/{identity['finetune_seed']}"
    machine = environment(trainer.distributed, trainer.machine.settings("finetune"))
    if point is None or trainer.hyperparameters.select == "last":
        return Checkpointer(phase, identity, machine, trainer.distributed, stop_request)
    return Checkpointer(
        phase, identity, machine, trainer.distributed, stop_request,
        every=trainer.steps_per_epoch(point), best_by=EpochScore.ERROR,
    )  # fmt: skip


def imitate_layers(
    grid: Grid, trainer: TaskTrainer, identity: Mapping[str, Any], stop_request: StopRequest
) -> Path | None:
    """Train a student's layers on its teacher's, once for all points of a grid, and return the file of its weights.

    Returns None if the task is not distilled by layers.

    Raises:
        PipelineError, Interrupted: as :func:`run`.
    """
    if trainer.teacher is None or not trainer.hyperparameters.layer_epochs:
        return None
    path = grid.folder / "imitated.safetensors"
    if not path.exists():
        checkpointer = open_checkpointer(trainer, {**identity, "learns": "layers"}, stop_request)
        model = trainer.imitate(grid.weights, checkpointer)
        CHECKS.before_saving()
        with atomic_file(path, "wb") as file:
            file.write(save({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}))
        checkpointer.finish()
    return path


class TaskObjective(Objective[TaskBatch]):
    """A task's model and its loss."""

    def __init__(self, model: BertForTask, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.weights = {"task": 1.0}

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"task": work.predictions}

    def forward(self, batch: TaskBatch) -> dict[str, LossTerm]:
        """Return the sum of the losses: their mean times their number."""
        outputs = self.model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        return {"task": LossTerm(self.loss(outputs, batch) * batch.losses)}


class EpochScore(Callback):
    """Scores the model after every epoch, by which the checkpointer knows the best one."""

    ERROR = "development_error"  # a column of the curve: 100 - score

    def __init__(self, score_model: Callable[[BertForTask], float], model: BertForTask, per_epoch: int) -> None:
        super().__init__([per_epoch])
        self.score_model, self.model = score_model, model

    def after_step(self, trainer: Trainer[Any]) -> None:
        trainer.metrics = {self.ERROR: 100.0 - self.score_model(self.model)}
        trainer.state.row().update(trainer.metrics)
        self.model.train()


class TaskTrainer:
    """Trains a task's model from pretrained or random weights, and predicts with it.

    Args:
        seed: for the head's weights, the order of the data and dropout.

    Attributes:
        teacher: the fine-tuned model that the task is distilled from; None to learn from labels.
    """

    def __init__(
        self,
        spec: TaskSpec,
        hyperparameters: TaskHyperparameters,
        params: FinetuneParams,
        config: BertConfig,
        encoder: Path,
        training: Features,
        seed: int,
        machine: Machine,
    ) -> None:
        self.spec, self.task, self.hyperparameters, self.params = spec, make_task(spec), hyperparameters, params
        self.distributed = single_process(machine.precision, machine.device)
        attention = choose(machine.attention, self.distributed.device, config.head_size)
        self.config = replace(
            config, attention=attention, activation_checkpointing=machine.finetune.activation_checkpointing
        )
        self.encoder, self.training, self.seed, self.machine = encoder, training, seed, machine
        self.teacher: BertForTask | None = None
        self.bi_encoder = choose_bi_encoder(spec, params, config, hyperparameters.feature_layers)

    def model(self) -> BertForTask:
        """Make the task's model with random weights."""
        model = self._with_head(None)
        initialise(model, torch.Generator().manual_seed(self.seed))
        return model

    def pretrained(self) -> BertForTask:
        """Make the task's model with the pretrained encoder; its head is random, and so are a pooler that it lacks or
        that was not trained, and the blocks of ``reinit_layers``.
        """
        tensors, generator = read_tensors(self.encoder, self.config.names), torch.Generator().manual_seed(self.seed)
        with uninitialised():  # initialising weights that are replaced would take seconds
            bert = make_encoder(self.config)
        bert.to_empty(device="cpu")
        for name in list(tensors) if self.config.pooler_is_mlm_head else ():
            if name.startswith(MLM_TRANSFORM):
                tensors.setdefault(POOLER + name.removeprefix(MLM_TRANSFORM), tensors[name])
        parts: tuple[str, ...] = (*ENCODER, POOLER)
        if why := self._why_new_pooler(tensors):
            parts = ENCODER
            initialise(bert.pooler, generator)
        fill(bert, tensors, self.encoder, parts)
        if anew := self.hyperparameters.reinit_layers:
            random = make_encoder(self.config)
            initialise(random, generator)
            for block, drawn in list(zip(bert.encoder.blocks(), random.encoder.blocks(), strict=True))[-anew:]:
                block.load_state_dict(drawn.state_dict())
        model = self._with_head(bert)
        if why and self.task.head in POOLED and self.bi_encoder is None and not model.first_last:
            log.info("%s %s; it is trained from random weights", self.encoder, why)
        for name, part in model.named_children():
            if name != "bert":
                initialise(part, generator)
        return model

    def _why_new_pooler(self, tensors: Mapping[str, Tensor]) -> str:
        """Return why the pooler starts from random weights, or nothing if that of the encoder's file is used."""
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
        model = BertForTask(
            self.config, self.task.head, self.task.num_outputs, self.params.bilstm,
            self.hyperparameters.feature_layers, bert, self.bi_encoder, self.hyperparameters.pooling,
        )  # fmt: skip
        if self.teacher is not None:
            model.dropout = Dropout(0.0)  # huawei-noah/Pretrained-Language-Model, TinyBERT
        return model

    def imitate(self, weights: str, checkpointer: Checkpointer | None = None) -> BertForTask:
        """Train the layers on the teacher's at a constant learning rate; arguments as in :meth:`train`."""
        assert self.teacher is not None
        model, hyperparameters = WEIGHTS[weights](self).to(self.distributed.device), self.hyperparameters
        generator = torch.Generator().manual_seed(self.seed)
        fit = load_fit_dense(self.encoder, self.config, self.teacher.bert.config.hidden_size, generator)
        objective = LayerImitation(model.bert, fit, self.teacher.bert).to(self.distributed.device)
        rate, epochs = hyperparameters.layer_learning_rate, hyperparameters.layer_epochs
        point = GridPoint(rate, epochs, hyperparameters.batch_sizes[0])
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
        """Train one grid point; return the model, the mean loss of the epoch that it is from, and that epoch.

        Args:
            weights: initial weights of the encoder, a name in WEIGHTS.
            checkpointer: saves the run when a stop is requested or from time to time, and resumes it.
            start: file with the weights of :meth:`imitate` to start from.
            score_model: scores the model after each epoch, if the best one is kept; needs a checkpointer.

        Raises:
            Interrupted: a stop was requested; the run's state is saved.
        """
        model = WEIGHTS[weights](self)
        if start is not None:
            model.load_state_dict(load_file(start))
        loss = LOSSES[self.task.head] if self.teacher is None else SoftLabelLoss(self.teacher)
        objective = TaskObjective(model.to(self.distributed.device), loss)
        if self.hyperparameters.select == "last" or score_model is None or checkpointer is None:
            rows = self._train(objective, point, True, "fine-tuning", checkpointer).state.curve
            return model, round(rows[-1]["loss"], 5), point.epochs
        scored = EpochScore(score_model, model, self.steps_per_epoch(point))
        rows = self._train(objective, point, True, "fine-tuning", checkpointer, [scored]).state.curve
        epoch = checkpointer.restore_best(objective) // self.steps_per_epoch(point)
        return model, round(rows[epoch - 1]["loss"], 5), epoch

    def steps_per_epoch(self, point: GridPoint) -> int:
        """Return the number of batches of the training set; the last may be smaller."""
        return -(-self.training.items // point.batch)

    def _train(
        self,
        objective: Objective[TaskBatch],
        point: GridPoint,
        decays: bool,
        what: str,
        checkpointer: Checkpointer | None,
        more: Sequence[Callback] = (),
    ) -> Trainer[TaskBatch]:
        """Train the objective at a constant rate, or with linear warm-up and decay."""
        per_epoch = self.steps_per_epoch(point)
        steps = point.epochs * per_epoch
        recipe = OptimizerConfig(
            point.learning_rate, steps, decay_steps=0, weight_decay=self.params.weight_decay,
            optimizer=self.params.optimizer,
        )  # fmt: skip
        if decays:
            recipe = replace(recipe, warmup_steps=round(self.params.warmup_ratio * steps), decay_steps=None)
        trainer = make_trainer(
            objective, recipe, self.distributed, name=f"{what} {self.spec.name}", last=steps, seed=self.seed,
            requests=checkpointer.requests if checkpointer else None,
            callbacks=[CurveLogger([per_epoch], steps), *more],
        )  # fmt: skip
        if checkpointer is not None:
            trainer.callbacks.append(checkpointer)
            if checkpointer.find():
                checkpointer.restore(trainer)
        tokens, done = self.machine.finetune.microbatch_tokens, trainer.state.step
        trainer.run(training_batches(self.training, point.batch, point.epochs, self.seed, tokens, done))
        return trainer

    @torch.no_grad()  # not inference_mode: DeBERTa keeps tensors that the next epoch's backward pass needs
    def predict(self, model: BertForTask, eval_set: EvalSet) -> list[dict[str, Any]]:
        """Return the prediction rows of the examples, in their order; see :meth:`Task.predict`."""
        model.eval()
        features, device = eval_set.features, self.distributed.device
        pooled, per_item = self.task.head in POOLED, features.per_item if self.task.head == "choice" else 1
        outputs = np.empty((features.items * per_item if pooled else len(features.ids), 0), np.float32)
        for on_host in evaluation_batches(features, EVALUATION_TOKENS):
            batch = to_device(on_host, device)
            with self.distributed.autocast():
                logits = model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths).float().cpu().numpy()
            if not outputs.shape[1]:
                outputs = np.empty((len(outputs), logits.shape[1]), np.float32)
            positions = (
                (batch.examples[:, None] * per_item + np.arange(per_item)).ravel()
                if pooled
                else features.tokens_of(batch.examples)[0]
            )
            outputs[positions] = logits
        if self.task.head == "choice":
            outputs = outputs.reshape(-1, per_item)
        return self.task.predict(eval_set.examples, features, outputs)


WEIGHTS: dict[str, Callable[[TaskTrainer], BertForTask]] = {
    "pretrained": TaskTrainer.pretrained,
    "random": TaskTrainer.model,
}


def save_finetuned(
    folder: Path,
    model: BertForTask,
    trainer: TaskTrainer,
    data: TaskData,
    about: Mapping[str, Any],
    scores: Mapping[str, float],
) -> None:
    """Save a model and its card to an empty folder; ``about`` describes its training, ``scores`` its quality."""
    score = data.spec.eval_set(None)
    hyperparameters = trainer.hyperparameters
    # transformers has no class for two towers or the first-last average
    without_class = trainer.bi_encoder is not None or model.first_last
    huggingface_class = trainer.config.names.classes["encoder" if without_class else data.task.head]
    card = finetuned_card(
        trainer.config,
        data.spec.name,
        huggingface_class,
        read_source(data.folder),
        {**about, "max_length": hyperparameters.max_length, "frozen": hyperparameters.feature_layers},
        [(score.title, score.file, metric, scores[metric]) for metric in score.metrics],
    )
    save_model(folder, model, trainer.config, huggingface_class, data.encoder, card)
    pooling = {"pooling": hyperparameters.pooling} if model.first_last else {}
    write_json(folder / "config.json", read_json(folder / "config.json", dict) | label_names(data.spec) | pooling)


def label_names(spec: TaskSpec) -> dict[str, Any]:
    """Return the label keys of Hugging Face's config; empty if the outputs are not labels."""
    if spec.range is not None:
        return {"id2label": {"0": spec.name}, "label2id": {spec.name: 0}, "problem_type": "regression"}
    if not spec.labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(spec.labels)},
        "label2id": {label: number for number, label in enumerate(spec.labels)},
    }


def read_source(folder: Path) -> Source | None:
    """Read the source of a task's data that its download recorded; None for data that was placed by hand."""
    if not (folder / "source.json").exists():
        return None
    about = read_json(folder / "source.json", dict.fromkeys(("name", "description", "licence", "citation"), str))
    return Source(about["name"], about["description"], about["licence"], about["citation"])
