"""params.yaml, block ``objectives``: what the ways of learning take beside ``pretrain``, a block each.

A stage of pretraining depends on the block of its own objective alone, so that no other one makes it stale.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline_src.params.base import Block


class NoParams(Block):
    """An objective that takes nothing beside."""


class ReplacedParams(Block):
    """ELECTRA (Clark et al. 2020): a generator replaces masked words, a discriminator tells which were replaced.

    Attributes:
        generator: width of the generator as a share of the discriminator's; 1/4 for small, 1/3 for base (section 3.2).
        generator_layers: its layers, likewise; 1 in the paper, 0.5 in DeBERTa-v3.
        weight: of the discriminator's loss beside the generator's; 50 in the paper (section 3.1).
        embeddings: ``shared`` by both (section 3.2), or ``separate``.
        loss_on: ``all`` tokens are judged, or the ``predicted`` ones alone ("ELECTRA 15%" of section 3.4).
    """

    generator: float = Field(default=0.25, gt=0, le=1)
    generator_layers: float = Field(default=1.0, gt=0, le=1)
    weight: float = Field(default=50.0, gt=0, le=1e6)
    embeddings: Literal["shared", "separate"] = "shared"
    loss_on: Literal["all", "predicted"] = "all"


class ObjectivesParams(Block):
    """Each attribute is named as its file in ``pipeline_src/objectives``."""

    masked: NoParams = NoParams()
    left_to_right: NoParams = NoParams()
    replaced: ReplacedParams = ReplacedParams()

    def of(self, objective: str) -> Block:
        """The block of one objective; an empty one where it has none here."""
        own: Block = getattr(self, objective, NoParams())
        return own


USUAL = ObjectivesParams()
