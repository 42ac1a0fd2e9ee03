"""One phase of pretraining as params.yaml has it: its steps, and what is due after which of them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.params.base import Block
from pipeline_src.params.machine import USUAL, Machine
from pipeline_src.params.model import ModelParams
from pipeline_src.params.objectives import USUAL as USUAL_OBJECTIVES
from pipeline_src.params.objectives import ObjectivesParams
from pipeline_src.params.pretrain import PretrainParams

PHASES = ("short", "long")


@dataclass(frozen=True)
class Phase:
    """The parameters of one phase; steps are counted over both phases.

    Attributes:
        name: ``short`` or ``long``.
        seed, mask_prob, model, pretrain: values and blocks of params.yaml.
        machine: how it runs here; decides nothing of the result.
        objectives: a block of params.yaml, of which that of the phase's own objective is read.

    Raises:
        PipelineError: there is no phase of that name.
    """

    name: str
    seed: int
    mask_prob: float
    model: ModelParams
    pretrain: PretrainParams
    machine: Machine = USUAL
    objectives: ObjectivesParams = USUAL_OBJECTIVES

    def __post_init__(self) -> None:
        if self.name not in PHASES:
            raise PipelineError("unknown phase", self.name, where="--phase", remedy="give short or long")

    @property
    def own(self) -> Block:
        """What the phase's objective takes beside."""
        return self.objectives.of(self.pretrain.objective)

    @property
    def what(self) -> str:
        """For people."""
        return f"pretraining, {self.name}"

    @property
    def first(self) -> int:
        """Steps taken before it."""
        return self.pretrain.steps.short if self.name == "long" else 0

    @property
    def last(self) -> int:
        """Steps taken at its end."""
        return self.total if self.name == "long" else self.pretrain.steps.short

    @property
    def total(self) -> int:
        """Steps of both phases, over which the learning rate rises and falls."""
        return self.pretrain.steps.short + self.pretrain.steps.long

    def stream(self, purpose: str) -> int:
        """What keys the random numbers drawn for ``purpose`` in this phase."""
        return derive_seed(self.seed, purpose, self.name)

    def measured_after(self, step: int) -> bool:
        """Whether validation text is measured after a step that is not the phase's last."""
        every = self.pretrain.evaluate_every
        return every is not None and step % every == 0

    def row_ends(self, step: int) -> bool:
        """Whether a row of the curve ends after a step that is not the phase's last."""
        return step % max(1, self.total // self.pretrain.curve_points) == 0 or self.measured_after(step)
