"""Predict with a fine-tuned model: its folder is enough, and stage ``finetune`` runs the same code."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from pipeline_src.config.finetune import Frozen
from pipeline_src.config.schema import Section
from pipeline_src.finetuning.heads import POOLED, BertForTask, BiEncoder
from pipeline_src.finetuning.task_data import evaluation_batches
from pipeline_src.models.bert import Bert, BertConfig
from pipeline_src.tasks.features import Features, RankingFeatures
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.spec import TaskSpec
from pipeline_src.tasks.task import Task
from pipeline_src.training.batches import to_device
from pipeline_src.training.distributed import Distributed

# Key of config.json with the TaskSettings.
SETTINGS = "finetune"
BATCH_TOKENS = 16_384


class TaskSettings(Section):
    """What a fine-tuned model's folder says about the task and the head, beside Hugging Face's keys.

    Attributes:
        task: the task's definition, as it was in ``catalogue/tasks``.
        max_length, pooling, feature_layers: as in ``TaskHyperparameters``.
        bilstm: as in ``FinetuneParams``.
        bi_encoder: how two texts are compared; None if they are encoded as one sequence.
        threshold: greatest null score difference of an answered question, the best on the first evaluation set; None
            if every question has an answer.
    """

    task: TaskSpec
    max_length: int
    pooling: Literal["cls", "first_last"] = "cls"
    feature_layers: Frozen | None = None
    bilstm: bool = False
    bi_encoder: BiEncoder | None = None
    threshold: float | None = None

    @property
    def apart(self) -> bool:
        """Whether a pair of texts becomes two sequences."""
        return self.bi_encoder is not None

    def with_head(self, config: BertConfig, bert: Bert | None = None) -> BertForTask:
        """Return the task's model around the encoder ``bert``, by default a new one."""
        task = make_task(self.task)
        return BertForTask(
            config,
            task.head,
            task.num_outputs,
            bilstm=self.bilstm,
            frozen=self.feature_layers,
            bert=bert,
            bi_encoder=self.bi_encoder,
            pooling=self.pooling,
        )


# Not inference_mode: DeBERTa keeps tensors that the next epoch's backward pass needs.
@torch.no_grad()
def model_outputs(model: BertForTask, task: Task[Any], features: Features, distributed: Distributed) -> np.ndarray:
    """Return the model's outputs, float32, in the shape that ``task.predict`` takes."""
    model.eval()
    width = features.per_item if task.head == "choice" else task.num_outputs
    if isinstance(features, RankingFeatures):
        features = features.as_texts()
        width = model.bert.config.hidden_size
    is_pooled = task.head in (*POOLED, "embedding")
    outputs = np.empty((features.items if is_pooled else len(features.ids), width), np.float32)
    for on_host in evaluation_batches(features, BATCH_TOKENS):
        batch = to_device(on_host, distributed.device)
        with distributed.autocast():
            logits = model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        rows = batch.examples if is_pooled else features.tokens_of(batch.examples)[0]
        outputs[rows] = logits.float().cpu().numpy().reshape(-1, width)
    return outputs
