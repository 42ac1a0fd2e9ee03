"""The training loop of pretraining and fine-tuning: it trains an objective, and runs callbacks between steps."""

from __future__ import annotations

import functools
import gc
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import Progress
from pipeline_src.model.flops import Workload
from pipeline_src.training.batches import transfer
from pipeline_src.training.distributed import FULL_SHARD, Distributed, full_tensor, gradient_sync, sharding_of
from pipeline_src.training.optimizers import (
    BETAS,
    DEFAULT_MAX_GRAD_NORM,
    EPSILON,
    linear_schedule,
    make_optimizer,
    set_learning_rate,
)
from pipeline_src.training.stop import StopRequest
from pipeline_src.training.throughput import ComputeTracker

# An error message names at most this many examples.
NUM_NAMED = 20


class LossTerm(NamedTuple):
    loss: Tensor
    correct: Tensor | None = None


class MicroBatch(Protocol):
    @property
    def examples(self) -> np.ndarray: ...

    @property
    def workload(self) -> Workload: ...


B = TypeVar("B", bound=MicroBatch)


class Objective(nn.Module, ABC, Generic[B]):
    """Module that owns all trained parameters and returns the terms of the loss.

    Attributes:
        weights: name of a term -> its weight in the loss. The training curve has a column ``<term>_loss`` for each
            term, and ``<term>_accuracy`` for terms that count correct predictions.
    """

    weights: Mapping[str, float]

    @abstractmethod
    def forward(self, batch: B) -> dict[str, LossTerm]:
        """Return, for each term in ``weights``, its loss summed over the microbatch."""

    @abstractmethod
    def loss_counts(self, work: Workload) -> dict[str, int]:
        """Return, for each term, the number of losses in ``work``, by which the trainer divides their sum."""

    def gradient_clip_groups(self) -> list[list[nn.Parameter]]:
        """Return groups of parameters. The gradient norm of each group is clipped separately."""
        return [list(self.parameters())]

    def checkpoint_parameters(self) -> Mapping[str, nn.Parameter]:
        """Return name in checkpoints -> parameter.

        Parameters of the attribute ``model`` are named without the prefix "model.".
        """
        return {name.removeprefix("model."): parameter for name, parameter in self.named_parameters()}


@dataclass
class TrainState:
    # Number of steps taken.
    step: int = 0
    # Rows of the training curve, by ascending ``step``.
    curve: list[dict[str, float]] = field(default_factory=list)
    # Sums of losses, accuracies and gradient norms over the steps since the last row.
    sums: dict[str, Any] = field(default_factory=dict)
    # Number of steps since the last row.
    summed_steps: int = 0
    # Samples of the model's output, as JSON values (see FillMaskSamples).
    samples: list[dict[str, Any]] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        if not self.curve or self.curve[-1]["step"] != self.step:
            self.curve.append({"step": self.step})
        return self.curve[-1]


class Request(Protocol):
    """Request to stop or save, which one process makes and all processes follow after the same step.

    A process makes the request when ``bool(request)`` becomes True. Processes exchange requests at the start of a step,
    so a request made during a step is followed after the next step.
    """

    # Whether all processes follow the request after the current step.
    is_agreed: bool

    def __bool__(self) -> bool: ...


class Requests(NamedTuple):
    stop: StopRequest
    save: Request


class Stepper(Protocol):
    def backward(
        self, microbatch: Any, counts: Mapping[str, Any], is_last: bool, is_own: bool
    ) -> dict[str, Tensor]: ...

    def update(self) -> Tensor: ...


class Callback(ABC):
    """Base class of actions that run after some steps, for example validation.

    A callback stores what it needs after a restart in the trainer's state.

    Args:
        every: run when the step is a multiple of any of these numbers (None is skipped).
        at: run after these steps too.
        before: run only after steps below this number. None: no limit.
    """

    def __init__(self, every: Sequence[int | None] = (), at: Container[int] = (), before: int | None = None) -> None:
        self._every = [number for number in every if number]
        self._at = at
        self._before = before

    def due(self, step: int) -> bool:
        # The result must be the same on all processes.
        if self._before is not None and step >= self._before:
            return False
        return step in self._at or any(step % number == 0 for number in self._every)

    @abstractmethod
    def after_step(self, trainer: Trainer[Any]) -> None:
        pass

    def ends_training(self, state: TrainState) -> bool:
        # Whether training ends before its last step. It is asked at the start and after each `after_step`.
        return False


