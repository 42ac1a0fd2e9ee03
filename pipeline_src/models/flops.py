"""The arithmetic of training, by formula."""

from __future__ import annotations

from typing import Protocol


class Sizes(Protocol):
    """What the arithmetic of a Transformer encoder depends on."""

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
