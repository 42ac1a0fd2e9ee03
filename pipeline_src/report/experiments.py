"""What other experiments found, read from git and from DVC's cache without checking them out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.report.result_files import parse_result, read_result
from pipeline_src.report.results import RESULTS
from pipeline_src.report.traced import JsonRef

WORKSPACE = "workspace"
SUMMARY, SCORES, PARAMS = "results/summary.json", "results/scores.json", "params.yaml"


@dataclass(frozen=True)
class Experiment:
    """One study among several.

    Attributes:
        name: as it was asked for.
        summary, scores: its ``results/summary.json`` and ``results/scores.json``.
        params: its ``params.yaml``, a value for each dotted key.
        commit: where it lies; None for the workspace.
    """

    name: str
    summary: JsonRef
    scores: JsonRef
    params: dict[str, Any]
    commit: str | None = None

    def row(self, name: str, metric: str) -> JsonRef | None:
        """A row of its scores, None where it has none."""
        for row in self.scores["rows"]:
            if (row.value["eval_set"], row.value["metric"]) == (name, metric):
                return row
        return None


class Folders:
    """Folders that an experiment's stages left, fetched from DVC's cache where they do not lie in the workspace.

    Args:
        experiment: whose.
        target: an own folder, which may be filled.
    """

    def __init__(self, experiment: Experiment, target: Path) -> None:
        self.experiment, self._target = experiment, target
        self.restarts: list[int] = experiment.params.get("finetune.restarts", [])

    @cached_property
    def _cache(self) -> Any:
        import dvc.api

        return dvc.api.DVCFileSystem(rev=self.experiment.commit)

    def folder(self, path: Path) -> Path:
        """Where an output lies now.

        Raises:
            PipelineError: neither here nor in the cache.
        """
        place = path if self.experiment.commit is None else self._target / path
        if not place.exists() and self.experiment.commit is not None:
            from dvc.exceptions import DvcException

            try:
                self._cache.get(path.as_posix(), str(place), recursive=True)
            except (DvcException, OSError):
                shutil.rmtree(place, ignore_errors=True)  # half of it
        if not place.is_dir():
            remedy = f"fetch it: `dvc exp apply {self.experiment.name} && dvc pull`"
            raise PipelineError("not at hand", path, where=self.experiment.name, remedy=remedy)
        return place


def read_experiment(name: str) -> Experiment:
    """An experiment of DVC by its name, a git revision, or ``workspace``.

    Raises:
        PipelineError: there is no such experiment, or it has no results here or in DVC's remote.
    """
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
    """The commit of an experiment or revision.

    Raises:
        PipelineError: there is none, several experiments have the name, or this is no git repository.
    """
    try:
        _git("rev-parse", "--git-dir")
    except (OSError, subprocess.CalledProcessError):
        remedy = "run it in the repository that holds the experiments"
        raise PipelineError("not a git repository", Path.cwd(), remedy=remedy) from None
    refs = [
        line.split(" ") for line in _git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps/").splitlines()
    ]
    commits = {commit for commit, ref in refs if ref.rsplit("/", 1)[1] == name and "/exec/" not in ref}
    if len(commits) > 1:
        remedy = f"give its commit: {', '.join(sorted(commit[:10] for commit in commits))}"
        raise PipelineError("several experiments of one name", name, where="--experiments", remedy=remedy)
    if commits:
        return commits.pop()
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except subprocess.CalledProcessError:
        remedy = "`dvc exp show` lists the experiments; `dvc exp pull` fetches those of others"
        raise PipelineError("no such experiment", name, where="--experiments", remedy=remedy) from None


def dotted(block: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested blocks as one, ``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
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
        remedy = f"run it, or fetch its results: `dvc exp apply {name} && dvc pull`"
        raise PipelineError(f"no {path} of the experiment", name, where=error, remedy=remedy) from None


def _from_cache(path: str, commit: str) -> str:
    import dvc.api  # a second to import
    from dvc.exceptions import DvcException

    try:
        return dvc.api.read(path, rev=commit)
    except DvcException as error:
        raise OSError(str(error)) from None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout
