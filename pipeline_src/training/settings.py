"""What decides the result of a phase of pretraining, by which its checkpoints are known."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from pipeline_src.errors import PipelineError
from pipeline_src.files import hash_file
from pipeline_src.training.team import Team

DATA = {  # small files that hold, or are, the sums of what training reads
    "tokens": Path("data/tokens/manifest.json"),
    "examples": Path("data/examples/manifest.json"),
    "vocabulary": Path("data/vocabulary/vocab.txt"),
}
FIRST_PHASE = Path("models/pretrained/short/training_state/state.json")
CODE = Path(__file__).parents[1]
CODE_PACKAGES = ("examples", "models", "objectives", "training")


def settings_of(*, phase: str, **params: Any) -> dict[str, Any]:
    """Parameters, data and code of a phase, by key; what they are equal in ends in the same bytes.

    Args:
        phase: ``short`` or ``long``, which also reads the first phase's model.
        params: values and blocks of params.yaml, by name.

    Raises:
        PipelineError: a file that training reads is missing.
    """
    files = DATA | ({"first phase": FIRST_PHASE} if phase == "long" else {})
    for path in files.values():
        if not path.exists():
            raise PipelineError("training has nothing to read", path, remedy="run the stages before, or `dvc pull`")
    return {
        "phase": phase,
        **{name: value.model_dump() if isinstance(value, BaseModel) else value for name, value in params.items()},
        "data": {name: hash_file(path)[:16] for name, path in files.items()},
        "code": code_sum(*CODE_PACKAGES),
    }


def machine(team: Team) -> dict[str, Any]:
    """What decides how sums are rounded, but no more: another one goes on with the same training."""
    name = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else "CPU"
    return {"torch": torch.__version__, "processes": team.size, "device": name}


def code_sum(*packages: str) -> str:
    """Sum of every module of these packages."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((CODE / package).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
