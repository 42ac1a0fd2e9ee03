"""Base class of pretraining objectives, and the function that loads one by name.

An objective is a file that defines ``OBJECTIVE``, a subclass of
``PretrainingObjective``. The file may only import what the stages of pretraining depend on anyway: then adding a file
makes no trained model stale.
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
    # Its parameter names match Hugging Face's.
    module: nn.Module
    config: BertConfig
    # The class that transformers loads it with.
    huggingface_class: str


def ratio(total: Any, count: Any) -> float:
    return float(total / count) if count else float("nan")


class Metric(NamedTuple):
    """Two sums over batches, from which ``compute`` returns a metric.

    The sums are numbers or arrays.
    """

    total: Any
    count: Any
    compute: Callable[[Any, Any], float] = ratio


class PretrainingObjective(Objective[B]):
    """A pretraining objective: the module that owns the model or models.

    Args:
        pairs: the parameter ``examples.pair_objective``.
        objective_params: the section ``objectives.<name>`` of params.yaml.

    Attributes:
        spec: facts that are read without importing torch; ``weights`` has the ``spec.terms`` that this run uses.
        build_teacher: class or function that builds the teacher from its config; None if the objective has no teacher.
        learns: what the model learns; in the model card, this follows "trained from scratch on".
        predictor: name of the attribute whose model returns token logits first; None if no tokens are predicted.
        teacher: the model to learn from, if any.
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
        """Return the models to save: subfolder -> model; ``""`` is the phase's own folder."""

    def validation_metrics(self, batch: Any) -> dict[str, Metric]:
        """Return metric name -> ``Metric`` for a ``ValidationBatch``.

        By default, these are the losses of the terms. Called on all processes, without dropout and gradients.
        """
        terms = self(batch.tensors)
        counts = self.loss_counts(batch.tensors.workload)
        return {f"{name}_loss": Metric(float(term.loss), counts[name]) for name, term in terms.items()}

    def set_teacher(self, teacher: nn.Module) -> None:
        # The teacher does not become a submodule: it is not trained, saved or moved.
        self.__dict__["teacher"] = teacher

    def training_flops(self, work: Workload) -> int:
        return self.config.training_flops(work)

    def load_models(self, folder: Path) -> None:
        for subfolder, saved in self.saved_models().items():
            load_weights(saved.module, folder / subfolder)

    def init_weights(self, generator: torch.Generator) -> None:
        """Initialise all weights on the CPU, so that they are the same on every machine.

        A submodule with a ``custom_init`` adjusts its weights afterwards.
        """
        initialise(self, generator)

    # The following methods are the same for all objectives.

    @classmethod
    def columns(cls) -> list[str]:
        terms = cls.spec.terms
        return ["loss", *(f"{term}_loss" for term in terms), *(f"{term}_accuracy" for term in terms)]

    def tie(self) -> None:
        # ``to_empty`` has allocated shared parameters separately.
        for model in self.children():
            if hasattr(model, "tie"):
                model.tie()

    def token_logits(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        if self.predictor is None:
            raise PipelineError(
                "this objective predicts no words", type(self).__name__, hint="fine-tune the model instead"
            )
        logits: Tensor = getattr(self, self.predictor)(ids, segments, cu_seqlens, predicted, max_seqlen)[0]
        return logits

    def gradient_clip_groups(self) -> list[list[nn.Parameter]]:
        # By saved model: the weight of a model's term must not scale another model's gradients. Models that share
        # parameters form one group; so do parameters of no saved model.
        groups = [list(saved.module.parameters()) for saved in self.saved_models().values()]
        clipped = sorted(id(parameter) for group in groups for parameter in group)
        is_partition = clipped == sorted(map(id, self.parameters()))
        return groups if is_partition else super().gradient_clip_groups()


def load_objective(name: str) -> type[PretrainingObjective[Any]]:
    objective: type[PretrainingObjective[Any]] = load_member("objectives", name)
    return objective
