"""Tool ``ablations``: named changes to the study, workflow/ablations/*.yaml, run as queued DVC experiments."""

from __future__ import annotations

import argparse
import copy
import json
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import check_name
from pipeline_src.config.study import Study, check_study, load_study
from pipeline_src.tools.planning.cost import make_objective, predicted_share
from pipeline_src.tools.preset import preset_text, use_preset

PARAMS, FOLDER = Path("params.yaml"), Path("workflow/ablations")
AFTER_PRETRAINING = {"task_source", "tasks", "finetune"}  # sections that no stage before fine-tuning reads
HEAD_WIDTH = 64  # of attention (paper, section 3)


@dataclass(frozen=True)
class Experiment:
    """One change to a study.

    Attributes:
        name: DVC's name of the experiment.
        changes: dotted key of params.yaml -> value.
        paper: the paper's scores.
        pretraining: serialised parameters that determine the pretrained model.
    """

    name: str
    changes: dict[str, Any]
    paper: dict[str, float]
    pretraining: str


@dataclass(frozen=True)
class Table:
    """One file of ablations.

    Attributes:
        title: title of the table.
        source: source of the paper's scores; None if the paper has no such table.
        experiments: experiments in the file's order.
        split: split of the paper's scores.
        metrics: name of a score -> its metric.
        study: the paper's scores of the unchanged study.
    """

    title: str
    source: str | None
    experiments: tuple[Experiment, ...]
    split: str | None = None
    metrics: dict[str, str] = field(default_factory=dict)
    study: dict[str, float] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("table", nargs="?", help="a file of workflow/ablations/, without .yaml (default: all of them)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run only these experiments")
    parser.add_argument("--preset", help="first put this study in place of params.yaml (with --print: only suppose it)")
    parser.add_argument("--jobs", "-j", type=int, default=2, help="experiments at once (default: 2)")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--print", action="store_true", help="print the commands, and change nothing")
    action.add_argument("--queue", action="store_true", help="queue the experiments, and start none")


def main(arguments: argparse.Namespace) -> None:
    """Print, queue, or run the experiments of one table or of all."""
    if arguments.preset and not arguments.print:
        use_preset(arguments.preset)
    if not (arguments.preset and arguments.print):
        load_study(PARAMS)
    text = preset_text(arguments.preset) if arguments.preset else PARAMS.read_text(encoding="utf-8")
    params = yaml.safe_load(text)
    tables = [read_table(name, params) for name in ([arguments.table] if arguments.table else table_names())]
    experiments = chosen([experiment for table in tables for experiment in table.experiments], arguments.only)
    if arguments.print:
        print("\n".join(line for table in tables for line in describe(table, experiments, params)))
        return
    experiments = _with_teachers(experiments, named=bool(arguments.table or arguments.only))
    if arguments.queue:
        queue(experiments, params)
        twice = "; -j 1, for some share a pretraining" if len(waves(experiments)) > 1 else ""
        print(f"next: dvc queue start -j {arguments.jobs}{twice}")
        return
    for wave in waves(experiments):
        if queue(wave, params):
            print("running; `dvc queue status` and `dvc queue logs NAME` show the progress", flush=True)
            # failed experiments are reported below
            dvc("exp", "run", "--run-all", "-j", str(arguments.jobs), quiet=True, check=False)
        done = finished()
        print("\n".join(f"{one.name}: {'success' if one.name in done else 'failed'}" for one in wave), flush=True)
        if failed := [experiment.name for experiment in wave if experiment.name not in done]:
            hint = f"`dvc queue logs {failed[0]}` shows why; the same command continues with what is not done"
            raise PipelineError("experiments failed", ", ".join(failed), hint=hint)
    print("next: `dvc exp show --only-changed` compares them, `dvc exp apply NAME` puts one in place")


def describe(table: Table, experiments: Iterable[Experiment], params: dict[str, Any]) -> list[str]:
    """Return lines for people: the command of each experiment and the paper's scores."""

    def paper(scores: dict[str, float]) -> str:
        return "paper: " + ", ".join(f"{name} {value}" for name, value in scores.items())

    wanted = {experiment.name for experiment in experiments}
    lines = [f"# {table.title}: " + (f"{table.source}, {table.split}" if table.source else "not in the paper")]
    if table.study:
        lines.append(f"# the study as it is: {paper(table.study)}")
    for experiment in table.experiments:
        if experiment.name in wanted:
            words = shlex.join(["dvc", *command(experiment, params)])
            lines.append(words + (f"  # {paper(experiment.paper)}" if experiment.paper else ""))
    return lines


