"""Prediction with a fine-tuned model, given only its folder. The stage ``finetune`` runs the same code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.finetune.heads import POOLED, BertForTask, BiEncoder
from pipeline_src.finetune.task_data import evaluation_batches, make_features
from pipeline_src.model.attention import choose
from pipeline_src.model.bert import Bert, BertConfig
from pipeline_src.model.hub import filled, load_config, read_tensors
from pipeline_src.study.finetune import Frozen
from pipeline_src.study.machine import DEFAULT_MACHINE, Machine
from pipeline_src.study.reading import check_block
from pipeline_src.study.schema import Section
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.classification import MODEL_RANGE, value_scale
from pipeline_src.tasks.examples import read_unlabelled
from pipeline_src.tasks.features import Features, RankingFeatures
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import Prediction, Task
from pipeline_src.tokenizer.load import check_vocab_size, load_tokenizer
from pipeline_src.training.batches import to_device
from pipeline_src.training.distributed import Distributed, single_process

# Key of config.json whose value is the TaskSettings.
SETTINGS = "finetune"
BATCH_TOKENS = 16_384


class TaskSettings(Section):
    """Settings of the task and its head in a fine-tuned model's config.json, in addition to Hugging Face's keys.

    Attributes:
        task: the task's definition, copied from ``catalogue/tasks``.
        max_length, pooling, feature_layers: as in ``TaskHyperparameters``.
        window_stride: as in ``TaskHyperparameters``; None if the task's texts are not read in windows.
        bilstm: as in ``FinetuneParams``.
        bi_encoder: how the vectors of two texts are compared; None if the two texts are encoded as one sequence.
        threshold: the best threshold on the first evaluation set: the greatest null score difference at which a
            question is still answered, or the lowest probability of a predicted label (kind ``multilabel``). None for
            other tasks.
    """

    task: TaskSpec
    max_length: int
    window_stride: int | None = None
    pooling: Literal["cls", "first_last"] = "cls"
    feature_layers: Frozen | None = None
    bilstm: bool = False
    bi_encoder: BiEncoder | None = None
    threshold: float | None = None

    @property
    def apart(self) -> bool:
        # Whether a pair of texts becomes two sequences.
        return self.bi_encoder is not None

    def with_head(self, config: BertConfig, bert: Bert | None = None) -> BertForTask:
        # Returns the model with its head. If `bert` is None, the encoder is new.
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

    def saved(self, tensors: Mapping[str, Tensor], config: BertConfig) -> Mapping[str, Tensor]:
        # Returns a model's weights as they are saved. The outputs of a saved regression are the task's values, which is
        # what a user of transformers expects.
        low, factor = value_scale(self.task.range or MODEL_RANGE)
        return scaled_outputs(tensors, config.names.output_layers["sequence"], factor, low)

    def restored(self, tensors: Mapping[str, Tensor], config: BertConfig) -> Mapping[str, Tensor]:
        # The inverse of `saved`.
        low, factor = value_scale(self.task.range or MODEL_RANGE)
        return scaled_outputs(tensors, config.names.output_layers["sequence"], 1 / factor, -low / factor)


def scaled_outputs(tensors: Mapping[str, Tensor], layer: str, factor: float, offset: float) -> Mapping[str, Tensor]:
    # Returns a model's weights, with those of its output layer changed so that an output x becomes offset + factor * x.
    if (factor, offset) == (1, 0):
        return tensors
    scaled = dict(tensors)
    for name in scaled.keys() & {f"{layer}.weight", f"{layer}.bias"}:
        scaled[name] = factor * scaled[name]
        if name.endswith(".bias"):
            scaled[name] += offset
    return scaled


# Not inference_mode, because DeBERTa caches tensors that the next epoch's backward pass needs.
@torch.no_grad()
def model_outputs(model: BertForTask, task: Task, features: Features, distributed: Distributed) -> np.ndarray:
    """Return the model's outputs, float32, in the shape that ``task.predict`` takes."""
    model.eval()
    width = features.per_item if task.head == "choice" else task.num_outputs
    if isinstance(features, RankingFeatures):
        features = features.as_texts()
        width = model.bert.config.hidden_size
    is_pooled = task.head in (*POOLED, "embedding")
    count = features.items if is_pooled else len(features.ids)
    outputs = np.empty((count, width), np.float32)
    for on_host in evaluation_batches(features, BATCH_TOKENS):
        batch = to_device(on_host, distributed.device)
        with distributed.autocast():
            logits = model.item_outputs(batch)
        rows = batch.examples
        if not is_pooled:
            rows, _ = features.tokens_of(batch.examples)
        outputs[rows] = logits.float().cpu().numpy().reshape(-1, width)
    return outputs


@dataclass(frozen=True)
class TaskPredictor:
    """A fine-tuned model with its tokenizer and its task."""

    settings: TaskSettings
    model: BertForTask
    tokenizer: Tokenizer
    distributed: Distributed

    def read(self, path: str | Path) -> list[Any]:
        # The file may have no labels. If it has labels, they are ignored.
        return read_unlabelled(self.settings.task, Path(path))

    def __call__(self, examples: Sequence[Any]) -> list[Prediction]:
        # Returns predictions in the order of the examples.
        if not examples:
            return []
        settings = self.settings
        task = make_task(settings.task)
        features = make_features(
            task, examples, self.tokenizer, settings.max_length, settings.apart, settings.window_stride
        )
        outputs = model_outputs(self.model, task, features, self.distributed)
        return task.answers(examples, features, outputs, settings.threshold)


def load(folder: str | Path, machine: Machine = DEFAULT_MACHINE) -> TaskPredictor:
    """Load a fine-tuned model from ``models/finetuned/TASK/SEED/kept-model`` or a copy of this folder."""
    folder = Path(folder)
    settings = load_settings(folder)
    distributed = single_process(machine.precision, machine.device)
    config = load_config(folder)
    config = replace(config, attention=choose(machine.attention, distributed.device, config.head_size))
    tokenizer = load_tokenizer(folder)
    check_vocab_size(tokenizer, config.vocab_size, folder)

    def make(config: BertConfig) -> BertForTask:
        model = settings.with_head(config)
        model.drop_unread_pooler()
        return model

    tensors = settings.restored(read_tensors(folder, config.names), config)
    model = filled(make, config, tensors, folder)
    return TaskPredictor(settings, model.to(distributed.device), tokenizer, distributed)


def load_settings(folder: Path) -> TaskSettings:
    if not folder.is_dir():
        raise PipelineError("no model here", folder, hint="give the folder of a fine-tuned model")
    file = folder / "config.json"
    saved = read_json(file, dict).get(SETTINGS)
    if not isinstance(saved, dict):
        hint = "give a folder that the stage `finetune` wrote; if its model lacks this key, run the stage again"
        raise PipelineError("not a fine-tuned model", f"no {SETTINGS} in config.json", where=folder, hint=hint)
    return check_block(TaskSettings, saved, f"{file}, {SETTINGS}")
