"""Models that say what stood where a generator put other words: two of ELECTRA's ablations (section 3.4)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline_src.models.bert import BertConfig
from pipeline_src.models.discriminator import FilledText
from pipeline_src.models.distillation import Scored
from pipeline_src.models.flops import Workload
from pipeline_src.models.heads import BertForMaskedLM
from pipeline_src.models.linear_cross_entropy import aligned, chunks


class WordRestorer(BertForMaskedLM):
    """Predicts the text's own words as a masked model does, at places that show a generator's ("Replace MLM").

    Attributes as :class:`pipeline_src.models.discriminator.Discriminator`'s.
    """

    term: ClassVar[str] = "words"
    use: ClassVar[str] = "masked_words"
    learns: ClassVar[str] = "what words of a text were before a generator put others there"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.config = config

    def loss(self, text: FilledText) -> tuple[Tensor, Tensor]:
        """Sum of the cross-entropies (nats) and number of right guesses."""
        return self.cls["predictions"].loss(self.read(text), text.own)

    def read(self, text: FilledText) -> Tensor:
        """What the head reads of the tokens that it is asked about, [N, H]."""
        return text.pick(self.bert.decode(text.ids, text.segments, text.layout, text.rows))

    def training_flops(self, work: Workload, asked: int) -> int:
        """As a masked model's that predicts all tokens it is asked about."""
        return self.config.training_flops(work._replace(predictions=asked))

    def sums(self, text: FilledText) -> list[float]:
        """What :meth:`figures` are made of, to be added up over batches."""
        loss, right = self.loss(text)
        return [float(loss), float(right), float(len(text.own))]

    def figures(self, sums: list[float]) -> dict[str, float]:
        """``words_loss`` and ``words_accuracy`` over all tokens that it was asked about."""
        loss, right, asked = sums
        return {"words_loss": loss / max(1.0, asked), "words_accuracy": right / max(1.0, asked)}


class CopyingRestorer(WordRestorer):
    """Predicts every token, and may copy what it sees ("All-Tokens MLM").

    With the copy probability D, a sigmoid over a token's state, it gives D to what stands there and 1 - D times the
    softmax to every entry.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.copy_gate = nn.Linear(config.hidden_size, 1)

    def loss(self, text: FilledText) -> tuple[Tensor, Tensor]:
        """As :meth:`WordRestorer.loss`."""
        hidden = self.read(text)
        gates = self.copy_gate(hidden).squeeze(-1)
        return copying_cross_entropy(self.cls["predictions"].scored(hidden), gates, text.seen, text.own)

    def training_flops(self, work: Workload, asked: int) -> int:
        """As :meth:`WordRestorer.training_flops`, and 6 H a token for the gate."""
        return super().training_flops(work, asked) + 6 * self.config.hidden_size * asked


def copying_cross_entropy(scored: Scored, gates: Tensor, seen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of -log(D [seen = own] + (1 - D) softmax(own)), float32, and number of right first guesses.

    Scores are made a chunk at a time, and once more in the backward pass, so that they are never held at once.

    Args:
        scored: what the N tokens' scores are made of.
        gates: D before its sigmoid, [N].
        seen, own: what stands there, and what should, int64 [N].
    """
    loss, right = scored.inner.new_zeros((), dtype=torch.float32), own.new_zeros(())
    weight, bias = aligned(scored.weight, scored.bias)
    for rows in chunks(len(own), len(weight)):
        some = (scored.inner[rows], weight, bias, gates[rows], seen[rows], own[rows])
        here, guessed = checkpoint(_mixed, *some, use_reentrant=False)
        loss, right = loss + here, right + guessed
    return loss, right


def _mixed(
    inner: Tensor, weight: Tensor, bias: Tensor, gates: Tensor, seen: Tensor, own: Tensor
) -> tuple[Tensor, Tensor]:
    shares = F.linear(inner, weight, bias).float().log_softmax(1)
    copied, predicted = F.logsigmoid(gates.float()), F.logsigmoid(-gates.float())

    def at(entries: Tensor) -> Tensor:
        return predicted + shares.gather(1, entries[:, None]).squeeze(1)

    found = torch.where(seen == own, torch.logaddexp(copied, at(own)), at(own))
    with torch.no_grad():
        best = torch.maximum(predicted + shares.amax(1), torch.logaddexp(copied, at(seen)))
        right = (found >= best).sum()
    return -found.sum(), right
