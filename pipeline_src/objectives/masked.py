"""Masked words, and next sentences where examples are pairs (paper, section 3.1)."""

from __future__ import annotations

from typing import ClassVar

from pipeline_src.pretraining.token_prediction import TokenPrediction

CORRUPTION = "masked"
BY_FORMULA = True  # nothing but the encoder and its heads runs


class Masked(TokenPrediction):
    """Some tokens are hidden or replaced, and predicted from both sides."""

    causal: ClassVar[bool] = False
    use: ClassVar[str] = "pretraining"

    @property
    def learns(self) -> str:
        """For the model's card."""
        return f"masked words and {self.learns_of_pairs}" if self.has_pairs else "masked words, without next sentences"


OBJECTIVE = Masked
