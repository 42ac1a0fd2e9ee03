"""Configs of transformers, drawn at random: each is refused by the name of an option, or gives the same outputs.

The seed is ``PARITY_SEED``, by default the day's (tests/conftest.py); ``PARITY_DRAWS`` is the number of configs of each
architecture.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import BertForPretraining, architecture_name, load_architecture
from pipeline_src.model.hub import filled, load_config, read_tensors, save_tensors
from pipeline_src.pretrain.import_model import select_tensors

transformers = pytest.importorskip("transformers")
SEED = int(os.environ["PARITY_SEED"])
DRAWS = int(os.environ.get("PARITY_DRAWS", 2))
POSITIONS, LENGTHS = 48, (40, 7, 1, 23)
TASKS = ("sequence", "choice", "span", "token")
ALWAYS_STORED = (
    "model_type",
    "num_attention_heads",
)  # the only size drawn that is a default of transformers, ELECTRA's


@dataclass(frozen=True)
class Options:
    """Values of an architecture's config options."""

    built: dict[str, list[Any]] = field(default_factory=dict)
    refused: dict[str, list[Any]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


FULL, LOCAL = "full_attention", "sliding_attention"
ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh"]
COMMON: dict[str, list[Any]] = {
    "layer_norm_eps": [1e-12, 1e-7, 1e-5, 1e-3],
    "hidden_act": ACTIVATIONS,
    "type_vocab_size": [1, 2, 3],
    "max_position_embeddings": [POSITIONS, 64],
}
UNSUPPORTED: dict[str, list[Any]] = {"hidden_act": ["relu", "silu"]}
ENCODES_ONLY = UNSUPPORTED | {"is_decoder": [True]}
DEBERTA: dict[str, list[Any]] = {
    **COMMON,
    "relative_attention": [True],
    "pos_att_type": [["p2c", "c2p"], ["c2p", "p2c"], "c2p|p2c"],
    "type_vocab_size": [0, 1, 2],
    "position_biased_input": [False, True],
    "max_relative_positions": [-1, 8, 16, 64],
    "legacy": [False, True],
}
NOT_DEBERTA: dict[str, list[Any]] = {
    **ENCODES_ONLY,
    "pos_att_type": [["c2p"], ["p2c"], "p2c", [], None, ["c2p", "p2c", "p2p"]],
    "relative_attention": [False],
    "pooler_hidden_act": ["tanh"],
    "embedding_size": [12],
}
OPTIONS = {
    "bert": Options(COMMON | {"is_decoder": [False, False, True]}, UNSUPPORTED),
    "roberta": Options(COMMON | {"is_decoder": [False, False, True], "pad_token_id": [0, 1, 3]}, UNSUPPORTED),
    "albert": Options(COMMON | {"embedding_size": [16, 32, 128]}, ENCODES_ONLY | {"num_hidden_groups": [2]}),
    "distilbert": Options(
        {"activation": ACTIVATIONS, "max_position_embeddings": [POSITIONS, 64]},
        {"activation": ["relu"], "sinusoidal_pos_embds": [True], "layer_norm_eps": [1e-3], "type_vocab_size": [2]},
        {"num_hidden_layers": "n_layers", "hidden_size": "dim", "num_attention_heads": "n_heads"}
        | {"intermediate_size": "hidden_dim"},
    ),
    "electra": Options(
        COMMON | {"embedding_size": [16, 32, 128], "is_decoder": [False, False, True]},
        UNSUPPORTED | {"summary_activation": ["tanh"], "summary_type": ["mean"]},
    ),
    "deberta": Options(DEBERTA, NOT_DEBERTA | {"talking_head": [True]}),
    "deberta-v2": Options(
        DEBERTA
        | {"position_buckets": [-1, 4, 8, 256], "share_att_key": [True], "norm_rel_ebd": ["layer_norm"]}
        | {"conv_kernel_size": [0, 3], "conv_act": ["tanh", "gelu"]},
        NOT_DEBERTA
        | {"share_att_key": [False], "norm_rel_ebd": ["none"], "attention_head_size": [6]}
        | {"conv_kernel_size": [5], "position_buckets": [1]},
    ),
    "modernbert": Options(
        {"norm_eps": [1e-5, 1e-3], "local_attention": [2, 7, 8, 128], "global_attn_every_n_layers": [1, 2, 3, 9]}
        | {"hidden_activation": ACTIVATIONS, "max_position_embeddings": [POSITIONS, 8192]}
        | {"rope_parameters": [None, {kind: {"rope_type": "default", "rope_theta": 500.0} for kind in (FULL, LOCAL)}]},
        {"hidden_activation": ["relu"], "classifier_activation": ["tanh"], "classifier_pooling": ["mean"]}
        | {"layer_types": [[LOCAL, FULL, LOCAL], [FULL, FULL, LOCAL], [LOCAL] * 3]}
        | {"norm_bias": [True], "attention_bias": [True], "mlp_bias": [True], "decoder_bias": [False]}
        | {"classifier_bias": [True], "is_decoder": [True]}
        | {"rope_parameters": [{FULL: {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}}]},
    ),
}


@dataclass(frozen=True)
class Draw:
    """A random transformers config, the use of its model, and the option to be rejected, if any."""

    model_type: str
    use: str
    values: dict[str, Any]
    refused: str | None
    generator: np.random.Generator


def draw(model_type: str, number: int) -> Draw:
    options = OPTIONS[model_type]
    generator = np.random.default_rng([SEED, number, sorted(OPTIONS).index(model_type)])

    def one(values: Any) -> Any:
        return values[generator.integers(len(values))]

    heads = one([1, 2, 4])
    sizes = {"vocab_size": one([50, 77]), "hidden_size": heads * one([8, 16]), "num_attention_heads": heads}
    sizes |= {"num_hidden_layers": 3, "intermediate_size": one([24, 40])}
    values = {options.names.get(key, key): value for key, value in sizes.items()}
    values |= {key: one(choice) for key, choice in options.built.items()}
    if model_type == "modernbert":
        values |= {"classifier_activation": values["hidden_activation"], "pad_token_id": 0}
        values |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    uses = ["causal_lm", "encoder"] if values.get("is_decoder") else ["pretraining", "masked_lm", "encoder", *TASKS]
    if model_type == "deberta":
        # transformers has no class for this use.
        uses.remove("choice")
    refused = one(list(options.refused)) if generator.random() < 1 / 4 else None
    if refused:
        values[refused] = one(options.refused[refused])
    if refused == "classifier_pooling":
        uses = list(TASKS)  # for others, it is ignored
    return Draw(model_type, one(uses), values, refused, generator)


def class_name(drawn: Draw) -> str:
    return load_architecture(architecture_name(drawn.model_type)).names.classes[drawn.use]


def build(drawn: Draw, folder: Path) -> Any:
    """Save a transformers model, remove some default values from its config.json, and return it."""
    config_class = transformers.CONFIG_MAPPING[drawn.model_type]
    config = config_class(**drawn.values)
    with torch.random.fork_rng():
        torch.manual_seed(int(drawn.generator.integers(1 << 30)))
        model = getattr(transformers, class_name(drawn))(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    raw, usual = read_json(folder / "config.json"), config_class().to_dict()
    selected = {
        key: value
        for key, value in raw.items()
        if key in ALWAYS_STORED or key not in usual or value != usual[key] or drawn.generator.random() < 0.5
    }
    write_json(folder / "config.json", selected)
    return type(model).from_pretrained(folder, attn_implementation="eager").eval()


def close(found: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{what}: {text}")


@pytest.mark.parametrize("number", range(DRAWS))
@pytest.mark.parametrize("model_type", OPTIONS)
def test_load_config_random_config_is_rejected_or_equals_transformers(model_type, number, tmp_path):
    sampled = draw(model_type, number)
    note = f"PARITY_SEED={SEED}, draw {number}: {sampled.use}, {sampled.values}, refused: {sampled.refused}"
    try:
        check(sampled, tmp_path)
    except BaseException as error:  # pytest's own failure is no Exception
        error.add_note(note)
        raise


@torch.no_grad()
def check(drawn: Draw, folder: Path) -> None:
    if drawn.refused:
        config = transformers.CONFIG_MAPPING[drawn.model_type](**drawn.values)
        config.save_pretrained(folder)
        with pytest.raises(PipelineError, match=f"not a supported BERT model: .*{drawn.refused}"):
            load_config(folder)
        return
    reference = build(drawn, folder)
    config = load_config(folder)
    pad = getattr(config, "pad_token_id", 0)
    keep = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.from_numpy(drawn.generator.integers(5, config.vocab_size, keep.shape)).masked_fill(~keep, pad)
    types = torch.from_numpy(drawn.generator.integers(0, max(1, config.type_vocab_size), keep.shape))
    inputs = {"input_ids": ids, "attention_mask": keep.long()} | (
        {"token_type_ids": types} if config.type_vocab_size else {}
    )
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0)
    flat = ids[keep], types[keep], cu_seqlens
    layout = PackedBatch.of(cu_seqlens, sum(LENGTHS))
    tensors = read_tensors(folder, config.names)
    if drawn.use in TASKS:
        outputs = reference(
            **{key: value[:, None] if drawn.use == "choice" else value for key, value in inputs.items()}
        )
        outs = 1 if drawn.use == "choice" else reference.config.num_labels
        ours = filled(lambda known: BertForTask(known, drawn.use, outs), config, tensors, folder, tuple(tensors))
        result = ours.eval()(*flat)
        if drawn.use == "span":
            expected = torch.stack([outputs.start_logits, outputs.end_logits], -1)[keep]
        else:
            expected = outputs.logits[keep] if drawn.use == "token" else outputs.logits
        close(result, expected, drawn.use)
        return
    selected, parts = select_tensors(tensors, config, folder)
    (folder / "again").mkdir()
    save_tensors(folder / "again", selected, config, class_name(drawn))
    for source in (folder, folder / "again"):
        again = load_config(source)
        outputs = (
            reference if source is folder else type(reference).from_pretrained(source, attn_implementation="eager")
        )(**inputs, output_hidden_states=True)
        ours = filled(BertForPretraining, again, selected, source, tuple(selected)).eval()
        states = ours.bert.hidden_states(*flat[:2], layout)
        for layer, (first, second) in enumerate(zip(states[1:], outputs.hidden_states[1:], strict=True)):
            close(first, second[keep], f"layer {layer}")
        if "masked words" in parts:
            logits = outputs.get("logits", outputs.get("prediction_logits"))
            close(ours(*flat, torch.arange(sum(LENGTHS)))[0], logits[keep], "MLM")
        pooled = outputs.get("pooler_output")
        if pooled is not None and not config.is_decoder:
            close(ours.bert.pool(states[-1], layout), pooled, "pooler")
        pairs = outputs.get("seq_relationship_logits", outputs.get("sop_logits"))
        if pairs is not None:
            close(ours(*flat, torch.arange(1))[1], pairs, "pair")
