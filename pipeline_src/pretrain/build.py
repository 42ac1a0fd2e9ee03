"""Build a phase's objective: its architecture, its teacher and its initial weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.files import read_json
from pipeline_src.base.paths import START_MODEL, VOCABULARY
from pipeline_src.base.progress import log
from pipeline_src.base.registry import objective_spec
from pipeline_src.model.attention import choose
from pipeline_src.model.bert import BertConfig, load_architecture, uninitialised
from pipeline_src.model.hub import check_fits, load_config, read_tensors
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import PretrainingObjective, load_objective
from pipeline_src.pretrain.phases import Phase
from pipeline_src.pretrain.teacher import load_teacher
from pipeline_src.study.schema import Section
from pipeline_src.tokenizer.extend import EXTENDED
from pipeline_src.tokenizer.load import kind_of

# Tensors of shape [vocab_size, ...], with one row for each entry of the vocabulary.
PER_ENTRY = ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias")


def build_objective(
    phase: Phase, tokenizer: Tokenizer, pairs: str, device: torch.device
) -> PretrainingObjective[TensorBatch]:
    """Return the phase's objective on the CPU, with uninitialised weights.

    If the objective has a teacher, it is loaded with its weights and moved to ``device``.
    """
    params = phase.pretrain
    machine = phase.machine
    model = phase.model
    vocab_size = tokenizer.get_vocab_size()
    kind = load_objective(params.objective)
    spec = objective_spec(params.objective)
    if params.continued:
        config = load_config(START_MODEL)
        config = replace(
            config,
            # The study may have added entries to the start model's vocabulary.
            vocab_size=max(config.vocab_size, vocab_size),
            hidden_dropout_prob=model.hidden_dropout_prob,
            attention_probs_dropout_prob=model.attention_probs_dropout_prob,
        )
    else:
        vocabulary = kind_of(tokenizer)
        config = load_architecture(model.architecture).config.from_params(model, vocab_size, spec.causal)
        config = config.with_pad_id(vocabulary.id_of(tokenizer, vocabulary.pad))
    rope: dict[str, Any] = {"global_rope_theta": model.global_rope_theta} if model.global_rope_theta else {}
    config = replace(
        config,
        attention=choose(machine.attention, device, config.head_size),
        activation_checkpointing=machine.pretrain.activation_checkpointing,
        **rope,
    )
    teacher = None
    if kind.build_teacher is not None:
        teacher = load_teacher(Path(params.teacher), kind.build_teacher, config, tokenizer, device, "pretrain.teacher")
    return empty_objective(kind, config, pairs, phase.objective_params, teacher)


def empty_objective(
    kind: type[PretrainingObjective[Any]],
    config: BertConfig,
    pairs: str,
    objective_params: Section,
    teacher: nn.Module | None = None,
) -> PretrainingObjective[Any]:
    with uninitialised():
        objective = kind(config, pairs, objective_params)
        if teacher is not None:
            objective.set_teacher(teacher)
    objective.to_empty(device="cpu")
    objective.tie()
    return objective


def fill_weights(phase: Phase, objective: PretrainingObjective[Any], start: Path | None) -> None:
    if start is not None:
        objective.load_models(start)
        return
    objective.init_weights(torch.Generator().manual_seed(derive_seed(phase.seed, "weights") >> 1))
    if phase.pretrain.continued:
        fill_from_start_model(objective.saved_models()[""].module)


def fill_from_start_model(module: nn.Module) -> None:
    # Each entry that was added to the vocabulary starts from the mean weights of its subwords.
    config = load_config(START_MODEL)
    tensors = read_tensors(START_MODEL, config.names)
    old = config.vocab_size
    extended = read_json(VOCABULARY / EXTENDED, dict) if (VOCABULARY / EXTENDED).exists() else {}
    sampled = set()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            tensor = tensors.get(name)
            if tensor is None:
                sampled.add(name.rpartition(".")[0])
            elif name in PER_ENTRY:
                parameter[:old] = check_fits(name, tensor, torch.Size((old, *parameter.shape[1:])), START_MODEL)
                for entry, subwords in extended.items():
                    parameter[int(entry)] = tensor[subwords].mean(dim=0)
            else:
                parameter.copy_(check_fits(name, tensor, parameter.shape, START_MODEL))
    if sampled:
        log.info("random weights for layers that the start model lacks: %s", ", ".join(sorted(sampled)))
