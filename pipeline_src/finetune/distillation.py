"""TinyBERT's task-specific distillation (Jiao et al. 2020, section 3.2): a student learns a task from a teacher.

Training has two parts:

1. The student's layers learn to imitate the teacher's layers, at a constant learning rate.
2. The student's outputs learn from the teacher's outputs as soft labels. The loss is the cross-entropy at temperature
   1, averaged over examples and classes. In a regression, the student learns from the file's labels instead.

This follows task_distill.py of huawei-noah/Pretrained-Language-Model, with one difference: there is no ReLU between the
pooled vector and the output layer, because transformers' classes have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import checksum, read_json
from pipeline_src.base.paths import KEPT_MODEL
from pipeline_src.finetune.heads import BertForTask, sequence_loss
from pipeline_src.finetune.predict import SETTINGS
from pipeline_src.finetune.task_data import TaskBatch
from pipeline_src.model.adapter import POOLER
from pipeline_src.model.bert import Bert, BertConfig, initialise
from pipeline_src.model.flops import Workload
from pipeline_src.model.hub import load_config, read_tensors
from pipeline_src.model.layer_imitation import TERMS, difference_counts, imitated_every, layer_differences
from pipeline_src.pretrain.teacher import load_teacher
from pipeline_src.training.trainer import LossTerm, Objective

KEY = "finetune.teacher"
# Prefix of the projection to the teacher's width, in the weights of a model from TinyBERT's general distillation.
FIT = "fit_dense"


def find_teacher(study: Path, task: str) -> Path:
    # Returns the folder of the task's model with the lowest seed. `study`: the folder `models` of a study.
    folder = study / "finetuned" / task
    by_seed = {int(path.parent.name): path for path in folder.glob(f"*/{KEPT_MODEL}") if path.parent.name.isdecimal()}
    if not by_seed:
        hint = "set it to the folder `models` of a study that has fine-tuned a model on this task"
        raise PipelineError("no teacher for this task", folder, where=KEY, hint=hint)
    return by_seed[min(by_seed)]


def load_task_teacher(
    folder: Path, head: str, outputs: int, student: BertConfig, tokenizer: Tokenizer, device: torch.device, layers: bool
) -> BertForTask:
    # `layers`: whether to also check that the student can imitate the teacher's layers.
    def make(config: BertConfig) -> BertForTask:
        # A teacher that was not fine-tuned by this pipeline has no such settings.
        pooling = read_json(folder / "config.json", dict).get(SETTINGS, {}).get("pooling", "cls")
        model = BertForTask(config, head, outputs, pooling=pooling)
        model.drop_unread_pooler()
        return model

    teacher = load_teacher(folder, make, student, tokenizer, device, KEY)
    stored = read_tensors(folder, load_config(folder).names).keys()
    unread = stored - dict(teacher.named_parameters()).keys()
    unused = [name for name in unread if not name.startswith(POOLER)]
    if unused:
        hint = "fine-tune the teacher with finetune.bilstm: false and feature_layers: null"
        raise PipelineError("the teacher has weights that are not supported", min(unused), where=folder, hint=hint)
    if layers:
        imitated_every(student, teacher.bert.config)
    return teacher


def file_checksums(study: Path, folders: Iterable[Path]) -> dict[str, int]:
    # Returns path relative to `study` -> checksum, for each file of weights.
    checksums = {}
    for folder in folders:
        for path in sorted(folder.glob("*.safetensors")):
            checksums[str(path.relative_to(study))] = checksum(path)
    return checksums


def load_fit_dense(encoder: Path, config: BertConfig, width: int, generator: torch.Generator) -> nn.Linear:
    # Loads the projection from the encoder's folder. If it is missing or has another output width, it is initialised.
    tensors = read_tensors(encoder, config.names)
    fit = nn.Linear(config.hidden_size, width)
    initialise(fit, generator)
    with torch.no_grad():
        for name, parameter in fit.named_parameters():
            stored = tensors.get(f"{FIT}.{name}")
            if stored is not None and stored.shape == parameter.shape:
                parameter.copy_(stored)
    return fit


class LayerImitation(Objective[TaskBatch]):
    """Trains a student's embeddings and layers to imitate the teacher's.

    ``fit`` projects the student's hidden states to the teacher's width.
    """

    def __init__(self, student: Bert, fit: nn.Linear, teacher: Bert) -> None:
        super().__init__()
        self.embeddings = student.embeddings
        self.encoder = student.encoder
        self.fit_dense = fit
        # Assigned through __dict__ so that they are not registered as submodules, which would be trained.
        self.__dict__.update(student=student, teacher=teacher)
        self.weights = dict(TERMS)

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return difference_counts(self.student.config, self.teacher.config, work)

    def forward(self, batch: TaskBatch) -> dict[str, LossTerm]:
        sums = layer_differences(self.student, self.fit_dense, self.teacher, batch.ids, batch.segments, batch.layout)
        return {name: LossTerm(total) for name, total in sums.items()}


class SoftLabelLoss:
    """Loss of a student's outputs with the teacher's outputs as soft labels. It replaces ``heads.LOSSES``."""

    def __init__(self, teacher: BertForTask) -> None:
        self.teacher = teacher

    def __call__(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        if batch.labels.is_floating_point():
            return sequence_loss(outputs, batch)
        with torch.no_grad():
            target = self.teacher(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        probabilities = target.float().softmax(1)
        # As in the original, the mean is over examples and classes.
        return -(probabilities * outputs.float().log_softmax(1)).mean()
