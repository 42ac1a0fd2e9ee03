"""The training loop of pretraining and fine-tuning, how batches are split, and requests to stop."""

from __future__ import annotations

import functools
import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import Interrupted, PipelineError
from pipeline_src.common.progress import Progress
from pipeline_src.training.distributed import FULL_SHARD, Distributed, full_tensor, gradient_sync, sharding_of
from pipeline_src.training.optimizers import CLIP
from pipeline_src.training.prefetch import transfer


class LossTerm(NamedTuple):
    """One term of the loss over a micro-batch: the sum of its losses, and the number of correct predictions."""

    loss: Tensor
    right: Tensor | None = None


class MicroBatch(Protocol):
    """The sequences of a batch that go through the model at once: a dataclass of tensors."""

    @property
    def examples(self) -> np.ndarray:
        """Numbers of the examples, to name them in errors; int64 [sequences]."""


B = TypeVar("B", bound=MicroBatch)


class Objective(nn.Module, ABC, Generic[B]):
    """The objective that is minimised: a module that owns all trained parameters and returns the terms of the loss.

    Attributes:
        weights: weight of each term in the loss, by name. Rows of the curve have columns ``<term>_loss`` and, for
            terms that count correct predictions, ``<term>_accuracy``.
    """

    weights: Mapping[str, float]

    @abstractmethod
    def forward(self, batch: B) -> dict[str, LossTerm]:
        """Return the sum of each term over a micro-batch, by the names in ``weights``."""

    @abstractmethod
    def count(self, batch: B) -> dict[str, int]:
        """Return how many losses each term sums over a micro-batch, before :meth:`forward` runs.

        Other numbers to be summed over the whole batch may be added under other names.
        """

    def gradient_clip_groups(self) -> list[list[nn.Parameter]]:
        """Groups of parameters whose gradients are clipped by the norm of the group; by default one group of all."""
        return [list(self.parameters())]


@dataclass
class TrainState:
    """State of a loop, which together with weights and moments lets it continue as if it had never stopped.

    Attributes:
        step: steps taken.
        rows: the curve so far, each row the means over the steps since the row before.
        sums: sums of the numbers since the last row.
        count: steps since the last row.
        samples: the caller's samples of the model's output during training, JSON values.
    """

    step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0
    samples: list[dict[str, Any]] = field(default_factory=list)


