"""Results of other experiments, read from git and from DVC's cache without checking them out."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import TASKS, task_predictions
from pipeline_src.report.results import RESULTS, parse_result, read_result
from pipeline_src.report.traced import JsonRef

WORKSPACE = "workspace"
SUMMARY, SCORES, PARAMS = "results/summary.json", "results/scores.json", "params.yaml"


@dataclass(frozen=True)
class Experiment:
    """One study among several.

    Attributes:
        name: name given by the user.
        summary, scores: its ``results/summary.json`` and ``results/scores.json``.
        params: its ``params.yaml``, with dotted keys.
        commit: its commit; None for the workspace.
    """

    name: str
    summary: JsonRef
    scores: JsonRef
    params: dict[str, Any]
    commit: str | None = None

    def row(self, name: str, metric: str) -> JsonRef | None:
        """Return a row of its scores, or None if it has none."""
        for row in self.scores["rows"]:
            if (row.value["eval_set"], row.value["metric"]) == (name, metric):
                return row
        return None


class Folders:
    """Output folders of an experiment, fetched from DVC's cache if they are not in the workspace.

    Args:
        experiment: the experiment.
        target: folder to fetch into.
    """

    def __init__(self, experiment: Experiment, target: Path) -> None:
        self.experiment, self._target = experiment, target
        self.restarts: list[int] = experiment.params.get("finetune.seeds", [])

    @cached_property
    def _cache(self) -> Any:
        import dvc.api

        return dvc.api.DVCFileSystem(rev=self.experiment.commit)

    def folder(self, path: Path) -> Path:
        """Return the path of an output."""
        place = path if self.experiment.commit is None else self._target / path
        if not place.exists() and self.experiment.commit is not None:
            from dvc.exceptions import DvcException

            try:
                self._cache.get(path.as_posix(), str(place), recursive=True)
            except (DvcException, OSError):
                shutil.rmtree(place, ignore_errors=True)  # incomplete
        if not place.is_dir():
            hint = f"fetch it: `dvc exp apply {self.experiment.name} && dvc pull`"
            raise PipelineError("not at hand", path, where=self.experiment.name, hint=hint)
        return place


def read_experiment(name: str) -> Experiment:
    """Read an experiment, given its DVC name, a git revision, or ``workspace``."""
    commit = None
    if name == WORKSPACE:
        summary, scores = read_result(RESULTS, "summary.json"), read_result(RESULTS, "scores.json")
        params = Path(PARAMS).read_text(encoding="utf-8")
    else:
        commit = resolve(name)
        summary = _read(name, SUMMARY, lambda: _git("show", f"{commit}:{SUMMARY}"))
        summary = parse_result(summary, "summary.json", f"{name}:{SUMMARY}")
        params = _read(name, PARAMS, lambda: _git("show", f"{commit}:{PARAMS}"))
        scores = _read(name, SCORES, lambda: _from_cache(SCORES, commit))
        scores = parse_result(scores, "scores.json", f"{name}:{SCORES}")
    return Experiment(
        name,
        JsonRef(summary, f"{name}:{SUMMARY}"),
        JsonRef(scores, f"{name}:{SCORES}"),
        dotted(yaml.safe_load(params)),
        commit,
    )


def resolve(name: str) -> str:
    """Return the commit of an experiment or revision."""
    try:
        _git("rev-parse", "--git-dir")
    except (OSError, subprocess.CalledProcessError):
        hint = "run it in the repository that holds the experiments"
        raise PipelineError("not a git repository", Path.cwd(), hint=hint) from None
    refs = [
        line.split(" ") for line in _git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps/").splitlines()
    ]
    commits = {commit for commit, ref in refs if ref.rsplit("/", 1)[1] == name and "/exec/" not in ref}
    if len(commits) > 1:
        hint = f"give its commit: {', '.join(sorted(commit[:10] for commit in commits))}"
        raise PipelineError("several experiments of one name", name, where="--experiments", hint=hint)
    if commits:
        return commits.pop()
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except subprocess.CalledProcessError:
        hint = "`dvc exp show` lists the experiments; `dvc exp pull` fetches those of others"
        raise PipelineError("no such experiment", name, where="--experiments", hint=hint) from None


def dotted(block: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested blocks: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in block.items():
        if isinstance(value, dict) and value:
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _read(name: str, path: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except (subprocess.CalledProcessError, OSError) as error:
        hint = f"run it, or fetch its results: `dvc exp apply {name} && dvc pull`"
        raise PipelineError(f"no {path} of the experiment", name, where=error, hint=hint) from None


def _from_cache(path: str, commit: str) -> str:
    import dvc.api  # takes a second to import
    from dvc.exceptions import DvcException

    try:
        return dvc.api.read(path, rev=commit)
    except DvcException as error:
        raise OSError(str(error)) from None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


OURS, FIRST = "ours", "first"


def compared_with(first: Experiment, other: Experiment) -> JsonRef:
    """Compare ``other`` with ``first`` on each evaluation set and metric that both have.

    Predictions and data of both are read from the workspace or DVC's cache. A set is left out if one experiment's
    predictions are missing or the examples differ.

    Returns:
        ``<evaluation set>/<metric>`` -> :class:`pipeline_src.evaluation.significance.Comparison` of ``other`` minus
        ``first``, as a dictionary.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        sides = [Folders(experiment, Path(folder) / name) for experiment, name in ((other, OURS), (first, FIRST))]
        for task, eval_set, file in rows_of(first, other):
            try:
                found |= _tests(task, eval_set, file, sides)
            except PipelineError:  # missing: the page shows a dash
                continue
    return JsonRef(found, f"{other.name} against {first.name}")


def rows_of(first: Experiment, other: Experiment) -> list[tuple[str, str, str]]:
    """Return task, evaluation set and file of the sets that both have scores for."""
    keys = [
        dict.fromkeys((row["task"], row["eval_set"], row["file"]) for row in experiment.scores.value["rows"])
        for experiment in (first, other)
    ]
    return [key for key in keys[0] if key in keys[1]]


def _tests(task: str, eval_set: str, file: str, sides: Sequence[Folders]) -> dict[str, Any]:
    """Compare each metric of one evaluation set."""
    from pipeline_src.evaluation.scores import uncertainty_of
    from pipeline_src.tasks.kinds import make_task
    from pipeline_src.tasks.spec import load_spec

    files = [side.folder(TASKS / task) / file for side in sides]
    if files[0].read_bytes() != files[1].read_bytes():
        return {}
    spec = load_spec(task)
    examples = make_task(spec).read(files[0], eval_set)
    ours, first = ([_predicted(side, task, restart, eval_set) for restart in side.restarts] for side in sides)
    sure = uncertainty_of(spec, eval_set, examples, ours, {FIRST: first})
    return {f"{eval_set}/{metric}": of["baselines"][FIRST]["against"] for metric, of in sure.items()}


def _predicted(side: Folders, task: str, restart: int, eval_set: str) -> list[dict[str, Any]]:
    from pipeline_src.evaluation.scores import predictions_path, read_predictions

    kept = task_predictions(task, restart)
    path = predictions_path(task, restart, "pretrained", eval_set)
    return read_predictions(side.folder(kept) / path.relative_to(kept))
