"""The optimiser's state on disk, so that the second phase goes on where the first one stopped."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pipeline_src.errors import PipelineError
from pipeline_src.files import read_json, write_json

MOMENTS = ("exp_avg", "exp_avg_sq")


def save_state(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
    """Write both moments of every parameter and the number of steps taken to ``folder``.

    Those of a parameter that nothing has trained yet (the next-sentence head, without next sentences) are zero.
    """
    folder.mkdir()
    save_file(
        {
            f"{moment}.{name}": optimiser.state[parameter].get(moment, torch.zeros_like(parameter)).contiguous()
            for name, parameter in model.named_parameters()
            for moment in MOMENTS
        },
        folder / "optimiser.safetensors",
    )
    write_json(folder / "state.json", {"step": step})


def load_state(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Fill the optimiser from ``folder`` and return the number of steps taken.

    Raises:
        PipelineError: the state is missing or belongs to another model.
    """
    path = folder / "optimiser.safetensors"
    remedy = "run the phase before again, or `dvc pull` its output"
    if not path.exists():
        raise PipelineError("no optimiser state", path, remedy=remedy)
    stored = load_file(path)
    step = int(read_json(folder / "state.json")["step"])
    for name, parameter in model.named_parameters():
        state = optimiser.state[parameter]
        for moment in MOMENTS:
            tensor = stored.get(f"{moment}.{name}")
            if tensor is None or tensor.shape != parameter.shape:
                raise PipelineError("optimiser state of another model", name, where=path, remedy=remedy)
            state[moment] = tensor.to(parameter.device)
        state["step"] = torch.tensor(float(step), device=parameter.device)
    return step