class Loop(Generic[B]):
    """Trains an objective step by step.

    A step takes one batch in micro-batches. Each term of the loss is divided by its count over the whole batch on all
    processes, so that the number of micro-batches and of processes changes only rounding.

    Args:
        objective: in its initial or restored state.
        optimizer: over the objective's parameters.
        rate: learning rate by step.
        last: the step after which the loop ends.
        log_at: whether to add a row to the curve after a step; the last step always adds one.
        name: shown on the progress bar and in errors.
        seed: keys the dropout of every step and process.
        distributed: the processes that train.
        state: state to continue from.
        stop_requested: whether someone requested a stop.
        save_due: whether it is time to save.
        on_step: called with the counts of every step, before ``throughput``.
        throughput: returns rates, such as tokens per second, since its last call; called for every row.
        clip: maximum norm of the gradients; None does not clip.

    Attributes:
        step: steps taken.
        rows: the curve so far.
        samples: of the caller, saved with the loop's state.
        counts: counts of the last batch over all processes, see :meth:`Objective.count`.
        throughput: the rates of the last row.
    """

    def __init__(
        self,
        objective: Objective[B],
        optimizer: Optimizer,
        rate: Callable[[int], float],
        *,
        last: int,
        log_at: Callable[[int], bool],
        name: str,
        seed: int,
        distributed: Distributed,
        state: TrainState | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        save_due: Callable[[], bool] = lambda: False,
        throughput: Callable[[], dict[str, float]] = dict,
        on_step: Callable[[dict[str, float]], None] = lambda counts: None,
        clip: float | None = CLIP,
    ) -> None:
        self.objective, self.optimizer, self.rate = objective, optimizer, rate
        self.last, self.log_at, self.name, self.seed, self.distributed = last, log_at, name, seed, distributed
        self.stop_requested, self.save_due, self.on_step, self.clip = stop_requested, save_due, on_step, clip
        self._measure = throughput
        self.counts: dict[str, float] = {}
        self.throughput: dict[str, float] = {}
        state = state or TrainState()
        self.step, self.rows, self._count = state.step, list(state.rows), state.count
        self.samples = list(state.samples)
        self._module = distributed.wrap(objective)
        self._sums = {name: torch.tensor(total, device=distributed.device) for name, total in state.sums.items()}
        self._stop_requested_of_any = self._save_due_of_any = False
        self._unchecked: list[tuple[int, Tensor, list[np.ndarray]]] = []

    @property
    def stopping(self) -> bool:
        """Whether to stop now; all processes agree on it."""
        return self._stop_requested_of_any or (self.distributed.world_size == 1 and self.stop_requested())

    @property
    def saving(self) -> bool:
        """Whether to save now; all processes agree on it."""
        return self._save_due_of_any or (self.distributed.world_size == 1 and self.save_due())

    def state(self) -> TrainState:
        """Return the state after the last step, once all losses are known to be finite."""
        self.check()
        sums = {name: float(total) for name, total in self._sums.items()}
        return TrainState(self.step, self.rows, sums, self._count, self.samples)

    def run(self, batches: Iterable[Sequence[B]]) -> Iterator[int]:
        """Take a step with each of ``batches``, which are on the host, and yield its number, until ``last``.

        Raises:
            PipelineError: a loss or gradient is NaN or infinite. Nothing is saved after such a step.
        """
        self.objective.train()
        with Progress(self.name, self.last, "step", initial=self.step) as progress:
            for batch in transfer(batches, self.distributed.device):
                self._take(batch)
                self.step += 1
                self._count += 1
                if self.distributed.device.type == "cpu":
                    self.check()  # on a GPU it would wait for every step to finish
                progress.advance()
                self.on_step(self.counts)
                if self.step == self.last or self.log_at(self.step):
                    self._add_row()
                    progress.advance(0, loss=self.rows[-1]["loss"], **self.throughput)
                yield self.step

    def _add_row(self) -> None:
        self.check()
        names = list(self._sums)
        means = torch.stack([self._sums[name] for name in names]) / self._count
        row = dict(zip(names, self.distributed.all_reduce_tensor(means).tolist(), strict=True))
        row["grad_norm"] /= self.distributed.world_size  # every process has the same
        self.rows.append({"step": self.step, **row, "learning_rate": self.rate(self.step - 1)})
        self._sums, self._count = {}, 0
        self.throughput = self._measure()

    def check(self) -> None:
        """Check that all losses and gradients so far were finite.

        Raises:
            PipelineError: one was NaN or infinite; step and examples are named.
        """
        if self.distributed.device.type == "cuda":
            self.distributed.all_reduce([0.0])  # times out if a process hangs; below, the GPU would wait for it
        for step, number, examples in self._unchecked:
            if not math.isfinite(float(number)):
                numbers = np.concatenate(examples)
                raise PipelineError(
                    "the loss or its gradient is NaN or infinite", f"step {step + 1}",
                    where=f"{self.name}, examples {', '.join(map(str, numbers[:20]))}{' ...' * (len(numbers) > 20)}",
                    hint="lower the learning rate or lengthen the warm-up; the last checkpoint is from before",
                )  # fmt: skip
        self._unchecked.clear()

    def _take(self, batch: Sequence[B]) -> None:
        world_size = self.distributed.world_size
        torch.manual_seed(derive_seed(self.seed, self.step, self.distributed.rank) >> 1)
        self.counts = counts = self._count_all(batch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step) * group.get("rate", 1.0)
        self.optimizer.zero_grad()
        sums: dict[str, Tensor] = {}
        passes = self._passes(batch)
        for number, micro_batch in enumerate(passes, 1):
            with gradient_sync(self._module, last=number == len(passes)):
                with self.distributed.autocast():
                    terms: dict[str, LossTerm] = self._module(micro_batch)
                means = {name: term.loss / (counts[name] or 1.0) for name, term in terms.items()}
                loss = torch.stack([self.objective.weights[name] * mean for name, mean in means.items()]).sum()
                if number > len(batch):
                    (loss * 0).backward()
                    continue
                (loss * world_size).backward()  # the processes' gradients are averaged
            values = {"loss": loss}
            for name, term in terms.items():
                values[f"{name}_loss"] = means[name]
                if term.right is not None:
                    values[f"{name}_accuracy"] = term.right / (counts[name] or 1.0)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value.detach()
        limit = math.inf if self.clip is None else self.clip
        norms = [full_tensor(nn.utils.clip_grad_norm_(group, limit)) for group in self.objective.gradient_clip_groups()]
        sums["grad_norm"] = functools.reduce(torch.hypot, norms)
        self.optimizer.step()
        self._unchecked.append((self.step, sums["loss"] + sums["grad_norm"], [part.examples for part in batch]))
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def _passes(self, batch: Sequence[B]) -> Sequence[B]:
        """The micro-batches; if each gathers weights, the last is repeated until all processes have equally many."""
        if sharding_of(self.objective) != FULL_SHARD:
            return batch
        again = self.distributed.all_reduce_max(len(batch)) - len(batch)
        return [*batch, *(batch[-1] for _ in range(again))]

    def _count_all(self, batch: Sequence[B]) -> dict[str, float]:
        """Counts over the whole batch on all processes; requests to stop and to save are exchanged with them."""
        here: Counter[str] = Counter()
        for micro_batch in batch:
            here.update(self.objective.count(micro_batch))
        requests = [float(self.stop_requested()), float(self.save_due())]
        *totals, stops, saves = self.distributed.all_reduce([*here.values(), *requests])
        self._stop_requested_of_any, self._save_due_of_any = stops > 0, saves > 0
        return dict(zip(here, totals, strict=True))


