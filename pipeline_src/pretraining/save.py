"""A pretrained model's folder: weights, config, tokenizer and card of every model that an objective saves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pipeline_src.common.files import read_json
from pipeline_src.common.paths import VOCABULARY
from pipeline_src.models.card import read_sources, write_card
from pipeline_src.models.card_kinds import pretrained_card
from pipeline_src.models.hub import save_model
from pipeline_src.pretraining.loading.batches import TOKENS
from pipeline_src.pretraining.prepare import Training
from pipeline_src.training.state import gathered_weights

CARD_COSTS = ("steps", "sequences", "tokens", "flops")


def gather_models(training: Training) -> dict[str, dict[str, Tensor]]:
    """The weights of what the objective saves, by subfolder; on all processes but the main one empty.

    All processes must call it, for weights may be spread over them.
    """
    is_main = training.distributed.is_main
    saved = training.objective.saved_models().items()
    return {subfolder: gathered_weights(module, keep=is_main) for subfolder, (module, _, _) in saved}


def save_models(
    folder: Path, training: Training, weights: Mapping[str, Mapping[str, Tensor]], figures: Mapping[str, float]
) -> None:
    """Fill an empty folder with what the objective saves, each with its card.

    Args:
        folder: exists.
        training: at the step to be saved.
        weights: as :func:`gather_models` gives them.
        figures: of validation text; empty where it was not measured.
    """
    phase, objective = training.phase, training.objective
    params = {"seed": phase.seed, "mask_prob": phase.mask_prob, "step": training.loop.step}
    costs = training.compute.deterministic()
    for subfolder, (module, config, huggingface_class) in objective.saved_models().items():
        card = pretrained_card(
            config,
            sum(parameter.numel() for parameter in module.parameters()),
            objective.learns,
            huggingface_class,
            read_sources(read_json(TOKENS / "manifest.json", dict)),
            {**params, **phase.pretrain.model_dump(), **phase.own.model_dump()},
            {"training text": trained_figures(training), "validation text": figures},
            {name: costs[name] for name in CARD_COSTS},
        )
        (folder / subfolder).mkdir(exist_ok=True)
        save_model(folder / subfolder, weights[subfolder], config, huggingface_class, VOCABULARY, write_card(card))


def trained_figures(training: Training) -> dict[str, float]:
    """Losses and accuracies in the curve's last row; none before its first."""
    row = training.loop.rows[-1] if training.loop.rows else {}
    return {name: row[name] for name in training.objective.columns() if name in row}
