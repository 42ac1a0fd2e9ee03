"""Causal language modelling: the paper's left-to-right baseline (section 5.1, table 5)."""

from __future__ import annotations

from typing import ClassVar

from pipeline_src.common.registry import ObjectiveSpec
from pipeline_src.pretraining.mlm_objective import MLMObjective

SPEC = ObjectiveSpec(
    corruption="left_to_right",
    flops_by_formula=True,  # nothing but the encoder and its head runs
    refused_pairs="its first mark sees nothing",
)


class CLMObjective(MLMObjective):
    """Predict every next token; a causal mask hides it."""

    causal: ClassVar[bool] = True
    use: ClassVar[str] = "left_to_right"

    @property
    def learns(self) -> str:
        return "the next word from those before it" + (f", and {self.learns_of_pairs}" if self.has_pairs else "")


OBJECTIVE = CLMObjective
