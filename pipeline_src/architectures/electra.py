"""ELECTRA's encoder (Clark et al. 2020): BERT without a pooler, over embeddings that may be narrower than it.

How it learns is ``objectives/replaced.py``; its generator is an encoder of this kind too.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import INITIAL_STD, Pooler
from pipeline_src.models.names import BERT, TWO_LAYERS_LOADED, TWO_LAYERS_SAVED, Names
from pipeline_src.models.narrow_embeddings import NarrowBert, NarrowConfig, NarrowEncoder

OWN_EMBEDDING_WIDTH = True  # so that a narrower generator can share them

ELECTRA = Names(
    model_type="electra",
    title="ELECTRA",
    paper=(
        "Clark et al. 2020, "
        "[ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators](https://arxiv.org/abs/2003.10555)"
    ),
    classes={
        "pretraining": "ElectraForMaskedLM",
        "masked_words": "ElectraForMaskedLM",
        "replaced": "ElectraForPreTraining",
        "next_sentence": "ElectraModel",
        "left_to_right": "ElectraForCausalLM",
        "encoder": "ElectraModel",
        "sequence": "ElectraForSequenceClassification",
        "choice": "ElectraForMultipleChoice",
        "span": "ElectraForQuestionAnswering",
        "token": "ElectraForTokenClassification",
    },
    output_layers=BERT.output_layers,
    fixed=BERT.fixed,
    loaded=(
        (r"^electra\.", "bert."),
        (r"^generator_predictions\.", "cls.predictions.transform."),
        (r"^generator_lm_head\.", "cls.predictions.decoder."),
        (r"^sequence_summary\.summary\.", "bert.pooler.dense."),
        *TWO_LAYERS_LOADED,
        *BERT.loaded,
        (r"^(bert\.)?embeddings_project\.", "bert.encoder.embeddings_project."),
    ),
    saved=(
        (r"^cls\.predictions\.transform\.", "generator_predictions."),
        (r"^cls\.predictions\.decoder\.bias$", "generator_lm_head.bias"),
        (r"^bert\.encoder\.embeddings_project\.", "bert.embeddings_project."),
        (r"^bert\.pooler\.dense\.", "sequence_summary.summary."),
        (r"^bert\.", "electra."),
    ),
    saved_tasks={"sequence": TWO_LAYERS_SAVED},
)


class ElectraConfig(NarrowConfig):
    """Its embeddings are projected where they are narrower."""

    names: ClassVar[Names] = ELECTRA


class Projection(nn.Linear):
    """From the embeddings' width to the encoder's; its weights start of Glorot's deviation (TensorFlow's default)."""

    def adjust_initial_weights(self) -> None:
        """After weights are drawn."""
        self.weight.mul_(math.sqrt(2 / (self.in_features + self.out_features)) / INITIAL_STD)


class ElectraEncoder(NarrowEncoder):
    """Embeddings as wide as it is stay as they are."""

    Projection = Projection

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(config)
        if config.embedding_size == config.hidden_size:
            self.embeddings_project = nn.Identity()


class ElectraPooler(Pooler):
    """Nothing in pretraining trains it; transformers' heads of tasks have it, the original has none."""

    def forward(self, token: Tensor) -> Tensor:
        """[B, H] -> [B, H]."""
        return F.gelu(self.dense(token))


class Electra(NarrowBert):
    """ELECTRA's encoder."""

    Encoder = ElectraEncoder
    Pooler = ElectraPooler


ARCHITECTURE = Architecture(config=ElectraConfig, encoder=Electra)
