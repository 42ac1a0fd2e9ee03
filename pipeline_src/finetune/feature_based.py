"""The feature-based approach: train an LSTM over the layers of a frozen encoder (BERT paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import Bert
from pipeline_src.model.lstm import run_lstm
from pipeline_src.study.finetune import MIN_LAYERS


class BiLSTM(nn.LSTM):
    """A bidirectional LSTM with ``width`` outputs per token: half from each direction."""

    def __init__(self, inputs: int, width: int, layers: int = 1) -> None:
        super().__init__(inputs, width // 2, layers, bidirectional=True)

    def forward(self, hidden: Tensor, layout: PackedBatch, lengths: np.ndarray) -> Tensor:
        # Runs over each sequence separately: [T, inputs] -> [T, width] in float32.
        return run_lstm(self, hidden, layout, lengths)


# From the BERT paper, section 5.3. The width counts both directions together.
LSTM_WIDTH = 768
LSTM_LAYERS = 2


@dataclass(frozen=True)
class LayerMix:
    """A combination of an encoder's layers.

    Attributes:
        layers: function from the number of layers L to the indices of the combined layers. Index 0 is the embeddings,
            and L is the last layer.
        weighted: whether the layers are summed with learned weights (softmax) instead of concatenated.
    """

    layers: Callable[[int], Sequence[int]]
    weighted: bool = False


# The rows of table 7 in the BERT paper, in its order.
LAYER_MIXES = {
    "embeddings": LayerMix(lambda last: [0]),
    "second_to_last": LayerMix(lambda last: [last - 1]),
    "last": LayerMix(lambda last: [last]),
    "weighted_last_four": LayerMix(lambda last: range(last - 3, last + 1), weighted=True),
    "concat_last_four": LayerMix(lambda last: range(last - 3, last + 1)),
    "weighted_all": LayerMix(lambda last: range(1, last + 1), weighted=True),
    # ELMo's combination (Peters et al. 2018, section 3.2), without the factor gamma, which the LSTM can learn.
    "weighted_with_embeddings": LayerMix(lambda last: range(last + 1), weighted=True),
}


class FrozenLayers(nn.Module):
    """A two-layer LSTM that reads the layers of a frozen encoder, combined by ``LAYER_MIXES[name]``.

    The encoder is an argument of ``forward`` and not a submodule.

    Args:
        layers: number of layers of the encoder.
        hidden: width of the encoder.
    """

    def __init__(self, name: str, layers: int, hidden: int) -> None:
        super().__init__()
        mix = LAYER_MIXES[name]
        needed = MIN_LAYERS.get(name, 1)
        if layers < needed:
            valid = ", ".join(key for key in LAYER_MIXES if MIN_LAYERS.get(key, 1) <= layers)
            problem = f"too few encoder layers for feature_layers: {name} (needs {needed})"
            hint = f"set feature_layers to one of {valid}, or use a deeper encoder"
            raise PipelineError(problem, f"the encoder has {layers}", hint=hint)
        self.layers = tuple(mix.layers(layers))
        self.weights = None
        inputs = hidden * len(self.layers)
        if mix.weighted:
            # All weights are initially equal.
            self.weights = nn.Parameter(torch.zeros(len(self.layers)))
            inputs = hidden
        self.lstm = BiLSTM(inputs, LSTM_WIDTH, LSTM_LAYERS)

    def forward(self, bert: Bert, ids: Tensor, segments: Tensor, layout: PackedBatch, lengths: np.ndarray) -> Tensor:
        # Takes ids and segments [T], and returns [T, LSTM_WIDTH]. The encoder gets no gradient.
        with torch.no_grad():
            states = bert.hidden_states(ids, segments, layout)
        return self.lstm(self.mix([states[layer] for layer in self.layers]), layout, lengths)

    def mix(self, states: Sequence[Tensor]) -> Tensor:
        # Each state is [T, H]. Returns [T, H], or [T, layers x H] if the layers are concatenated.
        if self.weights is None:
            return torch.cat(list(states), dim=-1)
        return torch.einsum("l,lth->th", self.weights.softmax(0), torch.stack(list(states)))
