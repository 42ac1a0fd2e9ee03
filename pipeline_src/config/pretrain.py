"""params.yaml: ``pretrain``, and ``objectives`` with one section for each objective.

A stage of pretraining depends only on its own objective's section, so that no other makes it stale.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pipeline_src.common.registry import member_names
from pipeline_src.config.schema import NO_MODEL, NO_TEACHER, Section

Optimizer = Literal["adamw", "bert_adam", "lamb", "muon"]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Masking(Section):
    """Replacement of the tokens chosen for prediction (paper, section 3.1): 80 % [MASK], 10 % random, 10 % unchanged.

    ``max_predictions`` caps the predictions of one example; null means no cap. ``unit`` is masked together: a
    ``token``, a ``whole_word`` (google-research/bert's second release), or an ``ngram`` of one to three words
    (ALBERT, Lan et al. 2020, section 4.1). With ``mask_special_tokens`` [CLS] and [SEP] may be chosen too (fairseq's
    RoBERTa). ``dynamic`` samples new masks in every epoch (RoBERTa, Liu et al. 2019, section 4.1); without it an
    example keeps its masks, and ``examples.dupe_factor`` gives several of each.
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


class Steps(Section):
    """Optimizer steps of each phase; 900,000 and 100,000 in the paper (appendix A.2).

    A phase of 0 steps passes its initial model on.
    """

    phase1: int = Field(ge=0, le=1_000_000_000)
    phase2: int = Field(ge=0, le=1_000_000_000)

    @model_validator(mode="after")
    def _something_is_learnt(self) -> Steps:
        if not self.phase1 + self.phase2:
            raise ValueError("one of the two phases needs steps; set phase1 or phase2 to 1 or more")
        return self


class PretrainParams(Section):
    """Pretraining (paper, appendix A.2).

    Attributes:
        steps: optimizer steps of each phase; one warm-up and one linear decay run over both.
        objective: name of a file in ``pipeline_src/objectives``, such as ``mlm`` (the paper's) or ``clm``: the next
            token from those before it, the baseline of the paper's table 5, without NSP and masks.
        train_batch_size: sequences per step, over all processes together; 256 in the paper.
        optimizer: ``adamw``; ``bert_adam``, google-research/bert's own, without bias correction; ``lamb`` for large
            batches (You et al. 2019); ``muon`` for the blocks' matrices, with ``adamw`` for all else (Liu et al. 2025).
        learning_rate: peak; 1e-4 in the paper.
        muon_learning_rate: peak for the matrices that ``muon`` updates; null means ``learning_rate``.
        warmup_steps: steps of linear warm-up; 10,000 in the paper. The decay begins after it, as in transformers;
            google-research/bert's begins at step 0 and so is lower by the fraction of steps in warm-up.
        decay_steps: steps at the end in which the rate falls linearly to zero, constant before (warmup-stable-decay, Hu
            et al. 2024); null for all steps after the warm-up, as in the paper.
        betas: decay rates of the optimizer's two moments; 0.9 and 0.999 in the paper.
        max_grad_norm: gradients are clipped to this global norm; 1.0 in google-research/bert (optimization.py). Null
            clips none.
        adam_epsilon: added to the root of the second moment; 1e-6 in google-research/bert (optimization.py).
        weight_decay: 0.01 in the paper, not applied to biases and LayerNorm.
        muon_weight_decay: of the matrices that ``muon`` updates; 0.1 in Liu et al. 2025. Null means ``weight_decay``.
        eval_steps: steps between validations within a phase; null validates only at its end.
        keep_checkpoint_steps: steps, counted over both phases, whose models and moments are kept under ``steps/``
            next to the phase's final model (paper, figure 5).
        teacher: folder of the pretrained model that ``distilbert`` and ``tinybert`` learn from, of the study's
            vocabulary; ``catalogue/no-teacher`` for no teacher.
        init_from: model that the first phase goes on from: a folder in Hugging Face's layout or as Google publishes it,
            or the path of an entry of ``catalogue/models``. The sizes are then its own: of ``model`` only dropout and
            the architecture, which must be the same, are read. ``catalogue/no-model``: random weights.
        log_points: rows in the loss curves of both phases together; each is the mean of equally many steps.
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

    @property
    def continued(self) -> bool:
        """Whether the first phase starts from a pretrained model."""
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
        if "steps" in info.data:  # valid
            total = info.data["steps"].phase1 + info.data["steps"].phase2
            for step in steps:
                if not 1 <= step <= total:
                    raise ValueError(f"there is no step {step} among the {total} of both phases; allowed: 1 to {total}")
        return steps


class ObjectiveParams(Section):
    """The parameters of an objective; by default none."""


class ElectraParams(ObjectiveParams):
    """ELECTRA (Clark et al. 2020): a generator replaces masked tokens, a discriminator detects the replaced ones.

    Attributes:
        generator_width: width of the generator as a fraction of the discriminator's; 1/4 for small, 1/3 for base
            (section 3.2).
        generator_depth: number of its layers, as a fraction of the discriminator's; 1 in the paper, 0.5 in DeBERTa-v3.
        disc_weight: weight of the discriminator's loss; the generator's is 1; 50 in the paper (section 3.1).
        embeddings: ``shared`` by both (section 3.2), ``separate``, or ``disentangled``: the discriminator uses the
            generator's without training them and adds its own table (DeBERTa-v3, He et al. 2023, section 3.2).
        disc_loss_on: tokens of the discriminator's loss: ``all``, or only the ``predicted`` ones ("ELECTRA 15%",
            section 3.4).
        disc_target: ``rtd``, replaced token detection, or ``mlm``, the original tokens: with ``predicted`` "Replace
            MLM", with ``all`` "All-Tokens MLM" (section 3.4).
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
        alpha_ce: weight of the loss on the teacher's logits; this and the next two are 5, 2 and 1 in DistilBERT's own
            command.
        alpha_mlm: weight of the MLM loss.
        alpha_cos: weight of the cosine loss on the last hidden states.
        temperature: both models' logits are divided by it.
        loss_on: tokens of the loss on the logits: ``all``, or the ``predicted`` ones, at a fraction of the work; the
            cosine loss reads all tokens.
        init: the ``teacher``'s embeddings, head and evenly spaced layers, or ``random`` weights.
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
    """Each attribute is the name of a file in ``pipeline_src/objectives``."""

    mlm: ObjectiveParams = ObjectiveParams()
    clm: ObjectiveParams = ObjectiveParams()
    bilm: ObjectiveParams = ObjectiveParams()
    electra: ElectraParams = ElectraParams()
    distilbert: DistilBertParams = DistilBertParams()
    tinybert: ObjectiveParams = ObjectiveParams()

    def of(self, objective: str) -> ObjectiveParams:
        """Return the section of an objective, empty if it has none."""
        return getattr(self, objective, ObjectiveParams())


DEFAULT_OBJECTIVES = ObjectivesParams()
