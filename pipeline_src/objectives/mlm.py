"""BERT: masked language modelling, and next sentences if examples are pairs (paper, section 3.1)."""

from __future__ import annotations

from typing import ClassVar

from pipeline_src.common.registry import ObjectiveSpec
from pipeline_src.pretraining.mlm_objective import MLMObjective

SPEC = ObjectiveSpec(
    flops_by_formula=True,  # nothing but the encoder and its heads runs
    goes_on=True,
)


class BertObjective(MLMObjective):
    """Some tokens are masked or replaced, and predicted from both sides."""

    causal: ClassVar[bool] = False
    use: ClassVar[str] = "pretraining"

    @property
    def learns(self) -> str:
        return f"masked words and {self.learns_of_pairs}" if self.has_pairs else "masked words, without next sentences"


OBJECTIVE = BertObjective
