"""Disentangled attention over flat sequences: contents and relative positions have scores of their own (DeBERTa).

He et al. 2021, section 3.1. A table has a row for every relative position, or for every bucket of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.models.attention import MOST_WEIGHTS, in_float32, weights_of
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


@dataclass(frozen=True)
class RelativeTable:
    """Which row of the table each distance from key to query reads.

    Attributes:
        half: of the table's rows.
        reach: see :func:`log_buckets`; None where each distance has a row.
    """

    half: int
    reach: int | None = None

    def rows_of(self, distances: Tensor) -> Tensor:
        """Of distances of any shape, int64."""
        rows = distances if self.reach is None else log_buckets(distances, self.half, self.reach)
        return (rows + self.half).clamp(0, 2 * self.half - 1)

    def in_use(self, length: int) -> slice:
        """The rows that sequences of up to ``length`` read, and at most one beyond on each side.

        No tensor is asked, for which a GPU's host would wait.
        """
        far, middle = length - 1, self.half // 2
        if self.reach is not None and far > middle:
            # one more than :func:`log_buckets`, which rounds otherwise
            steps = math.ceil(math.log(far / middle) / math.log((self.reach - 1) / middle) * (middle - 1))
            far = middle + 1 + steps
        return slice(max(0, self.half - far), min(2 * self.half, self.half + far + 1))


@lru_cache(maxsize=1024)
def relative_rows(length: int, table: RelativeTable) -> Tensor:
    """Rows of the distances between two tokens of a sequence of ``length``: of 1 - length to length - 1."""
    return table.rows_of(torch.arange(1 - length, length))


@dataclass(frozen=True)
class DisentangledInputs:
    """What disentangled attention is computed of.

    Attributes:
        query: [R, heads, head size].
        key, value: [T, heads, head size].
        query_rows, key_rows: what the rows in use (:meth:`RelativeTable.in_use` of the longest sequence) are as
            queries and keys, [rows, heads, head size].
        layout: where the sequences lie.
        queries: where the queries of each sequence lie; ``layout`` itself where every token is one.
        places: of the queries, each in its sequence, int64 [R].
        dropout: on the attention weights; above 0 in training alone.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    query_rows: Tensor
    key_rows: Tensor
    layout: PackedLayout
    queries: PackedLayout
    places: Tensor
    dropout: float = 0.0

    def scaled(self) -> DisentangledInputs:
        """As products take them: query and query_rows [heads, rows, size] scaled, key_rows [heads, size, rows]."""
        scale = (KINDS * self.query.shape[2]) ** -0.5
        return replace(
            self,
            query=self.query * scale,
            query_rows=(self.query_rows * scale).transpose(0, 1),
            key_rows=self.key_rows.permute(1, 2, 0),
        )


def disentangled_attention(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Attention whose score is the sum of three products, over the root of three times the head size.

    Query and key by their contents, the query's content and the key's place, the key's content and the query's place,
    where a place is the row of the distance from key to query. The last one reads the same row as the second, along
    the other axis, as DeBERTa's code does and equation 4 of the paper does not.

    Returns:
        [R, heads, head size].
    """
    way = in_rectangles if inputs.query.is_cuda else in_runs
    return way(inputs.scaled(), table)


def in_rectangles(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Through [B, heads, L, L] rectangles, padding and all: few kernels, and nothing for which a GPU's host waits.

    ``inputs`` are :meth:`DisentangledInputs.scaled`.
    """
    layout, queries, places = inputs.layout, inputs.queries, inputs.places
    longest = layout.max_seqlen
    asking = torch.arange(longest, device=places.device)[None] if queries is layout else queries.pad(places)
    distances = asking[:, None, :, None] - torch.arange(longest, device=places.device)
    rows = table.rows_of(distances) - table.in_use(longest).start
    q, k, v = (
        where.pad(flat).transpose(1, 2)
        for where, flat in ((queries, inputs.query), (layout, inputs.key), (layout, inputs.value))
    )
    scores = _scores(q, k, inputs.query_rows, inputs.key_rows, rows.expand(*q.shape[:3], longest))
    if layout.keep is not None:
        scores = scores.masked_fill(~layout.keep[:, None, None], -torch.inf)
    return queries.unpad(_mixed(scores, v, inputs.dropout).transpose(1, 2))


def in_runs(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """Runs of sequences of equal length, one by one, as a CPU likes it; ``inputs`` as in :func:`in_rectangles`."""
    return in_float32(partial(_of_runs, table=table), inputs)


def _of_runs(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    _, heads, size = inputs.query.shape
    first = table.in_use(inputs.layout.max_seqlen).start
    equal = inputs.layout.runs(inputs.queries, MOST_WEIGHTS // heads)
    asked_of, tokens_of = ([run[0] * run[part] for run in equal] for part in (1, 2))
    split = (
        inputs.query.split(asked_of),
        inputs.key.split(tokens_of),
        inputs.value.split(tokens_of),
        inputs.places.split(asked_of),
    )
    contexts = []
    for (count, asked, length), q, k, v, place in zip(equal, *split, strict=True):
        q, k, v = (part.view(count, -1, heads, size).transpose(1, 2) for part in (q, k, v))
        used = table.in_use(length)
        own = slice(used.start - first, used.stop - first)
        if asked == length:
            rows = _all_rows(length, table)[None, None]
        else:
            distances = place.view(count, 1, asked, 1) - torch.arange(length, device=place.device)
            rows = relative_rows(length, table)[distances + length - 1] - used.start
        rows = rows.expand(count, heads, asked, length)
        scores = _scores(q, k, inputs.query_rows[:, own], inputs.key_rows[:, :, own], rows)
        contexts.append(_mixed(scores, v, inputs.dropout).transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(contexts)


def disentangled_weights(inputs: DisentangledInputs, table: RelativeTable) -> Tensor:
    """The weights [B, heads, L, L] by which :func:`disentangled_attention` of every token mixes values."""
    layout, scaled = inputs.layout, inputs.scaled()
    q, k = (layout.pad(flat).transpose(1, 2) for flat in (scaled.query, scaled.key))
    rows = _all_rows(layout.max_seqlen, table).to(q.device).expand(*q.shape[:2], -1, -1)
    return weights_of(_scores(q, k, scaled.query_rows, scaled.key_rows, rows).float(), layout)


def _scores(q: Tensor, k: Tensor, query_rows: Tensor, key_rows: Tensor, rows: Tensor) -> Tensor:
    """The three products, [B, heads, queries, L], of rows by head, [heads, rows, size] and [heads, size, rows]."""
    scores = q @ k.transpose(2, 3)
    scores = scores + (q @ key_rows).gather(3, rows)
    return scores + (query_rows @ k.transpose(2, 3)).gather(2, rows)


def _mixed(scores: Tensor, values: Tensor, dropout: float) -> Tensor:
    """Values [B, heads, L, size] by scores [B, heads, queries, L]."""
    weights = F.softmax(scores.float(), -1).to(values.dtype)
    return (drop(weights, dropout) if dropout else weights) @ values


@lru_cache(maxsize=64)  # 128 MB where all are 512 long; a batch has few lengths as great
def _all_rows(length: int, table: RelativeTable) -> Tensor:
    """Row of each query and key of a sequence among those that it uses, int64 [length, length]."""
    rows, places = relative_rows(length, table), torch.arange(length)
    return rows[places[:, None] - places + length - 1] - table.in_use(length).start
