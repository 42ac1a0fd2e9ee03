"""The optimisers by name, which parameters they decay, and the paper's learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.training.muon import MATRICES, Muon
from pipeline_src.training.sharding import is_spread

BETAS = (0.9, 0.999)  # paper, appendix A.2
EPSILON = 1e-6  # google-research/bert, optimization.py
CLIP = 1.0  # largest norm of all gradients together; google-research/bert, optimization.py
BLOCKS = ".encoder."  # in the names of parameters of Transformer blocks
MOMENTS = ("exp_avg", "exp_avg_sq")  # what every optimiser here keeps of a parameter, by torch's names


class _Moments(Optimizer):
    """Running means of gradients and of their squares, kept for all parameters of a group at once.

    Of parameters that are spread over processes, each computes with its own part.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step from the gradients; parameters without one stay as they are."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            for parameter in parameters:
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state.update({name: torch.zeros_like(parameter) for name in MOMENTS})
                state["step"] += 1
            first, second = ([_local(self.state[parameter][name]) for parameter in parameters] for name in MOMENTS)
            gradients = [_local(parameter.grad) for parameter in parameters]
            torch._foreach_lerp_(first, gradients, 1 - group["betas"][0])
            torch._foreach_mul_(second, group["betas"][1])
            torch._foreach_addcmul_(second, gradients, gradients, 1 - group["betas"][1])
            self._move(parameters, first, second, group)

    def _move(self, parameters: list[Tensor], first: list[Tensor], second: list[Tensor], group: dict[str, Any]) -> None:
        """Move ``parameters`` by their moments, of which this process's parts are given."""
        raise NotImplementedError


def _local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor; all of it where it is not spread. A change in place is one of the tensor."""
    return tensor.to_local() if is_spread(tensor) else tensor


def _norms(whole: Tensor, *kinds: list[Tensor]) -> Tensor:
    """Norms of tensors whose parts are given, [kinds, tensors], spread over processes as the tensor ``whole`` is."""
    norms = torch.stack([torch.stack(torch._foreach_norm(tensors)) for tensors in kinds])
    if not is_spread(whole):
        return norms
    squares = norms.square()
    dist.all_reduce(squares, group=whole.device_mesh.get_group())
    return squares.sqrt()


def _adam_update(first: list[Tensor], second: list[Tensor], epsilon: float) -> list[Tensor]:
    """First moments over the roots of the second ones."""
    roots = torch._foreach_sqrt(second)
    torch._foreach_add_(roots, epsilon)
    return list(torch._foreach_div(first, roots))


class BertAdam(_Moments):
    """Adam with decoupled decay and without bias correction (google-research/bert, optimization.py).

    What the missing correction costs in fine-tuning is the subject of Zhang et al. 2020, "Revisiting few-sample BERT
    fine-tuning", section 4.
    """

    def _move(self, parameters: list[Tensor], first: list[Tensor], second: list[Tensor], group: dict[str, Any]) -> None:
        parts, updates = list(map(_local, parameters)), _adam_update(first, second, group["eps"])
        torch._foreach_add_(updates, parts, alpha=group["weight_decay"])
        torch._foreach_add_(parts, updates, alpha=-group["lr"])


class Lamb(_Moments):
    """Layer-wise adaptive moments for large batches (You et al. 2019, algorithm 2).

    Adam, corrected for bias, whose step in a parameter is made as long as the learning rate times the parameter
    itself. Parameters that are not decayed take plain steps, as in its authors' code.
    """

    def _move(self, parameters: list[Tensor], first: list[Tensor], second: list[Tensor], group: dict[str, Any]) -> None:
        step = int(self.state[parameters[0]]["step"])
        first_bias, second_bias = (1 - beta**step for beta in group["betas"])
        parts = list(map(_local, parameters))
        updates = _adam_update(
            torch._foreach_div(first, first_bias), torch._foreach_div(second, second_bias), group["eps"]
        )
        if group["weight_decay"]:
            torch._foreach_add_(updates, parts, alpha=group["weight_decay"])
        if group.get("decays", True):  # whatever the rate of decay is, 0 too
            lengths, moved = _norms(parameters[0], parts, updates)
            trust = torch.where((lengths > 0) & (moved > 0), lengths / moved, 1.0)
            torch._foreach_mul_(updates, list(trust.unbind()))
        torch._foreach_add_(parts, updates, alpha=-group["lr"])


OPTIMISERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": lambda groups, **options: torch.optim.AdamW(groups, fused=True, **options),
    "bert_adam": BertAdam,
    "lamb": Lamb,
    "muon": Muon,
}


def step_count(optimiser: Optimizer, parameter: Tensor, steps: int) -> Tensor:
    """How many steps a parameter has taken, as the optimiser's state has it: a scalar in float32.

    Fused kernels read it on the device of the parameter. All others read it on the host, which would wait for a GPU.
    """
    return torch.tensor(float(steps), device=parameter.device if optimiser.defaults.get("fused") else "cpu")


def make_optimiser(
    module: nn.Module,
    learning_rate: float,
    weight_decay: float,
    name: str = "adamw",
    betas: tuple[float, float] = BETAS,
    epsilon: float = EPSILON,
    muon_learning_rate: float | None = None,
) -> Optimizer:
    """The optimiser of that name over what ``module`` trains; biases and LayerNorm are not decayed, as Google does.

    Groups have a ``rate``, which the schedule's learning rate is multiplied by: with ``muon`` that of the blocks'
    matrices may be another one.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    for parameter_name, parameter in module.named_parameters():
        if parameter.requires_grad:
            is_plain = "bias" in parameter_name.rpartition(".")[2] or "LayerNorm" in parameter_name
            is_block = BLOCKS in parameter_name and "embeddings" not in parameter_name
            is_matrix = name == "muon" and parameter.ndim == 2 and is_block
            (matrices if is_matrix else plain if is_plain else decayed).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay, "decays": True},
        {"params": plain, "weight_decay": 0.0, "decays": False},
    ]
    if matrices:
        rate = (muon_learning_rate or learning_rate) / learning_rate
        groups.append({"params": matrices, "weight_decay": weight_decay, MATRICES: True, "rate": rate})
    return OPTIMISERS[name](groups, lr=learning_rate, betas=betas, eps=epsilon)


def linear_schedule(peak: float, warmup: int, total: int) -> Callable[[int], float]:
    """Learning rate of step 0, 1, ...: linear to ``peak`` over ``warmup`` steps, then linear to 0 at ``total``."""

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        return peak * max(0.0, (total - step) / max(1, total - warmup))

    return rate
