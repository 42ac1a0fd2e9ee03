"""A training's tensors on disk: the moments a second phase goes on with, and all that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline_src.common.checksum import checksum
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.models.tensors import write_tensors
from pipeline_src.training.optimiser import MOMENTS, step_count
from pipeline_src.training.sharding import part_of, whole_on_host

WEIGHTS = "model.safetensors"
STATE, TENSORS = "state.json", "optimiser.safetensors"
WEIGHT = "weight"  # beside the moments, where weights are kept too
Parameters = Mapping[str, nn.Parameter]  # by the names they are stored under


def tensors_of(
    parameters: Parameters, optimiser: Optimizer, kinds: Iterable[str], keep: bool = True
) -> dict[str, Tensor]:
    """Weights or moments of every parameter, as ``<kind>.<parameter>``.

    Moments of a parameter that nothing has trained yet are zero. Tensors that are spread over processes are gathered
    one at a time, and kept on the host: all processes must call this, and the one that is to write keeps them.
    """
    tensors = {}
    for name, parameter in parameters.items():
        for kind in kinds:
            tensor = parameter if kind == WEIGHT else optimiser.state[parameter].get(kind, torch.zeros_like(parameter))
            gathered = whole_on_host(tensor.detach())
            if keep:
                tensors[f"{kind}.{name}"] = gathered.contiguous()
    return tensors


def gathered_weights(module: nn.Module, keep: bool) -> dict[str, Tensor]:
    """What a module's ``state_dict`` holds; as :func:`tensors_of` where it is spread over processes."""
    tensors = {}
    for name, tensor in module.state_dict().items():
        gathered = whole_on_host(tensor)
        if keep:
            tensors[name] = gathered
    return tensors


def restore_tensors(
    path: Path, parameters: Parameters, optimiser: Optimizer, kinds: Iterable[str], step: int, remedy: str
) -> None:
    """Read back what :func:`tensors_of` gave, and set the optimiser's count of steps.

    Raises:
        PipelineError: the file is missing, damaged, or of another model.
    """
    try:
        with safe_open(path, "pt") as stored, torch.no_grad():
            names = set(stored.keys())
            for name, parameter in parameters.items():
                state = optimiser.state[parameter]
                for kind in kinds:
                    full = f"{kind}.{name}"
                    if full not in names or tuple(stored.get_slice(full).get_shape()) != tuple(parameter.shape):
                        raise PipelineError("state of another model", full, where=path, remedy=remedy)
                    target = parameter if kind == WEIGHT else state.setdefault(kind, torch.empty_like(parameter))
                    target.copy_(part_of(stored.get_tensor(full), target))
                state["step"] = step_count(optimiser, parameter, step)
    except (FileNotFoundError, SafetensorError, OSError) as error:
        raise PipelineError("no training state to read", error, where=path, remedy=remedy) from None


def save_state(folder: Path, moments: dict[str, Tensor], step: int) -> None:
    """Write both moments of every parameter and the number of steps taken to ``folder``, for the next phase.

    Checksums of the moments and of the weights beside them stand there too: they name this state in few bytes.

    Args:
        moments: :func:`tensors_of` the kinds MOMENTS.
    """
    folder.mkdir()
    write_tensors(folder / TENSORS, moments)
    write_json(folder / STATE, {"step": step, "sums": {name: checksum(path) for name, path in _summed(folder)}})


def _summed(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of what is under a checksum."""
    yield TENSORS, folder / TENSORS
    for path in (folder.parent / WEIGHTS, *sorted(folder.parent.glob(f"*/{WEIGHTS}"))):  # of each model that is saved
        yield str(path.relative_to(folder.parent)), path


def load_state(folder: Path, parameters: Parameters, optimiser: Optimizer) -> int:
    """Fill the optimiser from ``folder`` and return the number of steps taken.

    Raises:
        PipelineError: the state, or a weight beside it, is missing, damaged or belongs to another model.
    """
    remedy = "run the phase before again, or `dvc pull` its output"
    try:
        state = read_json(folder / STATE)
        step, sums = int(state["step"]), dict(state["sums"])
        found = {name: checksum(path) for name, path in _summed(folder)}
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise PipelineError("no training state to read", error, where=folder, remedy=remedy) from None
    if found != sums:
        damaged = sorted(name for name in found if found[name] != sums.get(name))
        raise PipelineError("not as it was written", ", ".join(damaged), where=folder, remedy=remedy)
    restore_tensors(folder / TENSORS, parameters, optimiser, MOMENTS, step, remedy)
    return step
