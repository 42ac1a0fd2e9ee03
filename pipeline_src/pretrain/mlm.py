"""BERT's objective (Devlin et al. 2018, section 3.1): masked language modelling, and labels of sentence pairs."""

from __future__ import annotations

from pipeline_src.base.registry import objective_spec
from pipeline_src.pretrain.mlm_objective import MLMObjective


class BertObjective(MLMObjective):
    """Predict masked or replaced tokens from the text on both sides."""

    spec = objective_spec("mlm")
    use = "pretraining"
    learns_tokens = "masked words"
    learns_without_pairs = ", without next sentences"


OBJECTIVE = BertObjective
