"""ELECTRA's discriminator (Clark et al. 2020, section 3.1), and tables that DeBERTa-v3's adds to its generator's."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.flops import Workload
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse

BINS, FARTHEST = 4096, 16.0  # of the scores over which the area under the curve is summed


class FilledText(NamedTuple):
    """A batch whose predicted tokens a generator drew anew, and the N tokens that a model is asked about.

    Attributes:
        ids, segments, layout: of all T tokens.
        rows: those of which the model's last block is read; None for all.
        asked: where the N lie among these rows, int64 [N]; None where they are all.
        seen, own: what stands at the N, and what the text has there, int64 [N].
    """

    ids: Tensor
    segments: Tensor
    layout: PackedLayout
    rows: RowsInUse | None
    asked: Tensor | None
    seen: Tensor
    own: Tensor

    def pick(self, values: Tensor) -> Tensor:
        """Of values [R, ...] of the rows those of the N."""
        return values if self.asked is None else values.index_select(0, self.asked)


class DiscriminatorHead(nn.Module):
    """One score a token, positive where it is not the text's own (ELECTRA, section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense_prediction = nn.Linear(config.hidden_size, 1)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """[R, H] and where its sequences lie -> [R]."""
        inner = F.gelu(self.dense(hidden), approximate=self.approximate)
        return self.dense_prediction(inner).squeeze(-1)


class FirstTokenHead(DiscriminatorHead):
    """The vector of a sequence's first token is added to each one's (microsoft/DeBERTa, LMMaskPredictionHead)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, layout: PackedLayout) -> Tensor:
        """As :meth:`DiscriminatorHead.forward`."""
        first = torch.arange(len(hidden), device=hidden.device) - layout.position
        return super().forward(self.LayerNorm(hidden + hidden.index_select(0, first)), layout)


class AddedTable(nn.Module):
    """What a discriminator adds to a generator's table of embeddings, which it reads without training it.

    Gradient-disentangled embedding sharing (DeBERTa-v3, He et al. 2023, section 3.2). Saved is the sum of both.
    """

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.base = (base,)  # a tuple, so that its parameters are not this module's too
        self.weight = nn.Parameter(torch.empty_like(base.weight))

    def forward(self, rows: Tensor) -> Tensor:
        """Places in the table -> their vectors."""
        return F.embedding(rows, self.base[0].weight.detach()) + F.embedding(rows, self.weight)

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = (self.base[0].weight + self.weight).detach()


class Discriminator(nn.Module):
    """The encoder with the head that judges every token; it has no pooler.

    Attributes:
        term: of the loss that it is trained by.
        use: by which ``models.names`` knows the class that transformers loads it with.
        learns: for the model's card.
    """

    term: ClassVar[str] = "rtd"
    use: ClassVar[str] = "replaced"
    learns: ClassVar[str] = "telling the words of a text from those that a generator put there"

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config)
        self.bert.pooler = nn.Identity()
        self.discriminator_predictions = (FirstTokenHead if config.judged_with_first else DiscriminatorHead)(config)

    def tie(self) -> None:
        """Nothing is tied."""

    def scores(self, text: FilledText) -> Tensor:
        """Of the tokens that it is asked about, [N]."""
        hidden = self.bert.encode(text.ids, text.segments, text.layout, text.rows)
        layout = text.layout if text.rows is None else text.rows.layout
        return text.pick(self.discriminator_predictions(hidden, layout))

    def loss(self, text: FilledText) -> tuple[Tensor, Tensor]:
        """Sum of the binary cross-entropies (nats) and number of right guesses."""
        scores, replaced = self.scores(text), text.seen != text.own
        loss = F.binary_cross_entropy_with_logits(scores.float(), replaced.float(), reduction="sum")
        return loss, ((scores > 0) == replaced).sum()

    def training_flops(self, work: Workload, asked: int) -> int:
        """Of the encoder, and 6 (H^2 + H) for each of the tokens that it is asked about."""
        hidden = self.config.hidden_size
        return self.config.training_flops(work._replace(predictions=0)) + 6 * (hidden**2 + hidden) * asked

    def sums(self, text: FilledText) -> list[float]:
        """What :meth:`figures` are made of, to be added up over batches: the loss, and scores counted by size."""
        scores, replaced = self.scores(text).float(), text.seen != text.own
        loss = F.binary_cross_entropy_with_logits(scores, replaced.float(), reduction="sum")
        places = ((scores + FARTHEST) * (BINS / (2 * FARTHEST))).long().clamp(0, BINS - 1)
        return [float(loss), *torch.bincount(places + BINS * replaced.long(), minlength=2 * BINS).tolist()]

    def figures(self, sums: list[float]) -> dict[str, float]:
        """``rtd_loss`` and ``rtd_accuracy`` over all tokens that it was asked about.

        ``rtd_recall`` among the replaced, ``rtd_specificity`` among the others, ``rtd_auc`` the area under the curve of
        one over the other.
        """
        kept, other = np.array(sums[1:]).reshape(2, BINS)
        judged = kept.sum() + other.sum()
        right = kept[: BINS // 2].sum(), other[BINS // 2 :].sum()
        return {
            "rtd_loss": sums[0] / judged,
            "rtd_accuracy": sum(right) / judged,
            "rtd_specificity": right[0] / max(1.0, kept.sum()),
            "rtd_recall": right[1] / max(1.0, other.sum()),
            "rtd_auc": area_under_curve(kept, other),
        }


def area_under_curve(negatives: np.ndarray, positives: np.ndarray) -> float:
    """Chance that a positive scores above a negative, half where equal, of counts by ascending score, [bins] each."""
    below = np.cumsum(negatives) - negatives / 2
    pairs = negatives.sum() * positives.sum()
    return float(positives @ below / pairs) if pairs else 0.5
