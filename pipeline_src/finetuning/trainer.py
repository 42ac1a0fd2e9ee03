"""One run of fine-tuning: an encoder with a task's output layer is trained, then asked for its predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.common.progress import log
from pipeline_src.finetuning.batches import TaskBatch, evaluation_batches, training_batches
from pipeline_src.finetuning.files import EvalSet
from pipeline_src.finetuning.losses import LOSSES
from pipeline_src.finetuning.task_heads import POOLED, BertForTask
from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import Bert, BertConfig, initialise
from pipeline_src.models.hub import fill
from pipeline_src.models.names import ENCODER, POOLER
from pipeline_src.models.tensors import read_tensors
from pipeline_src.params.finetune import FinetuneParams, Point, Recipe
from pipeline_src.params.machine import Machine
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.handlers import HANDLERS
from pipeline_src.training.checkpoint import Checkpoints
from pipeline_src.training.distributed import alone
from pipeline_src.training.loop import Loop, Term
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.training.stop_request import StopRequest

EVALUATION_TOKENS = 16_384  # in one batch


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
        self.config = replace(config, attention=machine.attention, recompute=machine.finetune.recompute)
        self.encoder, self.training, self.stream, self.machine = encoder, training, stream, machine
        self.team = alone()

    def model(self) -> BertForTask:
        """The task's model with weights drawn anew."""
        model = self._around(None)
        initialise(model, torch.Generator().manual_seed(self.stream))
        return model

    def pretrained(self) -> BertForTask:
        """The task's model over the pretrained encoder; what that lacks, a pooler perhaps, is drawn anew."""
        tensors, draw = read_tensors(self.encoder, self.config.names), torch.Generator().manual_seed(self.stream)
        with torch.device("meta"):  # drawing weights that are replaced would take seconds
            bert = make_encoder(self.config)
        bert.to_empty(device="cpu")
        parts: tuple[str, ...] = (*ENCODER, POOLER)
        if not any(name.startswith(POOLER) for name in tensors):
            parts = ENCODER
            initialise(bert.pooler, draw)
            if self.handler.head in POOLED:
                log.info("%s has no pooler; it is trained from random weights", self.encoder)
        fill(bert, tensors, self.encoder, parts)
        model = self._around(bert)
        for name, part in model.named_children():
            if name != "bert":
                initialise(part, draw)
        return model

    def _around(self, bert: Bert | None) -> BertForTask:
        head, outputs = self.handler.head, self.handler.outputs(self.spec)
        return BertForTask(self.config, head, outputs, self.params.bilstm, self.recipe.frozen, bert)

    def train(
        self,
        weights: str,
        point: Point,
        checkpoints: Checkpoints | None = None,
        stop_request: StopRequest | None = None,
    ) -> tuple[BertForTask, float]:
        """Train one point and return the model with the mean loss of its last epoch.

        Args:
            weights: a name in WEIGHTS, where the encoder starts from.
            point: of the grid.
            checkpoints: where to save now and then and go on from.
            stop_request: whether someone asked to stop.

        Raises:
            PipelineError: a loss is NaN or infinite.
            Interrupted: someone asked to stop; the run's place is saved where there are checkpoints.
        """
        model = WEIGHTS[weights](self).to(self.team.device)
        optimiser = make_optimiser(model, point.learning_rate, self.params.weight_decay)
        restored = checkpoints.restore(model, optimiser) if checkpoints else None
        loss = LOSSES[self.handler.head]

        def objective(batch: TaskBatch) -> dict[str, Term]:
            outputs = model(batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen)
            return {"task": Term(loss(outputs, batch.labels, batch.cu_seqlens) * batch.judged)}

        per_epoch = -(-self.training.items // point.batch)
        steps = point.epochs * per_epoch
        loop = Loop(
            model,
            objective,
            optimiser,
            linear_schedule(point.learning_rate, round(self.params.warmup_share * steps), steps),
            last=steps,
            row_ends=lambda step: step % per_epoch == 0,
            what=f"fine-tuning {self.spec.name}",
            stream=self.stream,
            team=self.team,
            reached=restored.reached if restored else None,
            asked=lambda: bool(stop_request),
        )
        batches = training_batches(
            self.training,
            point.batch,
            point.epochs,
            self.stream,
            self.machine.finetune.max_tokens,
            self.team.device,
            loop.step,
        )
        for step in loop.run(batches):
            stopping = stop_request is not None and loop.stopping and step < steps
            if checkpoints and (stopping or (checkpoints.due() and step < steps)):
                checkpoints.save(model, optimiser, loop.reached(), {}, None)
            if stopping and stop_request is not None:
                raise stop_request.stop(loop.what, step)
        return model, round(loop.rows[-1]["loss"], 5)

    @torch.inference_mode()
    def predict(self, model: BertForTask, eval_set: EvalSet) -> list[dict[str, Any]]:
        """Prediction rows of the examples, in their order; see the handler's ``predict``."""
        model.eval()
        features, device = eval_set.features, self.team.device
        pooled = self.handler.head in POOLED
        outputs = np.empty((features.items * features.per_item if pooled else len(features.ids), 0), np.float32)
        for batch in evaluation_batches(features, EVALUATION_TOKENS, device):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = model(batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen).float().cpu().numpy()
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
