"""RoBERTa (Liu et al. 2019): BERT without token types, with positions that start after the padding id.

Dynamic masking, packing, vocabulary and optimizer are not part of the encoder. They are settings in params.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pipeline_src.model.adapter import BERT, TWO_LAYERS_LOADED, TWO_LAYERS_SAVED, StateDictAdapter, huggingface_classes
from pipeline_src.model.bert import Architecture, Bert, BertConfig, Embeddings
from pipeline_src.study.model import ModelParams

ROBERTA = StateDictAdapter(
    model_type="roberta",
    title="RoBERTa",
    paper="Liu et al. 2019, [RoBERTa: A Robustly Optimized BERT Pretraining Approach](https://arxiv.org/abs/1907.11692)",
    classes=huggingface_classes("Roberta", causal_lm="ForCausalLM"),
    absent={"layer_norm_eps": 1e-12, "type_vocab_size": 2, "pad_token_id": 1},
    fixed=BERT.fixed,
    from_hf=(
        (r"^roberta\.", "bert."),
        (r"^lm_head\.dense\.", "cls.predictions.transform.dense."),
        (r"^lm_head\.layer_norm\.", "cls.predictions.transform.LayerNorm."),
        (r"^lm_head\.bias$", "cls.predictions.decoder.bias"),
        (r"^lm_head\.decoder\.", "cls.predictions.decoder."),
        *TWO_LAYERS_LOADED,
        *BERT.from_hf,
    ),
    to_hf=(
        (r"^cls\.predictions\.decoder\.bias$", "lm_head.bias"),
        (r"^cls\.predictions\.transform\.dense\.", "lm_head.dense."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),
        (r"^bert\.", "roberta."),
    ),
    to_hf_tasks={"sequence": TWO_LAYERS_SAVED},
)


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """Config of RoBERTa, whose positions start at ``pad_token_id`` + 1 (fairseq, utils.py).

    ``max_position_embeddings`` includes the unused positions before the first one.
    """

    names: ClassVar[StateDictAdapter] = ROBERTA
    dropout_before_pooler: ClassVar[bool] = True
    # fairseq (modules/transformer_sentence_encoder.py) does not truncate initial weights.
    initializer_cutoff_factor: ClassVar[float | None] = None
    # The value in fairseq's modules/layer_norm.py.
    layer_norm_eps: float = 1e-5
    type_vocab_size: int = 1
    pad_token_id: int = 0

    @classmethod
    def from_params(cls, params: ModelParams, vocab_size: int, causal: bool = False, **run: Any) -> Self:
        config = super().from_params(params, vocab_size, causal, **run)
        positions = params.max_position_embeddings + config.first_position
        return replace(config, type_vocab_size=1, max_position_embeddings=positions)

    def with_pad_id(self, pad_id: int) -> Self:
        positions = self.max_position_embeddings + pad_id - self.pad_token_id
        return replace(self, pad_token_id=pad_id, max_position_embeddings=positions)

    @property
    def first_position(self) -> int:
        return self.pad_token_id + 1

    @property
    def head_gelu(self) -> str:
        # transformers' MLM head has the exact GELU, whatever ``hidden_act`` is.
        return "none"


class RobertaEmbeddings(Embeddings):
    # fairseq has no token types, so the embedding of the only token type starts at 0.

    def custom_init(self) -> None:
        super().custom_init()
        self.token_type_embeddings.weight.zero_()
        for table in (self.word_embeddings, self.position_embeddings):
            table.weight[self.first_position - 1].zero_()


class Roberta(Bert):
    Embeddings = RobertaEmbeddings


ARCHITECTURE = Architecture(config=RobertaConfig, encoder=Roberta)
