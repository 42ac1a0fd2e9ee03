"""Formulas for the floating-point operations (FLOPs) of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline_src.model.bert import BertConfig


class Workload(NamedTuple):
    """Counts, summed over sequences, that determine the FLOPs of training."""

    sequences: int = 0
    # Padding does not count.
    tokens: int = 0
    sum_len_squared: int = 0
    predictions: int = 0
    # Query rows of the last block.
    num_outputs: int = 0
    # Over the sequences, the sum of (query rows) x (tokens).
    attended_pairs: int = 0

    def __add__(self, other: Workload) -> Workload:  # type: ignore[override]
        return Workload(*(left + right for left, right in zip(self, other, strict=True)))

    def __sub__(self, other: Workload) -> Workload:
        return Workload(*(left - right for left, right in zip(self, other, strict=True)))


def training_flops(sizes: BertConfig, work: Workload) -> int:
    """Return the FLOPs of training's matrix products.

    The backward pass has twice as many as the forward pass.

    With hidden size H, embedding size E, L layers, intermediate size F and vocabulary size V::

        projection 6 E H                      per token, if E is not H
        encoder    6 (L - 1) (4 H^2 + 2 H F)  per token, which is 6 * 12 (L - 1) H^2 with F = 4 H
        attention  12 (L - 1) H s             per token of a sequence of length s: 12 (L - 1) H s^2 per sequence
        last block 6 * 2 H^2                  per token: keys and values
                   6 (2 H^2 + 2 H F) + 12 H s per query row: query, output, feed-forward and attention
        head       6 (H E + E V)              per predicted token

    A multiply-add is two operations. Padding does not count. Recomputation by activation checkpointing does not count,
    so the ratio to the hardware's peak is model FLOPs utilisation (Chowdhery et al. 2022, appendix B); as there, the
    masked half of causal attention counts. Not counted are element-wise operations, embeddings, the optimizer, and the
    pooler with the pair head (6 (H^2 + 2 H) per sequence, less than 1 % for sequences of 64 tokens and two layers).
    """
    blocks = (sizes.num_hidden_layers - 1) * block_flops(sizes, work.tokens, work.sum_len_squared)
    last = block_flops(sizes, work.num_outputs, work.attended_pairs, key_tokens=work.tokens)
    is_projected = sizes.embedding_width != sizes.hidden_size
    projection = 6 * sizes.embedding_width * sizes.hidden_size * work.tokens if is_projected else 0
    return projection + blocks + last + head_flops(sizes, work.predictions)


def block_flops(
    sizes: BertConfig, queries: int, pairs: int, matrices: int = 2, products: int = 2, key_tokens: int | None = None
) -> int:
    """Return the FLOPs of one block.

    Args:
        queries: number of tokens whose output is computed.
        pairs: number of (query, visible token) pairs.
        matrices: number of H x F matrices in the feed-forward layer.
        products: dot products of width H per pair, all heads together: one for the logit and one for the value.
        key_tokens: number of tokens whose key and value are computed; None: as ``queries``.
    """
    hidden = sizes.hidden_size
    keys = queries if key_tokens is None else key_tokens
    per_query = 2 * hidden**2 + matrices * hidden * sizes.intermediate_size
    return 6 * (2 * hidden**2 * keys + per_query * queries) + 6 * products * hidden * pairs


def head_flops(sizes: BertConfig, predictions: int) -> int:
    return 6 * sizes.embedding_width * (sizes.hidden_size + sizes.vocab_size) * predictions
