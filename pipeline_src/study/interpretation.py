from __future__ import annotations

from pydantic import Field, field_validator

from pipeline_src.study.schema import Section

# The mask in params.yaml, however the vocabulary spells it.
MASK = "[MASK]"
# Minimal pairs that are not fetched.
MADE_HERE = ("templates",)


class InterpretationParams(Section):
    """The analyses of the model ``finetune.model``; 0 or an empty list leaves an analysis out.

    Attributes:
        tags: tagging tasks of the study whose tags are probed in each layer.
        words: maximum number of words of running text, for analyses of capitals and of how similar a word's vectors
            are.
        sentences: maximum number of sentences of running text over which attention is averaged.
        minimal_pairs: sets of pairs of a correct and a wrong sentence, of which the model should prefer the correct
            one: ``templates`` of this project, or an entry of ``catalogue/task_sources`` (``blimp``).
        pairs_per_set: maximum number of pairs from each file of a downloaded set; null for all, as in published
            figures.
        prompts: texts that the model continues.
        masks: texts with one [MASK], each with a word whose rank at the [MASK] is recorded.
        shown: sentences whose attention the report's page shows; if empty, sentences of the validation set.
    """

    tags: tuple[str, ...] = ("pos", "ner")
    words: int = Field(default=20_000, ge=0, le=1_000_000)
    sentences: int = Field(default=300, ge=0, le=10_000)
    minimal_pairs: tuple[str, ...] = MADE_HERE
    pairs_per_set: int | None = Field(default=30, ge=1)
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
        # The others are made here.
        return [name for name in self.minimal_pairs if name not in MADE_HERE]
