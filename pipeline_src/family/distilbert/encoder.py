"""DistilBERT's encoder (Sanh et al. 2019): BERT without token types, with half the layers.

Distillation from a teacher is in ``family/distilbert/objective.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from pipeline_src.model.adapter import StateDictAdapter, huggingface_classes
from pipeline_src.model.attention import Dropout
from pipeline_src.model.bert import LAYER_NORM_EPS, Architecture, Bert, BertConfig, Block, Encoder, Pooler

# Names of a block's layers: this project -> transformers.
PARTS = {
    "attention.self.query.": "attention.q_lin.",
    "attention.self.key.": "attention.k_lin.",
    "attention.self.value.": "attention.v_lin.",
    "attention.output.dense.": "attention.out_lin.",
    "attention.output.LayerNorm.": "sa_layer_norm.",
    "intermediate.dense.": "ffn.lin1.",
    "output.dense.": "ffn.lin2.",
    "output.LayerNorm.": "output_layer_norm.",
}
BLOCK, HF_BLOCK = r"bert.encoder.layer.\1.", r"distilbert.transformer.layer.\1."

DISTILBERT = StateDictAdapter(
    model_type="distilbert",
    title="DistilBERT",
    paper="Sanh et al. 2019, [DistilBERT, a distilled version of BERT](https://arxiv.org/abs/1910.01108)",
    classes=huggingface_classes("DistilBert"),
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
    },
    fixed={
        **{"sinusoidal_pos_embds": (False,), "is_decoder": (False,)},
        # transformers' DistilBERT ignores these two keys, so only its fixed values are supported.
        **{"layer_norm_eps": (LAYER_NORM_EPS,), "type_vocab_size": (0,)},
    },
    from_hf=(
        (r"^(embeddings|transformer)\.", r"distilbert.\1."),
        *((rf"^distilbert\.transformer\.layer\.(\d+)\.{hf_part}", BLOCK + part) for part, hf_part in PARTS.items()),
        (r"^distilbert\.", "bert."),
        (r"^pre_classifier\.", "bert.pooler.dense."),
        (r"^vocab_transform\.", "cls.predictions.transform.dense."),
        (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
        (r"^vocab_projector\.", "cls.predictions.decoder."),
    ),
    to_hf=(
        *((rf"^bert\.encoder\.layer\.(\d+)\.{part}", HF_BLOCK + hf_part) for part, hf_part in PARTS.items()),
        (r"^bert\.pooler\.dense\.", "pre_classifier."),
        (r"^bert\.", "distilbert."),
        (r"^cls\.predictions\.transform\.dense\.", "vocab_transform."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "vocab_layer_norm."),
        (r"^cls\.predictions\.decoder\.", "vocab_projector."),
    ),
)


@dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    # DistilBERT has no token types, and its initial weights are not truncated.

    names: ClassVar[StateDictAdapter] = DISTILBERT
    initializer_cutoff_factor: ClassVar[float | None] = None
    type_vocab_size: int = 0

    def head_dropout(self, head: str) -> float:
        # As in transformers, span and token heads have the dropout rate of the blocks, other heads twice this rate.
        rate = self.hidden_dropout_prob
        return rate if head in ("span", "token") else min(2 * rate, 0.9)


class DistilBertBlock(Block):
    # A block has no dropout after the attention's output projection (transformers, modeling_distilbert.py).

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.attention["output"].dropout = Dropout(0.0)


class DistilBertEncoder(Encoder):
    Block = DistilBertBlock


class PreClassifier(Pooler):
    # Dense layer with ReLU, with which task heads begin. Pretraining does not train it.

    def forward(self, token: Tensor) -> Tensor:
        return F.relu(self.dense(token))


class DistilBert(Bert):
    Encoder = DistilBertEncoder
    Pooler = PreClassifier


ARCHITECTURE = Architecture(config=DistilBertConfig, encoder=DistilBert)
