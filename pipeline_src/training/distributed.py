"""Train one model in several processes, started by torchrun or srun.

Sharding uses torch's FSDP2: each process keeps a part of every parameter, a ``DTensor``. With ``shard_grad_op``, each
process gathers the full weights once per step and keeps them until the step ends, so only gradients and moments take
less memory. With ``full_shard``, it gathers one block's weights at a time, in the forward and again in the backward
pass, for models that do not fit one device. Files always hold full tensors.
"""

from __future__ import annotations

import faulthandler
import fcntl
import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.files import own_folder
from pipeline_src.base.names import number_of
from pipeline_src.base.parallel import process_rank
from pipeline_src.base.progress import log
from pipeline_src.model.attention import AMPERE
from pipeline_src.study.machine import Device, Precision
from pipeline_src.training.throughput import cpu_slowdown

# Importing FSDP is slow, so functions that shard import it themselves.
if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

# Values of the setting pretrain.sharding in machine.yaml.
NO_SHARD = "none"
SHARD_GRAD_OP = "shard_grad_op"
FULL_SHARD = "full_shard"

# Environment variable: a process that does not answer for this many seconds counts as hung. The default is minutes,
# since the first step of processes may differ by minutes if torch.compile finds its cache on one machine only.
HUNG_AFTER = "PIPELINE_HUNG_AFTER"
DEFAULT_HUNG_SECONDS = 300
# All processes must have started within this time.
START_TIMEOUT = timedelta(minutes=10)
# Processes wait this long while the main process reads or writes large files.
SLOW_TIMEOUT = timedelta(minutes=30)
# After a timeout, all processes report to the main process, which waits 5 s to find out which ones hang. The other
# processes must wait longer than that.
MAIN_TIMEOUT = timedelta(seconds=5)
OTHERS_TIMEOUT = timedelta(seconds=15)
# A process that has not ended this long after an error is killed.
MAX_EXIT_SECONDS = 30.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Locked files, one per GPU in use. They stay locked until the process ends.
_CLAIMED: list[IO[str]] = []
# Process groups that this process has left. See `_leave` for why they are kept.
_DESTROYED_GROUPS: list[object] = []


