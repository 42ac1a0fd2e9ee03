"""ALBERT (Lan et al. 2020): factorized embeddings, and one block shared by all layers.

Sentence order prediction, n-gram masking and LAMB are not part of the encoder. They are settings in params.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from torch import nn

from pipeline_src.family.factorized import FactorizedBert, FactorizedConfig, FactorizedEncoder
from pipeline_src.model.adapter import StateDictAdapter, huggingface_classes
from pipeline_src.model.bert import Architecture
from pipeline_src.model.flops import Workload, training_flops

# Prefixes of the shared block's parameter names, for transformers and for this project.
HF_BLOCK = "albert.encoder.albert_layer_groups.0.albert_layers.0."
BLOCK = "bert.encoder.layer.0."
# Names of the block's layers: this project -> transformers.
PARTS = {
    "attention.self.": "attention.",
    "attention.output.": "attention.",
    "intermediate.dense.": "ffn.",
    "output.dense.": "ffn_output.",
    "output.LayerNorm.": "full_layer_layer_norm.",
}

ALBERT = StateDictAdapter(
    model_type="albert",
    title="ALBERT",
    paper="Lan et al. 2020, [ALBERT: A Lite BERT](https://arxiv.org/abs/1909.11942)",
    classes=huggingface_classes("Albert", pretraining="ForPreTraining"),
    absent={"hidden_act": "gelu_new", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    fixed={
        **{"num_hidden_groups": (1,), "inner_group_num": (1,)},
        **{"position_embedding_type": ("absolute", None), "is_decoder": (False,)},
    },
    from_hf=(
        (r"^(embeddings|encoder|pooler)\.", r"albert.\1."),
        (f"^{HF_BLOCK}attention\\.(query|key|value)\\.", rf"{BLOCK}attention.self.\1."),
        (f"^{HF_BLOCK}attention\\.", f"{BLOCK}attention.output."),
        *((f"^{HF_BLOCK}{re.escape(hf_part)}", f"{BLOCK}{part}") for part, hf_part in PARTS.items()),
        (r"^albert\.encoder\.embedding_hidden_mapping_in\.", "bert.encoder.embeddings_project."),
        (r"^albert\.pooler\.", "bert.pooler.dense."),
        (r"^albert\.", "bert."),
        (r"^predictions\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^predictions\.bias$", "cls.predictions.decoder.bias"),
        (r"^predictions\.decoder\.", "cls.predictions.decoder."),
        (r"^sop_classifier\.classifier\.", "cls.seq_relationship."),
    ),
    to_hf=(
        *((f"^{BLOCK}{part}", f"{HF_BLOCK}{hf_part}") for part, hf_part in PARTS.items()),
        (r"^bert\.encoder\.embeddings_project\.", "albert.encoder.embedding_hidden_mapping_in."),
        (r"^bert\.pooler\.dense\.", "albert.pooler."),
        (r"^bert\.", "albert."),
        (r"^cls\.predictions\.transform\.", "predictions."),
        (r"^cls\.predictions\.decoder\.bias$", "predictions.bias"),
        (r"^cls\.seq_relationship\.", "sop_classifier.classifier."),
    ),
)


class AlbertConfig(FactorizedConfig):
    # As in transformers, embeddings are projected even if they are as wide as the hidden states.

    names: ClassVar[StateDictAdapter] = ALBERT

    def training_flops(self, work: Workload) -> int:
        # ``training_flops`` counts no projection if embeddings are as wide as the hidden states, but ALBERT has one.
        same_width = self.embedding_size == self.hidden_size
        return training_flops(self, work) + (6 * self.hidden_size**2 * work.tokens if same_width else 0)


class AlbertEncoder(FactorizedEncoder):
    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(replace(config, num_hidden_layers=1))
        self.layers = config.num_hidden_layers

    def blocks(self) -> Sequence[nn.Module]:
        return [self.layer[0]] * self.layers


class Albert(FactorizedBert):
    Encoder = AlbertEncoder


ARCHITECTURE = Architecture(config=AlbertConfig, encoder=Albert)
