"""Training of one task at one grid point, from pretrained or random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import log
from pipeline_src.finetune.distillation import LayerImitation, SoftLabelLoss, load_fit_dense
from pipeline_src.finetune.heads import CLASS_HEADS, LOSSES, POOLED, BertForTask, Loss, choose_bi_encoder
from pipeline_src.finetune.hyperparameter_grid import GridPoint
from pipeline_src.finetune.predict import TaskSettings, model_outputs
from pipeline_src.finetune.task_data import EvalSet, TaskBatch, balanced_class_weights, training_batches
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
from pipeline_src.model.hub import fill, load_config, read_tensors
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.machine import Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.schema import NO_TEACHER
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import Prediction
from pipeline_src.training.checkpoint import Checkpointer
from pipeline_src.training.distributed import single_process
from pipeline_src.training.trainer import (
    Callback,
    CurveLogger,
    LossTerm,
    Objective,
    OptimizerConfig,
    Trainer,
    TrainState,
    make_trainer,
)

# Prefix of the MLM head's dense layer and LayerNorm in a model file.
MLM_TRANSFORM = "cls.predictions.transform."

# A pooler whose weights have a lower RMS than this was not trained. Training makes weights larger, but weight decay
# without a gradient makes them smaller, as in all-MiniLM.
MIN_POOLER_RMS = 0.6 * INITIAL_STD


def load_task_config(encoder: Path, model: ModelParams, hyperparameters: TaskHyperparameters) -> BertConfig:
    # A saved config has no `position_init`. It matters only in training from random weights.
    config = replace(load_config(encoder), position_init=model.position_init)
    check_architecture(config, model.architecture, encoder)
    if hyperparameters.reinit_layers > config.num_hidden_layers:
        problem = "reinit_layers is larger than the encoder's number of layers"
        hint = f"set finetune.defaults.reinit_layers, or the task's own value, to at most {config.num_hidden_layers}"
        raise PipelineError(problem, hyperparameters.reinit_layers, where=encoder, hint=hint)
    if hyperparameters.max_length > config.longest_input:
        problem = "max_length is larger than the encoder's longest input"
        hint = f"set finetune.defaults.max_length, or the task's own value, to at most {config.longest_input}"
        raise PipelineError(problem, hyperparameters.max_length, where=encoder, hint=hint)
    dropout = hyperparameters.dropout
    if dropout is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return config


def task_settings(
    spec: TaskSpec, hyperparameters: TaskHyperparameters, params: FinetuneParams, config: BertConfig
) -> TaskSettings:
    # The settings are saved with the model, so that its folder is enough for prediction.
    has_windows = spec.is_classification and not spec.is_pair and params.teacher == NO_TEACHER
    return TaskSettings(
        task=spec,
        max_length=hyperparameters.max_length,
        window_stride=hyperparameters.window_stride if has_windows else None,
        pooling=hyperparameters.pooling,
        feature_layers=hyperparameters.feature_layers,
        bilstm=params.bilstm,
        bi_encoder=choose_bi_encoder(spec, params, config, hyperparameters.feature_layers),
    )


class TaskObjective(Objective[TaskBatch]):
    def __init__(self, model: BertForTask, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.weights = {"task": 1.0}

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"task": work.predictions}

    def forward(self, batch: TaskBatch) -> dict[str, LossTerm]:
        outputs = self.model.item_outputs(batch)
        # A LossTerm is a sum, but the loss is a mean over `batch.losses` terms.
        return {"task": LossTerm(self.loss(outputs, batch) * batch.losses)}


class EpochScore(Callback):
    """Scores the model after every epoch, so that the checkpointer keeps the best epoch.

    Args:
        per_epoch: number of steps of an epoch.
        patience: number of epochs without a higher score after which training ends. None: it never ends early.
    """

    # Name of the metric 100 - score, which is also a column of the training curve.
    ERROR = "development_error"

    def __init__(
        self, score_model: Callable[[BertForTask], float], model: BertForTask, per_epoch: int, patience: int | None
    ) -> None:
        super().__init__([per_epoch])
        self.score_model = score_model
        self.model = model
        self.patience = patience

    def after_step(self, trainer: Trainer[Any]) -> None:
        trainer.metrics = {self.ERROR: 100.0 - self.score_model(self.model)}
        trainer.state.row().update(trainer.metrics)
        self.model.train()

    def ends_training(self, state: TrainState) -> bool:
        # The curve is part of a checkpoint, so a resumed training ends after the same epoch.
        errors = [row[self.ERROR] for row in state.curve]
        if self.patience is None or not errors:
            return False
        best = errors.index(min(errors))
        return len(errors) - 1 - best >= self.patience


@dataclass(eq=False)
class TaskTrainer:
    """Trains a task's model from pretrained or random weights, and predicts with it.

    Attributes:
        settings: the task and its head, from ``task_settings``.
        encoder: folder of the pretrained encoder.
        training: features of the training file.
        seed: seed of the head's initial weights, the data order and dropout.
        teacher: the fine-tuned model from which the model learns (distillation); None if it learns from labels.
    """

    settings: TaskSettings
    hyperparameters: TaskHyperparameters
    params: FinetuneParams
    config: BertConfig
    encoder: Path
    training: Features
    seed: int
    machine: Machine
    teacher: BertForTask | None = None

    def __post_init__(self) -> None:
        self.spec = self.settings.task
        self.task = make_task(self.spec)
        self.distributed = single_process(self.machine.precision, self.machine.device)
        attention = choose(self.machine.attention, self.distributed.device, self.config.head_size)
        checkpointing = self.machine.finetune.activation_checkpointing
        self.config = replace(self.config, attention=attention, activation_checkpointing=checkpointing)

    def model(self) -> BertForTask:
        model = self._with_head(None)
        initialise(model, torch.Generator().manual_seed(self.seed))
        model.drop_unread_pooler()
        return model

    def pretrained(self) -> BertForTask:
        # Returns a model with pretrained weights. Random weights are in the head, in the last `reinit_layers` layers,
        # and in the pooler if it is missing or untrained.
        tensors = read_tensors(self.encoder, self.config.names)
        generator = torch.Generator().manual_seed(self.seed)
        # Initialisation is skipped, because it would take seconds and all weights are replaced below.
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
        # Returns the reason for a new pooler, or "" if the pooler is read from the encoder's file.
        weights = [tensor for name, tensor in tensors.items() if name.startswith(POOLER) and tensor.ndim == 2]
        if not weights:
            return "has no pooler"
        if self.hyperparameters.reinit_layers:
            return "has its pooler reset together with its top layers (reinit_layers)"
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
        """Train at one grid point.

        Args:
            weights: kind of initial weights of the encoder, a name in WEIGHTS.
            checkpointer: saves the run regularly and when a stop is requested, and resumes it.
            start: file with the weights that ``imitate`` trained; None to start from ``weights``.
            score_model: function that scores the model after each epoch. It is called only if the hyperparameter
                ``select`` is "best" and there is a checkpointer.

        Returns:
            The model, the mean training loss of the selected epoch, and the selected epoch, counted from 1.

        Raises:
            Interrupted: a stop was requested. The run's state is saved.
        """
        model = self._initial_model(weights)
        if start is not None:
            model.load_state_dict(load_file(start))
        loss = LOSSES[self.task.head] if self.teacher is None else SoftLabelLoss(self.teacher)
        objective = TaskObjective(model, loss)
        steps_per_epoch = self.steps_per_epoch(point.batch)
        callbacks = []
        if self.hyperparameters.select == "best" and score_model is not None and checkpointer is not None:
            patience = self.hyperparameters.patience
            callbacks.append(EpochScore(score_model, model, steps_per_epoch, patience))
        curve = self._train(objective, point, True, "fine-tuning", checkpointer, callbacks).state.curve
        epoch = point.epochs
        if callbacks:
            assert checkpointer is not None
            epoch = checkpointer.restore_best(objective) // steps_per_epoch
        return model, round(curve[epoch - 1]["loss"], 5), epoch

    def steps_per_epoch(self, batch_size: int) -> int:
        # Rounded up, since the last batch may be smaller.
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
        # `decays`: whether the learning rate has linear warm-up and decay; if False, it is constant.
        steps_per_epoch = self.steps_per_epoch(point.batch)
        steps = point.epochs * steps_per_epoch
        config = OptimizerConfig(
            point.learning_rate,
            steps,
            decay_steps=0,
            weight_decay=self.params.weight_decay,
            optimizer=self.params.optimizer,
        )
        head_rate = self.hyperparameters.head_learning_rate
        if decays and head_rate is not None:
            config = replace(config, learning_rate=head_rate, blocks_learning_rate=point.learning_rate)
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
        # The loss of the head "embedding" compares all texts of a batch, so its batches are not split.
        tokens = None if self.task.head == "embedding" else self.machine.finetune.microbatch_tokens
        weights = self._class_weights()
        trainer.run(training_batches(self.training, point.batch, point.epochs, self.seed, tokens, done, weights))
        return trainer

    def _class_weights(self) -> np.ndarray | None:
        # Returns None if all classes have equal weight, or if the labels are not classes.
        has_classes = self.task.head in CLASS_HEADS and self.spec.range is None
        if self.hyperparameters.class_weights is None or not has_classes:
            return None
        return balanced_class_weights(self.training.labels, self.task.num_outputs)

    def predict(self, model: BertForTask, eval_set: EvalSet) -> list[Prediction]:
        outputs = model_outputs(model, self.task, eval_set.features, self.distributed)
        return self.task.predict(eval_set.examples, eval_set.features, outputs)