class Trainer(Generic[B]):
    """Train an objective step by step.

    A step trains on one batch, which is split into microbatches. Each term of the loss is divided by its count over the
    whole batch on all processes. The numbers of microbatches and processes therefore change only rounding and the masks
    of dropout.

    Args:
        schedule: function from step, counted from 0, to learning rate.
        name: name of the training, for the progress bar and errors.
        first, last: number of steps taken before this training, and at its end.
        seed: seed of dropout, combined with the step and the process's rank.
        callbacks: callbacks, in the order in which they run after a step.
        requests: requests to stop and to save, exchanged with the other processes in every step. Training ends after a
            step in which a stop was agreed.
        compute_tracker: counts the work of every step. Time spent in callbacks does not count as training.

    Attributes:
        metrics: validation metrics, if a callback measured them after the current step. Otherwise empty.
        stepper: object whose ``backward`` and ``update`` replace the trainer's. None: the trainer's own are used.
        dropout_seed: seed of dropout in the current step on this process.
        keeps_gradients: whether gradients are zeroed in place instead of freed.
    """

    progress: Progress
    dropout_seed: int

    def __init__(
        self,
        objective: Objective[B],
        optimizer: Optimizer,
        schedule: Callable[[int], float],
        distributed: Distributed,
        *,
        name: str,
        first: int = 0,
        last: int,
        seed: int,
        max_grad_norm: float | None = DEFAULT_MAX_GRAD_NORM,
        callbacks: Sequence[Callback] = (),
        requests: Requests | None = None,
        compute_tracker: ComputeTracker | None = None,
    ) -> None:
        self.objective = objective
        self.optimizer = optimizer
        self.schedule = schedule
        self.distributed = distributed
        self.name = name
        self.last = last
        self.seed = seed
        self.max_grad_norm = max_grad_norm
        self.callbacks = list(callbacks)
        self.compute_tracker = compute_tracker
        self.stop_request = requests.stop if requests else StopRequest()
        self._requests: list[Request] = [*requests] if requests else []
        self.state = TrainState(first)
        self.metrics: dict[str, float] = {}
        self.stepper: Stepper | None = None
        self.keeps_gradients = False
        self._module = distributed.wrap(objective)
        self._clip_groups = objective.gradient_clip_groups()
        self._is_fully_sharded = sharding_of(objective) == FULL_SHARD
        self._unchecked: list[tuple[int, Tensor, list[np.ndarray]]] = []

    def load_state(self, state: TrainState) -> None:
        device = self.distributed.device
        state.sums = {name: torch.tensor(total, device=device) for name, total in state.sums.items()}
        self.state = state

    def run(self, batches: Iterable[Sequence[B]]) -> None:
        """Train one step on each batch, and call the callbacks that are due.

        Args:
            batches: batches for the steps from ``state.step`` to ``last``, each a list of microbatches on the host.

        Raises:
            Interrupted: training stopped on request, after the callbacks of the last step have run.
        """
        # A training that had ended early is resumed at its end.
        if any(callback.ends_training(self.state) for callback in self.callbacks):
            return
        aside = self.compute_tracker.aside if self.compute_tracker else nullcontext
        self.objective.train()
        if self.compute_tracker is not None:
            self.compute_tracker.start()
        with frozen_objects(), Progress(self.name, self.last, "step", initial=self.state.step) as self.progress:
            for batch in transfer(batches, self.distributed.device):
                try:
                    self.train_step(batch)
                except torch.OutOfMemoryError as error:
                    tokens = max(microbatch.workload.tokens for microbatch in batch)
                    raise PipelineError(
                        "out of GPU memory in a microbatch",
                        f"{tokens:,} tokens",
                        where=str(error).splitlines()[0],
                        hint="lower microbatch_tokens in machine.yaml and run the same command again; if that is not "
                        "enough, set activation_checkpointing: true. Training resumes from its last checkpoint",
                    ) from None
                self.progress.advance()
                due = [callback for callback in self.callbacks if callback.due(self.state.step)]
                if due:
                    self.check_losses()
                for callback in due:
                    with aside():
                        callback.after_step(self)
                if any(callback.ends_training(self.state) for callback in due):
                    break
                if self.stop_request.is_agreed and self.state.step < self.last:
                    raise self.stop_request.interrupted(self.name, self.state.step)
        self.check_losses()

    def train_step(self, batch: Sequence[B]) -> None:
        step = self.state.step
        stepper = self.stepper or self
        # Count the losses of the whole batch, over all processes.
        is_distributed = self.distributed.world_size > 1
        work = functools.reduce(Workload.__add__, (microbatch.workload for microbatch in batch))
        if is_distributed:
            work = self._all_reduce_workload(work)
        counts = {name: count or 1.0 for name, count in self.objective.loss_counts(work).items()}

        self.dropout_seed = derive_seed(self.seed, step, self.distributed.rank) >> 1
        torch.manual_seed(self.dropout_seed)
        set_learning_rate(self.optimizer, self.schedule(step))
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        sums: dict[str, Tensor] = {}
        passes = len(batch)
        # With full sharding, a pass gathers weights from all processes. So every process must take part in every
        # pass, even if it has fewer microbatches.
        if self._is_fully_sharded:
            passes = self.distributed.all_reduce_max(passes)
        for number in range(passes):
            is_own = number < len(batch)
            microbatch = batch[number if is_own else -1]
            values = stepper.backward(microbatch, counts, is_last=number + 1 == passes, is_own=is_own)
            if is_own:
                for name, value in values.items():
                    sums[name] = sums.get(name, 0.0) + value
        sums["grad_norm"] = stepper.update()

        for name, value in sums.items():
            self.state.sums[name] = self.state.sums.get(name, 0.0) + value
        self.state.step += 1
        self.state.summed_steps += 1
        self.metrics = {}
        # The sum is NaN or infinite if the loss or the gradient norm is.
        checked = sums["loss"] + sums["grad_norm"]
        self._unchecked.append((step, checked, [microbatch.examples for microbatch in batch]))
        # On a GPU, a check waits for the step to finish, so it runs only before callbacks and at the end.
        if self.distributed.device.type == "cpu":
            self.check_losses()
        if self.compute_tracker is not None:
            self.compute_tracker.add(work)
        if not is_distributed:
            for request in self._requests:
                request.is_agreed = bool(request)

    def _all_reduce_workload(self, work: Workload) -> Workload:
        numbers = self.distributed.all_reduce([*work, *(float(bool(request)) for request in self._requests)])
        for request, total in zip(self._requests, numbers[len(work) :], strict=True):
            request.is_agreed = total > 0
        return Workload(*map(int, numbers[: len(work)]))

    def backward(self, microbatch: B, counts: Mapping[str, Any], is_last: bool, is_own: bool) -> dict[str, Tensor]:
        """Add a microbatch's gradients, and return its contribution to the metrics of the batch.

        Args:
            counts: term -> number of losses in the whole batch, over all processes.
            is_last: whether this is the last pass of the step, which averages gradients over the processes.
            is_own: whether the process really has this microbatch. If False, the loss is multiplied by 0, and the pass
                only takes part in gathering sharded weights.

        Returns:
            ``loss``, ``<term>_loss`` and ``<term>_accuracy``. Summed over microbatches and processes, they are the
            batch's means.
        """
        world_size = self.distributed.world_size
        with gradient_sync(self._module, is_last) if world_size > 1 else nullcontext():
            with self.distributed.autocast():
                terms: dict[str, LossTerm] = self._module(microbatch)
            means = {name: term.loss / counts[name] for name, term in terms.items()}
            weights = self.objective.weights
            loss = torch.stack([weights[name] * mean for name, mean in means.items()]).sum()

            # Gradients are averaged over the processes, but their sum is needed, so the loss is multiplied.
            factor = world_size if is_own else 0
            (loss * factor).backward()
        # Each microbatch contributes its share, so sums over microbatches and processes are the batch's means.
        values = {"loss": loss.detach()}
        for name, term in terms.items():
            values[f"{name}_loss"] = means[name].detach()
            if term.correct is not None:
                values[f"{name}_accuracy"] = term.correct / counts[name]
        return values

    def update(self) -> Tensor:
        limit = math.inf if self.max_grad_norm is None else self.max_grad_norm
        norms = [nn.utils.clip_grad_norm_(group, limit) for group in self._clip_groups]
        if self.distributed.world_size > 1:
            norms = [full_tensor(norm) for norm in norms]
        norm = functools.reduce(torch.hypot, norms)
        self.optimizer.step()
        return norm

    def check_losses(self) -> None:
        # If another process hangs, this call times out. Reading the loss from the GPU would wait forever.
        if self.distributed.device.type == "cuda":
            self.distributed.all_reduce([0.0])
        for step, value, examples in self._unchecked:
            if not math.isfinite(float(value)):
                numbers = np.concatenate(examples)
                more = " ..." * (len(numbers) > NUM_NAMED)
                raise PipelineError(
                    "the loss or its gradient is NaN or infinite",
                    f"step {step + 1}",
                    where=f"{self.name}, examples {', '.join(map(str, numbers[:NUM_NAMED]))}{more}",
                    hint="lower the learning rate or lengthen the warm-up, and train again",
                )
        self._unchecked.clear()


