"""Tool ``ablations``: print or queue DVC experiments, as declared in workflow/ablations/*.yaml.

An experiment is a set of changes to params.yaml. ``dvc queue start`` runs the queue in the background, ``dvc exp run
--run-all`` in the foreground. ``report --experiments`` compares the results.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.study.preset import PARAMS
from pipeline_src.study.study import Study, check_study, load_study
from pipeline_src.tools.plan import make_objective, phase_flops

FOLDER = Path("workflow/ablations")
# Sections of params.yaml that pretraining does not depend on.
AFTER_PRETRAINING = {"task_source", "tasks", "finetune"}
# Width of an attention head (paper, section 3).
HEAD_WIDTH = 64


@dataclass(frozen=True)
class Experiment:
    name: str
    changes: dict[str, Any]
    paper: dict[str, float]
    pretraining: str


@dataclass(frozen=True)
class Table:
    title: str
    source: str | None
    experiments: tuple[Experiment, ...]
    split: str | None = None
    metrics: dict[str, str] = field(default_factory=dict)
    study: dict[str, float] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", help="a file of workflow/ablations/, without .yaml (default: all of them)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these experiments")
    parser.add_argument(
        "--queue",
        action="store_true",
        help="queue them, instead of printing the commands; of those "
        "that share a pretraining only one, until it is done",
    )


def main(arguments: argparse.Namespace) -> None:
    load_study(PARAMS)
    params = parse_yaml(PARAMS.read_text(encoding="utf-8"))
    chosen_tables = [arguments.table] if arguments.table else table_names()
    tables = [read_table(name, params) for name in chosen_tables]
    experiments = list(itertools.chain.from_iterable(table.experiments for table in tables))
    names = [experiment.name for experiment in experiments]
    selected = set(arguments.only or names)
    unknown = sorted(selected.difference(names))
    if unknown:
        raise PipelineError("no such experiment", unknown[0], where="--only", hint=f"there are {', '.join(names)}")
    if not arguments.queue:
        for table in tables:
            print(*describe(table, selected), sep="\n")
        return
    chosen = [experiment for experiment in experiments if experiment.name in selected]
    for experiment in ready(chosen, finished(), unfinished()):
        teacher = Path(experiment.changes.get("pretrain.teacher", "."))
        if not teacher.exists():
            print(f"{experiment.name}: skipped, since the teacher {teacher} does not exist; see docs/family.md")
            continue
        print(dvc(*command(experiment)).strip(), flush=True)
    print("next: dvc queue start -j 2; when it is done, the same command queues what shares a pretraining")


def describe(table: Table, selected: Collection[str]) -> list[str]:
    title = f"{table.source}, {table.split}" if table.source else "not in the paper"
    lines = [f"# {table.title}: {title}"]
    if table.study:
        lines.append(f"# the study as it is{_papers(table.study)}")
    for experiment in table.experiments:
        if experiment.name in selected:
            lines.append(shlex.join(["dvc", *command(experiment)]) + _papers(experiment.paper))
    return lines


def _papers(scores: dict[str, float]) -> str:
    listed = ", ".join(f"{name} {value}" for name, value in scores.items())
    return f"  # paper: {listed}" if scores else ""


def command(experiment: Experiment) -> list[str]:
    words = ["exp", "run", "--queue", "-n", experiment.name]
    for key, value in experiment.changes.items():
        words += ["-S", f"{key}={_hydra(value)}"]
    return words


def ready(experiments: Iterable[Experiment], done: set[str], waiting: set[str]) -> Iterator[Experiment]:
    """Yield the experiments that can be queued now.

    If several experiments have the same pretraining, only one of them is queued until it is done. Two at a time would
    need the same folder of checkpoints, which is locked. After the first is done, the other experiments get the
    pretrained model from DVC's run-cache.

    Args:
        done: names of finished experiments.
        waiting: names of queued or running experiments.
    """
    experiments = list(experiments)
    trained = {experiment.pretraining for experiment in experiments if experiment.name in done}
    busy = {experiment.pretraining for experiment in experiments if experiment.name in waiting} - trained
    for experiment in experiments:
        is_known = experiment.name in done or experiment.name in waiting
        if is_known or experiment.pretraining in busy:
            continue
        if experiment.pretraining not in trained:
            busy.add(experiment.pretraining)
        yield experiment


def finished() -> set[str]:
    return set(dvc("exp", "list", "--name-only").split())


def unfinished() -> set[str]:
    lines = [line.split() for line in dvc("queue", "status").splitlines()]
    return {words[1] for words in lines if len(words) > 2 and words[-1] in ("Queued", "Running")}


def dvc(*words: str) -> str:
    done = subprocess.run(["dvc", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        hint = "run this command yourself, and correct what DVC reports"
        raise PipelineError("DVC command failed", shlex.join(["dvc", *words]), where=done.stderr.strip(), hint=hint)
    return done.stdout


def table_names(folder: Path = FOLDER) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_table(name: str, params: dict[str, Any], folder: Path = FOLDER) -> Table:
    """Read a table of experiments, and validate the study that each experiment defines.

    Args:
        name: name of a file in ``folder``, without .yaml.
        params: values of params.yaml, to which the experiments' changes are applied.
    """
    if name not in table_names(folder):
        hint = f"use one of {', '.join(table_names(folder))}"
        raise PipelineError("no such table of ablations", name, where=folder, hint=hint)
    path = folder / f"{name}.yaml"
    declared = parse_yaml(path.read_text(encoding="utf-8"))
    study = check_study(params)
    equal_compute = declared.pop("equal_compute", False)
    experiments = []
    for experiment, change in declared.pop("experiments").items():
        where = f"{path}, {experiment}"
        changes = {key: _resolve(key, value, study) for key, value in change["set"].items()}
        # With another number of steps, the study's keep_checkpoint_steps would be at the wrong places.
        if equal_compute:
            changes = {"pretrain.keep_checkpoint_steps": []} | changes
        has_steps = any(key.startswith("pretrain.steps.") for key in changes)
        if equal_compute and not has_steps:
            changes |= equal_steps(check_study(apply(changes, params), where), study)
        changed = check_study(apply(changes, params), where)
        pretraining = changed.model_dump_json(exclude=AFTER_PRETRAINING)
        experiments.append(Experiment(experiment, changes, change.get("paper", {}), pretraining))
    return Table(experiments=tuple(experiments), **declared)


def apply(changes: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of ``params`` with some values changed.

    Args:
        changes: dotted key (``pretrain.steps.phase1``) -> new value.
    """
    changed = copy.deepcopy(params)
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = changed
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return changed


