"""Stages ``pretrain_phase1`` and ``pretrain_phase2``: train one encoder on text, in two phases (paper, appendix A.2).

:func:`fit` is a phase from its inputs to its outputs; the functions that it calls follow in the same order. The
objective (``objectives/``) decides what is learned: masked words and next sentences in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.common.fingerprint import fingerprint
from pipeline_src.common.paths import EXAMPLES, LOGS, START_MODEL, TOKENS, VOCABULARY
from pipeline_src.common.progress import log
from pipeline_src.common.registry import architecture_spec, objective_spec
from pipeline_src.config.machine import USUAL, Machine
from pipeline_src.config.model import ModelParams
from pipeline_src.config.pretrain import USUAL as USUAL_OBJECTIVES
from pipeline_src.config.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.models.bert import compile_parts
from pipeline_src.models.flops import Workload
from pipeline_src.models.hub import model_files
from pipeline_src.pretraining.build import build_objective, fill_weights
from pipeline_src.pretraining.capacity import Capacity
from pipeline_src.pretraining.data import DataShard, PretrainingExamples, TensorBatch, open_examples
from pipeline_src.pretraining.diagnosis import LossMonitor
from pipeline_src.pretraining.outputs import TRAINING_STATE, KeptModels, write_outputs
from pipeline_src.pretraining.phases import FIRST_PHASE, PHASES, Phase, StepRange, run_settings
from pipeline_src.pretraining.tracking import Tracker
from pipeline_src.pretraining.validation import ValidationSet, Validator
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.training.checkpoint import Checkpointer, check_settings, environment, load_state
from pipeline_src.training.distributed import NO_SHARD, Distributed, init_distributed, shard
from pipeline_src.training.gpu import CapturedSteps, CopiedWeights, choose_capture, choose_compile
from pipeline_src.training.objective import PretrainingObjective
from pipeline_src.training.optimizers import Muon
from pipeline_src.training.stop import StopRequest, catch_stop_requests
from pipeline_src.training.throughput import ComputeTracker
from pipeline_src.training.trainer import Callback, CurveLogger, Trainer, make_trainer

CODE = "pipeline_src.pretraining.pretrain"  # the module whose code decides the result
DATA = {  # small files that hold, or are, the checksums of the training data
    "tokens": TOKENS / "manifest.json",
    "examples": EXAMPLES / "manifest.json",
    "vocabulary": VOCABULARY / "tokenizer.json",
}
TRACKED = LOGS / "dvclive"
FORWARD_METHODS = ("validation_metrics", "token_logits")  # of an objective, before which FSDP must gather its weights


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
    *,
    examples: PretrainingExamples | None = None,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Train a phase to its last step and write its outputs. All processes must call this.

    Args:
        phase: its parameters.
        distributed: the processes that train.
        stop_request: made when a signal has requested a stop.
        examples: to train on; None opens those that the study built.
        callbacks: more callbacks of the trainer, called last.

    Raises:
        Interrupted: see :func:`run`.
    """
    params, last, is_main = phase.pretrain, phase.last, distributed.is_main
    tokenizer = load_tokenizer(VOCABULARY)
    examples = examples or open_training_examples(phase, tokenizer)
    lengths = read_lengths()

    checkpointer = open_checkpointer(phase, distributed, stop_request)
    trainer = make_phase_trainer(phase, tokenizer, examples.pairs, distributed, checkpointer=checkpointer)
    objective, compute = trainer.objective, trainer.compute_tracker
    assert compute is not None
    by_source = params.goes_on or "sources" in read_json(EXAMPLES / "manifest.json", dict)[phase.name]
    validation = ValidationSet(phase.name, tokenizer, params.objective, examples.store, distributed, by_source)
    validator = Validator(validation, objective.spec.validation_columns, params.eval_steps, last)
    monitor = LossMonitor(run_settings(phase, objective.config), params, lengths, validation, last)
    curve = CurveLogger([max(1, phase.total // params.log_points), params.eval_steps], last)
    kept = KeptModels(phase, checkpointer)
    # in this order: those after the validator read its figures, and the monitor the row that the logger adds
    trainer.callbacks = [validator, curve, monitor, kept, checkpointer, *callbacks]
    if params.goes_on and trainer.state.step == phase.first:  # what the start model knows before step 1
        compute.start()
        with compute.aside():
            trainer.state.row().update(validator.row(validation.measure(objective)))
    curve.writer = Tracker(TRACKED / phase.name, trainer.state.step) if is_main else None
    log.info("%d parameters, %d examples, %s", compute.parameters, len(examples), distributed.device)
    capacity = phase_capacity(phase, examples, tokenizer, objective.config.attention, distributed)
    accelerate(phase, trainer, lengths[phase.name], has_capacity=capacity is not None)

    trainer.run(phase_batches(phase, examples, trainer.state.step, last, distributed, capacity))
    validator.measure(trainer)
    write_outputs(phase, trainer, validator, kept, examples, tokenizer, monitor.diagnose(trainer))
    if is_main:
        checkpointer.finish()
    distributed.wait_for_all()


def open_training_examples(phase: Phase, tokenizer: Tokenizer) -> PretrainingExamples:
    """Open the examples that the phase trains on."""
    params = phase.pretrain
    return open_examples(phase.name, "train", tokenizer, phase.mask_prob, params.masking, phase.seed, params.objective)


def open_checkpointer(phase: Phase, distributed: Distributed, stop_request: StopRequest) -> Checkpointer:
    """Open the checkpoints of a phase."""
    machine = environment(distributed, phase.machine_settings(distributed.device.type))
    return Checkpointer(
        phase.name, checkpoint_identity(phase), machine, distributed, stop_request,
        every=phase.pretrain.eval_steps, last=phase.last,
        best_by=objective_spec(phase.pretrain.objective).validation_columns[0],
    )  # fmt: skip


def make_phase_trainer(
    phase: Phase,
    tokenizer: Tokenizer,
    pairs: str,
    distributed: Distributed,
    *,
    step_range: StepRange | None = None,
    checkpointer: Checkpointer | None = None,
) -> Trainer[TensorBatch]:
    """Return a trainer of a phase: from a checkpoint, a saved model or initial weights.

    Args:
        phase, tokenizer, distributed: see :func:`fit`.
        pairs: label of the examples' pairs.
        step_range: steps to take; None takes all of the phase.
        checkpointer: finds and restores the newest checkpoint; None never continues from one.
    """
    start, first, last = step_range or StepRange(phase.start, phase.first, phase.last)
    if phase.pretrain.train_batch_size < distributed.world_size:
        raise PipelineError(
            "more processes than sequences in a batch", f"{distributed.world_size} processes",
            where="pretrain.train_batch_size", hint=f"start at most {phase.pretrain.train_batch_size} processes",
        )  # fmt: skip
    objective = build_objective(phase, tokenizer, pairs, distributed.device)
    is_resumed = checkpointer is not None and checkpointer.find()
    if not is_resumed:
        fill_weights(phase, objective, start)
    if distributed.world_size > 1 and phase.machine.pretrain.sharding != NO_SHARD:
        shard(objective, distributed.device, phase.machine.pretrain.sharding, FORWARD_METHODS)
    else:
        objective.to(distributed.device)
    trainer = make_trainer(
        objective, phase.optimizer, distributed, name=f"pretraining, {phase.name}", first=first, last=last,
        seed=phase.key("dropout"), requests=checkpointer.requests if checkpointer else None,
        compute_tracker=track_compute(phase, objective, distributed) if checkpointer else None,
    )  # fmt: skip
    if checkpointer is not None and is_resumed:
        checkpointer.restore(trainer)
    elif start is not None:
        taken = load_state(start / TRAINING_STATE, objective.checkpoint_parameters(), trainer.optimizer)
        if taken != first:
            raise PipelineError(
                "the first phase took another number of steps", f"{taken}, not {first}",
                where=start, hint="run pretrain_phase1 again",
            )  # fmt: skip
    return trainer


def checkpoint_identity(phase: Phase) -> dict[str, Any]:
    """Return the parameters, data and code of a phase; two trainings with equal ones end in the same bytes."""
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


def track_compute(phase: Phase, objective: PretrainingObjective[Any], distributed: Distributed) -> ComputeTracker:
    """Return a tracker of the phase's compute."""
    return ComputeTracker(
        objective,
        distributed.device,
        precision=distributed.precision,
        parameters=sum(parameter.numel() for parameter in objective.parameters()),
        tokens_per_batch=phase.pretrain.train_batch_size * read_lengths()[phase.name],
        processes=distributed.world_size,
    )


def accelerate(phase: Phase, trainer: Trainer[Any], length: int, has_capacity: bool) -> None:
    """Compile the model and capture its steps on a GPU, as machine.yaml says or where that pays.

    Args:
        phase: its parameters.
        trainer: of the phase, at the step that it starts from.
        length: tokens of a full sequence.
        has_capacity: whether microbatches have a fixed capacity.
    """
    assert trainer.compute_tracker is not None
    machine, processes, peak = (
        phase.machine.pretrain,
        trainer.distributed.world_size,
        trainer.compute_tracker.peak.flops,
    )
    flops = max_flops_per_step(phase, trainer.objective, length)
    is_captured = choose_capture(machine.capture, flops / processes, peak, trainer, has_capacity)
    if trainer.distributed.device.type != "cuda":
        return
    if choose_compile(phase.machine.compile, (phase.last - trainer.state.step) * flops, peak * processes):
        compile_parts(trainer.objective)
        if isinstance(trainer.optimizer, Muon):
            trainer.optimizer.compile()
    if machine.weight_copies and processes == 1 and trainer.distributed.precision == torch.bfloat16:
        CopiedWeights(trainer)
    if is_captured:
        CapturedSteps(trainer)


def max_flops_per_step(phase: Phase, objective: PretrainingObjective[Any], length: int) -> float:
    """Return the FLOPs of a batch whose sequences all have ``length`` tokens, an upper bound for a step."""
    sequences = phase.pretrain.train_batch_size
    tokens = sequences * length
    predictions = tokens if objective.spec.causal else round(phase.mask_prob * tokens)
    rows = min(tokens, predictions + sequences)
    return objective.training_flops(Workload(sequences, tokens, tokens * length, predictions, rows, rows * length))


def read_lengths() -> dict[str, int]:
    """Return the tokens of a full sequence in each phase."""
    manifest = read_json(EXAMPLES / "manifest.json", {name: {"length": int} for name in PHASES})
    return {name: manifest[name]["length"] for name in PHASES}


def phase_batches(
    phase: Phase,
    examples: PretrainingExamples,
    first: int,
    last: int,
    distributed: Distributed,
    capacity: Capacity | None,
) -> Iterator[list[TensorBatch]]:
    """Yield this process's microbatches of the steps from ``first`` to ``last``, counted over both phases.

    With a ``capacity``, from :func:`phase_capacity`, all have the same shapes.
    """
    tokens = phase.machine.pretrain.max_tokens(distributed.device.type)
    sequences = None if capacity is None else capacity.real_sequences
    shard = DataShard(tokens, distributed.rank, distributed.world_size, sequences)
    size, key = phase.pretrain.train_batch_size, phase.key("order")
    batches = examples.batches(size, key, first - phase.first, last - first, shard)
    for batch in batches:
        parts = [TensorBatch.of(part) for part in batch]
        yield parts if capacity is None else [capacity.pad(part) for part in parts]


def phase_capacity(
    phase: Phase, examples: PretrainingExamples, tokenizer: Tokenizer, attention: str, distributed: Distributed
) -> Capacity | None:
    """Return the sizes that this process's microbatches are padded to; None pads none.

    Args:
        phase, tokenizer, distributed: see :func:`fit`.
        examples: of the phase.
        attention: back end of the encoder.
    """
    setting, spec = phase.machine.pretrain.fixed_capacity, objective_spec(phase.pretrain.objective)
    if setting is False:
        return None
    reason = ""
    if not spec.fixed_capacity:
        reason = f"another objective than {phase.pretrain.objective}"
    elif distributed.device.type != "cuda":
        reason = "a CUDA device"
    if setting is True and reason:
        raise PipelineError(
            "microbatches cannot have a fixed capacity here", f"needs {reason}",
            where="machine.yaml, pretrain.fixed_capacity", hint="set fixed_capacity: auto",
        )  # fmt: skip
    # a rectangle of sequences and length, which other back ends compute on, would double with the filler sequences
    is_unpadded = attention == "flash_varlen" and not architecture_spec(phase.model.architecture).pads_sequences
    if reason or (setting == "auto" and not is_unpadded):
        return None
    sequences, kind = -(-phase.pretrain.train_batch_size // distributed.world_size), kind_of(tokenizer)
    tokens, pad_id = phase.machine.pretrain.max_tokens(distributed.device.type), kind.id_of(tokenizer, kind.pad)
    return Capacity.of(sequences, read_lengths()[phase.name], tokens, examples.corruption, pad_id)
