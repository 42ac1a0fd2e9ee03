"""Causal language modelling: the paper's left-to-right baseline (section 5.1, table 5)."""

from __future__ import annotations

from pipeline_src.common.registry import ObjectiveSpec
from pipeline_src.pretraining.mlm_objective import MLMObjective

SPEC = ObjectiveSpec(
    terms={"mlm": 1.0, "nsp": 1.0},
    validation_columns=("mlm_loss", "mlm_accuracy", "nsp_accuracy"),
    causal=True,
    collator="clm",
    refused_pairs="its first mark sees nothing",
    fixed_capacity=True,
)


class CLMObjective(MLMObjective):
    """Predict each token from the text before it; a causal mask hides the rest."""

    spec = SPEC
    use = "causal_lm"
    learns_tokens = "the next word from those before it"


OBJECTIVE = CLMObjective
