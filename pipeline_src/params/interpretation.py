"""params.yaml, block ``interpretation``: how the pretrained model is looked into."""

from __future__ import annotations

from pydantic import Field, field_validator

from pipeline_src.params.base import Block

MASK = "[MASK]"  # as people write it, whatever the vocabulary's own
MADE_HERE = ("templates", "treebank")  # sets of minimal pairs that nothing is fetched for


class InterpretationParams(Block):
    """What is measured of the model that ``finetune.model`` names; 0 or an empty list leaves a measure out.

    Attributes:
        tags: tagging tasks of the study whose tags are read off each layer.
        words: of running text, at most, in which capitals and the likeness of a word's vectors are looked at.
        sentences: of running text, at most, over which attention is averaged.
        minimal_pairs: sets of two sentences of which the right one should be the likelier: ``templates`` of this
            project, the ``treebank`` of a task, or an entry of ``catalogue/task_sources`` that is fetched (``blimp``).
        prompts: texts that the model is asked to go on writing.
        masks: texts with one [MASK], each with the word looked for there; which rank it has is written down.
        shown: sentences whose attention the page shows; of the validation text, chosen by rule, where there are none.
    """

    tags: tuple[str, ...] = ("pos", "ner")
    words: int = Field(default=20_000, ge=0, le=1_000_000)
    sentences: int = Field(default=300, ge=0, le=10_000)
    minimal_pairs: tuple[str, ...] = MADE_HERE
    prompts: tuple[str, ...] = ("Today, I went to",)
    masks: tuple[tuple[str, str], ...] = ()
    shown: tuple[str, ...] = ("He is running a company.", "He is running a marathon.")

    @field_validator("masks")
    @classmethod
    def _one_mask_each(cls, masks: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        for text, _ in masks:
            if text.count(MASK) != 1:
                raise ValueError(f"{text!r} has {text.count(MASK)} times {MASK}, not once")
        return masks

    @property
    def pair_sets(self) -> list[str]:
        """Sets of minimal pairs that are fetched."""
        return [name for name in self.minimal_pairs if name not in MADE_HERE]
