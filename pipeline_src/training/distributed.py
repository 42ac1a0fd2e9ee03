"""The processes that train one model together, as torchrun or srun starts them; a single process is a world of one."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipeline_src.common.environment import number_of
from pipeline_src.common.errors import Interrupted, PipelineError
from pipeline_src.common.parallel import place
from pipeline_src.common.progress import log
from pipeline_src.params.machine import Device, Precision
from pipeline_src.training.free_gpu import take_free_gpu
from pipeline_src.training.joining import join
from pipeline_src.training.network import check_network, choose_interface
from pipeline_src.training.precision import choose_precision
from pipeline_src.training.presence import Presence
from pipeline_src.training.sharding import before_backward, is_sharded

HUNG_AFTER = "PIPELINE_HUNG_AFTER"  # seconds; decides nothing of the result, so no parameter
HUNG = 120  # seconds that a process waits in a step for the others, where it is not set
STARTING = timedelta(minutes=10)  # for the others to join, and in the first steps, in which torch.compile may work
WARM = 8  # exchanges after which no more than HUNG_AFTER is waited: those of joining and of the first steps
FOR_MAIN = timedelta(minutes=30)  # while the main process reads or writes what may be large
MAIN_FIRST = 5.0  # seconds that the others leave the main process to say what went wrong, before a launcher ends all
ENDED = 30.0  # seconds after an error in which a process must have ended by itself
_LEFT: list[object] = []  # process groups that were left


@dataclass(frozen=True)
class Distributed:
    """One process among those that train together.

    Attributes:
        rank: its number; 0 is the main process.
        world_size: how many there are.
        device: what it computes on.
        precision: of the model's products.
        patient: a group of all, on the host, that waits long for the main process; None where there is but one.
        presence: tells which of the others have ended; likewise.
    """

    rank: int
    world_size: int
    device: torch.device
    precision: torch.dtype = torch.float32
    patient: dist.ProcessGroup | None = None
    presence: Presence | None = None

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def autocast(self) -> torch.autocast:
        """A context for a forward pass, in which products are computed in ``precision``."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16)

    def all_reduce(self, numbers: Sequence[float]) -> list[float]:
        """Sum of each number over all processes. They are on the host, so no GPU waits for it."""
        if self.world_size == 1:
            return list(numbers)
        self._begin_exchange()
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_reduce_tensor(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor on ``device`` over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def largest(self, number: int) -> int:
        """The largest of the processes' numbers; as :meth:`all_reduce`, on the host."""
        if self.world_size == 1:
            return number
        self._begin_exchange()
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank; anything that pickles. It waits long, for any that still reads or writes."""
        if self.world_size == 1:
            return [value]
        self._begin_exchange()
        values = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.patient)
        return values

    def wait_for_all(self) -> None:
        """Go on when every process has come here, however long the main one has read or written before."""
        self.gather(None)

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module, wrapped so that its gradients are averaged over all processes; as it is where it is sharded."""
        if self.world_size == 1 or is_sharded(module):
            return module
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)

    def _begin_exchange(self) -> None:
        if self.presence is None:
            return
        self.presence.exchanges += 1
        if self.presence.exchanges == WARM:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=_hung_after()))


def single_process(precision: Precision = "auto", wanted: Device = "auto") -> Distributed:
    """A world of one process, on a GPU where there is one: the one that the fewest others of this user have taken.

    Raises:
        PipelineError: the device wanted is not there, or has no such precision.
    """
    device = torch.device("cpu" if wanted == "auto" else wanted)
    if device.type == "mps" and not torch.backends.mps.is_available():
        remedy = "set device in machine.yaml to auto or cpu; mps needs a Mac of Apple's own chips and macOS 14 or later"
        raise PipelineError("this torch finds no GPU of Apple's", "mps", where="machine.yaml: device", remedy=remedy)
    if wanted == "auto" and torch.cuda.is_available():
        device = torch.device("cuda", take_free_gpu(torch.cuda.device_count()))
        torch.cuda.set_device(device)
    return Distributed(0, 1, device, choose_precision(precision, device))


