"""What decides the result of a phase of pretraining, by which its checkpoints are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file
from pipeline_src.common.fingerprint import fingerprint
from pipeline_src.common.members import stated
from pipeline_src.common.paths import EXAMPLES, PRETRAINED, TOKENS, VOCABULARY
from pipeline_src.models.tensors import model_files
from pipeline_src.pretraining.phase import Phase

DATA = {  # small files that hold, or are, the checksums of what training reads
    "tokens": TOKENS / "manifest.json",
    "examples": EXAMPLES / "manifest.json",
    "vocabulary": VOCABULARY / "tokenizer.json",
}
FIRST_PHASE = PRETRAINED / "short/training_state/state.json"
CODE = "pipeline_src.pretraining.pretrain"  # the module whose code decides the result


def checkpoint_identity(phase: Phase) -> dict[str, Any]:
    """Parameters, data and code of a phase, by key; two trainings that are equal in them end in the same bytes.

    Raises:
        PipelineError: a file that training reads is missing.
    """
    files = DATA | ({"first phase": FIRST_PHASE} if phase.name == "long" else {})
    if stated("objectives", phase.pretrain.objective, "NEEDS_TEACHER", False):
        files |= {f"teacher's {path.name}": path for path in model_files(Path(phase.pretrain.teacher))}
    for path in files.values():
        if not path.exists():
            raise PipelineError("training has nothing to read", path, remedy="run the stages before, or `dvc pull`")
    members = f"architectures.{phase.model.architecture}", f"objectives.{phase.pretrain.objective}"
    return {
        "phase": phase.name,
        "seed": phase.seed,
        "mask_prob": phase.mask_prob,
        "model": phase.model.model_dump(),
        "pretrain": phase.pretrain.model_dump(),
        "objective": phase.own.model_dump(),
        "data": {name: hash_file(path)[:16] for name, path in files.items()},
        "code": fingerprint(CODE, *(f"pipeline_src.{member}" for member in members)),
    }
