"""Pad all microbatches of a phase to the same shapes (a fixed capacity).

With constant shapes, a GPU allocates the same memory in every step, compiles each part of the model once, and can
replay a captured step. Filler sequences of [PAD] tokens follow the real sequences. Filler predictions have the label
that cross_entropy ignores, so the filler changes no loss, accuracy or gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.examples.masking import Collator
from pipeline_src.model.losses import IGNORE_INDEX
from pipeline_src.pretrain.data import TensorBatch

# The number of tokens is padded to a multiple of this, which makes a GPU's matmuls faster.
ALIGNMENT = 64


@dataclass(frozen=True)
class Capacity:
    """Sizes to which every microbatch of a phase is padded.

    A filler sequence has at least one token, since the model reads the first token of every sequence, and at most
    ``length`` tokens.

    Attributes:
        real_sequences: maximum number of real sequences, B.
        length: maximum number of tokens in a sequence, L, at least 2.
        predictions_per_sequence: maximum number of predictions in a sequence.
        pad_id: id of [PAD].
    """

    real_sequences: int
    length: int
    predictions_per_sequence: int
    pad_id: int

    @classmethod
    def of(cls, batch_size: int, length: int, max_tokens: int, collator: Collator, pad_id: int) -> Capacity:
        # Split the batch evenly into as few microbatches of up to ``max_tokens`` as possible.
        sequences = min(batch_size, max(1, max_tokens // length))
        sequences = -(-batch_size // -(-batch_size // sequences))
        return cls(sequences, length, int(collator.num_predictions(np.array([length]))[0]), pad_id)

    @property
    def filler_sequences(self) -> int:
        # The number F of filler sequences if the microbatch has B real sequences. Even if there are no real tokens, F
        # sequences can hold all tokens: F is the smallest number with F * L >= B * L + F + ALIGNMENT - 1 >= tokens.
        return -(-(self.real_sequences * self.length + ALIGNMENT - 1) // (self.length - 1))

    @property
    def sequences(self) -> int:
        return self.real_sequences + self.filler_sequences

    @property
    def tokens(self) -> int:
        # Room for B full sequences, and at least one token in each filler sequence.
        needed = self.real_sequences * self.length + self.filler_sequences
        return -(-needed // ALIGNMENT) * ALIGNMENT

    @property
    def predictions(self) -> int:
        return self.real_sequences * self.predictions_per_sequence

    @property
    def outputs(self) -> int:
        # The model computes outputs at the predicted tokens and at the first token of each sequence.
        return self.predictions + self.sequences

    @property
    def max_outputs(self) -> int:
        return self.predictions_per_sequence + 1

    def pad(self, batch: TensorBatch) -> TensorBatch:
        """Pad a microbatch to this capacity with filler sequences.

        ``workload`` and ``examples`` still describe the real sequences only. Filler tokens and outputs are spread
        evenly over the filler sequences. If all real sequences are full, there are fewer filler tokens than filler
        outputs, and several outputs share a token.
        """
        self._check(batch)
        tokens = len(batch.ids)
        outputs = len(batch.output_positions)
        predictions = len(batch.labels)
        fillers = self.sequences - len(batch.pair_label)
        filler_tokens = self.tokens - tokens
        filler_outputs = self.outputs - outputs
        filler_predictions = self.predictions - predictions

        # Cumulative numbers: 10 tokens in 4 filler sequences give 2, 5, 7, 10.
        token_ends = _even_ends(filler_tokens, fillers)
        output_ends = _even_ends(filler_outputs, fillers)
        tokens_of = _sizes(token_ends)
        outputs_of = _sizes(output_ends)

        # Output number `rank` of a filler sequence is at its token rank * tokens // outputs. Output 0 is therefore at
        # the first token.
        sequence = torch.repeat_interleave(outputs_of, output_size=filler_outputs)
        starts = tokens + token_ends - tokens_of
        rank = torch.arange(filler_outputs) - (output_ends - outputs_of).index_select(0, sequence)
        offset = rank * tokens_of.index_select(0, sequence) // outputs_of.index_select(0, sequence)
        output_positions = starts.index_select(0, sequence) + offset
        predicting = _even_ends(filler_outputs, filler_predictions) - 1
        fillings = {
            "ids": torch.full((filler_tokens,), self.pad_id),
            "segments": torch.zeros(filler_tokens, dtype=torch.int64),
            "cu_seqlens": tokens + token_ends,
            "predicted": output_positions.index_select(0, predicting),
            "labels": torch.full((filler_predictions,), IGNORE_INDEX),
            "pair_label": torch.full((fillers,), IGNORE_INDEX),
            "output_positions": output_positions,
            "output_offsets": outputs + output_ends,
            "predicted_outputs": outputs + predicting,
        }
        if batch.sampling_noise is not None:
            fillings["sampling_noise"] = batch.sampling_noise.new_zeros(filler_predictions)
        padded = {name: torch.cat([getattr(batch, name), filler]) for name, filler in fillings.items()}
        return replace(batch, **padded, max_seqlen=self.length, max_outputs=self.max_outputs)  # type: ignore[arg-type]

    def _check(self, batch: TensorBatch) -> None:
        # The total number of outputs needs no check: outputs are predictions and first tokens, which are both checked.
        limits = {
            "sequences": (len(batch.pair_label), self.real_sequences),
            "tokens in a sequence": (batch.max_seqlen, self.length),
            "outputs in a sequence": (batch.max_outputs, self.max_outputs),
            "predictions": (len(batch.labels), self.predictions),
        }
        exceeded = [f"{count} {name}, more than {limit}" for name, (count, limit) in limits.items() if count > limit]
        if exceeded:
            raise PipelineError(
                "a microbatch exceeds its fixed capacity",
                "; ".join(exceeded),
                where=f"examples {', '.join(map(str, batch.examples[:5]))} ...",
                hint="run the stage that writes data/examples again, with the settings of params.yaml",
            )


def _even_ends(items: int, parts: int) -> Tensor:
    return torch.arange(1, parts + 1) * items // max(1, parts)


def _sizes(ends: Tensor) -> Tensor:
    return ends.diff(prepend=ends.new_zeros(1))
