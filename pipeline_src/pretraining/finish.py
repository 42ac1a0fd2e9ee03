"""The outputs of a phase of pretraining: the model with its training state, the curve, and the results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import pandas as pd
from torch import Tensor

from pipeline_src.common.files import atomic_directory, atomic_file, write_json
from pipeline_src.common.paths import PRETRAIN_LOGS, PRETRAIN_RESULTS, PRETRAINED
from pipeline_src.pretraining.loading.readable import shown_examples
from pipeline_src.pretraining.prepare import Training
from pipeline_src.pretraining.save import gather_models, save_models, trained_figures
from pipeline_src.training.objective import PretrainingObjective
from pipeline_src.training.optimiser import MOMENTS
from pipeline_src.training.state import save_state, tensors_of


def finish(training: Training) -> None:
    """Measure the model that a phase ends with, write all outputs, and remove the checkpoints.

    All processes must call it: they measure together, gather what is spread over them, and wait for the main one.
    """
    phase, objective = training.phase, training.objective
    figures = training.validation.measure(objective)
    probes = training.loop.notes + training.validation.probes.ask(objective, phase.last, training.distributed)
    is_main = training.distributed.is_main
    weights = gather_models(training)
    moments = tensors_of(objective.stored(), training.optimiser, MOMENTS, keep=is_main)
    if is_main:
        write(training, figures, probes, weights, moments)
    training.distributed.wait_for_all()


def write(
    training: Training,
    figures: Mapping[str, float],
    probes: list[dict[str, Any]],
    weights: Mapping[str, Mapping[str, Tensor]],
    moments: dict[str, Tensor],
) -> None:
    """Write all outputs, and remove the checkpoints.

    Args:
        figures, probes: of validation text; see :func:`results`.
        weights, moments: of what is saved, gathered.
    """
    phase, objective, checkpoints = training.phase, training.objective, training.checkpoints
    with atomic_directory(PRETRAINED / phase.name) as folder:
        save_models(folder, training, weights, figures)
        save_state(folder / "training_state", moments, phase.last)
        for step in phase.pretrain.keep_steps:
            if phase.first < step <= phase.last:
                shutil.copytree(checkpoints.kept_model(step), folder / "steps" / str(step))
    with atomic_file(PRETRAIN_RESULTS / f"{phase.name}.tsv") as file:
        curve = pd.DataFrame(training.loop.rows).reindex(columns=curve_columns(objective))
        curve.to_csv(file, sep="\t", index=False, float_format="%.6g", lineterminator="\n")
    write_json(PRETRAIN_RESULTS / f"{phase.name}.json", results(training, figures, probes))
    write_json(
        PRETRAIN_LOGS / f"{phase.name}.cost.json",
        training.compute.measured() | {"machine": phase.machine.settings("pretrain")},
    )
    checkpoints.finish()


def curve_columns(objective: PretrainingObjective[Any]) -> list[str]:
    """Columns of the curve; those that no row has, such as of a term that this run goes without, stay empty."""
    validation = [f"validation_{name}" for name in objective.validation_columns]
    return ["step", *objective.columns(), "grad_norm", "learning_rate", *validation]


def results(training: Training, figures: Mapping[str, float], probes: list[dict[str, Any]]) -> dict[str, Any]:
    """What ``results/pretrain/<phase>.json`` says.

    Args:
        figures: of validation text.
        probes: what the model put in place of some masked words on the way, and at the end.
    """
    phase, examples = training.phase, training.examples
    return {
        "phase": phase.name,
        "objective": phase.pretrain.objective,
        "steps": phase.last - phase.first,
        "steps_before": phase.first,
        "batch": phase.pretrain.batch,
        "mask_prob": phase.mask_prob,
        "parameters": training.parameters,
        "config": training.config.as_dict(),
        "pairs": examples.pairs,
        "cost": training.compute.deterministic(),
        "train": trained_figures(training),
        "validation": figures,
        "shown_examples": shown_examples(examples, training.tokenizer, phase.seed),
        **({"fill_mask": probes} if probes else {}),
    }
