"""Predict tokens at some positions, and the label of each pair: the base of masked and causal language modelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pipeline_src.config.schema import Section
from pipeline_src.models.attention import QueryRows
from pipeline_src.models.bert import BertConfig, BertForPretraining, initialise
from pipeline_src.models.losses import summed_cross_entropy
from pipeline_src.pretraining.data import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_validation
from pipeline_src.training.loop import LossTerm
from pipeline_src.training.objective import PretrainingObjective, SavedModel

PAIR_TASKS = {  # by examples.pair_objective, for the model card
    "nsp": "next sentences",
    "sop": "the order of sentences",
}


class MLMObjective(PretrainingObjective[TensorBatch]):
    """One encoder with both pretraining heads; the loss is the sum of their means (paper, appendix A.2).

    Without pairs there is no second term, and its parameters are not trained.

    Attributes:
        use: key of the class that transformers loads the model with, in ``models.adapter``.
    """

    terms: ClassVar[Mapping[str, float]] = {"mlm": 1.0, "nsp": 1.0}
    validation_columns: ClassVar[Sequence[str]] = ("mlm_loss", "mlm_accuracy", "nsp_accuracy")
    use: ClassVar[str]

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params)
        self.model = BertForPretraining(config)
        self.weights = {name: weight for name, weight in self.terms.items() if self.has_pairs or name != "nsp"}
        if not self.has_pairs:
            self.model.bert.pooler.requires_grad_(False)
            self.model.cls["seq_relationship"].requires_grad_(False)

    @property
    def learns_of_pairs(self) -> str:
        return PAIR_TASKS[self.pairs]

    def tie(self) -> None:
        self.model.tie()

    def init_weights(self, generator: torch.Generator) -> None:
        """Initialise as google-research/bert does; on the CPU, so that every machine starts from the same weights."""
        initial = BertForPretraining(self.config)
        initialise(initial, generator)
        self.model.load_state_dict(initial.state_dict())

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Return the predicted tokens, the pairs, and the batch's counts."""
        pairs = {"nsp": batch.counts["sequences"]} if self.has_pairs else {}
        every = {"rows": batch.counts["tokens"], "row_pairs": batch.counts["squares"]} if self.config.is_decoder else {}
        return {"mlm": batch.counts["predictions"], **pairs, **batch.counts, **every}

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        """Return the summed losses of tokens and of pairs; no logits of tokens are kept."""
        rows, predicted = None, batch.predicted
        if not self.config.is_decoder:  # a decoder predicts nearly every token
            rows, predicted = QueryRows.of(batch.rows, batch.row_starts, batch.max_rows), batch.predicted_rows
        inputs = (batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen)
        hidden, pooled = self.model.bert(*inputs, rows, decoded=True)
        words, pairs = self.model.cls["predictions"], self.model.cls["seq_relationship"]
        terms = {"mlm": LossTerm(*words.loss(hidden.index_select(0, predicted), batch.labels))}
        if self.has_pairs:
            terms["nsp"] = LossTerm(*summed_cross_entropy(pairs(pooled), batch.pair_label))
        return terms

    def measure(self, validation: ValidationSet) -> dict[str, float]:
        return measure_validation(self.model, validation.examples, validation.train_counts, validation.distributed)

    def saved_models(self) -> dict[str, SavedModel]:
        return {"": SavedModel(self.model, self.config, self.config.names.classes[self.use])}

    def token_logits(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        return self.model(ids, segments, cu_seqlens, predicted, max_seqlen)[0]
