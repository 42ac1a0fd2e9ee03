"""One run of fine-tuning: an encoder with a task's output layer is trained, then asked for its predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from pipeline_src.common.progress import log
from pipeline_src.finetuning.batches import TaskBatch, evaluation_batches, training_batches
from pipeline_src.finetuning.distillation import LayerImitation, TaughtAnswers, fit_of
from pipeline_src.finetuning.files import EvalSet
from pipeline_src.finetuning.losses import LOSSES, Loss
from pipeline_src.finetuning.recipes import Point
from pipeline_src.finetuning.task_heads import POOLED, BertForTask
from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.attention import choose
from pipeline_src.models.bert import Bert, BertConfig, initialise
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.hub import fill
from pipeline_src.models.names import ENCODER, POOLER
from pipeline_src.models.tensors import read_tensors
from pipeline_src.models.undrawn import undrawn
from pipeline_src.params.finetune import FinetuneParams, Recipe
from pipeline_src.params.machine import Machine
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.handlers import HANDLERS
from pipeline_src.training.checkpoint import Checkpoints
from pipeline_src.training.distributed import single_process
from pipeline_src.training.loop import Loop, Objective, Term
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.training.stop_request import StopRequest
from pipeline_src.training.transfer import to_device

EVALUATION_TOKENS = 16_384  # in one batch


class TaskObjective(Objective[TaskBatch]):
    """A task's model and its one loss."""

    def __init__(self, model: BertForTask, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.weights = {"task": 1.0}

    def count(self, batch: TaskBatch) -> dict[str, int]:
        """As the batch counts them."""
        return batch.counts

    def forward(self, batch: TaskBatch) -> dict[str, Term]:
        """The sum of the losses: their mean times their number."""
        outputs = self.model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        return {"task": Term(self.loss(outputs, batch) * batch.losses)}


class TaskTrainer:
    """Trains one task, once for every point of a grid, from pretrained or random weights.

    Args:
        spec: the task.
        recipe, params: how it is trained.
        config: the encoder's sizes.
        encoder: folder its weights are read from.
        training: features of the training file.
        stream: keys the head's weights, the order of the data and dropout.
        machine: how it runs here.

    Attributes:
        teacher: the fine-tuned model that the task is learnt from; None to learn it from labels.

    Raises:
        PipelineError: the GPU cannot train, or not with the attention that ``machine`` asks for.
    """

    def __init__(
        self,
        spec: TaskSpec,
        recipe: Recipe,
        params: FinetuneParams,
        config: BertConfig,
        encoder: Path,
        training: Features,
        stream: int,
        machine: Machine,
    ) -> None:
        self.spec, self.handler, self.recipe, self.params = spec, HANDLERS[spec.kind], recipe, params
        self.distributed = single_process(machine.precision, machine.device)
        attention = choose(machine.attention, self.distributed.device, config.head_size)
        self.config = replace(config, attention=attention, recompute=machine.finetune.recompute)
        self.encoder, self.training, self.stream, self.machine = encoder, training, stream, machine
        self.teacher: BertForTask | None = None

    def model(self) -> BertForTask:
        """The task's model with weights drawn anew."""
        model = self._with_task(None)
        initialise(model, torch.Generator().manual_seed(self.stream))
        return model

    def pretrained(self) -> BertForTask:
        """The task's model over the pretrained encoder; what that lacks, a pooler perhaps, is drawn anew."""
        tensors, draw = read_tensors(self.encoder, self.config.names), torch.Generator().manual_seed(self.stream)
        with undrawn():  # drawing weights that are replaced would take seconds
            bert = make_encoder(self.config)
        bert.to_empty(device="cpu")
        parts: tuple[str, ...] = (*ENCODER, POOLER)
        if not any(name.startswith(POOLER) for name in tensors):
            parts = ENCODER
            initialise(bert.pooler, draw)
            if self.handler.head in POOLED:
                log.info("%s has no pooler; it is trained from random weights", self.encoder)
        fill(bert, tensors, self.encoder, parts)
        model = self._with_task(bert)
        for name, part in model.named_children():
            if name != "bert":
                initialise(part, draw)
        return model

    def _with_task(self, bert: Bert | None) -> BertForTask:
        head, outputs = self.handler.head, self.handler.outputs(self.spec)
        model = BertForTask(self.config, head, outputs, self.params.bilstm, self.recipe.frozen, bert)
        if self.teacher is not None:
            model.dropout = Dropout(0.0)  # huawei-noah/Pretrained-Language-Model, TinyBERT
        return model

    def imitate(
        self, weights: str, checkpoints: Checkpoints | None = None, stop_request: StopRequest | None = None
    ) -> BertForTask:
        """A model whose layers have learnt of the teacher's, at a constant rate; arguments as of :meth:`train`."""
        assert self.teacher is not None
        model, recipe = WEIGHTS[weights](self).to(self.distributed.device), self.recipe
        draw = torch.Generator().manual_seed(self.stream)
        fit = fit_of(self.encoder, self.config, self.teacher.bert.config.hidden_size, draw)
        objective = LayerImitation(model.bert, fit, self.teacher.bert).to(self.distributed.device)
        point = Point(recipe.layer_learning_rate, recipe.layer_epochs, recipe.batches[0])
        self._run(objective, point, False, "imitating layers for", checkpoints, stop_request)
        return model

    def train(
        self,
        weights: str,
        point: Point,
        checkpoints: Checkpoints | None = None,
        stop_request: StopRequest | None = None,
        start: Path | None = None,
    ) -> tuple[BertForTask, float]:
        """Train one point and return the model with the mean loss of its last epoch.

        Args:
            weights: a name in WEIGHTS, where the encoder starts from.
            point: of the grid.
            checkpoints: where to save now and then and go on from.
            stop_request: whether someone requested a stop.
            start: file of what :meth:`imitate` gave, from which training starts then.

        Raises:
            PipelineError: a loss or gradient is NaN or infinite.
            Interrupted: someone requested a stop; the run's state is saved where there are checkpoints.
        """
        model = WEIGHTS[weights](self)
        if start is not None:
            model.load_state_dict(load_file(start))
        loss = LOSSES[self.handler.head] if self.teacher is None else TaughtAnswers(self.teacher)
        objective = TaskObjective(model.to(self.distributed.device), loss)
        loop = self._run(objective, point, True, "fine-tuning", checkpoints, stop_request)
        return model, round(loop.rows[-1]["loss"], 5)

    def _run(
        self,
        objective: Objective[TaskBatch],
        point: Point,
        decays: bool,
        what: str,
        checkpoints: Checkpoints | None,
        stop_request: StopRequest | None,
    ) -> Loop[TaskBatch]:
        """Train all that ``objective`` has, at a rate that warms up and decays or stays the same."""
        optimiser = make_optimiser(objective, point.learning_rate, self.params.weight_decay)
        parameters = {name.removeprefix("model."): part for name, part in objective.named_parameters()}
        checkpoint = checkpoints.restore(parameters, optimiser) if checkpoints else None
        per_epoch = -(-self.training.items // point.batch)
        steps = point.epochs * per_epoch
        schedule = linear_schedule(point.learning_rate, round(self.params.warmup_share * steps), steps)
        loop = Loop(
            objective,
            optimiser,
            schedule if decays else lambda step: point.learning_rate,
            last=steps,
            row_ends=lambda step: step % per_epoch == 0,
            what=f"{what} {self.spec.name}",
            stream=self.stream,
            distributed=self.distributed,
            state=checkpoint.state if checkpoint else None,
            stop_requested=lambda: bool(stop_request),
        )
        batches = training_batches(
            self.training,
            point.batch,
            point.epochs,
            self.stream,
            self.machine.finetune.max_tokens,
            loop.step,
        )
        for step in loop.run(batches):
            stopping = stop_request is not None and loop.stopping and step < steps
            if checkpoints and (stopping or (checkpoints.due() and step < steps)):
                checkpoints.save(parameters, optimiser, loop.state(), {}, None)
            if stopping and stop_request is not None:
                raise stop_request.interrupted(loop.what, step)
        return loop

    @torch.inference_mode()
    def predict(self, model: BertForTask, eval_set: EvalSet) -> list[dict[str, Any]]:
        """Prediction rows of the examples, in their order; see the handler's ``predict``."""
        model.eval()
        features, device = eval_set.features, self.distributed.device
        pooled = self.handler.head in POOLED
        outputs = np.empty((features.items * features.per_item if pooled else len(features.ids), 0), np.float32)
        for on_host in evaluation_batches(features, EVALUATION_TOKENS):
            batch = to_device(on_host, device)
            with self.distributed.autocast():
                logits = model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths).float().cpu().numpy()
            if not outputs.shape[1]:
                outputs = np.empty((len(outputs), logits.shape[1]), np.float32)
            places = (
                (batch.examples[:, None] * features.per_item + np.arange(features.per_item)).ravel()
                if pooled
                else features.tokens_of(batch.examples)[0]
            )
            outputs[places] = logits
        if self.handler.head == "choice":
            outputs = outputs.reshape(-1, features.per_item)
        return self.handler.predict(self.spec, eval_set.examples, features, outputs)


WEIGHTS: dict[str, Callable[[TaskTrainer], BertForTask]] = {
    "pretrained": TaskTrainer.pretrained,
    "random": TaskTrainer.model,
}
