"""ELECTRA's encoder (Clark et al. 2020): BERT with embeddings that may be narrower than the hidden size.

Generator and discriminator are both encoders of this kind. Their pretraining is in ``family/electra/objective.py``.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import nn

from pipeline_src.family.factorized import FactorizedBert, FactorizedConfig, FactorizedEncoder
from pipeline_src.model.adapter import BERT, TWO_LAYERS_LOADED, TWO_LAYERS_SAVED, StateDictAdapter, huggingface_classes
from pipeline_src.model.bert import INITIAL_STD, Architecture, GeluPooler

ELECTRA = StateDictAdapter(
    model_type="electra",
    title="ELECTRA",
    paper=(
        "Clark et al. 2020, "
        "[ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators](https://arxiv.org/abs/2003.10555)"
    ),
    classes=huggingface_classes("Electra", replaced="ForPreTraining", causal_lm="ForCausalLM"),
    fixed={**BERT.fixed, **{"summary_type": ("first",), "summary_use_proj": (True,), "summary_activation": ("gelu",)}},
    from_hf=(
        (r"^electra\.", "bert."),
        (r"^generator_predictions\.", "cls.predictions.transform."),
        (r"^generator_lm_head\.", "cls.predictions.decoder."),
        (r"^sequence_summary\.summary\.", "bert.pooler.dense."),
        *TWO_LAYERS_LOADED,
        *BERT.from_hf,
        (r"^(bert\.)?embeddings_project\.", "bert.encoder.embeddings_project."),
    ),
    to_hf=(
        (r"^cls\.predictions\.transform\.", "generator_predictions."),
        (r"^cls\.predictions\.decoder\.bias$", "generator_lm_head.bias"),
        (r"^bert\.encoder\.embeddings_project\.", "bert.embeddings_project."),
        (r"^bert\.pooler\.dense\.", "sequence_summary.summary."),
        (r"^bert\.", "electra."),
    ),
    to_hf_tasks={"sequence": TWO_LAYERS_SAVED},
)


class ElectraConfig(FactorizedConfig):
    names: ClassVar[StateDictAdapter] = ELECTRA
    dropout_before_pooler: ClassVar[bool] = True

    @property
    def head_gelu(self) -> str:
        # transformers' MLM head has the exact GELU, whatever ``hidden_act`` is.
        return "none"


class Projection(nn.Linear):
    # The projection has Glorot initialisation, TensorFlow's default, as in the original code.

    def custom_init(self) -> None:
        self.weight.mul_(math.sqrt(2 / (self.in_features + self.out_features)) / INITIAL_STD)


class ElectraEncoder(FactorizedEncoder):
    # Embeddings are projected only if they are narrower than the hidden size.

    Projection = Projection

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(config)
        if config.embedding_size == config.hidden_size:
            self.embeddings_project = nn.Identity()
        elif config.position_init == "neighbor_heads":
            # It starts near the identity, without the factor of the Glorot initialisation.
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)


class Electra(FactorizedBert):
    Encoder = ElectraEncoder
    Pooler = GeluPooler


ARCHITECTURE = Architecture(config=ElectraConfig, encoder=Electra)
