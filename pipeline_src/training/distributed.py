"""The processes that train one model together, as torchrun or srun starts them; one alone is a team of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.parallel import place
from pipeline_src.common.progress import log

PATIENCE = timedelta(hours=2)  # for the first process, which alone measures and writes


@dataclass(frozen=True)
class Team:
    """One process's place among those that train together.

    Attributes:
        rank: its number; 0 alone writes.
        size: how many there are.
        device: what it computes on.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Sum of each number over all processes. They are on the host, so no GPU waits for it."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def total_tensor(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor on ``device`` over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Go on when every process has come here."""
        self.total([0.0])

    def share(self, model: nn.Module) -> nn.Module:
        """The model, wrapped so that its gradients are averaged over the team."""
        if self.size == 1:
            return model
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)


def alone() -> Team:
    """A team of one, on a GPU where there is one."""
    return Team(
        0, 1, torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    )


def gradients_wait(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Within it a backward pass adds to this process's gradients alone; ``last`` averages them over the team."""
    return nullcontext() if last or not isinstance(model, DistributedDataParallel) else model.no_sync()


@contextmanager
def join_team() -> Iterator[Team]:
    """Join the processes that torchrun, or ``srun`` without it, has started; leave them at the end.

    Raises:
        PipelineError: there are more processes on this machine than GPUs.
    """
    rank, size, local = place()
    device = torch.device("cpu")
    if size > 1 and torch.cuda.is_available():
        if local >= torch.cuda.device_count():
            raise PipelineError(
                "more processes than GPUs", f"{torch.cuda.device_count()} GPUs", where=f"process {local} here",
                remedy="start one process a GPU",
            )  # fmt: skip
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if size == 1:
        yield alone()
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=size, timeout=PATIENCE)
    if rank == 0:
        log.info("%d processes train together", size)
    try:
        yield Team(rank, size, device)
    finally:
        dist.destroy_process_group()