def split_greedy(lengths: np.ndarray, tokens: int) -> list[slice]:
    """Split sequences in order into micro-batches of at most ``tokens``; the last one takes the rest.

    Args:
        lengths: tokens of each sequence, int64 [sequences].
        tokens: most tokens of a micro-batch; a longer sequence is a micro-batch alone.
    """
    ends = np.cumsum(lengths)
    splits: list[slice] = []
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        splits.append(slice(first, last))
        first = last
    return splits


def split_balanced(lengths: np.ndarray, tokens: int | None) -> list[slice]:
    """Split into as many micro-batches as :func:`split_greedy`, the largest of them as small as possible.

    A small micro-batch costs a GPU nearly as much time as a full one. With ``tokens`` None nothing is split.
    """
    if tokens is None:
        return [slice(0, len(lengths))]
    splits = split_greedy(lengths, tokens)
    if len(splits) == 1:
        return splits
    low, high = 1, tokens  # the smallest limit that needs no more splits is in between
    while low < high:
        middle = (low + high) // 2
        if len(split_greedy(lengths, middle)) <= len(splits):
            high = middle
        else:
            low = middle + 1
    return split_greedy(lengths, low)


# Slurm's warning before the time limit (`--signal=URG@120`: ignored by default, so wrappers survive it), `scancel` or
# the end of a container, Ctrl-C, and a terminal that is closed.
SIGNALS = (signal.SIGURG, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AGAIN = 1.0  # seconds in which another signal counts as the same: torchrun forwards those that Slurm sends to all


class StopRequest:
    """The signal that requested a stop, if any did."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._since = 0.0

    def __bool__(self) -> bool:
        return self.signal is not None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; a second one, but for SIGURG, ends the process as if it were not handled."""
        if self.signal is None:
            self._since = time.monotonic()
        elif number != signal.SIGURG and time.monotonic() - self._since > AGAIN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = signal.Signals(number)

    def interrupted(self, name: str, step: int) -> Interrupted:
        """Return the exception to raise once the checkpoint of ``step`` is written."""
        signalled = self.signal.name if self.signal else "a signal to another process"
        return Interrupted(f"{name} stopped by {signalled} after step {step:,}; its checkpoint is saved")


@contextmanager
def catch_stop_requests() -> Iterator[StopRequest]:
    """Context in which signals request a stop instead of ending the process. Does nothing outside the main thread.

    A signal that is ignored stays so: `nohup` ignores SIGHUP, a shell SIGINT in what it starts in the background.
    """
    stop_request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop_request
        return
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop_request.receive) for number in heard}
    try:
        yield stop_request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
