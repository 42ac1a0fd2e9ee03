"""Stages ``pretrain_short`` and ``pretrain_long``: one encoder learns from text, in two phases (paper, appendix A.2).

What it learns is the objective's (``objectives/``): masked words and next sentences are the paper's.
"""

from __future__ import annotations

import torch

from pipeline_src.params.machine import USUAL, Machine
from pipeline_src.params.model import ModelParams
from pipeline_src.params.objectives import USUAL as USUAL_OBJECTIVES
from pipeline_src.params.objectives import ObjectivesParams
from pipeline_src.params.pretrain import PretrainParams
from pipeline_src.pretraining.finish import finish
from pipeline_src.pretraining.monitor import Monitor
from pipeline_src.pretraining.phase import Phase
from pipeline_src.pretraining.prepare import Training, prepare
from pipeline_src.training.checkpoint_settings import check_settings
from pipeline_src.training.distributed import init_distributed
from pipeline_src.training.stop_request import StopRequest, catch_stop_requests


def run(
    *,
    seed: int,
    mask_prob: float,
    model: ModelParams,
    pretrain: PretrainParams,
    objectives: ObjectivesParams = USUAL_OBJECTIVES,
    phase: str,
    machine: Machine = USUAL,
) -> None:
    """Train one phase: read tokens, examples (and the phase before), write the model, its figures and its curve.

    It goes on from its newest checkpoint, where there is one of the same parameters, data and code. A phase of 0 steps
    hands on the model it starts from. Several processes measure together, and the main one writes.

    Raises:
        PipelineError: an input is missing, the phase is unknown, or training diverges.
        Interrupted: a signal requested a stop; where training was is saved.
    """
    check_settings()
    params = Phase(phase, seed, mask_prob, model, pretrain, machine, objectives)
    torch.set_num_threads(machine.pretrain.threads)
    with catch_stop_requests() as stop_request, init_distributed(machine.precision, machine.device) as distributed:
        training = prepare(params, distributed, stop_request)
        train(training, stop_request)
        finish(training)


def train(training: Training, stop_request: StopRequest) -> None:
    """Take the steps that are left, and save and measure between them.

    Raises:
        PipelineError, Interrupted: as :func:`run`.
    """
    phase, loop, monitor = training.phase, training.loop, Monitor(training)
    for step in loop.run(training.batches()):
        stopping = loop.stopping and step < phase.last
        monitor.after(step, stopping)  # a launcher ends every process when the first one ends: all wait for the save
        if stopping:
            raise stop_request.interrupted(phase.what, step)