@contextmanager
def frozen_objects() -> Iterator[None]:
    # A full garbage collection takes 0.5 s, in which the GPU would have to wait. Frozen objects are not searched.
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class CurveLogger(Callback):
    """Add rows to the training curve, and show the loss on the progress bar.

    A row has the means over all steps since the previous row. Each row also goes to ``writer``, together with rates
    such as tokens per second.
    """

    # Function (step, values) that records a row elsewhere, for example in files.
    writer: Callable[[int, Mapping[str, float]], None] | None = None

    def __init__(self, every: Sequence[int | None], last: int) -> None:
        super().__init__(every, at=(last,))

    def after_step(self, trainer: Trainer[Any]) -> None:
        state = trainer.state
        means = torch.stack(list(state.sums.values())) / state.summed_steps
        # The processes' losses are parts of a sum, but all processes have the same gradient norm.
        totals = trainer.distributed.all_reduce_tensor(means).tolist()
        row = dict(zip(state.sums, totals, strict=True))
        row["grad_norm"] /= trainer.distributed.world_size
        row["learning_rate"] = trainer.schedule(state.step - 1)
        state.row().update(row)
        state.sums = {}
        state.summed_steps = 0
        rates = trainer.compute_tracker.throughput() if trainer.compute_tracker else {}
        trainer.progress.advance(0, loss=row["loss"], **rates)
        if self.writer is not None:
            self.writer(state.step, state.row() | rates)


@dataclass(frozen=True)
class OptimizerConfig:
    # The learning rate at the end of the warm-up, from which it decays.
    learning_rate: float
    total_steps: int
    warmup_steps: int = 0
    decay_steps: int | None = None
    weight_decay: float = 0.01
    optimizer: str = "adamw"
    betas: tuple[float, float] = BETAS
    epsilon: float = EPSILON
    blocks_learning_rate: float | None = None
    blocks_weight_decay: float | None = None
    # None: gradients are not clipped.
    max_grad_norm: float | None = DEFAULT_MAX_GRAD_NORM


def make_trainer(
    objective: Objective[B], config: OptimizerConfig, distributed: Distributed, **options: Any
) -> Trainer[B]:
    optimizer = make_optimizer(
        objective,
        config.learning_rate,
        config.weight_decay,
        config.optimizer,
        config.betas,
        config.epsilon,
        config.blocks_learning_rate,
        config.blocks_weight_decay,
    )
    schedule = linear_schedule(config.learning_rate, config.warmup_steps, config.total_steps, config.decay_steps)
    return Trainer(objective, optimizer, schedule, distributed, max_grad_norm=config.max_grad_norm, **options)
