"""Floating-point operations of training, by formula."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Sizes(Protocol):
    """Sizes of a Transformer encoder."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def num_hidden_layers(self) -> int: ...  # noqa: D102

    @property
    def intermediate_size(self) -> int: ...  # noqa: D102

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def embedding_width(self) -> int: ...  # noqa: D102


class Workload(NamedTuple):
    """Counts over any number of sequences that determine the FLOPs of training.

    Attributes:
        sequences: number of sequences.
        tokens: tokens without padding.
        sum_len_squared: sum of squared lengths.
        predictions: predicted tokens.
        num_outputs: query rows of the last block.
        attended_pairs: sum over sequences of query rows times length.
    """

    sequences: int = 0
    tokens: int = 0
    sum_len_squared: int = 0
    predictions: int = 0
    num_outputs: int = 0
    attended_pairs: int = 0

    def __add__(self, other: Workload) -> Workload:  # type: ignore[override]
        return Workload(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __sub__(self, other: Workload) -> Workload:
        return Workload(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


def training_flops(sizes: Sizes, work: Workload) -> int:
    """Return the floating-point operations of the matrix products of training: forward, and twice that backward.

    With hidden size H, embedding size E, L layers, intermediate size F and vocabulary size V::

        projection 6 E H                      per token, where E is not H
        encoder    6 (L - 1) (4 H^2 + 2 H F)  per token, which is 6 * 12 (L - 1) H^2 with F = 4 H
        attention  12 (L - 1) H s             per token of a sequence of s, so 12 (L - 1) H * (sum of squared lengths)
        last block 6 * 2 H^2                  per token: keys and values
                   6 (2 H^2 + 2 H F) + 12 H s per query row: query, output, feed-forward and attention
        head       6 (H E + E V)              per predicted token

    A multiply-add is two operations. Padding does not count, and the head counts predicted tokens only. Activation
    checkpointing's recomputation does not count, so the ratio to the hardware's peak is model FLOPs utilisation
    (Chowdhery et al. 2022, appendix B); as there, causal attention counts its masked half too. Not counted are
    element-wise operations, embeddings, the optimizer, and the pooler with the pair head (6 (H^2 + 2 H) per sequence,
    less than 1 % for sequences of 64 tokens and two layers).
    """
    blocks = (sizes.num_hidden_layers - 1) * block_flops(sizes, work.tokens, work.sum_len_squared)
    last = block_flops(sizes, work.num_outputs, work.attended_pairs, key_tokens=work.tokens)
    return projection_flops(sizes, work.tokens) + blocks + last + head_flops(sizes, work.predictions)


def block_flops(
    sizes: Sizes, rows: int, pairs: int, matrices: int = 2, products: int = 2, key_tokens: int | None = None
) -> int:
    """Return the FLOPs of one block.

    Args:
        sizes: the encoder's sizes.
        rows: tokens whose output is computed.
        pairs: pairs of such a token and a token visible to it.
        matrices: number of H x F matrices in the feed-forward layer.
        products: dot products of width H per pair, over all heads: logit and value.
        key_tokens: tokens that have a key and a value; None means ``rows``.
    """
    hidden, keys = sizes.hidden_size, rows if key_tokens is None else key_tokens
    ours = 2 * hidden**2 + matrices * hidden * sizes.intermediate_size
    return 6 * (2 * hidden**2 * keys + ours * rows) + 6 * products * hidden * pairs


def projection_flops(sizes: Sizes, tokens: int) -> int:
    """Return the FLOPs of projecting factorized embeddings to the hidden size."""
    return 0 if sizes.embedding_width == sizes.hidden_size else 6 * sizes.embedding_width * sizes.hidden_size * tokens


def head_flops(sizes: Sizes, predictions: int) -> int:
    """Return the FLOPs of the MLM head."""
    return 6 * sizes.embedding_width * (sizes.hidden_size + sizes.vocab_size) * predictions
