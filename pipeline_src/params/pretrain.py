"""params.yaml, block ``pretrain``: what is learnt in the two phases, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pipeline_src.common.members import member_names
from pipeline_src.params.base import NO_TEACHER, Block

Beta = Annotated[float, Field(ge=0, lt=1)]


class Masking(Block):
    """What happens to a token chosen for prediction (paper, section 3.1): 80 % [MASK], 10 % random, 10 % unchanged.

    ``max_predictions`` caps the predictions of one example; null means no cap. ``spans`` says what is chosen together:
    a ``token``, a ``whole_word`` (google-research/bert's second release), or an ``ngram`` of one to three words
    (ALBERT, Lan et al. 2020, section 4.1). With ``specials`` the marks [CLS] and [SEP] may be chosen too (fairseq's
    RoBERTa). ``dynamic`` draws new masks in every epoch (RoBERTa, Liu et al. 2019, section 4.1); without it an example
    keeps its masks, and ``examples.duplicates`` gives several of each.
    """

    mask: float = Field(default=0.8, ge=0, le=1)
    random: float = Field(default=0.1, ge=0, le=1)
    keep: float = Field(default=0.1, ge=0, le=1)
    max_predictions: int | None = Field(default=None, ge=1, le=8192)
    spans: Literal["token", "whole_word", "ngram"] = "token"
    specials: bool = False
    dynamic: bool = False

    @model_validator(mode="after")
    def _shares_add_up(self) -> Masking:
        if abs(self.mask + self.random + self.keep - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, not {self.mask + self.random + self.keep:g}")
        return self


class Steps(Block):
    """Optimiser steps of each phase; 900,000 and 100,000 in the paper (appendix A.2).

    A phase of 0 steps hands on the model that it starts from.
    """

    short: int = Field(ge=0, le=1_000_000_000)
    long: int = Field(ge=0, le=1_000_000_000)

    @model_validator(mode="after")
    def _something_is_learnt(self) -> Steps:
        if not self.short + self.long:
            raise ValueError("one of the two phases needs steps; set short or long to 1 or more")
        return self


class PretrainParams(Block):
    """Pretraining (paper, appendix A.2).

    Attributes:
        steps: optimiser steps of each phase; one warm-up and one linear decay run over both.
        objective: what is learnt, the name of a file in ``pipeline_src/objectives``: ``masked`` words (the paper's), or
            ``left_to_right``: the next word from those before it, the paper's baseline of table 5, which goes without
            next sentences and masks nothing.
        batch: sequences per step, over all processes together; 256 in the paper.
        optimiser: ``adamw``; ``bert_adam``, google-research/bert's own, without bias correction; ``lamb`` for large
            batches (You et al. 2019); ``muon`` for the blocks' matrices, with ``adamw`` for all else (Liu et al. 2025).
        learning_rate: peak; 1e-4 in the paper.
        muon_learning_rate: peak for the matrices that ``muon`` moves; null means ``learning_rate``.
        warmup: steps of linear warm-up; 10,000 in the paper.
        betas: decay rates of the optimiser's two running means; 0.9 and 0.999 in the paper.
        clip: largest norm of all gradients together, to which a longer one is shortened; 1.0 in google-research/bert
            (optimization.py). Null shortens none.
        epsilon: added to the root of the second one; 1e-6 in google-research/bert (optimization.py).
        weight_decay: 0.01 in the paper, not applied to biases and LayerNorm.
        evaluate_every: steps between measurements on validation text within a phase; null measures at its end alone.
        keep_steps: steps, counted over both phases, whose models are kept under ``steps/`` beside the phase's own
            (paper, figure 5).
        masking: what happens to the tokens chosen for prediction.
        teacher: folder of the pretrained model that ``distilled`` and ``layers`` learn from, of the study's vocabulary;
            ``pipeline_src/catalogue/no-teacher``, which says so, where there is none.
        curve_points: rows in the loss curves of both phases together; each is the mean of as many steps.
    """

    steps: Steps
    objective: str = "masked"
    batch: int = Field(default=256, ge=1, le=10_000_000)
    optimiser: Literal["adamw", "bert_adam", "lamb", "muon"] = "adamw"
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    muon_learning_rate: float | None = Field(default=None, gt=0, le=1)
    warmup: int = Field(default=10_000, ge=0, le=1_000_000_000)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: float = Field(default=1e-6, gt=0, le=1)
    clip: float | None = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    evaluate_every: int | None = Field(default=None, ge=1, le=1_000_000_000)
    keep_steps: tuple[int, ...] = ()
    masking: Masking = Masking()
    teacher: str = NO_TEACHER
    curve_points: int = Field(default=100, ge=2, le=100_000)

    @field_validator("objective")
    @classmethod
    def _objective_is_there(cls, objective: str) -> str:
        names = member_names("objectives")
        if objective not in names:
            raise ValueError(f"no objective is called {objective!r}; there are {', '.join(names)}")
        return objective

    @field_validator("keep_steps")
    @classmethod
    def _kept_steps_are_taken(cls, kept: tuple[int, ...], others: ValidationInfo) -> tuple[int, ...]:
        if "steps" in others.data:  # else they are refused themselves
            total = others.data["steps"].short + others.data["steps"].long
            for step in kept:
                if not 1 <= step <= total:
                    raise ValueError(f"there is no step {step} among the {total} of both phases; allowed: 1 to {total}")
        return kept
