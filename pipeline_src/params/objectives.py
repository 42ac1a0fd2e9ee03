"""params.yaml, block ``objectives``: what the ways of learning take beside ``pretrain``, a block each.

A stage of pretraining depends on the block of its own objective alone, so that no other one makes it stale.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline_src.params.base import Block


class NoParams(Block):
    """An objective that takes nothing beside."""


class ReplacedParams(Block):
    """ELECTRA (Clark et al. 2020): a generator replaces masked words, a discriminator tells which were replaced.

    Attributes:
        generator: width of the generator as a share of the discriminator's; 1/4 for small, 1/3 for base (section 3.2).
        generator_layers: its layers, likewise; 1 in the paper, 0.5 in DeBERTa-v3.
        weight: of the discriminator's loss beside the generator's; 50 in the paper (section 3.1).
        embeddings: ``shared`` by both (section 3.2), ``separate``, or ``disentangled``: the discriminator reads the
            generator's without training them, and adds a table of its own (DeBERTa-v3, He et al. 2023, section 3.2).
        loss_on: the model is asked about ``all`` tokens, or the ``predicted`` ones alone ("ELECTRA 15%", section 3.4).
        learns: which tokens were ``replaced``, or which ``words`` stood there: of the predicted tokens "Replace MLM",
            of all "All-Tokens MLM" (section 3.4).
    """

    generator: float = Field(default=0.25, gt=0, le=1)
    generator_layers: float = Field(default=1.0, gt=0, le=1)
    weight: float = Field(default=50.0, gt=0, le=1e6)
    embeddings: Literal["shared", "separate", "disentangled"] = "shared"
    loss_on: Literal["all", "predicted"] = "all"
    learns: Literal["replaced", "words"] = "replaced"

    @model_validator(mode="after")
    def _words_have_a_whole_table(self) -> ReplacedParams:
        if self.learns == "words" and self.embeddings == "disentangled":
            raise ValueError(
                "learns: words takes no disentangled embeddings, since its decoder is the whole table; "
                "set embeddings to shared or separate"
            )
        return self


class DistilledParams(Block):
    """DistilBERT (Sanh et al. 2019): a student of ``pretrain.teacher``.

    Attributes:
        scores: weight of what is learnt of the teacher's scores over the vocabulary; this and the next two are 5, 2 and
            1 in DistilBERT's own command.
        masked: of masked words.
        cosine: of the direction of the last hidden states.
        temperature: by which both models' scores are divided.
        tokens: whose scores and states are learnt: ``all``, or the ``predicted`` ones, at a fraction of the work.
        start: from the ``teacher``'s embeddings, head and evenly spread layers, or from ``random`` weights.
    """

    scores: float = Field(default=5.0, ge=0, le=1e6)
    masked: float = Field(default=2.0, ge=0, le=1e6)
    cosine: float = Field(default=1.0, ge=0, le=1e6)
    temperature: float = Field(default=2.0, gt=0, le=1000)
    tokens: Literal["all", "predicted"] = "all"
    start: Literal["teacher", "random"] = "teacher"

    @model_validator(mode="after")
    def _something_is_learnt(self) -> DistilledParams:
        if not self.scores + self.masked + self.cosine:
            raise ValueError("scores, masked and cosine are all 0; set one of them above")
        return self


class ObjectivesParams(Block):
    """Each attribute is named as its file in ``pipeline_src/objectives``."""

    masked: NoParams = NoParams()
    left_to_right: NoParams = NoParams()
    both_directions: NoParams = NoParams()
    replaced: ReplacedParams = ReplacedParams()
    distilled: DistilledParams = DistilledParams()
    layers: NoParams = NoParams()

    def of(self, objective: str) -> Block:
        """The block of one objective; an empty one where it has none here."""
        own: Block = getattr(self, objective, NoParams())
        return own


USUAL = ObjectivesParams()
