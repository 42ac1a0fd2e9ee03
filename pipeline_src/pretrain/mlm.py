"""BERT (paper, section 3.1): masked language modelling, and next sentence prediction if examples are pairs."""

from __future__ import annotations

from pipeline_src.base.registry import objective_spec
from pipeline_src.pretrain.mlm_objective import MLMObjective


class BertObjective(MLMObjective):
    """Mask or replace some tokens, and predict them from the text on both sides."""

    spec = objective_spec("mlm")
    use = "pretraining"
    learns_tokens = "masked words"
    learns_without_pairs = ", without next sentences"


OBJECTIVE = BertObjective
