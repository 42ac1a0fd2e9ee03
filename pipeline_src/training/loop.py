"""The one training loop, of pretraining and of fine-tuning."""

from __future__ import annotations

import math
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
from pipeline_src.training.distributed import Team, gradients_wait
from pipeline_src.training.optimiser import CLIP
from pipeline_src.training.prefetch import prefetch


class Term(NamedTuple):
    """One part of the loss over a piece of a batch: the sum of its losses, and how many guesses were right."""

    loss: Tensor
    right: Tensor | None = None


class Batch(Protocol):
    """A piece of a batch, as many sequences as go through the model at once."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many losses each term sums, by its name, known before the model runs; and whatever else is counted."""

    @property
    def examples(self) -> np.ndarray:
        """Numbers by which a person finds its examples again, int64 [sequences]."""


B = TypeVar("B", bound=Batch)


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
    """Trains a model step by step.

    A step takes one batch in pieces. Each term of the loss is divided by its count over all pieces and processes, so
    that how a batch is cut, or over how many processes, changes nothing but rounding.

    Args:
        model: in the state it starts from; wrapped by ``team.share``.
        objective: gives the terms of a piece by name.
        optimiser: over the model's parameters.
        rate: learning rate by step.
        last: steps in all; the loop ends after as many.
        row_ends: whether a row of averages ends after a step; the last step always ends one.
        what: named on the bar and in errors.
        stream: keys the dropout of every step and process.
        team: who trains.
        reached: where to go on.
        asked: whether someone asked to stop.
        rates: numbers of the pace, such as tokens per second, since it was last asked; asked when a row ends.

    Attributes:
        step: steps taken.
        rows: the curve so far.
        notes: of the caller, kept with the loop's place.
        counts: of the last step's batch, over all processes.
        pace: what ``rates`` said last.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Callable[[B], Mapping[str, Term]],
        optimiser: Optimizer,
        rate: Callable[[int], float],
        *,
        last: int,
        row_ends: Callable[[int], bool],
        what: str,
        stream: int,
        team: Team,
        reached: TrainState | None = None,
        asked: Callable[[], bool] = lambda: False,
        rates: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self.model, self.objective, self.optimiser, self.rate = model, objective, optimiser, rate
        self.last, self.row_ends, self.what, self.stream, self.team = last, row_ends, what, stream, team
        self.asked, self.rates = asked, rates
        self.counts: dict[str, float] = {}
        self.pace: dict[str, float] = {}
        reached = reached or TrainState()
        self.step, self.rows, self._count = reached.step, list(reached.rows), reached.count
        self.notes = list(reached.notes)
        self._sums = {name: torch.tensor(total, device=team.device) for name, total in reached.sums.items()}
        self._asked_of_any = False
        self._unchecked: list[tuple[int, Tensor, list[np.ndarray]]] = []

    @property
    def stopping(self) -> bool:
        """Whether to stop now; all processes of a team agree on it."""
        return self._asked_of_any or (self.team.size == 1 and self.asked())

    def reached(self) -> TrainState:
        """How far the loop is; what it holds is whole numbers of losses that are numbers."""
        self.check()
        sums = {name: float(total) for name, total in self._sums.items()}
        return TrainState(self.step, self.rows, sums, self._count, self.notes)

    def run(self, batches: Iterable[Sequence[B]]) -> Iterator[int]:
        """Take a step with each of ``batches`` and yield how many were taken, until ``last``.

        Raises:
            PipelineError: a loss or gradient is no longer a number. It is noticed before anything is saved.
        """
        self.model.train()
        with Progress(self.what, self.last, "step", initial=self.step) as progress:
            for pieces in prefetch(batches):
                self._take(pieces)
                self.step += 1
                self._count += 1
                if self.team.device.type == "cpu":
                    self.check()  # on a GPU it would wait for every step to finish
                progress.advance()
                if self.step == self.last or self.row_ends(self.step):
                    self._end_row()
                    progress.advance(0, loss=self.rows[-1]["loss"], **self.pace)
                yield self.step

    def _end_row(self) -> None:
        self.check()
        names = list(self._sums)
        totals = self.team.total_tensor(torch.stack([self._sums[name] for name in names]) / self._count).tolist()
        row = dict(zip(names, totals, strict=True))
        row["grad_norm"] /= self.team.size  # every process has the same
        self.rows.append({"step": self.step, **row, "learning_rate": self.rate(self.step - 1)})
        self._sums, self._count = {}, 0
        self.pace = self.rates()

    def check(self) -> None:
        """Stop where a loss or a gradient was no number.

        Raises:
            PipelineError: as in :meth:`run`; step and examples are named.
        """
        for step, number, examples in self._unchecked:
            if not math.isfinite(float(number)):
                shown = np.concatenate(examples)
                raise PipelineError(
                    "the loss is not a number any more", f"step {step + 1}",
                    where=f"{self.what}, examples {', '.join(map(str, shown[:20]))}{' ...' * (len(shown) > 20)}",
                    remedy="lower the learning rate or lengthen the warm-up; the last checkpoint is from before",
                )  # fmt: skip
        self._unchecked.clear()

    def _take(self, pieces: Sequence[B]) -> None:
        """One step of the optimiser."""
        torch.manual_seed(derive_seed(self.stream, self.step, self.team.rank) >> 1)
        self.counts = counts = self._count_all(pieces)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(self.step)
        self.optimiser.zero_grad()
        numbers: dict[str, Tensor] = {}
        for number, piece in enumerate(pieces, 1):
            with gradients_wait(self.model, last=number == len(pieces)):
                with torch.autocast(self.team.device.type, torch.bfloat16, enabled=self.team.device.type == "cuda"):
                    terms = self.objective(piece)
                losses = {name: term.loss / counts[name] for name, term in terms.items()}
                loss = torch.stack(list(losses.values())).sum()
                (loss * self.team.size).backward()  # a team's gradients are averaged
            found = {"loss": loss}
            for name, term in terms.items():
                found[f"{name}_loss"] = losses[name]
                if term.right is not None:
                    found[f"{name}_accuracy"] = term.right / counts[name]
            for name, value in found.items():
                numbers[name] = numbers.get(name, 0.0) + value.detach()
        numbers["grad_norm"] = nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        self._unchecked.append((self.step, numbers["loss"] + numbers["grad_norm"], [p.examples for p in pieces]))
        for name, value in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def _count_all(self, pieces: Sequence[B]) -> dict[str, float]:
        """Counts over all pieces of all processes; whether anyone asked to stop comes the same way."""
        here: Counter[str] = Counter()
        for piece in pieces:
            here.update(piece.counts)
        *totals, asked = self.team.total([*here.values(), float(self.asked())])
        self._asked_of_any = asked > 0
        return dict(zip(here, totals, strict=True))
