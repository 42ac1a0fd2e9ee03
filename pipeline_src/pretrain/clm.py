"""Causal language modelling, the left-to-right baseline of Devlin et al. 2018 (section 5.1, table 5)."""

from __future__ import annotations

from pipeline_src.base.registry import objective_spec
from pipeline_src.pretrain.mlm_objective import MLMObjective


class CLMObjective(MLMObjective):
    """Predict each token from the tokens before it, under a causal mask."""

    spec = objective_spec("clm")
    use = "causal_lm"
    learns_tokens = "the next word from those before it"


OBJECTIVE = CLMObjective
