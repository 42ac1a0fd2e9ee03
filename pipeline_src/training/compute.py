"""What training takes: arithmetic by formula, counted from the batches themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol


class Sizes(Protocol):
    """What the arithmetic depends on; :class:`pipeline_src.models.bert.BertConfig` has it."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def num_hidden_layers(self) -> int: ...  # noqa: D102

    @property
    def intermediate_size(self) -> int: ...  # noqa: D102

    @property
    def vocab_size(self) -> int: ...  # noqa: D102


def training_flops(sizes: Sizes, tokens: int, squares: int, predictions: int) -> int:
    """Floating-point operations of the matrix products of training: forward, and twice that backward.

    With width H, L layers, feed-forward width F and V entries::

        encoder    6 L (4 H^2 + 2 H F)   per token, which is 6 * 12 L H^2 with F = 4 H
        attention  12 L H s              per token of a sequence of s, so 12 L H * (sum of squared lengths) in all
        head       6 (H^2 + H V)         per predicted token

    A multiplication and an addition are two operations. Real tokens alone count, whatever is padded on the way, and
    predicted tokens alone at the head, whatever logits are computed beside. Computing activations again is not
    credited, so that a ratio to the hardware's peak is model FLOPs utilisation, not hardware's (Chowdhery et al. 2022,
    appendix B); as there, left-to-right attention counts in full, its masked half too. Left out are element-wise work,
    embeddings, the optimiser, and the pooler with its next-sentence scores (6 (H^2 + 2 H) per sequence: less than a
    thousandth of the whole for sequences of 64 tokens and two layers).

    Args:
        sizes: of the encoder.
        tokens: real tokens, over all sequences.
        squares: sum over sequences of the squared number of tokens.
        predictions: predicted tokens.
    """
    hidden, layers = sizes.hidden_size, sizes.num_hidden_layers
    encoder = 6 * layers * (4 * hidden**2 + 2 * hidden * sizes.intermediate_size) * tokens
    attention = 12 * layers * hidden * squares
    head = 6 * (hidden**2 + hidden * sizes.vocab_size) * predictions
    return encoder + attention + head


def normalised_computation(parameters: float, steps: int, tokens_per_batch: int) -> float:
    """Parameters x steps x tokens per batch: a measure of training that no hardware enters.

    Published for BERT are 1.408e19 (base: 110 M parameters) and 4.352e19 (large: 340 M), from 1 M steps and the
    "128,000 tokens/batch" of appendix A.2: every step counts at length 512, the 900,000 at length 128 too.

    Args:
        parameters: of the model.
        steps: of the optimiser.
        tokens_per_batch: token slots of a batch, sequences x longest length.
    """
    return parameters * steps * tokens_per_batch


@dataclass(frozen=True)
class Compute:
    """What a phase has taken so far. The first five depend on parameters and data alone, the others on the machine.

    Attributes:
        steps: optimiser steps.
        sequences: training sequences.
        tokens: real tokens.
        squares: sum of squared sequence lengths.
        predictions: predicted tokens.
        seconds: wall time in the loop, over all sessions of a run that was stopped and went on.
        training_seconds: of these, without measuring validation text and saving.
        capacity: what the hardware at its peak would have computed in ``training_seconds``, in FLOPs.
        joules: energy, where it could be read in every session, else None.
        peak_memory: bytes.
    """

    steps: int = 0
    sequences: int = 0
    tokens: int = 0
    squares: int = 0
    predictions: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0
    capacity: float = 0.0
    joules: float | None = 0.0
    peak_memory: int = 0

    def plus_step(self, *, sequences: int, tokens: int, squares: int, predictions: int) -> Compute:
        """With one more step; the counts are as those of this class."""
        return replace(
            self,
            steps=self.steps + 1,
            sequences=self.sequences + sequences,
            tokens=self.tokens + tokens,
            squares=self.squares + squares,
            predictions=self.predictions + predictions,
        )

    def flops(self, sizes: Sizes) -> int:
        """By :func:`training_flops`."""
        return training_flops(sizes, self.tokens, self.squares, self.predictions)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Compute:
        """What :meth:`as_dict` wrote."""
        return cls(**values)
