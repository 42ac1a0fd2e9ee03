"""RoBERTa (Liu et al. 2019): BERT without segments, its positions counted from the one after that of padding.

What else it changed is no part of the encoder: its masks, its packing, its vocabulary and its optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig, Embeddings
from pipeline_src.models.names import BERT, TWO_LAYERS_LOADED, TWO_LAYERS_SAVED, Names
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.params.model import ModelParams

ROBERTA = Names(
    model_type="roberta",
    title="RoBERTa",
    paper="Liu et al. 2019, [RoBERTa: A Robustly Optimized BERT Pretraining Approach](https://arxiv.org/abs/1907.11692)",
    classes={
        "pretraining": "RobertaForMaskedLM",
        "masked_words": "RobertaForMaskedLM",
        "next_sentence": "RobertaModel",
        "left_to_right": "RobertaForCausalLM",
        "encoder": "RobertaModel",
        "sequence": "RobertaForSequenceClassification",
        "choice": "RobertaForMultipleChoice",
        "span": "RobertaForQuestionAnswering",
        "token": "RobertaForTokenClassification",
    },
    output_layers=BERT.output_layers,
    loaded=(
        (r"^roberta\.", "bert."),
        (r"^lm_head\.dense\.", "cls.predictions.transform.dense."),
        (r"^lm_head\.layer_norm\.", "cls.predictions.transform.LayerNorm."),
        (r"^lm_head\.bias$", "cls.predictions.decoder.bias"),
        (r"^lm_head\.decoder\.", "cls.predictions.decoder."),
        *TWO_LAYERS_LOADED,
        *BERT.loaded,
    ),
    saved=(
        (r"^cls\.predictions\.decoder\.bias$", "lm_head.bias"),
        (r"^cls\.predictions\.transform\.dense\.", "lm_head.dense."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),
        (r"^bert\.", "roberta."),
    ),
    saved_tasks={"sequence": TWO_LAYERS_SAVED},
)


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """Its positions begin at ``pad_token_id`` + 1 (fairseq, utils.py), so that their table has as many rows more."""

    names: ClassVar[Names] = ROBERTA
    layer_norm_eps: ClassVar[float] = 1e-5  # fairseq, modules/layer_norm.py
    initial_cut: ClassVar[float | None] = None  # fairseq, modules/transformer_sentence_encoder.py
    type_vocab_size: int = 1
    pad_token_id: int = 0

    @classmethod
    def from_params(cls, params: ModelParams, entries: int, causal: bool = False, **run: Any) -> Self:
        """As :meth:`BertConfig.from_params`."""
        config = super().from_params(params, entries, causal, **run)
        positions = params.positions + config.first_position
        return replace(config, type_vocab_size=1, max_position_embeddings=positions)

    @property
    def first_position(self) -> int:
        """Of a sequence's first token."""
        return self.pad_token_id + 1

    @property
    def longest_input(self) -> int:
        """Tokens, marks included."""
        return self.max_position_embeddings - self.first_position


class RobertaEmbeddings(Embeddings):
    """One segment alone: transformers adds its row always, and fairseq has none, which a row of zeros is."""

    def __init__(self, config: RobertaConfig) -> None:
        super().__init__(config)
        self.first_position = config.first_position

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids -> [T, H]; ``segments`` are not read."""
        places = self.position_embeddings(layout.position + self.first_position)
        return self.dropout(self.LayerNorm(self.word_embeddings(ids) + places + self.token_type_embeddings.weight))

    def adjust_initial_weights(self) -> None:
        """The rows of padding and of the one segment are 0."""
        super().adjust_initial_weights()
        self.token_type_embeddings.weight.zero_()
        for table in (self.word_embeddings, self.position_embeddings):
            table.weight[self.first_position - 1].zero_()


class Roberta(Bert):
    """RoBERTa's encoder."""

    Embeddings = RobertaEmbeddings


ARCHITECTURE = Architecture(config=RobertaConfig, encoder=Roberta)
