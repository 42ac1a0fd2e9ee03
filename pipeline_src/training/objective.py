"""What a member of ``objectives/`` must give, and the one place that loads a member by its name.

A member is a file that defines ``OBJECTIVE``, a subclass of :class:`PretrainingObjective`. It may import nothing beyond
what the stages of pretraining depend on anyway, so that adding a member makes no trained model stale.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from pipeline_src.common.registry import load_member
from pipeline_src.config.pretrain import ObjectiveParams
from pipeline_src.config.schema import Section
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.flops import Workload
from pipeline_src.training.loop import B, Objective

MODEL = "model."  # where an objective keeps the network whose parameters are stored under their own names


class SavedModel(NamedTuple):
    """A module that is saved as a model folder.

    Attributes:
        module: its parameters bear Hugging Face's names.
        config: its sizes.
        huggingface_class: with which transformers loads it.
    """

    module: nn.Module
    config: BertConfig
    huggingface_class: str


class PretrainingObjective(Objective[B]):
    """A way of learning from text: the module that owns the model, or the models, and what to do with it.

    Args:
        config: sizes of the encoder.
        pairs: what is learnt of an example's two segments, as ``examples.pair_objective`` has it.
        objective_params: the block ``objectives.<name>`` of params.yaml.

    Attributes:
        terms: of the loss, by name, with their weights; ``weights`` are those of the terms that this run has.
        validation_columns: figures of :meth:`measure` that stand in the curve; by the first, a loss, the best
            checkpoint is found.
        causal: whether a token sees those before it and itself alone.
        config, pairs, objective_params: as given.
        teacher: what it learns from, where it has one.
    """

    terms: ClassVar[Mapping[str, float]]
    validation_columns: ClassVar[Sequence[str]]
    causal: ClassVar[bool]
    teacher: Any = None

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__()
        self.config, self.pairs = config, pairs
        self.objective_params = ObjectiveParams() if objective_params is None else objective_params

    @classmethod
    def build_teacher(cls, config: BertConfig) -> nn.Module | None:
        """The model to learn from, with weights of any value; None for an objective that has no teacher."""
        return None

    def set_teacher(self, teacher: nn.Module) -> None:
        """Take a teacher. It stays no part of this module: nothing trains, saves or moves it.

        Raises:
            PipelineError: it does not fit what is to be learnt.
        """
        self.__dict__["teacher"] = teacher

    @property
    def has_pairs(self) -> bool:
        """Whether examples are pairs of segments."""
        return self.pairs != "none"

    @property
    @abstractmethod
    def learns(self) -> str:
        """What is learnt, for the model's card, after "trained from scratch on"."""

    @classmethod
    def columns(cls) -> list[str]:
        """Columns of the curve that the loss and its terms fill."""
        return ["loss", *(f"{term}_loss" for term in cls.terms), *(f"{term}_accuracy" for term in cls.terms)]

    @abstractmethod
    def tie(self) -> None:
        """Tie parameters that are one again, after a move from one kind of memory to another has parted them."""

    @abstractmethod
    def init_weights(self, generator: torch.Generator) -> None:
        """Fill in the weights that training starts from, the same on every machine."""

    @abstractmethod
    def measure(self, validation: Any) -> dict[str, float]:
        """Losses and accuracies on a :class:`pipeline_src.pretraining.validation.ValidationSet`, without dropout."""

    @abstractmethod
    def saved_models(self) -> dict[str, SavedModel]:
        """What is saved, by the folder it is saved in below the phase's own, which ``""`` stands for."""

    def after_loading(self) -> None:
        """Put right what :meth:`saved_models` were filled with from their folders, where these hold something else."""

    @abstractmethod
    def token_logits(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """Scores of every entry of the vocabulary at the places ``predicted`` [P, entries]; arguments as ``Bert``'s."""

    def training_flops(self, work: Workload) -> int:
        """Floating-point operations of training, of every model that runs; the encoder's own unless said otherwise."""
        return self.config.training_flops(work)

    def stored(self) -> Mapping[str, nn.Parameter]:
        """The parameters that checkpoints hold, by name: all that the objective has."""
        return {name.removeprefix(MODEL): parameter for name, parameter in self.named_parameters()}


def load_objective(name: str) -> type[PretrainingObjective[Any]]:
    """The objective that ``objectives/<name>.py`` defines.

    Raises:
        PipelineError: there is no such file.
    """
    objective: type[PretrainingObjective[Any]] = load_member("objectives", name)
    return objective
