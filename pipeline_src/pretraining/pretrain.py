"""Stages ``pretrain_phase1`` and ``pretrain_phase2``: train one encoder on text, in two phases (paper, appendix A.2).

:func:`fit` is a phase from its inputs to its outputs; the functions that it calls follow in the same order. The
objective (``objectives/``) decides what is learned: masked words and next sentences in the paper.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.common.counter_rng import PHASE_KEYS, derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, hash_file, read_json, write_json
from pipeline_src.common.fingerprint import fingerprint
from pipeline_src.common.paths import (
    EXAMPLES,
    LOGS,
    PRETRAIN_LOGS,
    PRETRAIN_RESULTS,
    PRETRAINED,
    START_MODEL,
    TOKENS,
    VOCABULARY,
)
from pipeline_src.common.progress import log
from pipeline_src.common.registry import objective_spec
from pipeline_src.config.machine import USUAL, Compile, Machine
from pipeline_src.config.model import ModelParams
from pipeline_src.config.pretrain import USUAL as USUAL_OBJECTIVES
from pipeline_src.config.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.config.schema import Section
from pipeline_src.models.attention import choose
from pipeline_src.models.bert import BertConfig, compile_parts, load_architecture, uninitialised
from pipeline_src.models.flops import Workload
from pipeline_src.models.hub import check_fits, load_config, load_weights, model_files, read_tensors, save_model
from pipeline_src.models.model_card import pretrained_card, read_mix, read_sources, write_card
from pipeline_src.pretraining.data import DataShard, PretrainingExamples, TensorBatch, open_examples, shown_examples
from pipeline_src.pretraining.diagnosis import Diagnoser, RunSettings
from pipeline_src.pretraining.tracking import Tracker
from pipeline_src.pretraining.validation import ValidationSet
from pipeline_src.tokenizer.extend import EXTENDED
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.checkpoint import (
    KEPT,
    Checkpoints,
    check_settings,
    environment,
    gathered_weights,
    load_state,
    save_state,
    saved_files,
    tensors_of,
)
from pipeline_src.training.distributed import (
    NO_SHARD,
    Distributed,
    distribute_like,
    init_distributed,
    shard,
    sharding_of,
)
from pipeline_src.training.loop import Loop, StopRequest, TrainState, catch_stop_requests
from pipeline_src.training.objective import PretrainingObjective, load_objective
from pipeline_src.training.optimizers import MOMENTS, linear_schedule, make_optimizer
from pipeline_src.training.teacher import load_teacher
from pipeline_src.training.throughput import ComputeTracker

PHASES = ("phase1", "phase2")
CODE = "pipeline_src.pretraining.pretrain"  # the module whose code decides the result
DATA = {  # small files that hold, or are, the checksums of the training data
    "tokens": TOKENS / "manifest.json",
    "examples": EXAMPLES / "manifest.json",
    "vocabulary": VOCABULARY / "tokenizer.json",
}
FIRST_PHASE = PRETRAINED / "phase1"
TRAINING_STATE = "training_state"
TRACKED = LOGS / "dvclive"
CARD_COSTS = ("steps", "sequences", "tokens", "flops")
OF_ENTRIES = ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias")  # a row for each entry
EARNED_BACK = 300  # seconds of training, of which the compiler saves a fifth or more; compiling takes about 60
UTILISATION = 0.25  # upper bound of the share of its peak that a GPU reaches without the compiler


@dataclass(frozen=True)
class Phase:
    """The parameters of one phase; steps are counted over both phases.

    Attributes:
        name: ``phase1`` or ``phase2``.
        seed, mask_prob, model, pretrain: values and sections of params.yaml.
        machine: settings that do not decide the result.
        objectives: the section of params.yaml with the parameters of every objective.

    Raises:
        PipelineError: there is no phase of that name.
    """

    name: str
    seed: int
    mask_prob: float
    model: ModelParams
    pretrain: PretrainParams
    machine: Machine = USUAL
    objectives: ObjectivesParams = USUAL_OBJECTIVES

    def __post_init__(self) -> None:
        if self.name not in PHASES:
            raise PipelineError("unknown phase", self.name, where="--phase", hint="give phase1 or phase2")

    @property
    def objective_params(self) -> Section:
        """The parameters of the phase's objective."""
        return self.objectives.of(self.pretrain.objective)

    @property
    def first(self) -> int:
        """Steps taken before the phase."""
        return self.pretrain.steps.phase1 if self.name == "phase2" else 0

    @property
    def last(self) -> int:
        """Steps taken at the end of the phase."""
        return self.total if self.name == "phase2" else self.pretrain.steps.phase1

    @property
    def total(self) -> int:
        """Steps of both phases, the length of the learning rate schedule."""
        return self.pretrain.steps.phase1 + self.pretrain.steps.phase2

    def key(self, purpose: str) -> int:
        """Return the key of the random numbers for ``purpose`` in this phase."""
        return derive_seed(self.seed, purpose, PHASE_KEYS[self.name])


