"""Every next word from those before it: the paper's baseline that reads in one direction (section 5.1, table 5)."""

from __future__ import annotations

from typing import ClassVar

from pipeline_src.pretraining.token_prediction import TokenPrediction

CORRUPTION = "left_to_right"
BY_FORMULA = True  # nothing but the encoder and its head runs
REFUSES_PAIRS = "its first mark sees nothing"


class LeftToRight(TokenPrediction):
    """A causal mask hides what follows, so that nothing needs to be masked."""

    causal: ClassVar[bool] = True
    use: ClassVar[str] = "left_to_right"

    @property
    def learns(self) -> str:
        """For the model's card."""
        return "the next word from those before it" + (f", and {self.learns_of_pairs}" if self.has_pairs else "")


OBJECTIVE = LeftToRight
