"""The weights and moments that a phase starts from: drawn anew, or those of the phase before."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import PRETRAINED
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.hub import load_weights
from pipeline_src.models.undrawn import undrawn
from pipeline_src.params.base import Block
from pipeline_src.pretraining.phase import Phase
from pipeline_src.training.objective import PretrainingObjective, load_objective
from pipeline_src.training.sharding import NONE, part_of, shard, sharding_of
from pipeline_src.training.state import load_state


def empty_objective(
    kind: type[PretrainingObjective[Any]],
    config: BertConfig,
    pairs: str,
    own: Block,
    device: torch.device,
    sharding: str = NONE,
    teacher: nn.Module | None = None,
) -> PretrainingObjective[Any]:
    """An objective whose weights hold nothing yet: drawing those that a checkpoint replaces would take seconds.

    ``sharding`` says how its parameters are spread over the processes, see :mod:`pipeline_src.training.sharding`.
    """
    with undrawn():
        objective = kind(config, pairs, own)
    if teacher is not None:
        objective.learn_from(teacher)
    if sharding != NONE:
        shard(objective, device, sharding, ("measure", "word_scores"))
    objective.to_empty(device=device)
    objective.tie()
    return objective


def fill_initial_state(phase: Phase, objective: PretrainingObjective[Any], optimiser: Optimizer) -> None:
    """Draw the weights of the first phase, or read weights and moments where the phase before ended.

    Raises:
        PipelineError: that phase is missing, or took another number of steps than the parameters say.
    """
    if sharding_of(objective) == NONE:
        fill_weights(phase, objective)
    else:  # each process makes all of them on the host, and keeps its parts
        kind = load_objective(phase.pretrain.objective)
        drawn = empty_objective(
            kind, objective.config, objective.pairs, objective.own, torch.device("cpu"), teacher=objective.teacher
        )
        fill_weights(phase, drawn)
        with torch.no_grad():
            for name, parameter in objective.stored().items():
                parameter.copy_(part_of(drawn.stored()[name], parameter))
    if phase.name == "long":
        taken = load_state(PRETRAINED / "short" / "training_state", objective.stored(), optimiser)
        if taken != phase.first:
            raise PipelineError(
                "the first phase took another number of steps", f"{taken}, not {phase.first}",
                where=PRETRAINED / "short", remedy="run pretrain_short again",
            )  # fmt: skip


def fill_weights(phase: Phase, objective: PretrainingObjective[Any]) -> None:
    """Draw the weights of the first phase, or read those of the phase before."""
    if phase.name == "short":
        objective.draw_weights(torch.Generator().manual_seed(derive_seed(phase.seed, "weights") >> 1))
        return
    for subfolder, saved in objective.saved_models().items():
        load_weights(saved.module, PRETRAINED / "short" / subfolder)
    objective.after_loading()
