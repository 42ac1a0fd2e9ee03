"""What comes after what: the stages of dvc.yaml, and whose outputs each of them reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.study import Study
from pipeline_src.tools.planning.output_sizes import overlap

DVC_YAML = Path("dvc.yaml")
TEMPLATE = re.compile(r"\$\{([\w.]+)\}")


def stage_order(study: Study, path: Path = DVC_YAML) -> dict[str, tuple[str, ...]]:
    """Every stage with the stages whose outputs it reads, in the file's order.

    Args:
        study: gives the values of the file's templates, such as ``${finetune.model}``.
        path: of dvc.yaml.

    Raises:
        PipelineError: there is no such file, or it is not YAML.
    """
    try:
        stages: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["stages"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        remedy = "run from the project's root, where dvc.yaml lists the stages"
        raise PipelineError("the stages cannot be read", path, where=error, remedy=remedy) from None
    stages.pop("code", None)  # takes no time
    written = {
        name: [_resolve(out, study) for kind in ("outs", "metrics", "plots") for out in _paths(stage.get(kind))]
        for name, stage in stages.items()
    }
    read = {name: [_resolve(dep, study) for dep in _paths(stage.get("deps"))] for name, stage in stages.items()}
    return {
        name: tuple(maker for maker in stages if any(overlap(dep, out) for dep in read[name] for out in written[maker]))
        for name in stages
    }


def _paths(entries: Iterable[str | Mapping[str, Any]] | None) -> list[str]:
    """Of dependencies or outputs, some of which have options (``path: {cache: false}``)."""
    return [path for entry in entries or () for path in ([entry] if isinstance(entry, str) else entry)]


def _resolve(path: str, study: Study) -> str:
    """A path with the study's values in place; what a stage's matrix runs over stands for all of it: its folder."""
    path = path.split("${item", 1)[0].rstrip("/")
    return TEMPLATE.sub(lambda template: str(_value(study, template[1])), path)


def _value(study: Study, key: str) -> Any:
    value: Any = study
    for step in key.split("."):
        value = getattr(value, step)
    return value
