"""Disentangled attention over flat sequences: contents and relative positions have scores of their own (DeBERTa).

He et al. 2021, section 3.1. A table has a row for every relative position, or for every bucket of them.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.models.attention import MOST_WEIGHTS, weights_of
from pipeline_src.models.dropout import dropout as drop
from pipeline_src.models.packed_layout import PackedLayout

KINDS = 3  # of scores: content to content, content to position, position to content


def log_buckets(distances: Tensor, buckets: int, reach: int) -> Tensor:
    """Signed distances as buckets, exact up to half of them and wider and wider beyond (DeBERTa's da_utils.py).

    Args:
        distances: int64, of any shape.
        buckets: to each side; there are twice as many rows.
        reach: the distance at which the last bucket ends.
    """
    middle = buckets // 2
    far = distances.abs().clamp(min=middle).float()
    steps = torch.ceil((far / middle).log() / torch.log(torch.tensor((reach - 1) / middle)) * (middle - 1)) + middle
    return torch.where(distances.abs() <= middle, distances, steps.long() * distances.sign())


def rows_of(distances: Tensor, half: int, reach: int | None) -> Tensor:
    """Row of the table for each distance from key to query, int64.

    Args:
        distances: int64, of any shape.
        half: of the table's rows.
        reach: see :func:`log_buckets`; None where each distance has a row.
    """
    rows = distances if reach is None else log_buckets(distances, half, reach)
    return (rows + half).clamp(0, 2 * half - 1)


@lru_cache(maxsize=1024)
def relative_rows(length: int, half: int, reach: int | None) -> Tensor:
    """As :func:`rows_of`, for two tokens of a sequence of ``length``: of 1 - length to length - 1."""
    return rows_of(torch.arange(1 - length, length), half, reach)


def rows_in_use(length: int, half: int, reach: int | None) -> slice:
    """The table's rows that sequences of up to ``length`` read, and at most one beyond on each side.

    No tensor is asked, for which a GPU's host would wait.
    """
    far, middle = length - 1, half // 2
    if reach is not None and far > middle:
        # one more than :func:`log_buckets`, which rounds otherwise
        far = middle + 1 + math.ceil(math.log(far / middle) / math.log((reach - 1) / middle) * (middle - 1))
    return slice(max(0, half - far), min(2 * half, half + far + 1))


def disentangled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rows: Tensor,
    key_rows: Tensor,
    layout: PackedLayout,
    half: int,
    reach: int | None,
    dropout: float,
    queries: PackedLayout,
    places: Tensor,
) -> Tensor:
    """Attention whose score is the sum of three products, over the root of three times the head size.

    Query and key by their contents, the query's content and the key's place, the key's content and the query's place,
    where a place is the row of the distance from key to query. The last one reads the same row as the second, along
    the other axis, as DeBERTa's code does and equation 4 of the paper does not.

    Args:
        query: [R, heads, head size].
        key, value: [T, heads, head size].
        query_rows, key_rows: what the rows in use (:func:`rows_in_use` of the longest sequence) are as queries and
            keys, [rows, heads, head size].
        layout: where the sequences lie.
        half, reach: of the table, see :func:`relative_rows`.
        dropout: on the attention weights; above 0 in training alone.
        queries: where the queries of each sequence lie.
        places: of the queries, each in its sequence, int64 [R].

    Returns:
        [R, heads, head size].
    """
    scale = (KINDS * query.shape[2]) ** -0.5
    query, query_rows = query * scale, (query_rows * scale).transpose(0, 1)
    key_rows = key_rows.permute(1, 2, 0)
    way = in_rectangles if query.is_cuda else in_runs
    return way(query, key, value, query_rows, key_rows, layout, half, reach, dropout, queries, places)


def in_rectangles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rows: Tensor,
    key_rows: Tensor,
    layout: PackedLayout,
    half: int,
    reach: int | None,
    dropout: float,
    queries: PackedLayout,
    places: Tensor,
) -> Tensor:
    """Through [B, heads, L, L] rectangles, padding and all: few kernels, and nothing for which a GPU's host waits.

    Arguments as :func:`disentangled_attention` has them, but for ``query``, scaled; ``query_rows`` [heads, rows, head
    size], scaled; ``key_rows`` [heads, head size, rows].
    """
    longest = layout.max_seqlen
    asking = torch.arange(longest, device=places.device)[None] if queries is layout else queries.pad(places)
    distances = asking[:, None, :, None] - torch.arange(longest, device=places.device)
    rows = rows_of(distances, half, reach) - rows_in_use(longest, half, reach).start
    q, k, v = (where.pad(flat).transpose(1, 2) for where, flat in ((queries, query), (layout, key), (layout, value)))
    rows = rows.expand(*q.shape[:3], longest)
    scores = q @ k.transpose(2, 3)
    scores = scores + (q @ key_rows).gather(3, rows)
    scores = scores + (query_rows @ k.transpose(2, 3)).gather(2, rows)
    if layout.keep is not None:
        scores = scores.masked_fill(~layout.keep[:, None, None], -torch.inf)
    weights = F.softmax(scores.float(), -1).to(v.dtype)
    context = (drop(weights, dropout) if dropout else weights) @ v
    return queries.unpad(context.transpose(1, 2))


def in_runs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rows: Tensor,
    key_rows: Tensor,
    layout: PackedLayout,
    half: int,
    reach: int | None,
    dropout: float,
    queries: PackedLayout,
    places: Tensor,
) -> Tensor:
    """Runs of sequences of equal length, one after another, as a CPU likes it; arguments as :func:`in_rectangles`."""
    _, heads, size = query.shape
    first = rows_in_use(layout.max_seqlen, half, reach).start
    equal = layout.runs(queries, MOST_WEIGHTS // heads)
    asked_of, tokens_of = ([run[0] * run[part] for run in equal] for part in (1, 2))
    split = (query.split(asked_of), key.split(tokens_of), value.split(tokens_of), places.split(asked_of))
    contexts = []
    for (count, asked, length), q, k, v, place in zip(equal, *split, strict=True):
        q, k, v = (part.view(count, -1, heads, size).transpose(1, 2) for part in (q, k, v))
        used = rows_in_use(length, half, reach)
        own = slice(used.start - first, used.stop - first)
        if asked == length:
            rows = _all_rows(length, half, reach)[None, None]
        else:
            distances = place.view(count, 1, asked, 1) - torch.arange(length, device=place.device)
            rows = relative_rows(length, half, reach)[distances + length - 1] - used.start
        rows = rows.expand(count, heads, asked, length)
        scores = _scores(q, k, query_rows[:, own], key_rows[:, :, own], rows)
        weights = F.softmax(scores.float(), -1).to(v.dtype)
        context = (drop(weights, dropout) if dropout else weights) @ v
        contexts.append(context.transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def disentangled_weights(
    query: Tensor,
    key: Tensor,
    query_rows: Tensor,
    key_rows: Tensor,
    layout: PackedLayout,
    half: int,
    reach: int | None,
) -> Tensor:
    """The weights [B, heads, L, L] by which :func:`disentangled_attention` mixes values; arguments as there."""
    scale = (KINDS * query.shape[-1]) ** -0.5
    q, k = (layout.pad(flat).transpose(1, 2) for flat in (query * scale, key))
    rows = _all_rows(layout.max_seqlen, half, reach).to(q.device).expand(*q.shape[:2], -1, -1)
    scores = _scores(q, k, (query_rows * scale).transpose(0, 1), key_rows.permute(1, 2, 0), rows)
    return weights_of(scores.float(), layout)


def _scores(q: Tensor, k: Tensor, query_rows: Tensor, key_rows: Tensor, rows: Tensor) -> Tensor:
    """The three products, [B, heads, queries, L], of rows by head, [heads, rows, size] and [heads, size, rows]."""
    scores = q @ k.transpose(2, 3)
    scores = scores + (q @ key_rows).gather(3, rows)
    return scores + (query_rows @ k.transpose(2, 3)).gather(2, rows)


@lru_cache(maxsize=256)
def _all_rows(length: int, half: int, reach: int | None) -> Tensor:
    """Row of each query and key of a sequence among those that it uses, int64 [length, length]."""
    rows, places = relative_rows(length, half, reach), torch.arange(length)
    return rows[places[:, None] - places + length - 1] - rows_in_use(length, half, reach).start
