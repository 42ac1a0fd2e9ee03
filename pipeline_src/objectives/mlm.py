"""BERT: masked language modelling, and next sentences if examples are pairs (paper, section 3.1)."""

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
    """Some tokens are masked or replaced, and predicted from both sides."""

    spec, use = SPEC, "pretraining"
    learns_tokens, learns_without_pairs = "masked words", ", without next sentences"


OBJECTIVE = BertObjective
