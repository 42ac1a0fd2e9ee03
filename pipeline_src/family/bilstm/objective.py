"""ELMo's objective: predict each token from the text before it and from the text after it.

See Peters et al. 2018, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from pipeline_src.base.registry import objective_spec
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import BertConfig, make_encoder
from pipeline_src.model.flops import Workload
from pipeline_src.model.losses import linear_cross_entropy
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import Metric, PretrainingObjective, SavedModel
from pipeline_src.pretrain.validation import ValidationBatch, masked_lm_metrics
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import LossTerm


class LanguageModels(nn.Module):
    """Forward and backward language model with one embedding matrix, tied to the decoder of both."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.cls = nn.ModuleDict({"predictions": nn.ModuleDict({"decoder": decoder})})
        self.tie()

    def tie(self) -> None:
        self.cls["predictions"]["decoder"].weight = self.bert.embeddings.word_embeddings.weight

    def directions(self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, max_seqlen: int | None) -> Sequence[Tensor]:
        # Returns the hidden states of the forward model and of the backward model, [T, H / 2] each.
        layout = PackedBatch.of(cu_seqlens, len(ids), max_seqlen)
        return self.bert.encode(ids, segments, layout).chunk(2, dim=-1)

    def forward(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return logits of the token after each of ``predicted``, [P, vocab_size], and zeros [B, 2] as pair logits."""
        forward = self.directions(ids, segments, cu_seqlens, max_seqlen)[0]
        logits = self.cls["predictions"]["decoder"](forward.index_select(0, predicted))
        return logits, logits.new_zeros(len(cu_seqlens) - 1, 2)


class BiLMObjective(PretrainingObjective[TensorBatch]):
    """Minimise the mean loss of both language models.

    The term ``mlm`` is the loss of the forward model, and ``backward`` that of the backward model.
    """

    spec = objective_spec("bilm")
    learns = "the next word from those before it, and each from those after it"
    # A BiLSTMConfig.
    config: Any

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params)
        self.model = LanguageModels(config)
        # Nothing reads the pooler.
        self.model.bert.pooler.requires_grad_(False)
        self.weights = dict(self.spec.terms)

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"mlm": work.predictions, "backward": work.predictions}

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        states = self.model.directions(batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen)
        onward, back = states
        decoder = self.model.cls["predictions"]["decoder"]
        # The forward model reads token i and predicts token i + 1. The backward model reads token i + 1 and predicts
        # token i.
        at = batch.predicted
        onward_states = onward.index_select(0, at)
        back_states = back.index_select(0, at + 1)
        back_labels = batch.ids.index_select(0, at)
        onward_loss = linear_cross_entropy(onward_states, decoder.weight, decoder.bias, batch.labels)
        back_loss = linear_cross_entropy(back_states, decoder.weight, decoder.bias, back_labels)
        return {"mlm": LossTerm(*onward_loss), "backward": LossTerm(*back_loss)}

    def validation_metrics(self, batch: ValidationBatch) -> dict[str, Metric]:
        return masked_lm_metrics(self.model, batch)

    def training_flops(self, work: Workload) -> int:
        # Both models decode each predicted position.
        head = 2 * 6 * self.config.embedding_width * self.config.vocab_size * work.predictions
        return self.config.encoder_flops(work) + head

    def saved_models(self) -> dict[str, SavedModel]:
        return {"": SavedModel(self.model, self.config, self.config.names.classes["pretraining"])}


OBJECTIVE = BiLMObjective
