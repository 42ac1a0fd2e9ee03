"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, half as deep.

How it learns from a teacher is an objective; here it is the encoder alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig, Block, Embeddings, Encoder, Pooler
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.packed_layout import PackedLayout

REFUSED_OBJECTIVES = {"left_to_right": "it reads both directions, and transformers has no class for one"}
PARTS = {  # of a block, ours -> theirs
    "attention.self.query.": "attention.q_lin.",
    "attention.self.key.": "attention.k_lin.",
    "attention.self.value.": "attention.v_lin.",
    "attention.output.dense.": "attention.out_lin.",
    "attention.output.LayerNorm.": "sa_layer_norm.",
    "intermediate.dense.": "ffn.lin1.",
    "output.dense.": "ffn.lin2.",
    "output.LayerNorm.": "output_layer_norm.",
}
OURS, THEIRS = r"bert.encoder.layer.\1.", r"distilbert.transformer.layer.\1."

DISTILBERT = Names(
    model_type="distilbert",
    title="DistilBERT",
    paper="Sanh et al. 2019, [DistilBERT, a distilled version of BERT](https://arxiv.org/abs/1910.01108)",
    classes={
        "pretraining": "DistilBertForMaskedLM",
        "masked_words": "DistilBertForMaskedLM",
        "next_sentence": "DistilBertModel",
        "encoder": "DistilBertModel",
        "sequence": "DistilBertForSequenceClassification",
        "choice": "DistilBertForMultipleChoice",
        "span": "DistilBertForQuestionAnswering",
        "token": "DistilBertForTokenClassification",
    },
    output_layers=BERT.output_layers,
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
    },
    fixed={"sinusoidal_pos_embds": (False,)},
    loaded=(
        (r"^(embeddings|transformer)\.", r"distilbert.\1."),
        *((rf"^distilbert\.transformer\.layer\.(\d+)\.{theirs}", OURS + ours) for ours, theirs in PARTS.items()),
        (r"^distilbert\.", "bert."),
        (r"^pre_classifier\.", "bert.pooler.dense."),
        (r"^vocab_transform\.", "cls.predictions.transform.dense."),
        (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
        (r"^vocab_projector\.", "cls.predictions.decoder."),
    ),
    saved=(
        *((rf"^bert\.encoder\.layer\.(\d+)\.{ours}", THEIRS + theirs) for ours, theirs in PARTS.items()),
        (r"^bert\.pooler\.dense\.", "pre_classifier."),
        (r"^bert\.", "distilbert."),
        (r"^cls\.predictions\.transform\.dense\.", "vocab_transform."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "vocab_layer_norm."),
        (r"^cls\.predictions\.decoder\.", "vocab_projector."),
    ),
)


@dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    """No segments; weights that no teacher gives start from a normal distribution that is not cut."""

    names: ClassVar[Names] = DISTILBERT
    initial_cut: ClassVar[float | None] = None
    type_vocab_size: int = 0


class DistilBertEmbeddings(Embeddings):
    """Sum of token and position embeddings."""

    def __init__(self, config: BertConfig) -> None:
        super(Embeddings, self).__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.positions_start = config.positions_start

    def forward(self, ids: Tensor, segments: Tensor, layout: PackedLayout) -> Tensor:
        """[T] ids -> [T, H]; ``segments`` are not read."""
        return self.dropout(self.LayerNorm(self.word_embeddings(ids) + self.position_embeddings(layout.position)))


class DistilBertBlock(Block):
    """Without dropout after the attention's projection (distillation/, modeling_distilbert.py)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.attention["output"].dropout = Dropout(0.0)


class DistilBertEncoder(Encoder):
    """The stack of blocks."""

    Block = DistilBertBlock


class PreClassifier(Pooler):
    """Tasks have it; nothing in pretraining trains it."""

    def forward(self, token: Tensor) -> Tensor:
        """[B, H] -> [B, H]."""
        return F.relu(self.dense(token))


class DistilBert(Bert):
    """DistilBERT's encoder."""

    Embeddings = DistilBertEmbeddings
    Encoder = DistilBertEncoder
    Pooler = PreClassifier


ARCHITECTURE = Architecture(config=DistilBertConfig, encoder=DistilBert)