@dataclass(frozen=True)
class Distributed:
    """This process: its rank among the ``world_size`` processes that train together, and its device."""

    rank: int
    world_size: int
    device: torch.device
    # The dtype in which matrix products are computed.
    precision: torch.dtype = torch.float32
    # A gloo process group whose timeout is long enough for reading and writing large files.
    slow_group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16)

    def all_reduce(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over all processes without waiting for a GPU."""
        if self.world_size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_reduce_tensor(self, tensor: Tensor) -> Tensor:
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_max(self, number: int) -> int:
        if self.world_size == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def gather(self, value: Any) -> list[Any]:
        # Returns every process's value, ordered by rank. Waits long enough for processes that read or write files.
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.slow_group)
        return values

    def wait_for_all(self) -> None:
        if self.world_size > 1:
            self.gather(None)

    def wrap(self, module: nn.Module) -> nn.Module:
        # DistributedDataParallel averages gradients over all processes. A sharded module does so itself.
        if self.world_size == 1 or is_sharded(module):
            return module
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)


def single_process(precision: Precision = "auto", device_setting: Device = "auto") -> Distributed:
    device = torch.device("cpu" if device_setting == "auto" else device_setting)
    if device.type == "mps" and not torch.backends.mps.is_available():
        hint = "set device in machine.yaml to auto or cpu; mps needs a Mac with Apple silicon and macOS 14 or later"
        raise PipelineError("torch finds no Apple GPU", "mps", where="machine.yaml: device", hint=hint)
    if device_setting == "auto" and torch.cuda.is_available():
        device = torch.device("cuda", _claim_gpu(torch.cuda.device_count()))
        torch.cuda.set_device(device)
    return Distributed(0, 1, device, choose_precision(precision, device))


@contextmanager
def init_distributed(precision: Precision = "auto", device_setting: Device = "auto") -> Iterator[Distributed]:
    """Context manager: join the processes that torchrun or ``srun`` started, and leave them at the end."""
    rank, world_size, local_rank = process_rank()
    if world_size == 1:
        yield single_process(precision, device_setting)
        return
    if device_setting == "mps":
        hint = "start one process, or set device: cpu in machine.yaml"
        raise PipelineError("several processes cannot share Apple's GPU", f"{world_size} processes", hint=hint)
    timeout = timedelta(seconds=number_of("seconds", HUNG_AFTER, DEFAULT_HUNG_SECONDS, 1, SLOW_TIMEOUT.total_seconds()))
    device = torch.device("cpu") if device_setting == "cpu" else _own_device(local_rank)
    products = choose_precision(precision, device)
    store = _shared_store(rank, world_size)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
        slow_group = dist.new_group(backend="gloo", timeout=SLOW_TIMEOUT)
        roll_call = dist.new_group(backend="gloo", timeout=OTHERS_TIMEOUT)
    except RuntimeError as error:
        raise PipelineError(
            "the processes that train together cannot connect",
            str(error).splitlines()[0],
            where=f"process {rank} on {os.uname().nodename}",
            hint="set GLOO_SOCKET_IFNAME to the network interface on the route to MASTER_ADDR (docs/your-cluster.md)",
        ) from error
    distributed = Distributed(rank, world_size, device, products, slow_group)
    try:
        _check_devices(distributed)
        if rank == 0:
            log.info("%d processes train together", world_size)
        yield distributed
    except Interrupted:
        # All processes stop after the same step, so none of them waits for this one.
        _leave()
        raise
    except BaseException as error:
        # Do not wait for the other processes: they may be in the middle of a collective.
        _DESTROYED_GROUPS.append(dist.group.WORLD)
        faulthandler.dump_traceback_later(MAX_EXIT_SECONDS, exit=True)
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise PipelineError(
            "processes that train together have ended or hang",
            _lost(str(error), roll_call),
            where=f"noticed by process {rank} of {world_size} on {os.uname().nodename}",
            hint="find the cause in the other processes' logs (logs/pretrain/*.process-*.log), the launcher's log or "
            "their machines' logs, then run the same command again: it resumes from the last checkpoint",
        ) from error
    else:
        _leave()


def _lost(message: str, roll_call: dist.ProcessGroup) -> str:
    # Returns the first sentence of torch's message on a failed collective. If the collective timed out, another barrier
    # finds out which processes do not answer, and the message says which.
    if "Timed out" in message:
        try:
            # The other processes wait at this barrier for OTHERS_TIMEOUT.
            dist.monitored_barrier(roll_call, MAIN_TIMEOUT, wait_all_ranks=True)
        except RuntimeError as error:
            message = str(error)
    return message.splitlines()[0].partition("] ")[2].partition(". ")[0] or message


def _shared_store(rank: int, world_size: int) -> dist.Store:
    try:
        store, _, _ = next(dist.rendezvous("env://", rank, world_size, timeout=START_TIMEOUT))
    except dist.DistError as error:
        raise PipelineError(
            "the processes that train together do not find each other",
            f"{os.environ['MASTER_ADDR']} port {os.environ['MASTER_PORT']}",
            where=f"process {rank} on {os.uname().nodename}: {str(error).splitlines()[0].partition('. ')[0]}",
            hint="set MASTER_ADDR to an address at which all machines reach the first one, and MASTER_PORT to a free "
            "port there; check the logs of the other processes, in case one did not start",
        ) from error
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # torchrun's own store survives a restart and still has the addresses of processes that have ended, so keys get
        # a prefix for each restart. Several machines may count restarts differently: workflow/torchrun.py then makes a
        # new store for each restart.
        return dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
    return store


def _leave() -> None:
    # The group object is kept until the process ends. Its destructor would join gloo's threads while it holds Python's
    # global lock. If one of these threads waited for that lock, the process would never end.
    _DESTROYED_GROUPS.append(dist.group.WORLD)
    dist.destroy_process_group()


def _own_device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _check_devices(distributed: Distributed) -> None:
    device = distributed.device
    if device.type != "cuda":
        return
    identity = (os.uname().nodename, str(torch.cuda.get_device_properties(device).uuid))
    devices = distributed.gather(identity)
    for rank, value in enumerate(devices):
        if value in devices[:rank]:
            raise PipelineError(
                "more processes than GPUs",
                f"processes {devices.index(value)} and {rank} share a GPU",
                where=value[0],
                hint="start one process per GPU",
            )


def _claim_gpu(gpus: int) -> int:
    # Returns the visible GPU on which the fewest trainings of this user run. A training claims a GPU by locking a file,
    # which the system unlocks when the process ends.
    if gpus == 1:
        return 0
    visible = os.environ.get(VISIBLE, "").split(",")
    names = visible if len(visible) == gpus else [str(number) for number in range(gpus)]
    folder = own_folder(Path(tempfile.gettempdir(), f"pipeline-gpus-{os.getuid()}"))
    # Each GPU has a file per training: "0.0" is locked by the first training on GPU 0, "0.1" by the second.
    for turn in itertools.count():
        for number, name in enumerate(names):
            lock = open(folder / f"{name.replace('/', '-')}.{turn}", "w")  # noqa: SIM115  # held until the process ends
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            _CLAIMED.append(lock)
            return number
    raise AssertionError("itertools.count() has no end")


def choose_precision(
    setting: Precision, device: torch.device, slowdown: Callable[[torch.dtype], float] = cpu_slowdown
) -> torch.dtype:
    """Choose the dtype in which matrix products are computed on a device.

    "auto" means bfloat16 on Ampere or newer CUDA GPUs, and float32 on other devices. Logs a warning if bfloat16 is set
    on a CPU that is slower with bfloat16 than with float32.
    """
    if setting == "float32":
        return torch.float32
    old = device.type == "cuda" and torch.cuda.get_device_capability(device) < AMPERE
    if setting == "auto" and (old or device.type != "cuda"):
        return torch.float32
    if device.type == "mps":
        hint = "set precision: float32 (or auto) in machine.yaml"
        raise PipelineError("training on Apple's GPU supports only float32", setting, where="precision", hint=hint)
    if old:
        raise PipelineError(
            "this GPU has no bfloat16",
            torch.cuda.get_device_name(device),
            where="precision",
            hint="set precision: float32 (or auto) in machine.yaml, use an Ampere or newer GPU (A100, L4, RTX 30), "
            "or set CUDA_VISIBLE_DEVICES= to train on the CPU",
        )
    if device.type == "cpu":
        times = slowdown(torch.bfloat16)
        if times >= 2:
            log.warning(
                "this CPU has no bfloat16 instructions: a matmul takes %.0f times as long as in float32; "
                "set precision: float32 (or auto)",
                times,
            )
    return torch.bfloat16


def gradient_sync(module: nn.Module, last: bool) -> AbstractContextManager[None]:
    # Gradients are averaged over the processes in the last backward pass of a step. With ``full_shard`` they are
    # averaged in every pass, so that no process ever holds all gradients.
    if is_sharded(module):
        module.set_is_last_backward(last)
        if sharding_of(module) == SHARD_GRAD_OP:
            module.set_requires_gradient_sync(last)
            module.set_reshard_after_backward(last)
    return nullcontext() if last or not isinstance(module, DistributedDataParallel) else module.no_sync()


def shard(objective: nn.Module, device: torch.device, how: str, methods: tuple[str, ...] = ()) -> None:
    """Shard an objective's parameters over all processes, block by block.

    Weights, gradients and moments are float32. Autocast chooses the dtype of matrix products, as without sharding.

    Args:
        objective: module on the CPU, with the same initial weights on every process. It is changed in place, and each
            block moves to the device when it is sharded.
        device: this process's device.
        how: SHARD_GRAD_OP or FULL_SHARD.
        methods: methods besides ``forward`` that compute with the objective's parameters.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # torch warns that keys and values are views. This is harmless, since no in-place operation follows.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for part in list(objective.modules()):
        for block in part if isinstance(part, nn.ModuleList) else ():
            fully_shard(block, mesh=mesh, reshard_after_forward=how == FULL_SHARD)
            for method in getattr(block, "FORWARD_METHODS", ()):
                register_fsdp_forward_method(block, method)
    fully_shard(objective, mesh=mesh, reshard_after_forward=False)
    for method in methods:
        register_fsdp_forward_method(objective, method)
    objective.sharding = how  # type: ignore[assignment]  # torch types attributes as tensors or modules


def sharding_of(module: nn.Module) -> str:
    return str(getattr(module, "sharding", NO_SHARD))


def is_sharded(module: nn.Module) -> TypeGuard[FSDPModule]:
    return sharding_of(module) != NO_SHARD


def reshard(module: nn.Module) -> None:
    """Free the weights gathered by a forward pass that no backward pass followed."""
    if not is_sharded(module):
        return
    from torch.distributed.fsdp import FSDPModule

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def is_dtensor(tensor: Tensor) -> TypeGuard[DTensor]:
    return hasattr(tensor, "placements")


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a DTensor from all processes, which must all call this. Other tensors are returned unchanged."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor


def distribute_like(tensor: Tensor, target: Tensor) -> Tensor:
    if not is_dtensor(target):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(target.device), target.device_mesh, target.placements, src_data_rank=None)
