"""What a phase of pretraining trains with: inputs read, objective and optimiser made and filled, the loop set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch.optim import Optimizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.members import stated
from pipeline_src.common.paths import VOCABULARY
from pipeline_src.common.progress import log
from pipeline_src.models.architecture import load_architecture
from pipeline_src.models.attention import choose
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.compiling import compile_parts
from pipeline_src.models.flops import Workload
from pipeline_src.pretraining.compile_choice import choose_compile
from pipeline_src.pretraining.identity import checkpoint_identity
from pipeline_src.pretraining.initial_state import empty_objective, fill_initial_state
from pipeline_src.pretraining.loading.batches import EXAMPLES, Cut, PretrainingExamples, open_examples
from pipeline_src.pretraining.phase import Phase
from pipeline_src.pretraining.tensor_batch import TensorBatch, tensor_batches
from pipeline_src.pretraining.validation import ValidationSet
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.checkpoint import Checkpoint, Checkpoints
from pipeline_src.training.compute_tracker import ComputeTracker
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.identity import environment
from pipeline_src.training.loop import Loop, TrainState
from pipeline_src.training.objective import PretrainingObjective, load_objective
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.training.sharding import NONE
from pipeline_src.training.stop_request import StopRequest
from pipeline_src.training.teacher import load_teacher


@dataclass(frozen=True)
class Training:
    """A phase at its next step.

    Attributes:
        phase, distributed: whose, and on which processes.
        tokenizer, examples, validation: what is read.
        config, objective, optimiser: what is trained, and how.
        checkpoints: where its state is saved.
        compute: what it takes.
        loop: what takes the steps.
    """

    phase: Phase
    distributed: Distributed
    tokenizer: Tokenizer
    examples: PretrainingExamples
    validation: ValidationSet
    config: BertConfig
    objective: PretrainingObjective[TensorBatch]
    optimiser: Optimizer
    checkpoints: Checkpoints
    compute: ComputeTracker
    loop: Loop[TensorBatch]

    @property
    def parameters(self) -> int:
        """How many there are."""
        return sum(parameter.numel() for parameter in self.objective.parameters())

    def batches(self) -> Iterator[list[TensorBatch]]:
        """This process's part of the batches still to come."""
        phase, params = self.phase, self.phase.pretrain
        cut = Cut(phase.machine.pretrain.max_tokens, self.distributed.rank, self.distributed.world_size)
        taken, left = self.loop.step - phase.first, phase.last - self.loop.step
        return tensor_batches(self.examples.batches(params.batch, phase.stream("order"), taken, left, cut))


def prepare(phase: Phase, distributed: Distributed, stop_request: StopRequest) -> Training:
    """Read what a phase reads and bring it to its next step, from its newest checkpoint where there is one.

    Raises:
        PipelineError: an input is missing or does not fit, or there are more processes than sequences in a batch.
    """
    params = phase.pretrain
    if params.batch < distributed.world_size:
        raise PipelineError(
            "more processes than sequences in a batch", f"{distributed.world_size} processes", where="pretrain.batch",
            remedy=f"start at most {params.batch} processes",
        )  # fmt: skip
    tokenizer, kind = load_tokenizer(VOCABULARY), load_objective(params.objective)
    examples = open_examples(
        phase.name, "train", tokenizer, phase.mask_prob, params.masking, phase.seed, params.objective
    )
    validation = ValidationSet(phase.name, tokenizer, params.objective, examples.store, distributed)
    config = load_architecture(phase.model.architecture).config.from_params(
        phase.model,
        tokenizer.get_vocab_size(),
        kind.causal,
        recompute=phase.machine.pretrain.recompute,
    )
    config = replace(config, attention=choose(phase.machine.attention, distributed.device, config.head_size))
    sharding = phase.machine.pretrain.sharding if distributed.world_size > 1 else NONE
    teacher = None
    if stated("objectives", params.objective, "NEEDS_TEACHER", False):
        teacher = load_teacher(
            Path(params.teacher), kind.make_teacher, config, tokenizer, distributed.device, "pretrain.teacher"
        )
    objective = empty_objective(kind, config, examples.pairs, phase.own, distributed.device, sharding, teacher)
    optimiser = make_optimiser(
        objective,
        params.learning_rate,
        params.weight_decay,
        params.optimiser,
        params.betas,
        params.epsilon,
        params.muon_learning_rate,
    )
    checkpoints = Checkpoints(
        phase.name,
        checkpoint_identity(phase),
        environment(distributed, phase.machine.settings("pretrain")),
        distributed,
    )
    checkpoint = checkpoints.restore(objective.stored(), optimiser)
    if checkpoint is None:
        fill_initial_state(phase, objective, optimiser)
    size = sum(parameter.numel() for parameter in objective.parameters())
    log.info("%d parameters, %d examples, %s", size, len(examples), distributed.device)
    if checkpoint is not None:
        log.info("going on from the checkpoint of step %d", checkpoint.state.step)
    length = read_json(EXAMPLES / "manifest.json", {phase.name: {"length": int}})[phase.name]["length"]
    compute = ComputeTracker(
        objective,
        distributed.device,
        checkpoint.compute if checkpoint else None,
        precision=distributed.precision,
        parameters=size,
        tokens_per_batch=params.batch * length,
        processes=distributed.world_size,
    )
    if distributed.device.type == "cuda":
        left = phase.last - (checkpoint.state.step if checkpoint else phase.first)
        flops_left = left * flops_of_a_step(phase, objective, length)
        if choose_compile(phase.machine.compile, flops_left, compute.peak.flops * distributed.world_size):
            compile_parts(objective)
    loop = make_loop(phase, objective, optimiser, distributed, checkpoint, stop_request, checkpoints.due, compute)
    return Training(
        phase, distributed, tokenizer, examples, validation, config, objective, optimiser, checkpoints, compute, loop
    )


def flops_of_a_step(phase: Phase, objective: PretrainingObjective[Any], length: int) -> float:
    """Of a batch whose sequences are all as long as they may be: at most as many as a step takes."""
    tokens = phase.pretrain.batch * length
    predictions = tokens if objective.causal else round(phase.mask_prob * tokens)
    rows = min(tokens, predictions + phase.pretrain.batch)
    return objective.training_flops(
        Workload(phase.pretrain.batch, tokens, tokens * length, predictions, rows, rows * length)
    )


def make_loop(
    phase: Phase,
    objective: PretrainingObjective[Any],
    optimiser: Optimizer,
    distributed: Distributed,
    checkpoint: Checkpoint | None,
    stop_request: StopRequest,
    save_due: Callable[[], bool],
    compute: ComputeTracker,
) -> Loop[TensorBatch]:
    """The loop of a phase, at its first step or where the checkpoint left it."""
    params = phase.pretrain
    return Loop(
        objective,
        optimiser,
        linear_schedule(params.learning_rate, params.warmup, phase.total),
        last=phase.last,
        row_ends=phase.row_ends,
        what=phase.what,
        stream=phase.stream("dropout"),
        distributed=distributed,
        state=checkpoint.state if checkpoint else TrainState(phase.first),
        stop_requested=lambda: bool(stop_request),
        save_due=save_due,
        rates=compute.rates,
        counted=lambda counts: compute.add(Workload(*(int(counts[name]) for name in Workload._fields))),
        clip=params.clip,
    )
