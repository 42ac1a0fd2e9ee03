"""ELECTRA's discriminator (Clark et al. 2020, section 3.1), and tables that DeBERTa-v3's adds to its generator's."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import BertConfig


class DiscriminatorHead(nn.Module):
    """One score a token, positive where it is not the text's own (ELECTRA, section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense_prediction = nn.Linear(config.hidden_size, 1)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor) -> Tensor:
        """[T, H] -> [T]."""
        inner = F.gelu(self.dense(hidden), approximate=self.approximate)
        return self.dense_prediction(inner).squeeze(-1)


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
    """The encoder with the head that judges every token; it has no pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        self.bert.pooler = nn.Identity()
        self.discriminator_predictions = DiscriminatorHead(config)


def area_under_curve(negatives: np.ndarray, positives: np.ndarray) -> float:
    """Chance that a positive scores above a negative, half where equal, of counts by ascending score, [bins] each."""
    below = np.cumsum(negatives) - negatives / 2
    pairs = negatives.sum() * positives.sum()
    return float(positives @ below / pairs) if pairs else 0.5
