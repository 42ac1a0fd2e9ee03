"""Parameters and arithmetic of a study's model, from its sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.models.flops import Workload, training_flops
from pipeline_src.params.study import Study
from pipeline_src.tools.planning.counted import Counted

FORWARD = 1 / 3  # of a training step's arithmetic


@dataclass(frozen=True)
class ModelSizes:
    """The sizes that :func:`training_flops` asks for, and positions; BERT's formulas hold of them.

    Attributes:
        counted: the model itself, where they do not hold.
    """

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    vocab_size: int
    positions: int
    counted: Counted | None = None

    @property
    def embedding_width(self) -> int:
        """As wide as the encoder: those of other models are counted by themselves."""
        return self.hidden_size

    @classmethod
    def of(cls, study: Study) -> ModelSizes:
        """Of a study's own model, even where it fine-tunes another."""
        model = study.model
        inner = model.feed_forward or 4 * model.hidden
        entries = study.vocabulary.entries
        return cls(model.hidden, model.layers, inner, entries, model.positions, Counted.of(study))

    def of_a_job(self) -> dict[str, int]:
        """As :class:`pipeline_src.tools.planning.job_estimate.JobEstimate` names them."""
        return {
            "width": self.hidden_size,
            "inner": self.intermediate_size,
            "layers": self.num_hidden_layers,
            "entries": self.vocab_size,
            "parameters": self.parameters,
        }

    @property
    def encoder_parameters(self) -> int:
        """Embeddings, blocks and pooler."""
        if self.counted is not None:
            return self.counted.encoder_parameters
        h, inner = self.hidden_size, self.intermediate_size
        embeddings = (self.vocab_size + self.positions + 2) * h + 2 * h
        block = 4 * (h * h + h) + 2 * h * inner + inner + h + 4 * h
        return embeddings + self.num_hidden_layers * block + h * h + h

    @property
    def parameters(self) -> int:
        """All that pretraining trains: with both heads, the one of words tied to the embeddings."""
        if self.counted is not None:
            return self.counted.parameters
        h = self.hidden_size
        return self.encoder_parameters + (h * h + h) + 2 * h + self.vocab_size + 2 * h + 2

    def flops(self, tokens: float, length: float, predictions: float = 0.0, rows: float | None = None) -> float:
        """Of training the encoder on sequences of ``length``; ``rows`` in use are all unless given."""
        sizes = self if self.counted is None else self.counted.objective.config
        return float(sizes.training_flops(_workload(tokens, length, predictions, rows)))

    def pretraining_flops(
        self, tokens: float, length: float, predictions: float = 0.0, rows: float | None = None
    ) -> float:
        """As :meth:`flops`, of every model that pretraining runs."""
        if self.counted is None:
            return self.flops(tokens, length, predictions, rows)
        return self.counted.pretraining_flops(_workload(tokens, length, predictions, rows))

    def training_flops(self, work: Workload) -> int:
        """By BERT's formula."""
        return training_flops(self, work)

    def over_bert(
        self, flops: float, tokens: float, length: float, predictions: float = 0.0, rows: float | None = None
    ) -> float:
        """These FLOPs over those that BERT's formula gives for a model of these sizes; 1 of no work at all."""
        of_bert = self.training_flops(_workload(tokens, length, predictions, rows))
        return flops / of_bert if of_bert else 1.0


def _workload(tokens: float, length: float, predictions: float, rows: float | None) -> Workload:
    rows = tokens if rows is None else rows
    counts = (tokens / length, tokens, tokens * length, predictions, rows, rows * length)
    return Workload(*(round(count) for count in counts))
