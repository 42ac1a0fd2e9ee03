"""ALBERT (Lan et al. 2020): narrow embeddings, and one block that runs as often as there are layers.

Its sentence order is ``examples.pairs``, its n-gram masks and LAMB are no part of the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from torch import nn

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.flops import Workload, training_flops
from pipeline_src.models.names import BERT, Names
from pipeline_src.models.narrow_embeddings import NarrowBert, NarrowConfig, NarrowEncoder

OWN_EMBEDDING_WIDTH = True
REFUSED_OBJECTIVES = {"left_to_right": "it reads both directions, and transformers has no class for one"}
THEIRS = "albert.encoder.albert_layer_groups.0.albert_layers.0."  # the one block
OURS = "bert.encoder.layer.0."
PARTS = {  # of the block, ours -> theirs
    "attention.self.": "attention.",
    "attention.output.": "attention.",
    "intermediate.dense.": "ffn.",
    "output.dense.": "ffn_output.",
    "output.LayerNorm.": "full_layer_layer_norm.",
}

ALBERT = Names(
    model_type="albert",
    title="ALBERT",
    paper="Lan et al. 2020, [ALBERT: A Lite BERT](https://arxiv.org/abs/1909.11942)",
    classes={
        "pretraining": "AlbertForPreTraining",
        "masked_words": "AlbertForMaskedLM",
        "next_sentence": "AlbertModel",
        "encoder": "AlbertModel",
        "sequence": "AlbertForSequenceClassification",
        "choice": "AlbertForMultipleChoice",
        "span": "AlbertForQuestionAnswering",
        "token": "AlbertForTokenClassification",
    },
    output_layers=BERT.output_layers,
    fixed={"num_hidden_groups": (1,), "inner_group_num": (1,)},
    loaded=(
        (r"^(embeddings|encoder|pooler)\.", r"albert.\1."),
        (f"^{THEIRS}attention\\.(query|key|value)\\.", rf"{OURS}attention.self.\1."),
        (f"^{THEIRS}attention\\.", f"{OURS}attention.output."),
        *((f"^{THEIRS}{re.escape(theirs)}", f"{OURS}{ours}") for ours, theirs in PARTS.items()),
        (r"^albert\.encoder\.embedding_hidden_mapping_in\.", "bert.encoder.embeddings_project."),
        (r"^albert\.pooler\.", "bert.pooler.dense."),
        (r"^albert\.", "bert."),
        (r"^predictions\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^predictions\.bias$", "cls.predictions.decoder.bias"),
        (r"^predictions\.decoder\.", "cls.predictions.decoder."),
        (r"^sop_classifier\.classifier\.", "cls.seq_relationship."),
    ),
    saved=(
        *((f"^{OURS}{ours}", f"{THEIRS}{theirs}") for ours, theirs in PARTS.items()),
        (r"^bert\.encoder\.embeddings_project\.", "albert.encoder.embedding_hidden_mapping_in."),
        (r"^bert\.pooler\.dense\.", "albert.pooler."),
        (r"^bert\.", "albert."),
        (r"^cls\.predictions\.transform\.", "predictions."),
        (r"^cls\.predictions\.decoder\.bias$", "predictions.bias"),
        (r"^cls\.seq_relationship\.", "sop_classifier.classifier."),
    ),
)


class AlbertConfig(NarrowConfig):
    """Its embeddings are projected at any width, as in transformers."""

    names: ClassVar[Names] = ALBERT

    def training_flops(self, work: Workload) -> int:
        """As :func:`pipeline_src.models.flops.training_flops`; embeddings of any width are projected."""
        as_wide = self.embedding_size == self.hidden_size
        return training_flops(self, work) + (6 * self.hidden_size**2 * work.tokens if as_wide else 0)


class AlbertEncoder(NarrowEncoder):
    """One block many times; its gradient is the sum of what each run of it gives."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(replace(config, num_hidden_layers=1))
        self.layers = config.num_hidden_layers

    def blocks(self) -> Sequence[nn.Module]:
        """The one block, as often as there are layers."""
        return [self.layer[0]] * self.layers


class Albert(NarrowBert):
    """ALBERT's encoder."""

    Encoder = AlbertEncoder


ARCHITECTURE = Architecture(config=AlbertConfig, encoder=Albert)
