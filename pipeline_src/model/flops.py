"""Formulas for the number of floating-point operations (FLOPs) in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline_src.model.bert import BertConfig


class Workload(NamedTuple):
    """Counts of a batch or a training that determine its FLOPs."""

    sequences: int = 0
    # Without padding.
    tokens: int = 0
    # The sum of each sequence's squared length.
    sum_len_squared: int = 0
    predictions: int = 0
    # The number of query rows in the last block.
    num_outputs: int = 0
    # The sum of each sequence's (query rows) x (tokens) in the last block.
    attended_pairs: int = 0

    def __add__(self, other: Workload) -> Workload:  # type: ignore[override]
        return Workload(*(left + right for left, right in zip(self, other, strict=True)))

    def __sub__(self, other: Workload) -> Workload:
        return Workload(*(left - right for left, right in zip(self, other, strict=True)))


def training_flops(sizes: BertConfig, work: Workload) -> int:
    """Return the FLOPs of the matrix products in training.

    They include the backward pass, which has twice as many FLOPs as the forward pass.

    With hidden size H, embedding size E, L layers, intermediate size F and vocabulary size V::

        projection 6 E H                      per token, if E is not H
        encoder    6 (L - 1) (4 H^2 + 2 H F)  per token, which is 6 * 12 (L - 1) H^2 with F = 4 H
        attention  12 (L - 1) H s             per token of a sequence of length s: 12 (L - 1) H s^2 per sequence
        last block 6 * 2 H^2                  per token: keys and values
                   6 (2 H^2 + 2 H F) + 12 H s per query row: query, output, feed-forward and attention
        head       6 (H E + E V)              per predicted token

    A multiply-add is two operations. As in Chowdhery et al. 2022, appendix B, the masked half of causal attention is
    counted, and recomputation by activation checkpointing is not. The ratio of these FLOPs to the hardware's peak is
    therefore the model FLOPs utilisation (MFU).

    Padding, element-wise operations, embeddings and the optimizer are not counted. The pooler and the pair head are not
    counted either: they have 6 (H^2 + 2 H) FLOPs per sequence, less than 1 % for 64 tokens and two layers.
    """
    blocks = (sizes.num_hidden_layers - 1) * block_flops(sizes, work.tokens, work.sum_len_squared)
    last = block_flops(sizes, work.num_outputs, work.attended_pairs, key_tokens=work.tokens)
    is_projected = sizes.embedding_width != sizes.hidden_size
    projection = 6 * sizes.embedding_width * sizes.hidden_size * work.tokens if is_projected else 0
    return projection + blocks + last + head_flops(sizes, work.predictions)


def block_flops(
    sizes: BertConfig, queries: int, pairs: int, matrices: int = 2, products: int = 2, key_tokens: int | None = None
) -> int:
    """Return the FLOPs of one block, forward and backward.

    Args:
        queries: number of tokens whose output is computed.
        pairs: number of (query, visible token) pairs.
        matrices: number of H x F matrices in the feed-forward layer.
        products: number of dot products of width H per pair. BERT has two, one for the logit and one for the value.
        key_tokens: number of tokens whose key and value are computed. None: the same as ``queries``.
    """
    hidden = sizes.hidden_size
    keys = queries if key_tokens is None else key_tokens
    per_query = 2 * hidden**2 + matrices * hidden * sizes.intermediate_size
    return 6 * (2 * hidden**2 * keys + per_query * queries) + 6 * products * hidden * pairs


def head_flops(sizes: BertConfig, predictions: int) -> int:
    return 6 * sizes.embedding_width * (sizes.hidden_size + sizes.vocab_size) * predictions