def run(
    *,
    seed: int,
    mask_prob: float,
    model: ModelParams,
    pretrain: PretrainParams,
    objectives: ObjectivesParams = USUAL_OBJECTIVES,
    phase: str,
    machine: Machine = USUAL,
) -> None:
    """Train one phase: read tokens, examples and the phase before; write the model, its figures and its curve.

    Training continues from the newest checkpoint with the same parameters, data and code. A phase of 0 steps passes on
    the model that it starts from. Several processes measure together, and the main one writes.

    Raises:
        PipelineError: an input is missing, the phase is unknown, or training diverges.
        Interrupted: a signal requested a stop; the training state is saved.
    """
    check_settings()
    params = Phase(phase, seed, mask_prob, model, pretrain, machine, objectives)
    torch.set_num_threads(machine.pretrain.threads)
    with catch_stop_requests() as stop_request, init_distributed(machine.precision, machine.device) as distributed:
        fit(params, distributed, stop_request)


def fit(
    phase: Phase,
    distributed: Distributed,
    stop_request: StopRequest,
    after_step: Callable[[int], None] = lambda step: None,
    examples: PretrainingExamples | None = None,
) -> None:
    """Train a phase to its last step and write its outputs. All processes must call this.

    Args:
        phase: its parameters.
        distributed: the processes that train.
        stop_request: set when a signal has requested a stop.
        after_step: called with the number of steps taken, after everything that is due after a step.
        examples: to train on; None opens those that the study built.

    Raises:
        PipelineError: an input is missing or does not fit, there are more processes than sequences in a batch, or
            training diverges.
        Interrupted: see :func:`run`.
    """
    params, device, is_main = phase.pretrain, distributed.device, distributed.is_main
    first, last = phase.first, phase.last
    title = f"pretraining, {phase.name}"
    if params.train_batch_size < distributed.world_size:
        raise PipelineError(
            "more processes than sequences in a batch", f"{distributed.world_size} processes",
            where="pretrain.train_batch_size", hint=f"start at most {params.train_batch_size} processes",
        )  # fmt: skip

    # Load
    tokenizer = load_tokenizer(VOCABULARY)
    if examples is None:
        examples = open_examples(
            phase.name, "train", tokenizer, phase.mask_prob, params.masking, phase.seed, params.objective
        )
    manifest = read_json(EXAMPLES / "manifest.json", {name: {"length": int} for name in PHASES})
    lengths = {name: manifest[name]["length"] for name in PHASES}
    validation = ValidationSet(
        phase.name, tokenizer, params.objective, examples.store, distributed,
        by_source=phase.pretrain.goes_on or "sources" in manifest[phase.name],
    )  # fmt: skip

    # Build
    objective = build_objective(phase, tokenizer, examples.pairs, distributed)
    optimizer = build_optimizer(objective, params)
    num_parameters = sum(parameter.numel() for parameter in objective.parameters())

    # Resume
    machine = phase.machine.settings("pretrain")
    checkpoints = Checkpoints(phase.name, checkpoint_identity(phase), environment(distributed, machine), distributed)
    checkpoint = checkpoints.restore(objective.stored(), optimizer)
    if checkpoint is None:
        fill_initial_state(phase, objective, optimizer, FIRST_PHASE if phase.name == "phase2" else None, first)
    log.info("%d parameters, %d examples, %s", num_parameters, len(examples), device)
    if checkpoint is not None:
        log.info("going on from the checkpoint of step %d", checkpoint.state.step)
    state = checkpoint.state if checkpoint else TrainState(first)
    compute = ComputeTracker(
        objective,
        device,
        checkpoint.compute if checkpoint else None,
        precision=distributed.precision,
        parameters=num_parameters,
        tokens_per_batch=params.train_batch_size * lengths[phase.name],
        processes=distributed.world_size,
    )
    if device.type == "cuda":
        flops_left = (last - state.step) * max_flops_per_step(phase, objective, lengths[phase.name])
        if choose_compile(phase.machine.compile, flops_left, compute.peak.flops * distributed.world_size):
            compile_parts(objective)

    # Train
    log_every = max(1, phase.total // params.log_points)

    def validates_at(step: int) -> bool:
        return step < last and params.eval_steps is not None and step % params.eval_steps == 0

    def count_compute(counts: dict[str, float]) -> None:
        compute.add(Workload(*(int(counts[name]) for name in Workload._fields)))

    loop: Loop[TensorBatch] = Loop(
        objective,
        optimizer,
        linear_schedule(params.learning_rate, params.warmup_steps, phase.total, params.decay_steps),
        last=last,
        log_at=lambda step: step % log_every == 0 or validates_at(step),
        name=title,
        seed=phase.key("dropout"),
        distributed=distributed,
        state=state,
        stop_requested=lambda: bool(stop_request),
        save_due=checkpoints.due,
        throughput=compute.throughput,
        on_step=count_compute,
        clip=params.max_grad_norm,
    )
    tracker = Tracker(TRACKED / phase.name, loop.step) if is_main else None
    diagnoser = Diagnoser(settings_of(phase, objective.config), params, lengths, validation) if is_main else None
    columns = [*objective.validation_columns, *validation.by_source]

    def validation_row(figures: Mapping[str, float]) -> dict[str, float]:
        return {f"validation_{name}": figures[name] for name in columns if name in figures}

    if phase.pretrain.goes_on and checkpoint is None:  # what the start model knows before step 1
        with compute.aside():
            loop.rows.append({"step": first, **validation_row(validation.measure(objective))})
    data_shard = DataShard(phase.machine.pretrain.microbatch_tokens, distributed.rank, distributed.world_size)
    batches = examples.batches(
        params.train_batch_size, phase.key("order"), loop.step - first, last - loop.step, data_shard
    )
    for step in loop.run([TensorBatch.of(part) for part in batch] for batch in batches):
        stopping = loop.stopping and step < last
        validates = validates_at(step)
        logs = bool(loop.rows) and loop.rows[-1]["step"] == step
        keeps = step in params.keep_checkpoint_steps
        saves = validates or stopping or step == last or loop.saving
        if logs or keeps or saves:
            with compute.aside():
                figures: dict[str, float] = {}
                if validates:
                    figures = validation.measure(objective)
                    if diagnoser is not None:
                        diagnoser.diagnose(step, loop.rows, figures)
                    loop.samples += validation.fill_mask_samples.fill(objective, step, distributed)
                if logs and tracker is not None:
                    loop.rows[-1] |= validation_row(figures)
                    tracker.row(step, loop.rows[-1] | loop.throughput)
                if keeps:
                    weights = gather_models(objective, is_main)
                    moments = tensors_of(objective.stored(), optimizer, MOMENTS, keep=is_main)
                    if is_main:
                        with atomic_directory(checkpoints.kept_model(step)) as folder:
                            save_models(folder, phase, objective, weights, loop, compute, figures)
                            save_state(folder / TRAINING_STATE, moments, step)
                    distributed.wait_for_all()
                if saves:
                    loss = figures.get(objective.validation_columns[0])
                    checkpoints.save(objective.stored(), optimizer, loop.state(), compute.state(), loss)
        after_step(step)
        if stopping:  # only after all have saved: a launcher ends every process when the first one ends
            raise stop_request.interrupted(title, step)

    # Validate
    figures = validation.measure(objective)
    diagnosis = diagnoser.diagnose(last, loop.rows, figures) if diagnoser is not None else None
    samples = loop.samples + validation.fill_mask_samples.fill(objective, last, distributed)

    # Save
    weights = gather_models(objective, is_main)
    moments = tensors_of(objective.stored(), optimizer, MOMENTS, keep=is_main)
    if is_main:
        with atomic_directory(PRETRAINED / phase.name) as folder:
            save_models(folder, phase, objective, weights, loop, compute, figures)
            save_state(folder / TRAINING_STATE, moments, last)
            files = {str(last): saved_files(folder)}
            for step in params.keep_checkpoint_steps:
                if first < step <= last:
                    kept = shutil.copytree(checkpoints.kept_model(step), folder / KEPT / str(step))
                    files[str(step)] = saved_files(kept)
        write_curve(PRETRAIN_RESULTS / f"{phase.name}.tsv", loop.rows, objective, validation.by_source)
        results = {
            "phase": phase.name,
            "objective": params.objective,
            "steps": last - first,
            "steps_before": first,
            "batch": params.train_batch_size,
            "mask_prob": phase.mask_prob,
            "parameters": num_parameters,
            "config": objective.config.as_dict(),
            "pairs": examples.pairs,
            "cost": compute.deterministic(),
            "train": training_figures(loop, objective),
            "validation": figures,
            "shown_examples": shown_examples(examples, tokenizer, phase.seed),
            "ledger": {
                "identity": checkpoints.identity,
                "machine": {**checkpoints.machine, "mixed": checkpoints.mixed},
                "files": files,
            },
        }
        if diagnosis is not None:
            results["diagnosis"] = diagnosis.as_dict()
        if validation.by_source:
            measured = [*loop.rows, *([{"step": last, **validation_row(figures)}] if last > first else [])]
            results["going_on" if phase.pretrain.goes_on else "by_source"] = by_source(measured, validation.by_source)
        write_json(PRETRAIN_RESULTS / f"{phase.name}.json", results | ({"fill_mask": samples} if samples else {}))
        write_json(PRETRAIN_LOGS / f"{phase.name}.cost.json", compute.measured() | {"machine": machine})
        checkpoints.finish()
    distributed.wait_for_all()


def build_objective(
    phase: Phase, tokenizer: Tokenizer, pairs: str, distributed: Distributed
) -> PretrainingObjective[TensorBatch]:
    """Return the phase's objective with its teacher, if it has one, and uninitialised weights.

    Raises:
        PipelineError: this machine lacks the attention that is set, or the teacher does not fit.
    """
    params, machine = phase.pretrain, phase.machine
    kind = load_objective(params.objective)
    if phase.pretrain.goes_on:
        config = start_config(phase.model, tokenizer.get_vocab_size())
    else:
        config = load_architecture(phase.model.architecture).config.from_params(
            phase.model, tokenizer.get_vocab_size(), kind.causal
        )
    config = replace(
        config,
        attention=choose(machine.attention, distributed.device, config.head_size),
        activation_checkpointing=machine.pretrain.activation_checkpointing,
    )
    sharding = machine.pretrain.sharding if distributed.world_size > 1 else NO_SHARD
    teacher = None
    if objective_spec(params.objective).needs_teacher:
        teacher = load_teacher(
            Path(params.teacher), kind.build_teacher, config, tokenizer, distributed.device, "pretrain.teacher"
        )
    return empty_objective(kind, config, pairs, phase.objective_params, distributed.device, sharding, teacher)


def build_optimizer(objective: nn.Module, params: PretrainParams) -> Optimizer:
    """Return the optimizer of a phase, without moments."""
    return make_optimizer(
        objective,
        params.learning_rate,
        params.weight_decay,
        params.optimizer,
        params.betas,
        params.adam_epsilon,
        params.muon_learning_rate,
    )


def start_config(params: ModelParams, entries: int) -> BertConfig:
    """Return the config of the model to go on from, with the study's dropout and room for added entries."""
    config = load_config(START_MODEL)
    return replace(
        config,
        vocab_size=max(config.vocab_size, entries),
        hidden_dropout_prob=params.hidden_dropout_prob,
        attention_probs_dropout_prob=params.attention_probs_dropout_prob,
    )


def empty_objective(
    kind: type[PretrainingObjective[Any]],
    config: BertConfig,
    pairs: str,
    objective_params: Section,
    device: torch.device,
    sharding: str = NO_SHARD,
    teacher: nn.Module | None = None,
) -> PretrainingObjective[Any]:
    """Return an objective with uninitialised weights: initialising what a checkpoint replaces would take seconds.

    ``sharding`` says how its parameters are spread over the processes, see :mod:`pipeline_src.training.distributed`.
    """
    with uninitialised():
        objective = kind(config, pairs, objective_params)
    if teacher is not None:
        objective.set_teacher(teacher)
    if sharding != NO_SHARD:
        shard(objective, device, sharding, ("measure", "token_logits"))
    objective.to_empty(device=device)
    objective.tie()
    return objective


def checkpoint_identity(phase: Phase) -> dict[str, Any]:
    """Return the parameters, data and code of a phase; two trainings with equal ones end in the same bytes.

    Raises:
        PipelineError: a file that training reads is missing.
    """
    files = DATA | ({"first phase": FIRST_PHASE / TRAINING_STATE / "state.json"} if phase.name == "phase2" else {})
    if objective_spec(phase.pretrain.objective).needs_teacher:
        files |= {f"teacher's {path.name}": path for path in model_files(Path(phase.pretrain.teacher))}
    if phase.pretrain.goes_on:
        files |= {f"start model's {path.name}": path for path in model_files(START_MODEL)}
    for path in files.values():
        if not path.exists():
            raise PipelineError("training has nothing to read", path, hint="run the stages before, or `dvc pull`")
    members = f"models.{phase.model.architecture}", f"objectives.{phase.pretrain.objective}"
    return {
        "phase": phase.name,
        "seed": phase.seed,
        "mask_prob": phase.mask_prob,
        "model": phase.model.model_dump(),
        "pretrain": phase.pretrain.model_dump(),
        "objective": phase.objective_params.model_dump(),
        "data": {name: hash_file(path)[:16] for name, path in files.items()},
        "code": fingerprint(CODE, *(f"pipeline_src.{member}" for member in members)),
    }


def settings_of(phase: Phase, config: BertConfig) -> RunSettings:
    """Return the settings by which a training is compared with measured ones."""
    return RunSettings(
        architecture=phase.model.architecture,
        objective=phase.pretrain.objective,
        optimizer=phase.pretrain.optimizer,
        position_init=phase.model.position_init,
        num_hidden_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        mask_prob=phase.mask_prob,
    )


def fill_initial_state(
    phase: Phase, objective: PretrainingObjective[Any], optimizer: Optimizer, start: Path | None, step: int
) -> None:
    """Initialise the weights, or read the weights and moments of a saved model.

    Args:
        start: folder of the saved model; None initialises.
        step: steps taken there.

    Raises:
        PipelineError: the saved model is missing, or took another number of steps.
    """
    if sharding_of(objective) == NO_SHARD:
        fill_weights(phase, objective, start)
    else:  # each process makes all of them on the host, and keeps its parts
        kind, host = load_objective(phase.pretrain.objective), torch.device("cpu")
        unsharded = empty_objective(
            kind, objective.config, objective.pairs, objective.objective_params, host, teacher=objective.teacher
        )
        fill_weights(phase, unsharded, start)
        with torch.no_grad():
            for name, parameter in objective.stored().items():
                parameter.copy_(distribute_like(unsharded.stored()[name], parameter))
    if start is not None:
        taken = load_state(start / TRAINING_STATE, objective.stored(), optimizer)
        if taken != step:
            raise PipelineError(
                "the first phase took another number of steps", f"{taken}, not {step}",
                where=start, hint="run pretrain_phase1 again",
            )  # fmt: skip


def fill_weights(phase: Phase, objective: PretrainingObjective[Any], start: Path | None) -> None:
    """Initialise the weights, or read those of a saved model."""
    if start is None:
        objective.init_weights(torch.Generator().manual_seed(derive_seed(phase.seed, "weights") >> 1))
        if phase.pretrain.goes_on:
            fill_from_start_model(objective.saved_models()[""].module)
        return
    for subfolder, saved in objective.saved_models().items():
        load_weights(saved.module, start / subfolder)
    objective.after_loading()


def fill_from_start_model(module: nn.Module) -> None:
    """Copy the start model's weights; parts that it lacks keep their random weights.

    An added entry of the vocabulary starts with the mean of the subwords that it replaces.

    Raises:
        PipelineError: a tensor has another shape than the parameter.
    """
    config = load_config(START_MODEL)
    tensors, old = read_tensors(START_MODEL, config.names), config.vocab_size
    extended = read_json(VOCABULARY / EXTENDED, dict) if (VOCABULARY / EXTENDED).exists() else {}
    sampled = set()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            tensor = tensors.get(name)
            if tensor is None:
                sampled.add(name.rpartition(".")[0])
            elif name in OF_ENTRIES:
                parameter[:old] = check_fits(name, tensor, torch.Size((old, *parameter.shape[1:])), START_MODEL)
                for entry, subwords in extended.items():
                    parameter[int(entry)] = tensor[subwords].mean(dim=0)
            else:
                parameter.copy_(check_fits(name, tensor, parameter.shape, START_MODEL))
    if sampled:
        log.info("random weights, since the start model has none: %s", ", ".join(sorted(sampled)))


def max_flops_per_step(phase: Phase, objective: PretrainingObjective[Any], length: int) -> float:
    """Return the FLOPs of a batch whose sequences all have ``length`` tokens, an upper bound for a step."""
    sequences = phase.pretrain.train_batch_size
    tokens = sequences * length
    predictions = tokens if objective.causal else round(phase.mask_prob * tokens)
    rows = min(tokens, predictions + sequences)
    return objective.training_flops(Workload(sequences, tokens, tokens * length, predictions, rows, rows * length))


def choose_compile(setting: Compile, flops_left: float, peak: float) -> bool:
    """Decide whether to compile the model, and log why.

    With ``auto`` it is compiled if the rest of the phase would take the GPUs over five minutes at a quarter of their
    peak, and Triton, which makes the kernels, finds the C compiler that it needs.

    Args:
        setting: ``compile`` of machine.yaml.
        flops_left: of the phase, by formula.
        peak: FLOP/s of all GPUs together.
    """
    if setting != "auto":
        return setting
    seconds = flops_left / (UTILISATION * peak)
    if seconds < EARNED_BACK:
        log.info("not compiled: some %.0f seconds of training are left, too few to earn the compiler's back", seconds)
        return False
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        log.info("not compiled: there is no C compiler here; with gcc or clang training would be faster")
        return False
    log.info("compiled: the first step of each kind takes up to a minute")
    return True


def gather_models(objective: PretrainingObjective[Any], keep: bool) -> dict[str, dict[str, Tensor]]:
    """Return the weights of each saved model by subfolder; they are empty without ``keep``.

    All processes must call this, because weights may be spread over them.
    """
    return {name: gathered_weights(saved.module, keep) for name, saved in objective.saved_models().items()}


def save_models(
    folder: Path,
    phase: Phase,
    objective: PretrainingObjective[Any],
    weights: Mapping[str, Mapping[str, Tensor]],
    loop: Loop[TensorBatch],
    compute: ComputeTracker,
    figures: Mapping[str, float],
) -> None:
    """Fill an existing, empty folder with the models that the objective saves, each with its tokenizer and card.

    Args:
        weights: from :func:`gather_models`.
        loop, compute: at the step to be saved.
        figures: of the validation set; empty if it was not measured.
    """
    params = {"seed": phase.seed, "mask_prob": phase.mask_prob, "step": loop.step}
    costs = compute.deterministic()
    manifest = read_json(TOKENS / "manifest.json", dict)
    shares = read_json(EXAMPLES / "manifest.json", dict).get(phase.name, {}).get("sources")
    for subfolder, (module, config, huggingface_class) in objective.saved_models().items():
        card = pretrained_card(
            config,
            sum(parameter.numel() for parameter in module.parameters()),
            objective.learns,
            huggingface_class,
            read_sources(manifest),
            {
                **params,
                **phase.pretrain.model_dump(exclude=None if phase.pretrain.goes_on else {"init_from"}),
                **phase.objective_params.model_dump(),
            },
            {"training text": training_figures(loop, objective), "validation text": figures},
            {name: costs[name] for name in CARD_COSTS},
            read_mix(manifest, shares),
            phase.pretrain.goes_on,
        )
        (folder / subfolder).mkdir(exist_ok=True)
        save_model(folder / subfolder, weights[subfolder], config, huggingface_class, VOCABULARY, write_card(card))


def training_figures(loop: Loop[TensorBatch], objective: PretrainingObjective[Any]) -> dict[str, float]:
    """Return the losses and accuracies in the curve's last row; empty before its first."""
    row = loop.rows[-1] if loop.rows else {}
    return {name: row[name] for name in objective.columns() if name in row}


def by_source(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """Return the validation loss of each source at each step at which it was measured."""
    return {
        name.removeprefix("mlm_loss_"): [
            {"step": row["step"], "mlm_loss": row[column]} for row in rows if (column := f"validation_{name}") in row
        ]
        for name in names
    }


def write_curve(
    path: Path,
    rows: Sequence[Mapping[str, float]],
    objective: PretrainingObjective[Any],
    by_source: Sequence[str] = (),
) -> None:
    """Write the curve as a table. A column without values, such as that of a term with weight 0, stays empty."""
    validation = [f"validation_{name}" for name in (*objective.validation_columns, *by_source)]
    columns = ["step", *objective.columns(), "grad_norm", "learning_rate", *validation]
    with atomic_file(path) as file:
        curve = pd.DataFrame(rows).reindex(columns=columns)
        curve.to_csv(file, sep="\t", index=False, float_format="%.6g", lineterminator="\n")
