"""Results of other experiments, read from git and from DVC's cache without checking them out."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import checked_path
from pipeline_src.base.paths import TASKS, task_predictions
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.report.columns import Difference, ScoreRow, score_rows
from pipeline_src.report.results import Curve, curve_of, reading_results
from pipeline_src.study.settled import read_settled

WORKSPACE = "workspace"
CURVES = "results/pretrain/*.tsv"


@dataclass(frozen=True)
class Experiment:
    """Results of an experiment.

    Attributes:
        summary: content of summary.json.
        params: parameters by dotted key, such as "finetune.seeds".
        commit: git commit of the experiment; None for the workspace.
        curves: phase -> columns of its training curve. Phases whose curve is not in DVC's cache are left out.
    """

    name: str
    summary: dict[str, float]
    rows: list[ScoreRow]
    params: dict[str, Any]
    commit: str | None = None
    curves: dict[str, Curve] = field(default_factory=dict)

    def row(self, eval_set: str, metric: str) -> ScoreRow | None:
        return next((row for row in self.rows if (row.eval_set, row.metric_key) == (eval_set, metric)), None)


class Folders:
    """Output folders of an experiment: those of the workspace, or copies from DVC's cache in ``target``."""

    def __init__(self, experiment: Experiment, target: Path) -> None:
        self.experiment = experiment
        self._target = target
        # Seeds become names of folders. They are converted to numbers, because an experiment may come from anybody.
        self.seeds = [int(seed) for seed in experiment.params.get("finetune.seeds", [])]

    @cached_property
    def _cache(self) -> Any:
        import dvc.api

        return dvc.api.DVCFileSystem(rev=self.experiment.commit)

    def folder(self, path: Path) -> Path:
        if self.experiment.commit is not None:
            path = self._fetched(path)
        if not path.is_dir():
            hint = f"commit your changes, then fetch it: `dvc exp apply {self.experiment.name} && dvc pull`"
            raise PipelineError("folder not found", path, where=self.experiment.name, hint=hint)
        return path

    def _fetched(self, path: Path) -> Path:
        # Copies a folder from DVC's cache, and returns its path. If the cache lacks a file, the path does not exist.
        from dvc.exceptions import DvcException

        copy = self._target / path
        try:
            if not copy.exists():
                self._cache.get(path.as_posix(), str(copy), recursive=True)
        except (DvcException, OSError):
            shutil.rmtree(copy, ignore_errors=True)
        return copy


def read_experiment(name: str) -> Experiment:
    # Imported here because the import takes a second.
    import dvc.api
    from dvc.exceptions import DvcException

    commit = None if name == WORKSPACE else resolve(name)
    files = None if commit is None else dvc.api.DVCFileSystem(rev=commit)
    read = read_settled if files is None else files.read_text
    try:
        summary = read("results/summary.json")
        scores = read("results/scores.json")
        params = read("params.yaml")
    except (DvcException, OSError) as error:
        hint = f"run it, or commit your changes and fetch its results: `dvc exp apply {name} && dvc pull`"
        raise PipelineError("no results of the experiment", name, where=error, hint=hint) from None
    with reading_results("comparison"):
        rows = score_rows(json.loads(scores))
        for row in rows:
            for path in (row.task, row.eval_set, row.file):
                if path is not None:
                    checked_path(path, f"results/scores.json of {name}")
        curves: dict[str, Curve] = {}
        for curve in sorted(map(Path, files.glob(CURVES) if files else Path().glob(CURVES))):
            # Curves that are not in DVC's cache are left out.
            with suppress(DvcException, OSError):
                text = files.read_text(curve.as_posix()) if files else curve.read_text(encoding="utf-8")
                curves[curve.stem] = curve_of(text, curve)
        return Experiment(name, json.loads(summary), rows, dotted(parse_yaml(params)), commit, curves)


def resolve(name: str) -> str:
    from dvc.scm import SCM, RevError, SCMError, resolve_rev

    try:
        return resolve_rev(SCM(Path.cwd()), name)
    except RevError as error:
        hint = "`dvc exp show` lists the experiments; `dvc exp pull` fetches more"
        raise PipelineError("no such experiment", name, where=error, hint=hint) from None
    except SCMError:
        hint = "run it in the repository that holds the experiments"
        raise PipelineError("not a git repository", Path.cwd(), hint=hint) from None


def dotted(block: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    # {"a": {"b": 1}} -> {"a.b": 1}
    flat: dict[str, Any] = {}
    for name, value in block.items():
        if isinstance(value, dict) and value:
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def compared_with(first: Experiment, second: Experiment) -> dict[tuple[str, str], Difference]:
    """Compare two experiments: (evaluation set, metric) -> score of ``second`` minus score of ``first``.

    Predictions and data are read from the workspace or DVC's cache. An evaluation set is left out if predictions of
    either experiment are missing, or if the two experiments have different examples.
    """
    # Duplicates are removed, since an evaluation set has a row for each metric.
    first_sets = dict.fromkeys((row.task, row.eval_set, row.file) for row in first.rows)
    second_sets = {(row.task, row.eval_set, row.file) for row in second.rows}
    by_key: dict[tuple[str, str], Difference] = {}
    with tempfile.TemporaryDirectory() as folder:
        of_first = Folders(first, Path(folder) / "first")
        of_second = Folders(second, Path(folder) / "second")
        for key in first_sets:
            task, eval_set, file = key
            if file and key in second_sets:
                # If predictions or data are missing, the page shows a dash.
                with suppress(PipelineError):
                    by_key |= differences(task, eval_set, file, [of_second, of_first])
    return by_key


def differences(task: str, eval_set: str, file: str, sides: Sequence[Folders]) -> dict[tuple[str, str], Difference]:
    # Returns (evaluation set, metric) -> score of the first of the two `sides` minus score of the second.
    from pipeline_src.evaluate.predictions import predictions_path, read_predictions
    from pipeline_src.evaluate.scores import confidence_intervals
    from pipeline_src.study.task_spec import load_spec
    from pipeline_src.tasks.kinds import make_task

    spec = load_spec(task)
    first_data, second_data = (side.folder(TASKS / task) for side in sides)
    for name in (file, *spec.eval_set(eval_set).files[1:]):
        if (first_data / name).read_bytes() != (second_data / name).read_bytes():
            return {}
    task_kind = make_task(spec)
    examples = task_kind.read(first_data / file, eval_set)
    # For each side, the predictions of each seed.
    predictions: list[list[list[dict[str, Any]]]] = []
    for side in sides:
        of_side = []
        for seed in side.seeds:
            folder = task_predictions(task, seed)
            path = predictions_path(task, seed, "pretrained", eval_set).relative_to(folder)
            of_side.append(read_predictions(side.folder(folder) / path))
        predictions.append(of_side)
    predicted, baseline = predictions
    uncertainty = confidence_intervals(task_kind, eval_set, examples, {"second": predicted, "first": baseline})
    by_key = {}
    for metric, scores in uncertainty.items():
        by_key[eval_set, metric] = scores["baselines"]["first"]["vs_baseline"]
    return by_key
