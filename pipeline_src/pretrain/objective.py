"""Base class of pretraining objectives, and the function that loads one by name.

An objective is a file that defines ``OBJECTIVE``, a subclass of ``PretrainingObjective``. The file may import only
modules that the pretraining stages already depend on. A new objective then makes no trained model stale.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import ObjectiveSpec, load_member
from pipeline_src.model.bert import BertConfig, initialise
from pipeline_src.model.flops import Workload
from pipeline_src.model.hub import load_weights
from pipeline_src.study.pretrain import ObjectiveParams
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import B, Objective


class SavedModel(NamedTuple):
    # Module whose parameter names are those of this project.
    module: nn.Module
    config: BertConfig
    # Name of the class with which transformers loads the model.
    huggingface_class: str


def ratio(total: Any, count: Any) -> float:
    return float(total / count) if count else float("nan")


class Metric(NamedTuple):
    """Metric that ``compute`` derives from two sums over batches, for example a mean from a total and a count.

    ``total`` and ``count`` are numbers or arrays.
    """

    total: Any
    count: Any
    compute: Callable[[Any, Any], float] = ratio


class PretrainingObjective(Objective[B]):
    """Base class of pretraining objectives: modules that own the trained models.

    Args:
        pairs: value of the setting ``examples.pair_objective``.
        objective_params: the section ``objectives.<name>`` of params.yaml.

    Attributes:
        spec: description of the objective that can be read without importing torch. ``weights`` has those of
            ``spec.terms`` that this run uses.
        build_teacher: class or function that builds the teacher from its config. None: the objective has no teacher.
        learns: what the model learns. In the model card, it follows the words "trained from scratch on".
        predictor: name of the attribute with the model that predicts tokens. None: no tokens are predicted.
        teacher: model that the student learns from, if any.
    """

    spec: ClassVar[ObjectiveSpec]
    build_teacher: ClassVar[Any] = None
    learns: str
    predictor: ClassVar[str | None] = "model"
    teacher: Any = None

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__()
        self.config = config
        self.pairs = pairs
        self.has_pairs = pairs != "none"
        self.objective_params = ObjectiveParams() if objective_params is None else objective_params

    # A subclass defines ``forward`` and ``loss_counts``, and the following methods as needed.

    @abstractmethod
    def saved_models(self) -> dict[str, SavedModel]:
        """Return subfolder -> model to save in it, with ``""`` for the phase's own folder."""

    def validation_metrics(self, batch: Any) -> dict[str, Metric]:
        """Return the metrics of one ``ValidationBatch`` by name.

        By default, these are the losses of the terms. The method runs on all processes, without dropout and gradients.
        """
        terms = self(batch.tensors)
        counts = self.loss_counts(batch.tensors.workload)
        return {f"{name}_loss": Metric(float(term.loss), counts[name]) for name, term in terms.items()}

    def set_teacher(self, teacher: nn.Module) -> None:
        # Bypass nn.Module, so that the teacher is not a submodule and is not trained, saved or moved.
        self.__dict__["teacher"] = teacher

    def training_flops(self, work: Workload) -> int:
        return self.config.training_flops(work)

    def load_models(self, folder: Path) -> None:
        for subfolder, saved in self.saved_models().items():
            load_weights(saved.module, folder / subfolder)

    def init_weights(self, generator: torch.Generator) -> None:
        """Initialise all weights. They must be on the CPU, so that they are the same on every machine."""
        initialise(self, generator)

    # The following methods are the same for all objectives.

    @classmethod
    def columns(cls) -> list[str]:
        terms = cls.spec.terms
        return ["loss", *(f"{term}_loss" for term in terms), *(f"{term}_accuracy" for term in terms)]

    def tie(self) -> None:
        # ``to_empty`` has given shared parameters separate memory, so they are tied again.
        for model in self.children():
            if hasattr(model, "tie"):
                model.tie()

    def token_logits(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        if self.predictor is None:
            raise PipelineError(
                "this objective trains no token predictions",
                type(self).__name__,
                hint="use a model of another objective, or fine-tune this one",
            )
        logits: Tensor = getattr(self, self.predictor)(ids, segments, cu_seqlens, predicted, max_seqlen)[0]
        return logits

    def gradient_clip_groups(self) -> list[list[nn.Parameter]]:
        # Each saved model is a group, since one model's loss weight must not scale another model's gradients. If models
        # share parameters, or a parameter belongs to no saved model, all parameters form one group.
        groups = [list(saved.module.parameters()) for saved in self.saved_models().values()]
        clipped = sorted(id(parameter) for group in groups for parameter in group)
        is_partition = clipped == sorted(map(id, self.parameters()))
        return groups if is_partition else super().gradient_clip_groups()


def load_objective(name: str) -> type[PretrainingObjective[Any]]:
    objective: type[PretrainingObjective[Any]] = load_member("objectives", name)
    return objective
