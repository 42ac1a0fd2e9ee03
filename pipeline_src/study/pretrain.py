"""params.yaml: ``pretrain``, and ``objectives`` with one section per objective.

Pretraining depends only on the section of its own objective. A change of another section does not make it stale.
"""

from __future__ import annotations

import operator
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pipeline_src.base.registry import member_names
from pipeline_src.study.schema import NO_MODEL, NO_TEACHER, ByPhase, Section

Optimizer = Literal["adamw", "bert_adam", "lamb", "muon"]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Masking(Section):
    """Choice and replacement of the tokens that are predicted (paper, section 3.1).

    Attributes:
        mask_ratio: fraction of the chosen tokens that become [MASK]; 0.8 in the paper.
        random_ratio: fraction that become a random token; 0.1 in the paper.
        keep_ratio: fraction that stay unchanged; 0.1 in the paper. The three fractions sum to 1.
        max_predictions: maximum number of predictions per example, whatever its length. Null: no maximum.
        unit: what is chosen as a whole. ``token``; ``whole_word`` (google-research/bert's second release); ``ngram``:
            one to three consecutive words (ALBERT, Lan et al. 2020, section 4.1).
        mask_special_tokens: whether [CLS] and [SEP] may be chosen too (as in fairseq's RoBERTa).
        dynamic: whether to sample new masks in every epoch (RoBERTa, Liu et al. 2019, section 4.1). If false, an
            example has the same masks in every epoch; a text is masked in several ways only by
            ``examples.dupe_factor``.
    """

    mask_ratio: float = Field(default=0.8, ge=0, le=1)
    random_ratio: float = Field(default=0.1, ge=0, le=1)
    keep_ratio: float = Field(default=0.1, ge=0, le=1)
    max_predictions: int | None = Field(default=None, ge=1, le=8192)
    unit: Literal["token", "whole_word", "ngram"] = "token"
    mask_special_tokens: bool = False
    dynamic: bool = False

    @model_validator(mode="after")
    def _shares_add_up(self) -> Masking:
        total = self.mask_ratio + self.random_ratio + self.keep_ratio
        if abs(total - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, not {total:g}")
        return self


NumSteps = Annotated[int, Field(ge=0, le=1_000_000_000)]


class Steps(ByPhase):
    """Optimizer steps of each phase; 900,000 and 100,000 in the paper (appendix A.2).

    A phase with 0 steps outputs its initial model unchanged.
    """

    __pydantic_extra__: dict[str, NumSteps] = Field(init=False)
    phase1: NumSteps
    phase2: NumSteps

    @property
    def total(self) -> int:
        return sum(dict(self).values())

    @model_validator(mode="after")
    def _something_is_learnt(self) -> Steps:
        if not self.total:
            raise ValueError("all phases have 0 steps; set phase1 or phase2 to 1 or more")
        return self


class LaterPhase(Section):
    """Settings of a phase after phase2.

    Attributes:
        after: name of the previous phase, whose model this phase continues to train.
        train_batch_size: number of sequences per step. Null: ``pretrain.train_batch_size``.
        global_rope_theta: see ``model.global_rope_theta``. Null: the value of the previous phase.
    """

    after: str
    train_batch_size: int | None = Field(default=None, ge=1, le=10_000_000)
    global_rope_theta: float | None = Field(default=None, gt=0, le=1e9)


class PretrainParams(Section):
    """Pretraining (paper, appendix A.2).

    Attributes:
        steps: optimizer steps of each phase. The learning rate has a single warm-up and decay over all phases.
        objective: ``mlm`` (the paper's); ``clm``: next-token prediction without NSP and masks (the baseline in the
            paper's table 5); or the name of an objective in ``pipeline_src/family``.
        train_batch_size: number of sequences per step, summed over all processes; 256 in the paper.
        optimizer: ``adamw``. ``bert_adam``: google-research/bert's Adam without bias correction. ``lamb``: for large
            batches (You et al. 2019). ``muon``: Muon for the matrices of the Transformer blocks, AdamW for all other
            weights (Liu et al. 2025).
        learning_rate: peak learning rate; 1e-4 in the paper.
        muon_learning_rate: peak learning rate of the matrices that Muon updates. Null: ``learning_rate``.
        warmup_steps: steps of linear warm-up; 10,000 in the paper. The decay starts after the warm-up, as in
            transformers. In google-research/bert it starts at step 0, so there the rate after the warm-up is lower, by
            the fraction warmup_steps / all steps. warmup_steps + decay_steps may not exceed the steps of all phases.
        decay_steps: number of final steps in which the learning rate falls linearly to zero. Between warm-up and decay
            the rate is constant (warmup-stable-decay, Hu et al. 2024). Null: all steps after the warm-up, as in the
            paper.
        betas: decay rates of the optimizer's two moments; 0.9 and 0.999 in the paper.
        adam_epsilon: added to the square root of the second moment; 1e-6 in google-research/bert (optimization.py).
        max_grad_norm: maximum global norm of the gradient, to which it is clipped; 1.0 in google-research/bert. Null:
            no clipping.
        weight_decay: weight decay, except for biases and LayerNorm; 0.01 in the paper.
        muon_weight_decay: weight decay of the matrices that Muon updates; 0.1 in Liu et al. 2025. Null:
            ``weight_decay``.
        eval_steps: number of steps between validations within a phase. Null: validate only at the end of each phase.
        keep_checkpoint_steps: steps, counted over all phases, after which the model and the optimizer state are saved
            in ``steps/`` next to the phase's final model (paper, figure 5).
        masking: see ``Masking``.
        teacher: folder of the pretrained teacher, for ``distilbert`` and ``tinybert``. It must have the study's
            vocabulary. ``catalogue/no-teacher``: no teacher.
        init_from: pretrained model that the first phase starts from: a folder in Hugging Face's layout,
            ``hub:OWNER/NAME@REVISION`` on Hugging Face's hub, or the path of an entry of ``catalogue/models``. Its
            sizes replace those in the section ``model``, of which only dropout and architecture are used. The
            architecture must be the model's. ``catalogue/no-model``: random weights.
        log_points: number of rows in the loss curves, for all phases together, if there are as many steps. A
            validation and the end of a phase add a row. A row is the mean over the steps since the row before.
        later_phases: name -> settings of further phases, which must also be keys of ``steps`` and
            ``examples.max_seq_length``. The key may be left out: no further phases.
    """

    steps: Steps
    objective: str = "mlm"
    train_batch_size: int = Field(default=256, ge=1, le=10_000_000)
    optimizer: Optimizer = "adamw"
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    muon_learning_rate: float | None = Field(default=None, gt=0, le=1)
    warmup_steps: int = Field(default=10_000, ge=0, le=1_000_000_000)
    decay_steps: int | None = Field(default=None, ge=1, le=1_000_000_000)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    adam_epsilon: float = Field(default=1e-6, gt=0, le=1)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    muon_weight_decay: float | None = Field(default=None, ge=0, le=1)
    eval_steps: int | None = Field(default=None, ge=1, le=1_000_000_000)
    keep_checkpoint_steps: tuple[int, ...] = ()
    masking: Masking = Masking()
    teacher: str = NO_TEACHER
    init_from: str = NO_MODEL
    log_points: int = Field(default=100, ge=2, le=100_000)
    later_phases: dict[str, LaterPhase] = Field(default={}, exclude_if=operator.not_)

    def batch_size(self, phase: str) -> int:
        later = self.later_phases.get(phase)
        return (later and later.train_batch_size) or self.train_batch_size

    @property
    def continued(self) -> bool:
        return self.init_from != NO_MODEL

    @field_validator("objective")
    @classmethod
    def _objective_is_there(cls, objective: str) -> str:
        names = member_names("objectives")
        if objective not in names:
            raise ValueError(f"unknown objective {objective!r}; use one of {', '.join(names)}")
        return objective

    @field_validator("keep_checkpoint_steps")
    @classmethod
    def _kept_steps_are_taken(cls, steps: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        # info.data lacks "steps" if that section is itself invalid.
        if "steps" in info.data:
            total = info.data["steps"].total
            for step in steps:
                if not 1 <= step <= total:
                    raise ValueError(f"step {step} is never reached; all phases together have steps 1 to {total}")
        return steps


class ObjectiveParams(Section):
    pass


class ElectraParams(ObjectiveParams):
    """ELECTRA (Clark et al. 2020): a generator fills in masked tokens, a discriminator detects replaced tokens.

    Attributes:
        generator_width: width of the generator divided by width of the discriminator; 1/4 for small, 1/3 for base
            (section 3.2).
        generator_depth: number of the generator's layers divided by the discriminator's; 1 in the paper, 0.5 in
            DeBERTa-v3.
        disc_weight: weight of the discriminator's loss. The generator's loss has weight 1; 50 in the paper (section
            3.1).
        embeddings: ``shared``: both models use the same (section 3.2). ``separate``: each model has its own.
            ``disentangled``: the discriminator's embeddings are the sum of the generator's, which only the generator's
            loss trains, and its own (DeBERTa-v3, He et al. 2023, section 3.2).
        disc_loss_on: tokens in the discriminator's loss. ``all``, or ``predicted``: only the masked ones ("ELECTRA
            15%", section 3.4).
        disc_target: what the discriminator predicts. ``rtd``: which tokens were replaced. ``mlm``: the original tokens
            (section 3.4: "Replace MLM" with disc_loss_on ``predicted``, "All-Tokens MLM" with ``all``).
    """

    generator_width: float = Field(default=0.25, gt=0, le=1)
    generator_depth: float = Field(default=1.0, gt=0, le=1)
    disc_weight: float = Field(default=50.0, gt=0, le=1e6)
    embeddings: Literal["shared", "separate", "disentangled"] = "shared"
    disc_loss_on: Literal["all", "predicted"] = "all"
    disc_target: Literal["rtd", "mlm"] = "rtd"

    @model_validator(mode="after")
    def _words_have_a_whole_table(self) -> ElectraParams:
        if self.disc_target == "mlm" and self.embeddings == "disentangled":
            raise ValueError("disc_target: mlm needs embeddings: shared or separate")
        return self


class DistilBertParams(ObjectiveParams):
    """DistilBERT (Sanh et al. 2019): the model is a student of ``pretrain.teacher``.

    The default weights are those of the training command that DistilBERT's authors published.

    Attributes:
        alpha_ce: weight of the distillation loss on the teacher's logits.
        alpha_mlm: weight of the MLM loss.
        alpha_cos: weight of the cosine loss between the last hidden states of student and teacher.
        temperature: divisor of the logits of both models in the distillation loss.
        loss_on: tokens in the distillation loss. ``all``, or ``predicted``: only the masked ones, which takes less
            computation. The cosine loss always uses all tokens.
        init: initial weights. ``teacher``: its embeddings, its head, and evenly spaced layers. ``random``: random
            weights.
    """

    alpha_ce: float = Field(default=5.0, ge=0, le=1e6)
    alpha_mlm: float = Field(default=2.0, ge=0, le=1e6)
    alpha_cos: float = Field(default=1.0, ge=0, le=1e6)
    temperature: float = Field(default=2.0, gt=0, le=1000)
    loss_on: Literal["all", "predicted"] = "all"
    init: Literal["teacher", "random"] = "teacher"

    @model_validator(mode="after")
    def _something_is_learnt(self) -> DistilBertParams:
        if not self.alpha_ce + self.alpha_mlm + self.alpha_cos:
            raise ValueError("alpha_ce, alpha_mlm and alpha_cos are all 0; set one of them higher")
        return self


class ObjectivesParams(Section):
    mlm: ObjectiveParams = ObjectiveParams()
    clm: ObjectiveParams = ObjectiveParams()
    bilm: ObjectiveParams = ObjectiveParams()
    electra: ElectraParams = ElectraParams()
    distilbert: DistilBertParams = DistilBertParams()
    tinybert: ObjectiveParams = ObjectiveParams()

    def of(self, objective: str) -> ObjectiveParams:
        return getattr(self, objective, ObjectiveParams())


DEFAULT_OBJECTIVES = ObjectivesParams()
