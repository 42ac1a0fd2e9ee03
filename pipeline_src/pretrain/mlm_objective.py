"""Base class of the objectives of masked and causal language modelling."""

from __future__ import annotations

from typing import ClassVar

from pipeline_src.model.attention import QueryRows
from pipeline_src.model.bert import BertConfig, BertForPretraining
from pipeline_src.model.flops import Workload
from pipeline_src.model.losses import summed_cross_entropy
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import Metric, PretrainingObjective, SavedModel
from pipeline_src.pretrain.validation import ValidationBatch, masked_lm_metrics
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import LossTerm

# Value of examples.pair_objective -> text for the model card.
PAIR_TASKS = {
    "nsp": " and next sentences",
    "nsp_balanced": " and next sentences",
    "sop": " and the order of sentences",
}


class MLMObjective(PretrainingObjective[TensorBatch]):
    """Train an encoder with a token head and a pair head (Devlin et al. 2018, appendix A.2).

    The loss is the sum of both heads' mean losses. If examples are not pairs, the pair head and the pooler are not
    trained.

    Attributes:
        use: key of ``StateDictAdapter.classes`` for the class with which transformers loads the model.
        learns_tokens: what the model card says that the token head learns.
        learns_without_pairs: what the model card adds if examples are not pairs.
    """

    use: ClassVar[str]
    learns_tokens: ClassVar[str]
    learns_without_pairs: ClassVar[str] = ""

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params)
        self.model = BertForPretraining(config)
        self.weights = dict(self.spec.terms)
        self.learns = self.learns_tokens + PAIR_TASKS.get(pairs, self.learns_without_pairs)
        if not self.has_pairs:
            self.weights.pop("nsp", None)
            self.model.bert.pooler.requires_grad_(False)
            self.model.cls["seq_relationship"].requires_grad_(False)

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"mlm": work.predictions, "nsp": work.sequences}

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        # An encoder's last block is computed only for the outputs. A causal model predicts nearly every token, so its
        # last block is computed for all.
        queries = None
        predicted = batch.predicted
        if not self.config.is_decoder:
            queries = QueryRows.of(batch.output_positions, batch.output_offsets, batch.max_outputs)
            predicted = batch.predicted_outputs
        hidden, pooled = self.model.bert(
            batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen, queries, decoded=True
        )
        predicted_hidden = hidden.index_select(0, predicted)
        terms = {"mlm": LossTerm(*self.model.cls["predictions"].loss(predicted_hidden, batch.labels))}
        if self.has_pairs:
            pair_logits = self.model.cls["seq_relationship"](pooled)
            terms["nsp"] = LossTerm(*summed_cross_entropy(pair_logits, batch.pair_label))
        return terms

    def validation_metrics(self, batch: ValidationBatch) -> dict[str, Metric]:
        return masked_lm_metrics(self.model, batch)

    def training_flops(self, work: Workload) -> int:
        # A causal model computes its last block at every position.
        if self.config.is_decoder:
            work = work._replace(num_outputs=work.tokens, attended_pairs=work.sum_len_squared)
        return super().training_flops(work)

    def saved_models(self) -> dict[str, SavedModel]:
        return {"": SavedModel(self.model, self.config, self.config.names.classes[self.use])}
