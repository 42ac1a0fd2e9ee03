"""params.yaml: ``pretrain``, and ``objectives`` with one section for each objective.

Pretraining depends only on the section of its objective, so that a change of another section does not make it stale.
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
    """Replacement of the tokens chosen for prediction (paper, section 3.1): 80 % [MASK], 10 % random, 10 % unchanged.

    ``max_predictions`` caps the predictions of one example; null means no cap. ``unit`` is what is chosen as a whole: a
    ``token``, a ``whole_word`` (google-research/bert's second release), or an ``ngram`` of one to three words
    (ALBERT, Lan et al. 2020, section 4.1). With ``mask_special_tokens`` [CLS] and [SEP] may be chosen too (fairseq's
    RoBERTa). ``dynamic`` samples new masks in every epoch (RoBERTa, Liu et al. 2019, section 4.1); without it, an
    example always has the same masks, and only ``examples.dupe_factor`` masks a text in several ways.
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

    A phase of 0 steps outputs its initial model.
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
            raise ValueError("one of the two phases needs steps; set phase1 or phase2 to 1 or more")
        return self


class LaterPhase(Section):
    """A phase after the second.

    Attributes:
        after: name of the phase before, whose model it continues.
        train_batch_size: sequences per step; null means ``pretrain.train_batch_size``.
        global_rope_theta: see ``model.global_rope_theta``; null means that of the phase before.
    """

    after: str
    train_batch_size: int | None = Field(default=None, ge=1, le=10_000_000)
    global_rope_theta: float | None = Field(default=None, gt=0, le=1e9)


class PretrainParams(Section):
    """Pretraining (paper, appendix A.2).

    Attributes:
        steps: optimizer steps of each phase; warm-up and decay of the learning rate run once, over all phases.
        objective: ``mlm`` (the paper's), a name in ``pipeline_src/family``, or ``clm``, which
            predicts a token from the tokens before it, without NSP and masks (the baseline of the paper's table 5).
        train_batch_size: sequences per step, over all processes together; 256 in the paper.
        optimizer: ``adamw``; ``bert_adam``, google-research/bert's own, without bias correction; ``lamb`` for large
            batches (You et al. 2019); ``muon`` for the blocks' matrices, ``adamw`` for other weights (Liu et al. 2025).
        learning_rate: peak learning rate; 1e-4 in the paper.
        muon_learning_rate: peak learning rate of the matrices that ``muon`` updates; null means ``learning_rate``.
        warmup_steps: steps of linear warm-up; 10,000 in the paper. The decay begins after it, as in transformers; in
            google-research/bert it begins at step 0, so that rates are lower by the fraction of steps in warm-up.
            Warm-up and ``decay_steps`` together are at most the steps of all phases.
        decay_steps: steps at the end in which the rate falls linearly to zero; it is constant before
            (warmup-stable-decay, Hu et al. 2024). Null: all steps after the warm-up, as in the paper.
        betas: decay rates of the optimizer's two moments; 0.9 and 0.999 in the paper.
        max_grad_norm: gradients are clipped to this global norm; 1.0 in google-research/bert, null for no clipping.
        adam_epsilon: added to the root of the second moment; 1e-6 in google-research/bert (optimization.py).
        weight_decay: 0.01 in the paper, not applied to biases and LayerNorm.
        muon_weight_decay: for the matrices that ``muon`` updates; 0.1 in Liu et al. 2025. Null means ``weight_decay``.
        eval_steps: steps between validations within a phase; null validates only at its end.
        keep_checkpoint_steps: steps, counted over all phases, after which the model and the optimizer's moments are
            kept under ``steps/`` next to the phase's final model (paper, figure 5).
        teacher: folder of the pretrained model that ``distilbert`` and ``tinybert`` learn from; it must have the
            study's vocabulary. ``catalogue/no-teacher``: no teacher.
        init_from: model that the first phase starts from: a folder in Hugging Face's layout or as Google publishes it,
            ``hub:OWNER/NAME@REVISION`` of Hugging Face's hub, or the path of an entry of ``catalogue/models``. Its
            sizes are used; of the section ``model`` only dropout and the architecture, which must be the model's, are
            read. ``catalogue/no-model``: random weights.
        log_points: number of rows in the loss curves of all phases together; a row is the mean of equally many steps.
        later_phases: further phases, which ``steps`` and ``examples.max_seq_length`` name too. Optional: none.
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
            raise ValueError(f"no objective is called {objective!r}; there are {', '.join(names)}")
        return objective

    @field_validator("keep_checkpoint_steps")
    @classmethod
    def _kept_steps_are_taken(cls, steps: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        # Without ``steps`` in it, the steps were invalid.
        if "steps" in info.data:
            total = info.data["steps"].total
            for step in steps:
                if not 1 <= step <= total:
                    raise ValueError(f"there is no step {step} among the {total} of all phases; allowed: 1 to {total}")
        return steps


class ObjectiveParams(Section):
    pass


class ElectraParams(ObjectiveParams):
    """ELECTRA (Clark et al. 2020): a generator replaces masked tokens, a discriminator detects the replaced ones.

    Attributes:
        generator_width: the generator's width / the discriminator's width; 1/4 for small, 1/3 for base (section 3.2).
        generator_depth: the same for their numbers of layers; 1 in the paper, 0.5 in DeBERTa-v3.
        disc_weight: weight of the discriminator's loss, while the generator's is 1; 50 in the paper (section 3.1).
        embeddings: ``shared`` by both models (section 3.2), ``separate``, or ``disentangled``: the discriminator adds
            its own to the generator's, which only the generator's loss trains (DeBERTa-v3, He et al. 2023, 3.2).
        disc_loss_on: tokens in the discriminator's loss: ``all``, or only those that the generator has ``predicted``
            ("ELECTRA 15%", section 3.4).
        disc_target: what the discriminator predicts: ``rtd``, which tokens were replaced, or ``mlm``, the original
            tokens (section 3.4: "Replace MLM" if disc_loss_on is ``predicted``, "All-Tokens MLM" if it is ``all``).
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
            raise ValueError("disc_target: mlm decodes with the full table; set embeddings to shared or separate")
        return self


class DistilBertParams(ObjectiveParams):
    """DistilBERT (Sanh et al. 2019): a student of ``pretrain.teacher``.

    Attributes:
        alpha_ce: weight of the loss on the teacher's logits; 5 in DistilBERT's own command.
        alpha_mlm: weight of the MLM loss; 2 in that command.
        alpha_cos: weight of the cosine loss on the last hidden states; 1 in that command.
        temperature: both models' logits are divided by it.
        loss_on: tokens of the loss on the logits: ``all``, or those chosen for prediction (``predicted``), a fraction
            of the work. The cosine loss reads all tokens.
        init: initial weights: the embeddings, head and evenly spaced layers of the ``teacher``, or ``random`` ones.
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
