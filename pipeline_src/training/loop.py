"""The one training loop, of pretraining and of fine-tuning."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import Progress
from pipeline_src.training.distributed import Distributed, gradient_sync
from pipeline_src.training.optimiser import CLIP
from pipeline_src.training.sharding import FULL, sharding_of, whole
from pipeline_src.training.transfer import transfer


class Term(NamedTuple):
    """One term of the loss over a micro-batch: the sum of its losses, and how many guesses were right."""

    loss: Tensor
    right: Tensor | None = None


class MicroBatch(Protocol):
    """Part of a batch: a dataclass of tensors, as many sequences as go through the model at once."""

    @property
    def examples(self) -> np.ndarray:
        """Numbers by which a person finds its examples again, int64 [sequences]."""


B = TypeVar("B", bound=MicroBatch)


class Objective(nn.Module, ABC, Generic[B]):
    """What is minimised: a module that owns all that is trained, and gives the terms of the loss.

    Attributes:
        weights: of each term in the loss, by name. Rows of the curve have columns ``<term>_loss`` and, for terms that
            count right guesses, ``<term>_accuracy``.
    """

    weights: Mapping[str, float]

    @abstractmethod
    def forward(self, batch: B) -> dict[str, Term]:
        """The sum of each term over a micro-batch, by the names in ``weights``."""

    @abstractmethod
    def count(self, batch: B) -> dict[str, int]:
        """How many losses each term sums over a micro-batch, known before :meth:`forward` runs.

        Whatever else is to be summed over the whole batch may stand beside, under other names.
        """

    def clipped_together(self) -> list[list[nn.Parameter]]:
        """Parameters in groups, each of which has its gradients clipped by its own norm; all in one, as a rule."""
        return [list(self.parameters())]


@dataclass
class TrainState:
    """How far a loop is, beside weights and moments: what it needs to go on as if it had never stopped.

    Attributes:
        step: steps taken.
        rows: averages of every so many steps, the curve so far.
        sums: of the numbers since the last row.
        count: steps since the last row.
        notes: what the caller wrote down on the way, JSON values.
    """

    step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0
    notes: list[dict[str, Any]] = field(default_factory=list)


class Loop(Generic[B]):
    """Trains an objective step by step.

    A step takes one batch in micro-batches. Each term of the loss is divided by its count over the whole batch on all
    processes, so that how a batch is cut, or over how many processes, changes nothing but rounding.

    Args:
        objective: in the state it starts from.
        optimiser: over the objective's parameters.
        rate: learning rate by step.
        last: steps in all; the loop ends after as many.
        row_ends: whether a row of averages ends after a step; the last step always ends one.
        what: named on the bar and in errors.
        stream: keys the dropout of every step and process.
        distributed: the processes that train.
        state: where to go on.
        stop_requested: whether someone requested a stop.
        save_due: whether it is time to save.
        counted: told the counts of every step, before ``rates`` is asked.
        rates: numbers of the pace, such as tokens per second, since its last call; called when a row ends.
        clip: largest norm of all gradients together; None clips nothing.

    Attributes:
        step: steps taken.
        rows: the curve so far.
        notes: of the caller, kept with the loop's state.
        counts: of the last step's batch, over all processes, as the objective counts them.
        pace: what ``rates`` gave last.
    """

    def __init__(
        self,
        objective: Objective[B],
        optimiser: Optimizer,
        rate: Callable[[int], float],
        *,
        last: int,
        row_ends: Callable[[int], bool],
        what: str,
        stream: int,
        distributed: Distributed,
        state: TrainState | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        save_due: Callable[[], bool] = lambda: False,
        rates: Callable[[], dict[str, float]] = dict,
        counted: Callable[[dict[str, float]], None] = lambda counts: None,
        clip: float | None = CLIP,
    ) -> None:
        self.objective, self.optimiser, self.rate = objective, optimiser, rate
        self.last, self.row_ends, self.what, self.stream, self.distributed = last, row_ends, what, stream, distributed
        self.stop_requested, self.save_due, self.rates, self.clip = stop_requested, save_due, rates, clip
        self.counted = counted
        self.counts: dict[str, float] = {}
        self.pace: dict[str, float] = {}
        state = state or TrainState()
        self.step, self.rows, self._count = state.step, list(state.rows), state.count
        self.notes = list(state.notes)
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
        """How far the loop is; of whole steps, and of losses that are finite."""
        self.check()
        sums = {name: float(total) for name, total in self._sums.items()}
        return TrainState(self.step, self.rows, sums, self._count, self.notes)

    def run(self, batches: Iterable[Sequence[B]]) -> Iterator[int]:
        """Take a step with each of ``batches``, which lie on the host, and yield how many were taken, until ``last``.

        Raises:
            PipelineError: a loss or gradient is NaN or infinite. It is noticed before anything is saved.
        """
        self.objective.train()
        with Progress(self.what, self.last, "step", initial=self.step) as progress:
            for batch in transfer(batches, self.distributed.device):
                self._take(batch)
                self.step += 1
                self._count += 1
                if self.distributed.device.type == "cpu":
                    self.check()  # on a GPU it would wait for every step to finish
                progress.advance()
                self.counted(self.counts)
                if self.step == self.last or self.row_ends(self.step):
                    self._end_row()
                    progress.advance(0, loss=self.rows[-1]["loss"], **self.pace)
                yield self.step

    def _end_row(self) -> None:
        self.check()
        names = list(self._sums)
        means = torch.stack([self._sums[name] for name in names]) / self._count
        row = dict(zip(names, self.distributed.all_reduce_tensor(means).tolist(), strict=True))
        row["grad_norm"] /= self.distributed.world_size  # every process has the same
        self.rows.append({"step": self.step, **row, "learning_rate": self.rate(self.step - 1)})
        self._sums, self._count = {}, 0
        self.pace = self.rates()

    def check(self) -> None:
        """Stop where a loss or a gradient was NaN or infinite.

        Raises:
            PipelineError: as in :meth:`run`; step and examples are named.
        """
        if self.distributed.device.type == "cuda":
            self.distributed.all_reduce([0.0])  # notices a process that hangs; below, the GPU would wait for it
        for step, number, examples in self._unchecked:
            if not math.isfinite(float(number)):
                numbers = np.concatenate(examples)
                raise PipelineError(
                    "the loss or its gradient is NaN or infinite", f"step {step + 1}",
                    where=f"{self.what}, examples {', '.join(map(str, numbers[:20]))}{' ...' * (len(numbers) > 20)}",
                    remedy="lower the learning rate or lengthen the warm-up; the last checkpoint is from before",
                )  # fmt: skip
        self._unchecked.clear()

    def _take(self, batch: Sequence[B]) -> None:
        """One step of the optimiser."""
        world_size = self.distributed.world_size
        torch.manual_seed(derive_seed(self.stream, self.step, self.distributed.rank) >> 1)
        self.counts = counts = self._count_all(batch)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(self.step) * group.get("rate", 1.0)
        self.optimiser.zero_grad()
        sums: dict[str, Tensor] = {}
        passes = self._passes(batch)
        for number, micro_batch in enumerate(passes, 1):
            with gradient_sync(self._module, last=number == len(passes)):
                with self.distributed.autocast():
                    terms: dict[str, Term] = self._module(micro_batch)
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
        norms = [whole(nn.utils.clip_grad_norm_(group, limit)) for group in self.objective.clipped_together()]
        sums["grad_norm"] = functools.reduce(torch.hypot, norms)
        self.optimiser.step()
        self._unchecked.append((self.step, sums["loss"] + sums["grad_norm"], [part.examples for part in batch]))
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def _passes(self, batch: Sequence[B]) -> Sequence[B]:
        """The micro-batches; where weights are gathered for each, the last one again until all have as many."""
        if sharding_of(self.objective) != FULL:
            return batch
        again = self.distributed.largest(len(batch)) - len(batch)
        return [*batch, *(batch[-1] for _ in range(again))]

    def _count_all(self, batch: Sequence[B]) -> dict[str, float]:
        """Counts over the whole batch on all processes; requests to stop and to save come the same way."""
        here: Counter[str] = Counter()
        for micro_batch in batch:
            here.update(self.objective.count(micro_batch))
        requests = [float(self.stop_requested()), float(self.save_due())]
        *totals, stops, saves = self.distributed.all_reduce([*here.values(), *requests])
        self._stop_requested_of_any, self._save_due_of_any = stops > 0, saves > 0
        return dict(zip(here, totals, strict=True))
