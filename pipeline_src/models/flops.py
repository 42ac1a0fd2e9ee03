"""The arithmetic of training, by formula."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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

    @property
    def embedding_width(self) -> int: ...  # noqa: D102


class Workload(NamedTuple):
    """What the arithmetic of training depends on, over any number of sequences.

    Attributes:
        sequences: how many.
        tokens: real tokens.
        squares: sum of squared lengths.
        predictions: predicted tokens.
        rows: tokens of which what the last block makes is read.
        row_pairs: sum over sequences of these rows times the length.
    """

    sequences: int = 0
    tokens: int = 0
    squares: int = 0
    predictions: int = 0
    rows: int = 0
    row_pairs: int = 0

    def __add__(self, other: Workload) -> Workload:  # type: ignore[override]
        return Workload(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __sub__(self, other: Workload) -> Workload:
        return Workload(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


def training_flops(sizes: Sizes, work: Workload) -> int:
    """Floating-point operations of the matrix products of training: forward, and twice that backward.

    With width H, embeddings of width E, L layers, feed-forward width F and V entries::

        projection 6 E H                      per token, where E is not H
        encoder    6 (L - 1) (4 H^2 + 2 H F)  per token, which is 6 * 12 (L - 1) H^2 with F = 4 H
        attention  12 (L - 1) H s             per token of a sequence of s, so 12 (L - 1) H * (sum of squared lengths)
        last block 6 * 2 H^2                  per token: keys and values
                   6 (2 H^2 + 2 H F) + 12 H s per row in use: query, output, feed-forward and attention
        head       6 (H E + E V)              per predicted token

    A multiplication and an addition are two operations. Real tokens alone count, whatever is padded on the way, and
    predicted tokens alone at the head, whatever logits are computed beside. Where every row of the last block is read,
    it counts as the others do. Computing activations again is not credited, so that a ratio to the hardware's peak is
    model FLOPs utilisation, not hardware's (Chowdhery et al. 2022, appendix B); as there, left-to-right attention
    counts in full, its masked half too. Left out are element-wise work, embeddings, the optimiser, and the pooler with
    its next-sentence scores (6 (H^2 + 2 H) per sequence: less than a hundredth of the whole for sequences of 64 tokens
    and two layers). An encoder of other blocks adds up the same parts with its own.
    """
    blocks = (sizes.num_hidden_layers - 1) * block_flops(sizes, work.tokens, work.squares)
    last = block_flops(sizes, work.rows, work.row_pairs, asked_of=work.tokens)
    return projection_flops(sizes, work.tokens) + blocks + last + head_flops(sizes, work.predictions)


def block_flops(
    sizes: Sizes, rows: int, pairs: int, matrices: int = 2, products: int = 2, asked_of: int | None = None
) -> int:
    """Of one block over some rows.

    Args:
        sizes: of the encoder.
        rows: tokens of which it computes the output.
        pairs: of such a token and one that it sees.
        matrices: of the feed-forward layer, each H x F.
        products: of vectors of width H for a pair, over all heads: score and value.
        asked_of: tokens that have a key and a value; None where all rows have, and no others.
    """
    hidden, keys = sizes.hidden_size, rows if asked_of is None else asked_of
    ours = 2 * hidden**2 + matrices * hidden * sizes.intermediate_size
    return 6 * (2 * hidden**2 * keys + ours * rows) + 6 * products * hidden * pairs


def projection_flops(sizes: Sizes, tokens: int) -> int:
    """Of making embeddings as wide as the encoder."""
    return 0 if sizes.embedding_width == sizes.hidden_size else 6 * sizes.embedding_width * sizes.hidden_size * tokens


def head_flops(sizes: Sizes, predictions: int) -> int:
    """Of the head of masked words."""
    return 6 * sizes.embedding_width * (sizes.hidden_size + sizes.vocab_size) * predictions
