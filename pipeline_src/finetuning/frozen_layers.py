"""The feature-based approach: a task's own LSTM over layers of an encoder that stays as it is (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.finetuning.bilstm import BiLSTM
from pipeline_src.models.bert import Bert
from pipeline_src.models.packed_layout import PackedLayout

LSTM_WIDTH, LSTM_LAYERS = 768, 2  # paper, section 5.3; both directions together


@dataclass(frozen=True)
class Mixture:
    """Which layers of an encoder are read, and how.

    Attributes:
        layers: their numbers, from the number of the last one; 0 are the embeddings.
        weighted: summed with learned weights that add up to 1; else concatenated.
        fewest: layers that the encoder must have.
    """

    layers: Callable[[int], Sequence[int]]
    weighted: bool = False
    fewest: int = 1


MIXTURES = {  # rows of table 7, from its first
    "embeddings": Mixture(lambda last: [0]),
    "second_to_last": Mixture(lambda last: [last - 1], fewest=2),
    "last": Mixture(lambda last: [last]),
    "weighted_last_four": Mixture(lambda last: range(last - 3, last + 1), weighted=True, fewest=4),
    "concat_last_four": Mixture(lambda last: range(last - 3, last + 1), fewest=4),
    "weighted_all": Mixture(lambda last: range(1, last + 1), weighted=True),
    # ELMo's (Peters et al. 2018, section 3.2), but for its factor, which the LSTM above learns
    "weighted_with_embeddings": Mixture(lambda last: range(last + 1), weighted=True),
}


class FrozenLayers(nn.Module):
    """Layers of a frozen encoder, mixed as ``name`` in MIXTURES says and read by a new two-layer LSTM.

    The encoder is handed to each call and is no part of this module.

    Raises:
        PipelineError: the encoder has too few layers. To take those there are would be another row of table 7.
    """

    def __init__(self, name: str, layers: int, hidden: int) -> None:
        super().__init__()
        mixture = MIXTURES[name]
        if layers < mixture.fewest:
            fitting = ", ".join(other for other, smaller in MIXTURES.items() if smaller.fewest <= layers)
            remedy = f"set frozen to one of {fitting}, or take a deeper encoder"
            raise PipelineError(
                f"frozen: {name} needs {mixture.fewest} layers", f"the encoder has {layers}", remedy=remedy
            )
        self.layers = tuple(mixture.layers(layers))
        self.weights = nn.Parameter(torch.zeros(len(self.layers))) if mixture.weighted else None  # equal to begin with
        self.lstm = BiLSTM(hidden if mixture.weighted else hidden * len(self.layers), LSTM_WIDTH, LSTM_LAYERS)

    def forward(self, bert: Bert, ids: Tensor, segments: Tensor, layout: PackedLayout, lengths: np.ndarray) -> Tensor:
        """[T] ids and segments, and tokens of each sequence -> [T, LSTM_WIDTH]; no gradient reaches the encoder."""
        with torch.no_grad():
            states = bert.states(ids, segments, layout)
        return self.lstm(self.mix([states[layer] for layer in self.layers]), layout, lengths)

    def mix(self, states: Sequence[Tensor]) -> Tensor:
        """Hidden states of this mixture's layers, each [T, H] -> [T, H], or [T, layers x H] where concatenated."""
        if self.weights is None:
            return torch.cat(list(states), dim=-1)
        return torch.einsum("l,lth->th", self.weights.softmax(0), torch.stack(list(states)))
