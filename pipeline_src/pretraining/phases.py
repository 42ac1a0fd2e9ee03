"""The parameters of one of the two phases of pretraining (paper, appendix A.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.common.counter_rng import PHASE_KEYS, derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import EXAMPLES, PRETRAINED
from pipeline_src.config.machine import DEFAULT_MACHINE, Machine
from pipeline_src.config.model import ModelParams
from pipeline_src.config.pretrain import DEFAULT_OBJECTIVES, ObjectivesParams, PretrainParams
from pipeline_src.config.schema import Section
from pipeline_src.models.bert import BertConfig
from pipeline_src.training.trainer import OptimizerConfig

PHASES = ("phase1", "phase2")
FIRST_PHASE = PRETRAINED / "phase1"


@dataclass(frozen=True)
class Phase:
    """The parameters of one phase, from params.yaml and machine.yaml; steps are counted over both phases."""

    name: str
    seed: int
    mask_prob: float
    model: ModelParams
    pretrain: PretrainParams
    machine: Machine = DEFAULT_MACHINE
    objectives: ObjectivesParams = DEFAULT_OBJECTIVES

    def __post_init__(self) -> None:
        if self.name not in PHASES:
            raise PipelineError("unknown phase", self.name, where="--phase", hint="give phase1 or phase2")

    @property
    def objective_params(self) -> Section:
        return self.objectives.of(self.pretrain.objective)

    @property
    def first(self) -> int:
        return self.pretrain.steps.phase1 if self.name == "phase2" else 0

    @property
    def last(self) -> int:
        return self.total if self.name == "phase2" else self.pretrain.steps.phase1

    @property
    def total(self) -> int:
        """Number of steps of both phases, over which the learning rate schedule runs."""
        return self.pretrain.steps.phase1 + self.pretrain.steps.phase2

    @property
    def start(self) -> Path | None:
        """Folder of the model that the phase continues; None: the phase starts from initial weights."""
        return FIRST_PHASE if self.name == "phase2" else None

    @property
    def optimizer(self) -> OptimizerConfig:
        params = self.pretrain
        return OptimizerConfig(
            learning_rate=params.learning_rate,
            total_steps=self.total,
            warmup_steps=params.warmup_steps,
            decay_steps=params.decay_steps,
            weight_decay=params.weight_decay,
            optimizer=params.optimizer,
            betas=params.betas,
            epsilon=params.adam_epsilon,
            muon_learning_rate=params.muon_learning_rate,
            muon_weight_decay=params.muon_weight_decay,
            max_grad_norm=params.max_grad_norm,
        )

    @cached_property
    def examples_manifest(self) -> dict[str, Any]:
        return read_json(EXAMPLES / "manifest.json", {name: {"length": int} for name in PHASES})

    @property
    def length(self) -> int:
        """Number of tokens in a full sequence."""
        return int(self.examples_manifest[self.name]["length"])

    def positions(self, step: int) -> int:
        """Return the length of a full sequence, summed over the first ``step`` steps of both phases."""
        in_phase1 = min(step, self.pretrain.steps.phase1)
        phase1, phase2 = (self.examples_manifest[name]["length"] for name in PHASES)
        return int(in_phase1 * phase1 + (step - in_phase1) * phase2)

    def machine_settings(self, device_type: str) -> dict[str, object]:
        """Return the settings of machine.yaml, on a kind of device, to record with the results."""
        tokens = self.machine.pretrain.max_tokens(device_type)
        return self.machine.settings("pretrain") | {"microbatch_tokens": tokens}

    def key(self, purpose: str) -> int:
        """Return this phase's key of the random numbers for ``purpose``."""
        return derive_seed(self.seed, purpose, PHASE_KEYS[self.name])


class StepRange(NamedTuple):
    """A part of a phase: the steps from ``first`` to ``last``, counted over both phases."""

    start: Path | None  # folder of the model to start from, with its training state; None: initial weights
    first: int
    last: int


def run_settings(phase: Phase, config: BertConfig) -> dict[str, Any]:
    """Return column of the reference runs -> this training's value, by which ``loss_monitor`` compares them."""
    return {
        "architecture": phase.model.architecture,
        "objective": phase.pretrain.objective,
        "optimizer": phase.pretrain.optimizer,
        "position_init": phase.model.position_init,
        "num_hidden_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "mask_prob": phase.mask_prob,
    }
