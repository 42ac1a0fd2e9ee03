"""TinyBERT's task-specific distillation (Jiao et al. 2020, section 3.2): a student learns a task from its teacher.

First its layers imitate the teacher's at a constant rate, then its answers do: soft cross-entropy at temperature 1, a
mean over examples and classes. A regression's answers are its labels. As in huawei-noah/Pretrained-Language-Model,
task_distill.py, but for the output layer: that of every other task here, so that the folder loads in transformers; the
original's reads what of the pooled vector is above 0. Neither has dropout below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pipeline_src.common.checksum import checksum
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import KEPT_MODEL
from pipeline_src.finetuning.batches import TaskBatch
from pipeline_src.finetuning.losses import sequence
from pipeline_src.finetuning.task_heads import BertForTask
from pipeline_src.models.bert import Bert, BertConfig, initialise
from pipeline_src.models.hub import load_config
from pipeline_src.models.layer_imitation import TERMS, difference_counts, imitated_every, layer_differences
from pipeline_src.models.tensors import read_tensors
from pipeline_src.training.loop import Objective, Term
from pipeline_src.training.teacher import load_teacher

KEY = "finetune.teacher"
FIT = "fit_dense"  # name of the projection in the folder that TinyBERT's general distillation leaves


def taught_folder(study: Path, task: str) -> Path:
    """Where a study's folder ``models`` holds its model of a task: its first restart.

    Raises:
        PipelineError: it holds none.
    """
    found = [
        folder for folder in (study / "finetuned" / task).glob(f"*/{KEPT_MODEL}") if folder.parent.name.isdecimal()
    ]
    if not found:
        raise PipelineError(
            "no teacher of this task", study / "finetuned" / task, where=KEY,
            remedy="name the folder `models` of a study that fine-tuned a model on it",
        )  # fmt: skip
    return min(found, key=lambda folder: int(folder.parent.name))


def load_taught(
    folder: Path, head: str, outputs: int, student: BertConfig, tokenizer: Tokenizer, device: torch.device, layers: bool
) -> BertForTask:
    """A fine-tuned model as a teacher.

    Args:
        folder: of the model, see :func:`taught_folder`.
        head, outputs: of the task, as in :class:`BertForTask`.
        student: the encoder that learns.
        tokenizer: its own.
        device: to which the teacher goes.
        layers: whether its layers are imitated too.

    Raises:
        PipelineError: as :func:`load_teacher`; it answers another task, or reads its encoder through an LSTM; or its
            layers or heads do not match the student's.
    """
    teacher = load_teacher(folder, lambda config: BertForTask(config, head, outputs), student, tokenizer, device, KEY)
    left = read_tensors(folder, load_config(folder).names).keys() - dict(teacher.named_parameters()).keys()
    if left:
        raise PipelineError(
            "a teacher with parts that are not read", min(left), where=folder,
            remedy="fine-tune the teacher with finetune.bilstm: false and frozen: null",
        )  # fmt: skip
    if layers:
        imitated_every(student, teacher.bert.config)
    return teacher


def file_sums(study: Path, folders: Iterable[Path]) -> dict[str, int]:
    """Sums of the weights in folders of a study that a result depends on, by their names there."""
    files = [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]
    return {str(path.relative_to(study)): checksum(path) for path in files}


def fit_of(encoder: Path, config: BertConfig, width: int, generator: torch.Generator) -> nn.Linear:
    """The projection to the teacher's width: as general distillation left it in the student's folder, else drawn."""
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
    """A student whose embeddings and layers imitate a teacher's on a task's data; nothing above them is trained."""

    def __init__(self, student: Bert, fit: nn.Linear, teacher: Bert) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.fit_dense = student.embeddings, student.encoder, fit
        self.__dict__.update(student=student, teacher=teacher)  # no parts of what is trained
        self.weights = dict(TERMS)

    def count(self, batch: TaskBatch) -> dict[str, int]:
        """How many differences there are in each layer."""
        squares = int(np.square(batch.lengths).sum())
        return difference_counts(self.student.config, self.teacher.config, len(batch.ids), squares)

    def forward(self, batch: TaskBatch) -> dict[str, Term]:
        """The sums of squared differences."""
        sums = layer_differences(self.student, self.fit_dense, self.teacher, batch.ids, batch.segments, batch.layout)
        return {name: Term(total) for name, total in sums.items()}


class TaughtAnswers:
    """The loss of a task's answers against its teacher's, in place of those in ``losses.LOSSES``."""

    def __init__(self, teacher: BertForTask) -> None:
        self.teacher = teacher

    def __call__(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Of outputs [B, classes], or [B, 1] of a regression."""
        if batch.labels.is_floating_point():
            return sequence(outputs, batch)
        with torch.no_grad():
            wanted = self.teacher(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
        return soft_cross_entropy(outputs, wanted)


def soft_cross_entropy(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy of a student's shares [B, classes] under its teacher's, a mean over examples and classes."""
    return -(wanted.float().softmax(1) * outputs.float().log_softmax(1)).mean()
