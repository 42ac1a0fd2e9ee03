"""The one training loop, of pretraining and of fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from pipeline_src.errors import PipelineError
from pipeline_src.progress import Progress
from pipeline_src.training.optimiser import CLIP

Batch = TypeVar("Batch")
Numbers = dict[str, Tensor]


def device_here() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(
    model: nn.Module,
    batches: Iterable[Batch],
    objective: Callable[[Batch], Numbers],
    optimiser: torch.optim.Optimizer,
    rate: Callable[[int], float],
    first_step: int,
    steps: int,
    what: str,
    every: int,
) -> Iterator[dict[str, float]]:
    """Train on ``batches``, one optimiser step each, and yield a row of averages every ``every`` steps and at the end.

    Args:
        model: in the state it starts from; left trained.
        batches: as many as ``steps``.
        objective: gives ``loss`` and other numbers of a batch, each a scalar tensor.
        optimiser: over the model's parameters.
        rate: learning rate by step.
        first_step: number of the first step, for ``rate`` and the rows.
        steps: how many.
        what: named on the progress bar.
        every: steps per row.

    Raises:
        PipelineError: the loss is no longer a number.
    """
    model.train()
    sums: dict[str, Tensor] = {}
    count = 0
    device = next(model.parameters()).device
    with Progress(what, steps, "step") as progress:
        for step, batch in enumerate(batches, start=first_step):
            for group in optimiser.param_groups:
                group["lr"] = rate(step)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                numbers = objective(batch)
            optimiser.zero_grad()
            numbers["loss"].backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimiser.step()
            for name, number in {**numbers, "grad_norm": norm}.items():
                sums[name] = sums.get(name, 0.0) + number.detach()
            count += 1
            progress.advance()
            if count == every or step == first_step + steps - 1:
                row = {name: float(total) / count for name, total in sums.items()}
                if not row["loss"] == row["loss"]:
                    raise PipelineError(
                        "the loss is not a number any more",
                        f"step {step}",
                        where=what,
                        remedy="lower the learning rate or lengthen the warm-up",
                    )
                progress.advance(0, loss=row["loss"])
                yield {"step": step + 1, **row, "learning_rate": rate(step)}
                sums, count = {}, 0
