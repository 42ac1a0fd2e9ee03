"""Stages ``pretrain_short`` and ``pretrain_long``: masked words and next sentences (paper, section 3.1, A.2)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch
from torch.optim import Optimizer

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, read_json, write_json
from pipeline_src.common.paths import PRETRAIN_LOGS, PRETRAIN_RESULTS, PRETRAINED, VOCABULARY
from pipeline_src.common.progress import log
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.card import read_sources, write_card
from pipeline_src.models.card_kinds import PRETRAINED_CLASSES, pretrained_card
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import load_weights, save_model
from pipeline_src.objectives.next_sentence import next_sentence
from pipeline_src.params.model import ModelParams
from pipeline_src.params.pretrain import PretrainParams
from pipeline_src.pretraining.loading.batches import EXAMPLES, TOKENS, Cut, open_examples
from pipeline_src.pretraining.loading.readable import shown_examples
from pipeline_src.pretraining.recorder import IN_CURVE, Recorder, measured_after
from pipeline_src.pretraining.tensor_batch import TensorBatch, tensor_batches
from pipeline_src.pretraining.validation import ValidationSet
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.checkpoint import Checkpoints
from pipeline_src.training.compute_tracker import CostMeter
from pipeline_src.training.distributed import Team, join_team
from pipeline_src.training.identity import checkpoint_identity, machine
from pipeline_src.training.loop import Loop, Term, TrainState
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.training.state import load_state, save_state
from pipeline_src.training.stop_request import stop_requests

CARD_COSTS = ("steps", "sequences", "tokens", "flops")
TRAINED = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy")
CURVE = ("step", *TRAINED, "grad_norm", "learning_rate", *(f"validation_{name}" for name in IN_CURVE))
COUNTED = {"sequences": "sequences", "tokens": "tokens", "squares": "squares", "predictions": "mlm"}  # what costs


def run(*, seed: int, mask_prob: float, model: ModelParams, pretrain: PretrainParams, phase: str) -> None:
    """Train one phase: read tokens, examples (and the phase before), write the model, its figures and its curve.

    It goes on from its newest checkpoint, where there is one of the same parameters, data and code. Among several
    processes the first one measures and writes.

    Raises:
        PipelineError: an input is missing, the phase is unknown, or training diverges.
        Interrupted: a signal asked to stop; where it was is saved.
    """
    if phase not in ("short", "long"):
        raise PipelineError("unknown phase", phase, where="--phase", remedy="give short or long")
    what = f"pretraining, {phase}"
    torch.set_num_threads(pretrain.threads)
    with stop_requests() as asked, join_team() as team:
        _check_share(pretrain, team)
        tokenizer = load_tokenizer(VOCABULARY)
        examples = open_examples(phase, "train", tokenizer, mask_prob, pretrain.masking, seed, pretrain.objective)
        validation = ValidationSet(phase, tokenizer, pretrain.objective, examples.store)
        causal = pretrain.objective == "left_to_right"
        config = make_config(model, tokenizer.get_vocab_size(), causal, pretrain.recompute)
        bert, optimiser = make_model(config, pretrain, examples.has_pairs, team.device)

        before = pretrain.steps.short if phase == "long" else 0
        last = before + getattr(pretrain.steps, phase)
        settings = checkpoint_identity(seed=seed, mask_prob=mask_prob, model=model, pretrain=pretrain, phase=phase)
        checkpoints = Checkpoints(phase, settings, machine(team))
        restored = checkpoints.restore(bert, optimiser)
        if restored is None:
            begin(phase, bert, optimiser, seed, before)
        reached = restored.reached if restored else TrainState(before)
        size = sum(parameter.numel() for parameter in bert.parameters())
        log.info("%d parameters, %d examples, %s", size, len(examples), team.device)
        if restored:
            log.info("going on from the checkpoint of step %d", reached.step)
        if pretrain.compile and team.device.type == "cuda":
            bert.compile(dynamic=True)

        shared = team.share(bert)
        total = pretrain.steps.short + pretrain.steps.long
        every = max(1, total // pretrain.curve_points)
        meter = CostMeter(
            config,
            team.device,
            restored.cost if restored else None,
            parameters=size,
            tokens_per_batch=pretrain.batch * read_json(EXAMPLES / "manifest.json")[phase]["length"],
            processes=team.size,
        )
        loop = Loop(
            shared,
            Objective(shared, examples.has_pairs),
            optimiser,
            linear_schedule(pretrain.learning_rate, pretrain.warmup, total),
            last=last,
            row_ends=lambda step: step % every == 0 or measured_after(step, pretrain),
            what=what,
            stream=derive_seed(seed, "dropout", phase),
            team=team,
            reached=reached,
            asked=lambda: bool(asked),
            rates=meter.rates,
        )
        cut = Cut(pretrain.max_tokens, team.rank, team.size)
        order = derive_seed(seed, "order", phase)
        batches = examples.batches(pretrain.batch, order, loop.step - before, last - loop.step, cut)

        def save(folder: Path, figures: Mapping[str, float]) -> None:
            """A model folder; ``figures`` are of validation text, where it was measured."""
            trained = {name: loop.rows[-1][name] for name in TRAINED if loop.rows and name in loop.rows[-1]}
            card = pretrained_card(
                config,
                size,
                pretrain.objective,
                examples.pairs,
                read_sources(read_json(TOKENS / "manifest.json")),
                {"seed": seed, "mask_prob": mask_prob, "step": loop.step, **pretrain.model_dump()},
                {"training text": trained, "validation text": figures},
                {name: cost for name, cost in meter.deterministic().items() if name in CARD_COSTS},
            )
            save_model(folder, bert, config, PRETRAINED_CLASSES[pretrain.objective], VOCABULARY, write_card(card))

        recorder = (
            Recorder(loop, bert, optimiser, pretrain, validation, checkpoints, meter, save) if team.leads else None
        )
        for step in loop.run(tensor_batches(batches, examples.has_pairs, team.device)):
            meter.add(**{name: int(loop.counts[counted]) for name, counted in COUNTED.items()})
            stopping = loop.stopping and step < last
            if recorder:
                recorder.after(step, stopping)
            if stopping:
                team.wait()  # a launcher ends every process when the first one ends
                raise asked.stop(what, step)

    if team.leads:
        figures = validation.measure(bert)
        filled = loop.notes + validation.masks.ask(bert, last)
        with atomic_directory(PRETRAINED / phase) as folder:
            save(folder, figures)
            save_state(folder / "training_state", bert, optimiser, last)
            for step in pretrain.keep_steps:
                if before < step <= last:
                    shutil.copytree(checkpoints.kept_model(step), folder / "steps" / str(step))
        with atomic_file(PRETRAIN_RESULTS / f"{phase}.tsv") as file:
            table = pd.DataFrame(loop.rows).reindex(columns=list(CURVE))  # columns that no row has stay empty
            table.to_csv(file, sep="\t", index=False, float_format="%.6g", lineterminator="\n")
        write_json(
            PRETRAIN_RESULTS / f"{phase}.json",
            {
                "phase": phase,
                "objective": pretrain.objective,
                "steps": last - before,
                "steps_before": before,
                "batch": pretrain.batch,
                "mask_prob": mask_prob,
                "parameters": size,
                "config": config.as_dict(),
                "pairs": examples.pairs,
                "cost": meter.deterministic(),
                "train": {name: loop.rows[-1][name] for name in TRAINED if name in loop.rows[-1]},
                "validation": figures,
                "shown_examples": shown_examples(examples, tokenizer, seed),
                **({"fill_mask": filled} if filled else {}),
            },
        )
        write_json(PRETRAIN_LOGS / f"{phase}.cost.json", meter.measured())
        checkpoints.finish()


class Objective:
    """Both tasks of pretraining over a piece of a batch; the loss is the sum of their means (paper, appendix A.2)."""

    def __init__(self, model: torch.nn.Module, next_sentence: bool) -> None:
        self.model, self.next_sentence = model, next_sentence

    def __call__(self, piece: TensorBatch) -> Mapping[str, Term]:
        """The sums of the losses of words and of pairs."""
        words, pairs = self.model(
            piece.ids, piece.segments, piece.cu_seqlens, piece.predicted, piece.max_seqlen, piece.labels
        )
        terms = {"mlm": Term(*words)}
        if self.next_sentence:
            terms["nsp"] = Term(*next_sentence(pairs, piece.pair_label))
        return terms


def make_model(
    config: BertConfig, params: PretrainParams, pairs: bool, device: torch.device
) -> tuple[BertForPretraining, Optimizer]:
    """A model whose weights hold nothing yet, and its optimiser; without ``pairs`` nothing trains what serves them."""
    with torch.device("meta"):  # drawing weights that a checkpoint replaces would take seconds
        bert = BertForPretraining(config)
    bert.to_empty(device=device)
    bert.tie()
    if not pairs:
        for part in (bert.bert.pooler, bert.cls["seq_relationship"]):
            part.requires_grad_(False)
    return bert, make_optimiser(bert, params.learning_rate, params.weight_decay, params.optimiser)


def begin(phase: str, bert: BertForPretraining, optimiser: Optimizer, seed: int, before: int) -> None:
    """Fill in the weights a phase starts from: drawn anew, or with their moments those of the phase before.

    Raises:
        PipelineError: that phase is missing, or took other than ``before`` steps.
    """
    if phase == "short":
        drawn = BertForPretraining(bert.bert.config)  # on the CPU, so that every machine starts from the same weights
        initialise(drawn, torch.Generator().manual_seed(derive_seed(seed, "weights") >> 1))
        bert.load_state_dict(drawn.state_dict())
        return
    load_weights(bert, PRETRAINED / "short")
    taken = load_state(PRETRAINED / "short" / "training_state", bert, optimiser)
    if taken != before:
        raise PipelineError(
            "the first phase took another number of steps", f"{taken}, not {before}", where=PRETRAINED / "short",
            remedy="run pretrain_short again",
        )  # fmt: skip


def _check_share(pretrain: PretrainParams, team: Team) -> None:
    if pretrain.batch < team.size:
        raise PipelineError(
            "more processes than sequences in a batch", f"{team.size} processes", where="pretrain.batch",
            remedy=f"start at most {pretrain.batch} processes",
        )  # fmt: skip


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