def command(experiment: Experiment, params: dict[str, Any]) -> list[str]:
    """Return the arguments of ``dvc`` that queue an experiment."""
    words = ["exp", "run", "--queue", "-n", experiment.name]
    for key, value in experiment.changes.items():
        words += ["-S", f"{'' if present(key, params) else '+'}{key}={_hydra(value)}"]
    return words


def waves(experiments: Iterable[Experiment]) -> list[list[Experiment]]:
    """Return the experiments that pretrain, then those that reuse one of these models from DVC's run-cache."""
    first: dict[str, Experiment] = {}
    experiments = list(experiments)
    for experiment in experiments:
        first.setdefault(experiment.pretraining, experiment)
    leading = list(first.values())
    return [wave for wave in (leading, [experiment for experiment in experiments if experiment not in leading]) if wave]


def queue(experiments: Iterable[Experiment], params: dict[str, Any]) -> bool:
    """Queue the experiments that are neither in DVC's queue nor done on this commit; return whether any is to run."""
    waiting, done, open_ones = unfinished(), finished(), False
    for experiment in experiments:
        if experiment.name in done:
            print(f"{experiment.name}: was done on this commit; `dvc exp remove {experiment.name}` forgets it")
            continue
        open_ones = True
        if experiment.name not in waiting:
            dvc(*command(experiment, params))
    return open_ones


def finished() -> set[str]:
    """Return the names of the experiments that are done on this commit."""
    return set(dvc("exp", "list", "--name-only", quiet=True).split())


def unfinished() -> set[str]:
    """Return the names of the experiments that DVC's queue holds or runs."""
    lines = [line.split() for line in dvc("queue", "status", quiet=True).splitlines()]
    return {words[1] for words in lines if len(words) > 2 and words[-1] in ("Queued", "Running")}


def chosen(experiments: list[Experiment], only: list[str] | None) -> list[Experiment]:
    """Return the experiments that are named."""
    unknown = set(only or ()) - {experiment.name for experiment in experiments}
    if unknown:
        known = ", ".join(experiment.name for experiment in experiments)
        raise PipelineError("no such experiment", min(unknown), where="--only", hint=f"there are {known}")
    return [experiment for experiment in experiments if not only or experiment.name in only]


def _with_teachers(experiments: Iterable[Experiment], named: bool) -> list[Experiment]:
    """Leave out experiments without their teacher; raise a PipelineError if they were asked for by name."""
    kept = []
    for experiment in experiments:
        teacher = Path(experiment.changes.get("pretrain.teacher", "."))
        if teacher.exists():
            kept.append(experiment)
        elif named:
            hint = "put a pretrained model there as docs/family.md says, or leave out its experiments with --only"
            raise PipelineError("no teacher here", teacher, where=experiment.name, hint=hint)
        else:
            print(f"{experiment.name}: left out, there is no teacher in {teacher}")
    return kept


def table_names(folder: Path = FOLDER) -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_table(name: str, params: dict[str, Any], folder: Path = FOLDER) -> Table:
    """Read a table's experiments; each is checked as a study.

    Args:
        name: of the file, without suffix.
        params: the study, as params.yaml holds it.
        folder: that has the files.
    """
    if name not in table_names(folder):
        raise PipelineError("no such table of ablations", name, where=folder, hint=" or ".join(table_names(folder)))
    path = folder / f"{name}.yaml"
    declared = yaml.safe_load(path.read_text(encoding="utf-8"))
    study, equal_compute = check_study(params), declared.pop("equal_compute", False)
    experiments = []
    for experiment, change in declared.pop("experiments").items():
        try:
            check_name(str(experiment))
        except ValueError as error:
            raise PipelineError("not a name for an experiment", where=path, hint=str(error)) from None
        changes = {key: _resolve(key, value, study) for key, value in change["set"].items()}
        if equal_compute:  # the steps differ
            changes = {"pretrain.keep_checkpoint_steps": []} | changes
        changed = check_study(apply(changes, params), f"{path}, {experiment}")
        if equal_compute and not any(key.startswith("pretrain.steps.") for key in changes):
            changes |= equal_steps(changed, study)
            changed = check_study(apply(changes, params), f"{path}, {experiment}")
        kept = changed.model_dump(mode="json", exclude=AFTER_PRETRAINING)
        experiments.append(Experiment(experiment, changes, change.get("paper", {}), json.dumps(kept, sort_keys=True)))
    return Table(experiments=tuple(experiments), **declared)


