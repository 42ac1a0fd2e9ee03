"""BERT (paper, section 3.1): masked language modelling, and next sentence prediction if examples are pairs."""

from __future__ import annotations

from pipeline_src.common.registry import ObjectiveSpec
from pipeline_src.pretraining.mlm_objective import MLMObjective

SPEC = ObjectiveSpec(
    terms={"mlm": 1.0, "nsp": 1.0},
    validation_columns=("mlm_loss", "mlm_accuracy", "nsp_accuracy"),
    can_continue=True,
    fixed_capacity=True,
)


class BertObjective(MLMObjective):
    """Mask or replace some tokens, and predict them from the text on both sides."""

    spec = SPEC
    use = "pretraining"
    learns_tokens = "masked words"
    learns_without_pairs = ", without next sentences"


OBJECTIVE = BertObjective
