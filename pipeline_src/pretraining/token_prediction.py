"""Predicting tokens at some places, and the label of each pair: what masked and left-to-right learning share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.linear_cross_entropy import summed_cross_entropy
from pipeline_src.models.packed_layout import RowsInUse
from pipeline_src.params.base import Block
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_validation
from pipeline_src.training.loop import Term
from pipeline_src.training.objective import PretrainingObjective, SavedModel

LEARNT_OF_PAIRS = {  # by examples.pairs
    "next_sentence": "next sentences",
    "sentence_order": "the order of sentences",
}


class TokenPrediction(PretrainingObjective[TensorBatch]):
    """One encoder with both heads of pretraining; the loss is the sum of their means (paper, appendix A.2).

    Without pairs there is no second term, and what serves it is not trained.

    Attributes:
        use: of the model, by which ``models.names`` knows the class that transformers loads it with.
        model: the encoder with its heads.
    """

    terms: ClassVar[Mapping[str, float]] = {"mlm": 1.0, "nsp": 1.0}
    validation_columns: ClassVar[Sequence[str]] = ("mlm_loss", "mlm_accuracy", "nsp_accuracy")
    use: ClassVar[str]

    def __init__(self, config: BertConfig, pairs: str, own: Block | None = None) -> None:
        super().__init__(config, pairs, own)
        self.model = BertForPretraining(config)
        self.weights = {name: weight for name, weight in self.terms.items() if self.has_pairs or name != "nsp"}
        if not self.has_pairs:
            self.model.bert.pooler.requires_grad_(False)
            self.model.cls["seq_relationship"].requires_grad_(False)

    @property
    def learns_of_pairs(self) -> str:
        """For the model's card, where examples are pairs."""
        return LEARNT_OF_PAIRS[self.pairs]

    def tie(self) -> None:
        """The decoder's matrix is the embedding's."""
        self.model.tie()

    def draw_weights(self, generator: torch.Generator) -> None:
        """As google-research/bert draws them; on the CPU, so that every machine starts from the same weights."""
        drawn = BertForPretraining(self.config)
        initialise(drawn, generator)
        self.model.load_state_dict(drawn.state_dict())

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Predicted tokens and pairs, and what the batch counts."""
        pairs = {"nsp": batch.counts["sequences"]} if self.has_pairs else {}
        every = {"rows": batch.counts["tokens"], "row_pairs": batch.counts["squares"]} if self.config.is_decoder else {}
        return {"mlm": batch.counts["predictions"], **pairs, **batch.counts, **every}

    def forward(self, batch: TensorBatch) -> dict[str, Term]:
        """The sums of the losses of tokens and of pairs; no scores of tokens are kept."""
        rows, predicted = None, batch.predicted
        if not self.config.is_decoder:  # which predicts nearly every token
            rows, predicted = RowsInUse.of(batch.rows, batch.row_starts, batch.max_rows), batch.predicted_rows
        inputs = (batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen)
        hidden, pooled = self.model.bert(*inputs, rows, decoded=True)
        words, pairs = self.model.cls["predictions"], self.model.cls["seq_relationship"]
        terms = {"mlm": Term(*words.loss(hidden.index_select(0, predicted), batch.labels))}
        if self.has_pairs:
            terms["nsp"] = Term(*summed_cross_entropy(pairs(pooled), batch.pair_label))
        return terms

    def measure(self, validation: ValidationSet) -> dict[str, float]:
        """As :func:`measure_validation`."""
        return measure_validation(self.model, validation.examples, validation.train_counts, validation.distributed)

    def saved_models(self) -> dict[str, SavedModel]:
        """The encoder with both heads."""
        return {"": SavedModel(self.model, self.config, self.config.names.classes[self.use])}

    def word_scores(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """The model's own."""
        scores, _ = self.model(ids, segments, cu_seqlens, predicted, max_seqlen)
        return scores
