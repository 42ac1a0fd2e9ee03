"""What decides the result of a phase of pretraining, by which its checkpoints are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel

from pipeline_src.common.closure import code_checksum
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file
from pipeline_src.common.paths import EXAMPLES, PRETRAINED, TOKENS, VOCABULARY
from pipeline_src.training.distributed import Team

DATA = {  # small files that hold, or are, the sums of what training reads
    "tokens": TOKENS / "manifest.json",
    "examples": EXAMPLES / "manifest.json",
    "vocabulary": VOCABULARY / "vocab.txt",
}
FIRST_PHASE = PRETRAINED / "short/training_state/state.json"
CODE = "pipeline_src.pretraining.pretrain"  # the module whose code decides the result


def checkpoint_identity(*, phase: str, **params: Any) -> dict[str, Any]:
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
        "code": code_checksum(CODE, {"model.architecture": params["model"].architecture}),
    }


def environment(team: Team, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how sums are rounded, but no more: in another one the same training goes on.

    Args:
        team: who trains.
        settings: of machine.yaml.
    """
    name = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else "CPU"
    return {"torch": torch.__version__, "processes": team.size, "device": name, **settings}