def apply(changes: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of ``params`` with dotted keys set."""
    changed = copy.deepcopy(params)
    for key, value in changes.items():
        *blocks, last = key.split(".")
        block = changed
        for step in blocks:
            block = block.setdefault(step, {})
        block[last] = value
    return changed


def equal_steps(changed: Study, study: Study) -> dict[str, Any]:
    """Return changes of steps, warm-up and decay with which ``changed`` costs as many FLOPs as ``study``.

    A teacher whose folder does not exist yet counts as a copy of the study's own model.
    """
    factor = flops(study) / flops(changed, teacher=study)
    pretrain = changed.pretrain
    least = {phase: min(1, steps) for phase, steps in pretrain.steps}  # a phase without steps keeps none
    return {
        "pretrain.steps.phase1": max(least["phase1"], round(pretrain.steps.phase1 * factor)),
        "pretrain.steps.phase2": max(least["phase2"], round(pretrain.steps.phase2 * factor)),
        "pretrain.warmup_steps": round(pretrain.warmup_steps * factor),
        **({"pretrain.decay_steps": max(1, round(pretrain.decay_steps * factor))} if pretrain.decay_steps else {}),
    }


def flops(study: Study, teacher: Study | None = None) -> float:
    """Return the FLOPs of pretraining on full sequences: every model that is trained, and a teacher's forward passes.

    Args:
        study: what is counted.
        teacher: the study of its teacher, if that one's folder does not exist; else ``study``.
    """
    from pipeline_src.models.flops import Workload

    learning, share = make_objective(study, teacher or study), predicted_share(study)
    total, batch = 0.0, study.pretrain.train_batch_size
    for phase in ("phase1", "phase2"):
        length, steps = getattr(study.examples.max_seq_length, phase), getattr(study.pretrain.steps, phase)
        tokens, predictions = batch * length, round(share * batch * length)
        rows = tokens if learning.spec.causal else min(tokens, predictions + batch)
        work = Workload(batch, tokens, tokens * length, predictions, rows, rows * length)
        total += float(steps) * learning.training_flops(work)
    return total


def _value(study: Any, key: str) -> Any:
    for step in key.split("."):
        study = getattr(study, step)
    return study


def _step(share: float, study: Study) -> int:
    return max(1, round(share * (study.pretrain.steps.phase1 + study.pretrain.steps.phase2)))


def _model_at(share: float, study: Study) -> str:
    """Return the folder of the model kept after a share of the steps; after all of them it is the finished one's."""
    step, phase1 = _step(share, study), study.pretrain.steps.phase1
    if step == phase1 + study.pretrain.steps.phase2:
        return "models/pretrained/phase2"
    return f"models/pretrained/{'phase1' if step <= phase1 else 'phase2'}/steps/{step}"


RELATIVE: dict[str, Callable[[str, Any, Study], Any]] = {  # values relative to the study's own, by name
    "times": lambda key, factor, study: max(1, round(_value(study, key) * factor)),
    "wider": lambda key, factor, study: HEAD_WIDTH * max(1, round(_value(study, key) * factor / HEAD_WIDTH)),
    "hidden_over": lambda _, width, study: max(1, study.model.hidden_size // width),
    "steps_at": lambda _, shares, study: sorted({_step(share, study) for share in shares}),  # over both phases
    "model_at": lambda _, share, study: _model_at(share, study),
}


def _resolve(key: str, value: Any, study: Study) -> Any:
    """Return a value itself, or what ``{name: argument}`` of :data:`RELATIVE` computes."""
    if isinstance(value, dict) and len(value) == 1 and (how := next(iter(value))) in RELATIVE:
        return RELATIVE[how](key, value[how], study)
    return value


def present(key: str, params: Any) -> bool:
    """Return whether a study has a dotted key."""
    for step in key.split("."):
        if not isinstance(params, dict) or step not in params:
            return False
        params = params[step]
    return True


def _hydra(value: Any) -> str:
    """Return a value as ``-S`` reads it."""
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    words = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def dvc(*words: str, quiet: bool = False, check: bool = True) -> str:
    """Run DVC and return its output, which is printed too unless ``quiet``."""
    with tempfile.TemporaryFile("w+") as said:  # not a pipe: the workers that it starts would keep it open
        status = subprocess.run(["dvc", *words], stdout=said, stderr=subprocess.STDOUT).returncode
        said.seek(0)
        text = said.read()
    if status and check:
        raise PipelineError("DVC refused", shlex.join(["dvc", *words]), where=text.strip(), hint="see above")
    if not quiet:
        print(text.strip(), flush=True)
    return text
