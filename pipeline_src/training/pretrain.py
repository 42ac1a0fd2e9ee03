"""Stages ``pretrain_short`` and ``pretrain_long``: masked words and next sentences (paper, section 3.1, A.2)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from pipeline_src.errors import PipelineError
from pipeline_src.examples.keyed import key
from pipeline_src.examples.loading import PretrainingBatch, open_examples
from pipeline_src.files import atomic_directory, atomic_file, write_json
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import load_weights, save_model
from pipeline_src.objectives.mlm import masked_words
from pipeline_src.objectives.nsp import next_sentence
from pipeline_src.params.model import ModelParams
from pipeline_src.params.pretrain import Masking, PretrainParams
from pipeline_src.progress import log
from pipeline_src.training.heldout import measure_heldout
from pipeline_src.training.loop import device_here, train
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.training.state import load_state, save_state
from pipeline_src.vocabulary.wordpiece import load_tokenizer

VOCABULARY = Path("data/vocabulary")
MODELS, RESULTS = Path("models/pretrained"), Path("results/pretrain")
HELDOUT_MASK_PROB = 0.15  # the paper's rate, whatever the study's own, so that studies compare
HELDOUT_SEED = 0
CURVE = ("step", "loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy", "grad_norm", "learning_rate")


def run(*, seed: int, mask_prob: float, model: ModelParams, pretrain: PretrainParams, phase: str) -> None:
    """Train one phase: read tokens, examples (and the phase before), write the model, its figures and its curve.

    Raises:
        PipelineError: an input is missing, the phase is unknown, or training diverges.
    """
    if phase not in ("short", "long"):
        raise PipelineError("unknown phase", phase, where="--phase", remedy="give short or long")
    torch.set_num_threads(pretrain.threads)
    torch.manual_seed(key(seed, "dropout", phase) >> 1)
    tokenizer = load_tokenizer(VOCABULARY)
    config = make_config(model, tokenizer.get_vocab_size())
    bert = BertForPretraining(config)
    initialise(bert, torch.Generator().manual_seed(key(seed, "weights") >> 1))
    device = device_here()
    bert.to(device)
    optimiser = make_optimiser(bert, pretrain.learning_rate, pretrain.weight_decay)
    steps, first_step = getattr(pretrain.steps, phase), 0
    if phase == "long":
        load_weights(bert, MODELS / "short")
        first_step = load_state(MODELS / "short" / "training_state", bert, optimiser)

    training = open_examples(phase, "train", tokenizer, mask_prob, pretrain.masking, seed)
    log.info("%d parameters, %d examples, %s", sum(p.numel() for p in bert.parameters()), len(training), device)

    def objective(batch: PretrainingBatch) -> dict[str, Tensor]:
        def tensor(name: str) -> Tensor:
            return torch.from_numpy(getattr(batch, name)).to(device, non_blocking=True)

        words, pairs = bert(tensor("ids"), tensor("segments"), tensor("starts"), tensor("predicted"))
        mlm_loss, mlm_accuracy = (total / len(batch.labels) for total in masked_words(words, tensor("labels")))
        if not training.next_sentence:
            return {"loss": mlm_loss, "mlm_loss": mlm_loss, "mlm_accuracy": mlm_accuracy}
        nsp_loss, nsp_accuracy = (total / len(pairs) for total in next_sentence(pairs, tensor("is_random")))
        return {
            "loss": mlm_loss + nsp_loss,  # paper, appendix A.2: the sum of the mean likelihoods
            "mlm_loss": mlm_loss,
            "nsp_loss": nsp_loss,
            "mlm_accuracy": mlm_accuracy,
            "nsp_accuracy": nsp_accuracy,
        }

    total = pretrain.steps.short + pretrain.steps.long
    curve = list(
        train(
            bert,
            training.batches(pretrain.batch, key(seed, "order", phase), 0, steps),
            objective,
            optimiser,
            linear_schedule(pretrain.learning_rate, pretrain.warmup, total),
            first_step,
            steps,
            f"pretraining, {phase}",
            max(1, total // pretrain.curve_points),
        )
    )
    heldout = open_examples(phase, "heldout", tokenizer, HELDOUT_MASK_PROB, Masking(), HELDOUT_SEED)
    figures = measure_heldout(bert, heldout, training.store.counts(config.vocab_size))
    log.info("held out: %s", ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    with atomic_directory(MODELS / phase) as folder:
        save_model(folder, bert, config, "BertForPreTraining", VOCABULARY)
        save_state(folder / "training_state", bert, optimiser, first_step + steps)
    with atomic_file(RESULTS / f"{phase}.tsv") as file:
        table = pd.DataFrame(curve).reindex(columns=list(CURVE))  # without next sentences, two columns stay empty
        table.to_csv(file, sep="\t", index=False, float_format="%.6g", lineterminator="\n")
    write_json(
        RESULTS / f"{phase}.json",
        {
            "phase": phase,
            "steps": steps,
            "steps_before": first_step,
            "batch": pretrain.batch,
            "mask_prob": mask_prob,
            "parameters": sum(parameter.numel() for parameter in bert.parameters()),
            "config": config.as_dict(),
            "next_sentence": training.next_sentence,
            "train": {name: curve[-1][name] for name in CURVE[1:6] if name in curve[-1]},
            "heldout": figures,
        },
    )


def make_config(model: ModelParams, entries: int, causal: bool = False, recompute: bool = False) -> BertConfig:
    """The encoder over a vocabulary of ``entries``; heads = H / 64, feed-forward = 4 H (paper, section 3)."""
    return BertConfig(
        vocab_size=entries,
        hidden_size=model.hidden,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads or max(1, model.hidden // 64),
        intermediate_size=model.feed_forward or 4 * model.hidden,
        max_position_embeddings=model.positions,
        hidden_dropout_prob=model.dropout,
        hidden_act=model.activation,
        attention_probs_dropout_prob=model.attention_dropout,
        is_decoder=causal,
        attention=model.attention,
        recompute=recompute,
    )
