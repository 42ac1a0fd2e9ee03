"""workflow/ablations/*.yaml: the paper's ablations as named changes to the study in force."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import check_name
from pipeline_src.params.study import Study, check_study
from pipeline_src.tools.ablations.equal_compute import equal_steps

FOLDER = Path("workflow/ablations")
AFTER_PRETRAINING = {"task_source", "tasks", "finetune"}  # blocks that no stage before fine-tuning reads
WIDTH = 64  # of one attention head (paper, section 3)


@dataclass(frozen=True)
class Experiment:
    """One change to a study.

    Attributes:
        name: DVC's name of the experiment.
        changes: dotted key of params.yaml -> value.
        paper: the paper's figures that its scores stand beside; empty for a study of our own.
        pretraining: stands for all that decides the pretrained model: the same text, the same model.
    """

    name: str
    changes: dict[str, Any]
    paper: dict[str, float]
    pretraining: str


@dataclass(frozen=True)
class Table:
    """One file.

    Attributes:
        title: what is varied.
        source: where the paper's figures stand; None for a study of our own.
        split: what they were measured on.
        metrics: name of a figure -> its metric.
        study: the paper's figures for the study as it is.
        experiments: in the file's order.
    """

    title: str
    source: str | None
    experiments: tuple[Experiment, ...]
    split: str | None = None
    metrics: dict[str, str] = field(default_factory=dict)
    study: dict[str, float] = field(default_factory=dict)


def table_names(folder: Path = FOLDER) -> list[str]:
    """Names of all tables."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_table(name: str, params: dict[str, Any], folder: Path = FOLDER) -> Table:
    """A table's experiments on a study; each is checked as a study of its own.

    Args:
        name: of the file, without suffix.
        params: the study, as params.yaml holds it.
        folder: where the files are.

    Raises:
        PipelineError: no such table, or an experiment that is not a valid study.
    """
    if name not in table_names(folder):
        raise PipelineError("no such table of ablations", name, where=folder, remedy=" or ".join(table_names(folder)))
    path = folder / f"{name}.yaml"
    declared = yaml.safe_load(path.read_text(encoding="utf-8"))
    study, equal_compute = check_study(params), declared.pop("equal_compute", False)
    experiments = []
    for experiment, change in declared.pop("experiments").items():
        try:
            check_name(str(experiment))
        except ValueError as error:
            raise PipelineError("not a name for an experiment", where=path, remedy=str(error)) from None
        changes = {key: _resolve(key, value, study) for key, value in change["set"].items()}
        if equal_compute:  # the steps are others
            changes = {"pretrain.keep_steps": []} | changes
        changed = check_study(apply(changes, params), f"{path}, {experiment}")
        if equal_compute and not any(key.startswith("pretrain.steps.") for key in changes):
            changes |= equal_steps(changed, study)
            changed = check_study(apply(changes, params), f"{path}, {experiment}")
        kept = changed.model_dump(mode="json", exclude=AFTER_PRETRAINING)
        experiments.append(Experiment(experiment, changes, change.get("paper", {}), json.dumps(kept, sort_keys=True)))
    return Table(experiments=tuple(experiments), **declared)


def apply(changes: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``params`` with dotted keys set."""
    changed = copy.deepcopy(params)
    for key, value in changes.items():
        *blocks, last = key.split(".")
        block = changed
        for step in blocks:
            block = block.setdefault(step, {})
        block[last] = value
    return changed


def value_in(study: Study, key: str) -> Any:
    """What a dotted key holds."""
    value: Any = study
    for step in key.split("."):
        value = getattr(value, step)
    return value


def _times(key: str, factor: float, study: Study) -> int:
    """The study's own number, multiplied; at least 1."""
    return max(1, round(value_in(study, key) * factor))


def _wider(key: str, factor: float, study: Study) -> int:
    """The study's own width, multiplied, in whole attention heads."""
    return WIDTH * max(1, round(value_in(study, key) * factor / WIDTH))


def _hidden_over(key: str, width: int, study: Study) -> int:
    """As many attention heads as are ``width`` wide."""
    return max(1, study.model.hidden // width)


def _steps_at(key: str, shares: list[float], study: Study) -> list[int]:
    """Steps of pretraining, counted over both phases."""
    return sorted({_step(share, study) for share in shares})


def _model_at(key: str, share: float, study: Study) -> str:
    """The folder of the model that a step left; after the last one, the finished model's."""
    step, short = _step(share, study), study.pretrain.steps.short
    if step == short + study.pretrain.steps.long:
        return "models/pretrained/long"
    return f"models/pretrained/{'short' if step <= short else 'long'}/steps/{step}"


def _step(share: float, study: Study) -> int:
    return max(1, round(share * (study.pretrain.steps.short + study.pretrain.steps.long)))


RELATIVE: dict[str, Callable[[str, Any, Study], Any]] = {  # what a value may be relative to the study
    "times": _times,
    "wider": _wider,
    "hidden_over": _hidden_over,
    "steps_at": _steps_at,
    "model_at": _model_at,
}


def _resolve(key: str, value: Any, study: Study) -> Any:
    """A value as it stands, or ``{how: argument}`` of ``RELATIVE`` turned into one."""
    if isinstance(value, dict) and len(value) == 1 and (how := next(iter(value))) in RELATIVE:
        return RELATIVE[how](key, value[how], study)
    return value
