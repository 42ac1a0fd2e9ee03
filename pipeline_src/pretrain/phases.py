"""Settings of one phase of pretraining (Devlin et al. 2018, appendix A.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.base.counter_rng import derive_seed, phase_key
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.paths import EXAMPLES, PRETRAINED
from pipeline_src.model.bert import BertConfig
from pipeline_src.study.machine import DEFAULT_MACHINE, Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import DEFAULT_OBJECTIVES, ObjectivesParams, PretrainParams
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import OptimizerConfig

FIRST_PHASE = PRETRAINED / "phase1"


@dataclass(frozen=True)
class Phase:
    """Settings of one phase, from params.yaml and machine.yaml.

    Steps are counted over all phases. If ``pretrain.later_phases`` overrides settings for this phase, ``pretrain`` and
    ``model`` have the overridden values.
    """

    name: str
    seed: int
    mask_prob: float
    model: ModelParams
    pretrain: PretrainParams
    machine: Machine = DEFAULT_MACHINE
    objectives: ObjectivesParams = DEFAULT_OBJECTIVES
    # Name of each phase -> number of sequences in its batches.
    batch_sizes: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        names = self.pretrain.steps.names
        if self.name not in names:
            raise PipelineError("unknown phase", self.name, where="--phase", hint=f"use {' or '.join(names)}")
        batch_sizes = {name: self.pretrain.batch_size(name) for name in names}
        # The dataclass is frozen, so attributes are set with object.__setattr__.
        object.__setattr__(self, "batch_sizes", batch_sizes)
        later_phases = self.pretrain.later_phases
        if self.name in later_phases:
            pretrain = self.pretrain.model_copy(update={"train_batch_size": batch_sizes[self.name]})
            object.__setattr__(self, "pretrain", pretrain)
        # A phase without a theta of its own keeps that of the previous phase.
        for name in names[2 : names.index(self.name) + 1]:
            theta = later_phases[name].global_rope_theta
            if theta:
                model = self.model.model_copy(update={"global_rope_theta": theta})
                object.__setattr__(self, "model", model)

    @property
    def before(self) -> list[str]:
        names = self.pretrain.steps.names
        return names[: names.index(self.name)]

    @property
    def objective_params(self) -> Section:
        return self.objectives.of(self.pretrain.objective)

    @property
    def first(self) -> int:
        steps = dict(self.pretrain.steps)
        return sum(steps[name] for name in self.before)

    @property
    def last(self) -> int:
        return self.first + dict(self.pretrain.steps)[self.name]

    @property
    def total(self) -> int:
        # The learning rate schedule runs over all phases.
        return self.pretrain.steps.total

    @property
    def start(self) -> Path | None:
        return PRETRAINED / self.before[-1] if self.before else None

    @property
    def optimizer(self) -> OptimizerConfig:
        params = self.pretrain
        is_muon = params.optimizer == "muon"
        return OptimizerConfig(
            learning_rate=params.learning_rate,
            total_steps=self.total,
            warmup_steps=params.warmup_steps,
            decay_steps=params.decay_steps,
            weight_decay=params.weight_decay,
            optimizer=params.optimizer,
            betas=params.betas,
            epsilon=params.adam_epsilon,
            blocks_learning_rate=params.muon_learning_rate if is_muon else None,
            blocks_weight_decay=params.muon_weight_decay if is_muon else None,
            max_grad_norm=params.max_grad_norm,
        )

    @cached_property
    def examples_manifest(self) -> dict[str, Any]:
        return read_json(EXAMPLES / "manifest.json", {name: {"length": int} for name in self.pretrain.steps.names})

    @property
    def length(self) -> int:
        return int(self.examples_manifest[self.name]["length"])

    def tokens(self, step: int) -> int:
        # Number of tokens in training up to ``step``, with all earlier phases, if every sequence is full.
        steps = dict(self.pretrain.steps) | {self.name: step - self.first}
        return sum(
            steps[name] * self.batch_sizes[name] * int(self.examples_manifest[name]["length"])
            for name in [*self.before, self.name]
        )

    def machine_settings(self, device_type: str) -> dict[str, object]:
        tokens = self.machine.pretrain.max_tokens(device_type)
        return self.machine.settings("pretrain") | {"microbatch_tokens": tokens}

    def key(self, purpose: str) -> int:
        return derive_seed(self.seed, purpose, phase_key(self.name))


class StepRange(NamedTuple):
    # Folder of the model and training state to start from. None: start from initial weights.
    start: Path | None
    first: int
    last: int


def run_settings(phase: Phase, config: BertConfig) -> dict[str, Any]:
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
