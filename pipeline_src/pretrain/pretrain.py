"""Stages ``pretrain_phase1``, ``pretrain_phase2``, ``pretrain@phase3``, ...: pretrain an encoder.

The phases are described in Devlin et al. 2018, appendix A.2. The objective decides what the encoder learns, for example
to predict masked words and next sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file
from pipeline_src.base.paths import EXAMPLES, START_MODEL, TOKENS, VOCABULARY
from pipeline_src.base.progress import log
from pipeline_src.base.registry import architecture_spec, member_module, objective_spec
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.model.bert import compile_parts
from pipeline_src.model.flops import Workload
from pipeline_src.model.hub import model_files
from pipeline_src.pretrain.build import build_objective, fill_weights
from pipeline_src.pretrain.capacity import Capacity
from pipeline_src.pretrain.data import DataShard, PretrainingExamples, TensorBatch, open_examples
from pipeline_src.pretrain.loss_monitor import LossMonitor
from pipeline_src.pretrain.objective import PretrainingObjective
from pipeline_src.pretrain.outputs import TRAINING_STATE, KeptModels, write_outputs
from pipeline_src.pretrain.phases import FIRST_PHASE, Phase, StepRange, run_settings
from pipeline_src.pretrain.tracking import Run, Tracker
from pipeline_src.pretrain.validation import ValidationSet, Validator
from pipeline_src.study.machine import DEFAULT_MACHINE, Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import DEFAULT_OBJECTIVES, ObjectivesParams, PretrainParams
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.training.checkpoint import Checkpointer, check_settings, environment, load_state
from pipeline_src.training.distributed import NO_SHARD, Distributed, init_distributed, shard
from pipeline_src.training.gpu import CapturedSteps, choose_capture, choose_compile
from pipeline_src.training.optimizers import Muon
from pipeline_src.training.stop import StopRequest, catch_stop_requests
from pipeline_src.training.throughput import ComputeTracker
from pipeline_src.training.trainer import CurveLogger, Trainer, make_trainer

# The code of this module, and of all modules that it imports, is part of the training's identity.
CODE = "pipeline_src.pretrain.pretrain"
# Small files that contain checksums of the training data, and so identify it.
DATA = {
    "tokens": TOKENS / "manifest.json",
    "examples": EXAMPLES / "manifest.json",
    "vocabulary": VOCABULARY / "tokenizer.json",
}
# Methods of an objective before which FSDP must gather its weights.
FORWARD_METHODS = ("validation_metrics", "token_logits")


def run(
    *,
    seed: int,
    mask_prob: float,
    model: ModelParams,
    pretrain: PretrainParams,
    objectives: ObjectivesParams = DEFAULT_OBJECTIVES,
    phase: str,
    machine: Machine = DEFAULT_MACHINE,
) -> None:
    """Train one phase, and write its model, metrics and training curve.

    The phase starts from the previous phase's model, or resumes from the newest checkpoint with the same settings, data
    and code. A phase of 0 steps writes its initial model.

    Raises:
        Interrupted: a signal requested a stop, and a checkpoint was saved.
    """
    check_settings()
    params = Phase(phase, seed, mask_prob, model, pretrain, machine, objectives)
    torch.set_num_threads(machine.pretrain.threads)
    with catch_stop_requests() as stop_request, init_distributed(machine.precision, machine.device) as distributed:
        PhaseTraining(params, distributed, stop_request).run()


class PhaseTraining:
    def __init__(self, phase: Phase, distributed: Distributed, stop_request: StopRequest) -> None:
        params = phase.pretrain
        last = phase.last
        self.phase = phase
        self.distributed = distributed
        self.tokenizer = load_tokenizer(VOCABULARY)
        self.examples = examples = open_training_examples(phase, self.tokenizer)
        self.checkpointer = Checkpointer(
            phase.name,
            checkpoint_identity(phase),
            environment(distributed, phase.machine_settings(distributed.device.type)),
            distributed,
            stop_request,
            every=params.eval_steps,
            last=last,
            best_by=objective_spec(params.objective).validation_columns[0],
            keep_best=True,
            has_dropout=phase.model.has_dropout,
        )
        self.trainer = trainer = make_phase_trainer(
            phase, self.tokenizer, examples.pairs, distributed, checkpointer=self.checkpointer
        )
        objective = trainer.objective
        by_source = params.continued or "sources" in phase.examples_manifest[phase.name]
        architecture = phase.model.architecture
        validation = ValidationSet(
            phase.name, self.tokenizer, params.objective, architecture, examples.store, distributed, by_source
        )
        self.validator = Validator(validation, objective.spec.validation_columns, params.eval_steps, last)
        self.curve = CurveLogger([max(1, phase.total // params.log_points), params.eval_steps], last)
        self.monitor = LossMonitor(phase, run_settings(phase, objective.config))
        self.kept_models = KeptModels(phase, self.checkpointer)
        # The order matters: the callbacks after the validator read its metrics.
        trainer.callbacks = [self.validator, self.curve, self.monitor, self.kept_models, self.checkpointer]

    def run(self) -> None:
        phase = self.phase
        trainer = self.trainer
        validator = self.validator
        distributed = self.distributed
        objective = trainer.objective
        compute_tracker = trainer.compute_tracker
        assert compute_tracker is not None
        first = trainer.state.step

        # Measure the start model on the validation set before the first step.
        if phase.pretrain.continued and first == phase.first:
            compute_tracker.start()
            with compute_tracker.aside():
                trainer.state.row().update(validator.row(validator.validation.measure(objective)))
        if distributed.is_main:
            params = {name: value for name, value in self.checkpointer.identity.items() if name != "data"}
            run = Run(phase.name, self.checkpointer.folder.name, params, first)
            tracker = Tracker(phase.machine.tracking, run)
            self.curve.writer = tracker.row
        log.info("%d parameters, %d examples, %s", compute_tracker.parameters, len(self.examples), distributed.device)
        capacity = phase_capacity(phase, self.examples, self.tokenizer, objective.config.attention, distributed)
        accelerate(phase, trainer, has_capacity=capacity is not None)

        trainer.run(phase_batches(phase, self.examples, first, phase.last, distributed, capacity))
        # The last validation and the writing of the model do not count as training.
        with compute_tracker.aside():
            validator.measure(trainer)
            self.monitor.after_step(trainer)
            name = phase.pretrain.steps.names[-1]
            positions = validator.validation.measure_positions(objective, name, phase.examples_manifest[name]["length"])
            write_outputs(
                phase,
                trainer,
                validator,
                self.kept_models,
                self.examples,
                self.tokenizer,
                self.monitor.status,
                positions,
            )
        if distributed.is_main:
            tracker.finish()
            self.checkpointer.finish(CHECKS.remove_when_recorded)
        distributed.wait_for_all()


def open_training_examples(phase: Phase, tokenizer: Tokenizer) -> PretrainingExamples:
    masking = phase.pretrain.masking
    objective = phase.pretrain.objective
    masks = (phase.mask_prob, masking, phase.seed, objective, phase.model.architecture)
    return open_examples(phase.name, "train", tokenizer, *masks)


def make_phase_trainer(
    phase: Phase,
    tokenizer: Tokenizer,
    pairs: str,
    distributed: Distributed,
    *,
    step_range: StepRange | None = None,
    checkpointer: Checkpointer | None = None,
) -> Trainer[TensorBatch]:
    """Return the trainer of a phase, with the weights from which it starts.

    These come from the newest checkpoint. If there is none, they come from a saved model or are initialised.

    Args:
        step_range: steps to take. None: all steps of the phase.
        checkpointer: finds and restores checkpoints. None: training does not resume, and compute is not measured.
    """
    start, first, last = step_range or StepRange(phase.start, phase.first, phase.last)
    if phase.pretrain.train_batch_size < distributed.world_size:
        raise PipelineError(
            "more processes than sequences in a batch",
            f"{distributed.world_size} processes",
            where="pretrain.train_batch_size",
            hint=f"start at most {phase.pretrain.train_batch_size} processes",
        )
    objective = build_objective(phase, tokenizer, pairs, distributed.device)
    is_resumed = checkpointer is not None and checkpointer.find()
    if not is_resumed:
        fill_weights(phase, objective, start)
    if distributed.world_size > 1 and phase.machine.pretrain.sharding != NO_SHARD:
        shard(objective, distributed.device, phase.machine.pretrain.sharding, FORWARD_METHODS)
    else:
        objective.to(distributed.device)
    compute_tracker = None
    if checkpointer is not None:
        compute_tracker = ComputeTracker(
            objective,
            distributed.device,
            precision=distributed.precision,
            parameters=sum(parameter.numel() for parameter in objective.parameters()),
            tokens_per_batch=phase.pretrain.train_batch_size * phase.length,
            processes=distributed.world_size,
        )
    trainer = make_trainer(
        objective,
        phase.optimizer,
        distributed,
        name=f"pretraining, {phase.name}",
        first=first,
        last=last,
        seed=phase.key("dropout"),
        requests=checkpointer.requests if checkpointer else None,
        compute_tracker=compute_tracker,
    )
    if checkpointer is not None and is_resumed:
        checkpointer.restore(trainer)
    elif start is not None:
        steps = load_state(start / TRAINING_STATE, objective.checkpoint_parameters(), trainer.optimizer)
        if steps != first:
            raise PipelineError(
                "the previous phase was trained for another number of steps",
                f"{steps}, not {first}",
                where=start,
                hint="run the stage of the previous phase again",
            )
    return trainer


def checkpoint_identity(phase: Phase) -> dict[str, Any]:
    # Two trainings with the same identity, on the same machine, give the same bytes.
    files = dict(DATA)
    if phase.start is not None:
        before = "first phase" if phase.start == FIRST_PHASE else "phase before"
        files[before] = phase.start / TRAINING_STATE / "state.json"
    if objective_spec(phase.pretrain.objective).needs_teacher:
        files |= {f"teacher's {path.name}": path for path in model_files(Path(phase.pretrain.teacher))}
    if phase.pretrain.continued:
        files |= {f"start model's {path.name}": path for path in model_files(START_MODEL)}
    for path in files.values():
        if not path.exists():
            raise PipelineError("an input of training is missing", path, hint="run the earlier stages, or `dvc pull`")
    members = [
        member_module("models", phase.model.architecture),
        member_module("objectives", phase.pretrain.objective),
    ]
    return {
        "phase": phase.name,
        "seed": phase.seed,
        "mask_prob": phase.mask_prob,
        "model": phase.model.model_dump(),
        "pretrain": phase.pretrain.model_dump(),
        "objective": phase.objective_params.model_dump(),
        "data": {name: hash_file(path)[:16] for name, path in files.items()},
        "code": fingerprint(CODE, *members),
    }


def accelerate(phase: Phase, trainer: Trainer[Any], has_capacity: bool) -> None:
    assert trainer.compute_tracker is not None
    machine = phase.machine.pretrain
    processes = trainer.distributed.world_size
    peak = trainer.compute_tracker.peak.flops
    flops = max_flops_per_step(phase, trainer.objective)
    is_captured = choose_capture(machine.capture, flops / processes, peak, trainer, has_capacity)
    if trainer.distributed.device.type != "cuda":
        return
    if choose_compile(phase.machine.compile, (phase.last - trainer.state.step) * flops, peak * processes):
        compile_parts(trainer.objective, has_capacity)
        if isinstance(trainer.optimizer, Muon):
            trainer.optimizer.compile()
    if is_captured:
        CapturedSteps(trainer)


def max_flops_per_step(phase: Phase, objective: PretrainingObjective[Any]) -> float:
    sequences = phase.pretrain.train_batch_size
    length = phase.length
    tokens = sequences * length
    predictions = tokens if objective.spec.causal else round(phase.mask_prob * tokens)
    outputs = min(tokens, predictions + sequences)
    return objective.training_flops(
        Workload(sequences, tokens, tokens * length, predictions, outputs, outputs * length)
    )


def phase_batches(
    phase: Phase,
    examples: PretrainingExamples,
    first: int,
    last: int,
    distributed: Distributed,
    capacity: Capacity | None,
) -> Iterator[list[TensorBatch]]:
    tokens = phase.machine.pretrain.max_tokens(distributed.device.type)
    sequences = None if capacity is None else capacity.real_sequences
    shard = DataShard(tokens, distributed.rank, distributed.world_size, sequences)
    size = phase.pretrain.train_batch_size
    key = phase.key("order")
    for batch in examples.batches(size, key, first - phase.first, last - first, shard):
        microbatches = [TensorBatch.of(microbatch) for microbatch in batch]
        yield microbatches if capacity is None else [capacity.pad(microbatch) for microbatch in microbatches]


def phase_capacity(
    phase: Phase, examples: PretrainingExamples, tokenizer: Tokenizer, attention: str, distributed: Distributed
) -> Capacity | None:
    setting = phase.machine.pretrain.fixed_capacity
    if setting is False:
        return None
    reason = ""
    if not objective_spec(phase.pretrain.objective).fixed_capacity:
        reason = f"another objective than {phase.pretrain.objective}"
    elif distributed.device.type != "cuda":
        reason = "a CUDA device"
    if setting is True and reason:
        raise PipelineError(
            "microbatches cannot have a fixed capacity here",
            f"needs {reason}",
            where="machine.yaml, pretrain.fixed_capacity",
            hint="set fixed_capacity: auto",
        )
    # Filler sequences would double the work of attention back ends that pad to [sequences, length].
    is_unpadded = attention == "flash_varlen" and not architecture_spec(phase.model.architecture).pads_sequences
    if reason or (setting == "auto" and not is_unpadded):
        return None
    sequences = -(-phase.pretrain.train_batch_size // distributed.world_size)
    tokens = phase.machine.pretrain.max_tokens(distributed.device.type)
    kind = kind_of(tokenizer)
    return Capacity.of(sequences, phase.length, tokens, examples.collator, kind.id_of(tokenizer, kind.pad))
