"""params.yaml, block ``pretrain``: the two phases of masked-language-model and next-sentence training."""

from __future__ import annotations

from pydantic import Field, model_validator

from pipeline_src.params.base import Block


class Masking(Block):
    """What happens to a token chosen for prediction (paper, section 3.1): 80 % [MASK], 10 % random, 10 % unchanged.

    ``max_predictions`` caps the predictions of one example; null means no cap. ``whole_word`` chooses all pieces of a
    word together (google-research/bert's second release). ``dynamic`` draws new masks in every epoch (RoBERTa, Liu et
    al. 2019, section 4.1); without it an example keeps its masks, and ``examples.duplicates`` gives several of each.
    """

    mask: float = Field(default=0.8, ge=0, le=1)
    random: float = Field(default=0.1, ge=0, le=1)
    keep: float = Field(default=0.1, ge=0, le=1)
    max_predictions: int | None = Field(default=None, ge=1)
    whole_word: bool = False
    dynamic: bool = False

    @model_validator(mode="after")
    def _shares_add_up(self) -> Masking:
        if abs(self.mask + self.random + self.keep - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, not {self.mask + self.random + self.keep:g}")
        return self


class Steps(Block):
    """Optimiser steps of each phase; 900,000 and 100,000 in the paper (appendix A.2)."""

    short: int = Field(ge=1)
    long: int = Field(ge=1)


class PretrainParams(Block):
    """Pretraining (paper, appendix A.2).

    Attributes:
        steps: optimiser steps of each phase; one warm-up and one linear decay run over both.
        batch: sequences per step; 256 in the paper.
        learning_rate: peak; 1e-4 in the paper.
        warmup: steps of linear warm-up; 10,000 in the paper.
        weight_decay: 0.01 in the paper, not applied to biases and LayerNorm.
        masking: what happens to the tokens chosen for prediction.
        curve_points: rows in the loss curves of both phases together; each is the mean of as many steps.
        threads: CPU threads of one process; part of the result, since sums are rounded in another order.
    """

    steps: Steps
    batch: int = Field(default=256, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    warmup: int = Field(default=10_000, ge=0)
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    masking: Masking = Masking()
    curve_points: int = Field(default=100, ge=2)
    threads: int = Field(default=2, ge=1)
