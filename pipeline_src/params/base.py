"""What every block of params.yaml has in common: frozen, strict about keys, lenient about how a number is written."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

NO_TEACHER = "pipeline_src/catalogue/no-teacher"  # a path that is there, for stages depend on it


class Block(BaseModel):
    """One block of params.yaml.

    Unknown keys are refused. Numbers may arrive as text: ``dvc exp run -S finetune.lr=1e-5`` writes ``1e-05``,
    which YAML 1.1 reads as a string.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
