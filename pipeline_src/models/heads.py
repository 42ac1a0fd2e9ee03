"""The two heads of pretraining on top of the encoder (paper, section 3.1)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.distillation import Scored
from pipeline_src.models.linear_cross_entropy import (
    aligned_scores,
    linear_cross_entropy,
    sampled_cross_entropy,
)


class MaskedLMHead(nn.Module):
    """Predicts the tokens at given places; its decoder is the embedding matrix (google-research/bert).

    Where embeddings are narrower than the encoder, so is all that follows the first layer.
    """

    def __init__(self, config: BertConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.transform = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.embedding_width, bias=config.head_bias),
                "LayerNorm": nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps, bias=config.head_bias),
            }
        )
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.tie(embedding)
        self.approximate, self.scale = config.gelu, config.head_scale

    def adjust_initial_weights(self) -> None:
        """After weights are drawn: the first layer's, where they start smaller."""
        self.transform["dense"].weight.mul_(self.scale)

    def tie(self, embedding: nn.Embedding) -> None:
        """Make the decoder's matrix the embedding's."""
        self.decoder.weight = embedding.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states at the places to predict [P, H] -> scores [P, entries]."""
        inner = self._transformed(hidden)
        if not hidden.is_cuda:
            return self.decoder(inner)
        return aligned_scores(inner, self.decoder.weight, self.decoder.bias)[:, : self.decoder.out_features]

    def loss(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of the cross-entropies and number of right guesses, from hidden states [P, H] and labels int64 [P]."""
        return linear_cross_entropy(self._transformed(hidden), self.decoder.weight, self.decoder.bias, labels)

    def sample(self, hidden: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As :meth:`loss`, and tokens drawn from the scores' shares, int64 [P]; see :func:`sampled_cross_entropy`."""
        decoder = self.decoder
        return sampled_cross_entropy(self._transformed(hidden), decoder.weight, decoder.bias, labels, draws)

    def scored(self, hidden: Tensor) -> Scored:
        """What scores are made of, from hidden states [P, H]."""
        return Scored(self._transformed(hidden), self.decoder.weight, self.decoder.bias)

    def _transformed(self, hidden: Tensor) -> Tensor:
        inner = F.gelu(self.transform["dense"](hidden), approximate=self.approximate)
        return self.transform["LayerNorm"](inner)


class BertForPretraining(nn.Module):
    """The encoder with both pretraining heads (paper, section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        self.cls = nn.ModuleDict(
            {
                "predictions": MaskedLMHead(config, self.bert.embeddings.word_embeddings),
                "seq_relationship": nn.Linear(config.hidden_size, 2),
            }
        )

    def tie(self) -> None:
        """Tie decoder and embedding again, after a move from one kind of memory to another has parted them."""
        self.cls["predictions"].tie(self.bert.embeddings.word_embeddings)

    def forward(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores of the tokens at ``predicted`` [P, entries] and of the labels of pairs [B, 2]; see :class:`Bert`."""
        hidden, pooled = self.bert(ids, segments, cu_seqlens, max_seqlen, decoded=True)
        return self.cls["predictions"](hidden.index_select(0, predicted)), self.cls["seq_relationship"](pooled)


class BertForMaskedLM(nn.Module):
    """The encoder with the head of masked words alone; it has no pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        self.bert.pooler = nn.Identity()
        self.cls = nn.ModuleDict({"predictions": MaskedLMHead(config, self.bert.embeddings.word_embeddings)})

    def tie(self) -> None:
        """As :meth:`BertForPretraining.tie`."""
        self.cls["predictions"].tie(self.bert.embeddings.word_embeddings)

    def forward(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int | None = None
    ) -> tuple[Tensor, None]:
        """Scores of the tokens at ``predicted`` [P, entries]; of pairs there are none."""
        hidden, _ = self.bert(ids, segments, cu_seqlens, max_seqlen, decoded=True)
        return self.cls["predictions"](hidden.index_select(0, predicted)), None