def gradient_sync(module: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Within it a backward pass adds to this process's gradients alone; the ``last`` one averages them over all."""
    if is_sharded(module):
        before_backward(module, last)
    return nullcontext() if last or not isinstance(module, DistributedDataParallel) else module.no_sync()


@contextmanager
def init_distributed(precision: Precision = "auto", wanted: Device = "auto") -> Iterator[Distributed]:
    """Join the processes that torchrun, or ``srun`` without it, has started; leave them at the end.

    Raises:
        PipelineError: there are more processes on a machine than GPUs, or a GPU has no such precision; the first
            machine is not known by its name, or not reached; or others have ended or hang, which are named.
    """
    rank, world_size, local_rank = place()
    if world_size == 1:
        yield single_process(precision, wanted)
        return
    if wanted == "mps":
        remedy = "start one process, or set device: cpu in machine.yaml"
        raise PipelineError("several processes cannot share Apple's GPU", f"{world_size} processes", remedy=remedy)
    _hung_after()  # a mistake in it stops here
    check_network()
    device = torch.device("cpu") if wanted == "cpu" else _own_device(local_rank)
    products = choose_precision(precision, device)
    store = join(_shared_store(rank, world_size), rank, world_size, STARTING)
    choose_interface(store, rank, world_size)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=STARTING)
    presence = Presence(store, rank, world_size)
    patient = dist.new_group(backend="gloo", timeout=FOR_MAIN)
    distributed = Distributed(rank, world_size, device, products, patient, presence)
    try:
        _check_devices(distributed)
        if rank == 0:
            log.info("%d processes train together", world_size)
        yield distributed
    except Interrupted:  # all have agreed on it
        _leave(presence)
        raise
    except BaseException as error:
        # Nothing is waited for: the others may be in the middle of an exchange. If this process cannot end without
        # them, it is ended.
        _LEFT.append(dist.group.WORLD)
        missing = presence.missing() if isinstance(error, RuntimeError) else []
        faulthandler.dump_traceback_later(ENDED, exit=True)
        if not missing:
            raise
        if rank:
            time.sleep(MAIN_FIRST)
        raise PipelineError(
            "processes that train together have ended or hang", ", ".join(missing),
            where=f"noticed by process {rank} of {world_size}: {str(error).splitlines()[0].partition('. ')[0]}",
            remedy="see the log of that process (logs/pretrain/*.process-*.log) and of its machine, then run the same "
            "command again: it goes on from the last checkpoint",
        ) from error  # fmt: skip
    else:
        _leave(presence)


def _shared_store(rank: int, world_size: int) -> Any:
    """What all processes share, on the first machine."""
    try:
        store, _, _ = next(dist.rendezvous("env://", rank, world_size, timeout=STARTING))
    except dist.DistError as error:
        way = f"{os.environ['MASTER_ADDR']} port {os.environ['MASTER_PORT']}"
        does = "cannot listen" if rank == 0 else "cannot be reached"
        raise PipelineError(
            f"the first of the processes that train together {does}", way,
            where=f"process {rank} on {os.uname().nodename}: {str(error).splitlines()[0].partition('. ')[0]}",
            remedy="set MASTER_PORT to a free port if another job has it; MASTER_ADDR is an address of the first "
            "machine, which the others must reach by that port",
        ) from error  # fmt: skip
    return store


def _leave(presence: Presence) -> None:
    # The group itself is kept until the process ends: its destructor joins gloo's threads while it holds Python's
    # lock, for which one of them may wait, and then the process never ends.
    presence.leave()
    _LEFT.append(dist.group.WORLD)
    dist.destroy_process_group()


def _own_device(local_rank: int) -> torch.device:
    """A GPU for each process of a machine; where a task sees its own GPU alone, that is number 0."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _check_devices(distributed: Distributed) -> None:
    """Fail on all processes where two of them have one GPU."""
    device = distributed.device
    if device.type != "cuda":
        return
    mine = (os.uname().nodename, str(torch.cuda.get_device_properties(device).uuid))
    devices = distributed.gather(mine)
    for rank, taken in enumerate(devices):
        if taken in devices[:rank]:
            raise PipelineError(
                "more processes than GPUs", f"processes {devices.index(taken)} and {rank} have the same",
                where=taken[0], remedy="start one process a GPU",
            )  # fmt: skip


def _hung_after() -> float:
    return number_of("seconds", HUNG_AFTER, HUNG, 1, FOR_MAIN.total_seconds())
