"""Parameters and arithmetic of a study's model, from its sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.models.flops import Workload, training_flops
from pipeline_src.params.study import Study

FORWARD = 1 / 3  # of a training step's arithmetic


@dataclass(frozen=True)
class ModelSizes:
    """The sizes that :func:`training_flops` asks for, and positions."""

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    vocab_size: int
    positions: int

    @property
    def embedding_width(self) -> int:
        """As wide as the encoder: planning knows BERT's shape alone."""
        return self.hidden_size

    @classmethod
    def of(cls, study: Study) -> ModelSizes:
        """Of a study's own model, even where it fine-tunes another."""
        model = study.model
        inner = model.feed_forward or 4 * model.hidden
        return cls(model.hidden, model.layers, inner, study.vocabulary.entries, model.positions)

    def of_a_job(self) -> dict[str, int]:
        """As :class:`pipeline_src.tools.planning.job_estimate.JobEstimate` names them."""
        return {
            "width": self.hidden_size,
            "inner": self.intermediate_size,
            "layers": self.num_hidden_layers,
            "entries": self.vocab_size,
        }

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

    def flops(self, tokens: float, length: float, predictions: float = 0.0, rows: float | None = None) -> float:
        """Of training on sequences of ``length``, by :func:`training_flops`; ``rows`` in use are all unless given."""
        rows = tokens if rows is None else rows
        counts = (tokens / length, tokens, tokens * length, predictions, rows, rows * length)
        return training_flops(self, Workload(*(round(count) for count in counts)))
