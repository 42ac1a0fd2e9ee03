"""One job's amount of work, and the arithmetic of a model's size that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.models.flops import training_flops
from pipeline_src.params.study import Study

FORWARD = 1 / 3  # of a training step's arithmetic


@dataclass(frozen=True)
class Work:
    """What one job reads, computes and writes.

    Attributes:
        stage: as ``python -m pipeline_src`` calls it.
        item: what the stage's matrix runs over, or ``all``.
        units: what its time grows with, counted in ``unit``; training goes by ``flops``.
        read, written: bytes.
        extra: bytes on disk beside what is written: what was unpacked from, checkpoints on the way.
        tokens: real ones that go through, or are drawn or made.
        flops: of training and predicting.
        slot_flops: the same as if every sequence were full, as papers count it.
        steps, width, layers: of training.
    """

    stage: str
    item: str
    units: float = 0.0
    unit: str = "B"
    read: float = 0.0
    written: float = 0.0
    extra: float = 0.0
    tokens: float = 0.0
    flops: float = 0.0
    slot_flops: float = 0.0
    steps: int = 0
    width: int = 0
    layers: int = 0


@dataclass(frozen=True)
class ModelSizes:
    """The four sizes that :func:`training_flops` asks for, and positions."""

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    vocab_size: int
    positions: int

    @classmethod
    def of(cls, study: Study) -> ModelSizes:
        """Of a study's own model, even where it fine-tunes another."""
        model = study.model
        inner = model.feed_forward or 4 * model.hidden
        return cls(model.hidden, model.layers, inner, study.vocabulary.entries, model.positions)

    @property
    def encoder_parameters(self) -> int:
        """Embeddings, blocks and pooler."""
        h, inner = self.hidden_size, self.intermediate_size
        embeddings = (self.vocab_size + self.positions + 2) * h + 2 * h
        block = 4 * (h * h + h) + 2 * h * inner + inner + h + 4 * h
        return embeddings + self.num_hidden_layers * block + h * h + h

    @property
    def parameters(self) -> int:
        """With both heads of pretraining, the one of words tied to the embeddings."""
        h = self.hidden_size
        return self.encoder_parameters + (h * h + h) + 2 * h + self.vocab_size + 2 * h + 2

    def flops(self, tokens: float, length: float, predictions: float = 0.0) -> float:
        """Of training on sequences of ``length``, by :func:`training_flops`."""
        return training_flops(self, round(tokens), round(tokens * length), round(predictions))