def equal_steps(changed: Study, study: Study) -> dict[str, Any]:
    """Scale the steps of ``changed`` so that its pretraining costs as many FLOPs as that of ``study``.

    If the teacher's folder does not exist yet, the teacher is assumed to have the sizes of the study's model.

    Returns:
        Dotted key -> new number of steps, for the phases, warm-up and decay.
    """
    factor = flops(study) / flops(changed, teacher=study)
    pretrain = changed.pretrain
    scaled = {}
    for phase, steps in pretrain.steps:
        # A phase with 0 steps keeps 0; every other phase gets at least 1 step.
        scaled[f"pretrain.steps.{phase}"] = max(min(1, steps), round(steps * factor))
    scaled["pretrain.warmup_steps"] = round(pretrain.warmup_steps * factor)
    if pretrain.decay_steps:
        scaled["pretrain.decay_steps"] = max(1, round(pretrain.decay_steps * factor))
    return scaled


def flops(study: Study, teacher: Study | None = None) -> float:
    objective = make_objective(study, teacher)
    return sum(phase_flops(study, objective, phase) for phase, _ in study.pretrain.steps)


def _step(share: float, study: Study) -> int:
    return max(1, round(share * study.pretrain.steps.total))


def _model_at(share: float, study: Study) -> str:
    # share is the fraction of all steps; 1 is the finished model.
    step = _step(share, study)
    steps = study.pretrain.steps
    if step == steps.total:
        return f"models/pretrained/{steps.names[-1]}"
    ends = itertools.accumulate(dict(steps).values())
    phase = next(phase for phase, end in zip(steps.names, ends, strict=True) if step <= end)
    return f"models/pretrained/{phase}/steps/{step}"


# Functions for values in a table that depend on the study, called with (dotted key, argument, study).
# For example, `model.num_hidden_layers: {times: 0.5}` is half the study's number of layers.
RELATIVE: dict[str, Callable[[str, Any, Study], Any]] = {
    "times": lambda key, factor, study: max(1, round(attrgetter(key)(study) * factor)),
    "wider": lambda key, factor, study: HEAD_WIDTH * max(1, round(attrgetter(key)(study) * factor / HEAD_WIDTH)),
    "hidden_over": lambda key, width, study: max(1, study.model.hidden_size // width),
    "steps_at": lambda key, shares, study: sorted({_step(share, study) for share in shares}),
    "model_at": lambda key, share, study: _model_at(share, study),
}


def _resolve(key: str, value: Any, study: Study) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((name, argument),) = value.items()
    return RELATIVE[name](key, argument, study) if name in RELATIVE else value


def _hydra(value: Any) -> str:
    # The format that `dvc exp run -S` expects: JSON, but strings without quotes.
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
