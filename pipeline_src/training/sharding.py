"""Weights, gradients and moments spread over the processes that train together (torch's FSDP2).

Each process keeps a part of every parameter, a ``DTensor``. ``optimiser`` gathers the whole weights once a step, so
that gradients and moments alone are spread; ``full`` gathers those of one block at a time, forward and backward, for
models that do not fit one device. Checkpoints and models on disk hold whole tensors, whoever trained them.

torch's own part of this takes nearly as long to load as the rest of torch. It is loaded where something is spread.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

NONE, OPTIMISER, FULL = "none", "optimiser", "full"  # values of machine.yaml's pretrain.sharding


def shard(objective: nn.Module, device: torch.device, how: str, methods: tuple[str, ...] = ()) -> None:
    """Spread an objective's parameters over all processes, each block of the model by itself.

    All is float32, what is kept, gathered and summed: on a GPU autocast chooses the types of products, as without
    sharding, so that both learn alike.

    Args:
        objective: best on the device ``meta``, so that no process ever holds all of it; changed in place.
        device: of this process.
        how: OPTIMISER or FULL.
        methods: that compute with the objective's parameters, beside ``forward``.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # keys and values are views, which torch warns of; no operation in place follows
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for part in list(objective.modules()):
        for block in part if isinstance(part, nn.ModuleList) else ():
            fully_shard(block, mesh=mesh, reshard_after_forward=how == FULL)
            for method in getattr(block, "CALLED", ()):
                register_fsdp_forward_method(block, method)
    fully_shard(objective, mesh=mesh, reshard_after_forward=False)
    for method in methods:
        register_fsdp_forward_method(objective, method)
    objective.sharding = how  # type: ignore[assignment]  # torch types attributes as tensors or modules


def sharding_of(module: nn.Module) -> str:
    """How the module's parameters are spread: NONE, OPTIMISER or FULL."""
    return str(getattr(module, "sharding", NONE))


def is_sharded(module: nn.Module) -> TypeGuard[FSDPModule]:
    """Whether the module's parameters are spread over the processes."""
    return sharding_of(module) != NONE


def is_spread(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this process holds a part of the tensor, the others the rest."""
    return hasattr(tensor, "placements")


def before_backward(module: FSDPModule, last: bool) -> None:
    """Say whether the coming backward pass is the ``last`` of a step.

    With OPTIMISER the last one alone sums gradients over the processes, and weights stay whole until then. With FULL
    each does, so that no process ever holds all gradients.
    """
    module.set_is_last_backward(last)
    if sharding_of(module) == OPTIMISER:
        module.set_requires_gradient_sync(last)
        module.set_reshard_after_backward(last)


def give_back(module: nn.Module) -> None:
    """Leave each process its part alone, after weights were gathered for a pass without a backward one."""
    if not is_sharded(module):
        return
    from torch.distributed.fsdp import FSDPModule

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which every process has a part, gathered: all must call this at once. Any other as it is."""
    return tensor.full_tensor() if is_spread(tensor) else tensor


def whole_on_host(tensor: Tensor) -> Tensor:
    """As :func:`whole`, but what was gathered lies on the host."""
    return whole(tensor).cpu() if is_spread(tensor) else tensor


def part_of(tensor: Tensor, target: Tensor) -> Tensor:
    """What a process keeps of a whole tensor, spread as ``target`` is; the tensor itself where that is not spread."""
    if not is_spread(target):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(target.device), target.device_mesh, target.placements, src_data_rank=None)
