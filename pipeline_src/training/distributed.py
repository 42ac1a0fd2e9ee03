"""The processes that train one model together, as torchrun or srun starts them; a single process is a world of one."""

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

TIMEOUT = timedelta(hours=2)  # of a collective: the others wait while the main process measures and writes
_LEFT: list[object] = []  # process groups that were left


@dataclass(frozen=True)
class Distributed:
    """One process among those that train together.

    Attributes:
        rank: its number; 0 is the main process.
        world_size: how many there are.
        device: what it computes on.
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that measures and writes."""
        return self.rank == 0

    def all_reduce(self, numbers: Sequence[float]) -> list[float]:
        """Sum of each number over all processes. They are on the host, so no GPU waits for it."""
        if self.world_size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_reduce_tensor(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor on ``device`` over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def barrier(self) -> None:
        """Go on when every process has come here."""
        self.all_reduce([0.0])

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module, wrapped so that its gradients are averaged over all processes."""
        if self.world_size == 1:
            return module
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)


def single_process() -> Distributed:
    """A world of one process, on a GPU where there is one."""
    cuda = torch.cuda.is_available()
    return Distributed(0, 1, torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu"))


def gradient_sync(module: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Within it a backward pass adds to this process's gradients alone; the ``last`` one averages them over all."""
    return nullcontext() if last or not isinstance(module, DistributedDataParallel) else module.no_sync()


@contextmanager
def init_distributed() -> Iterator[Distributed]:
    """Join the processes that torchrun, or ``srun`` without it, has started; leave them at the end.

    Raises:
        PipelineError: there are more processes on this machine than GPUs.
    """
    rank, world_size, local_rank = place()
    device = torch.device("cpu")
    if world_size > 1 and torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise PipelineError(
                "more processes than GPUs", f"{torch.cuda.device_count()} GPUs", where=f"process {local_rank} here",
                remedy="start one process a GPU",
            )  # fmt: skip
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if world_size == 1:
        yield single_process()
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=TIMEOUT)
    if rank == 0:
        log.info("%d processes train together", world_size)
    try:
        yield Distributed(rank, world_size, device)
    finally:
        # The group itself is kept until the process ends: its destructor joins gloo's threads while it holds Python's
        # lock, for which one of them may wait, and then the process never ends.
        _LEFT.append(dist.group.WORLD)
        dist.destroy_process_group()
