"""A task's hyperparameters, and its grid of runs: each is kept when it ends, so that a killed stage resumes."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.common.dependencies import CHECKS
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, checksum, read_json, write_json
from pipeline_src.common.progress import log
from pipeline_src.config.finetune import TaskHyperparameters


class GridPoint(NamedTuple):
    """One combination of the hyperparameters that are searched."""

    learning_rate: float
    epochs: int
    batch: int


def grid_points(hyperparameters: TaskHyperparameters) -> Iterator[GridPoint]:
    """Yield every point, varying the learning rate fastest; of equal scores the first point wins."""
    epochs, batch_sizes, rates = hyperparameters.epochs, hyperparameters.batch_sizes, hyperparameters.learning_rates
    for number, batch, rate in itertools.product(epochs, batch_sizes, rates):
        yield GridPoint(rate, number, batch)


Predictions = Mapping[str, Sequence[Mapping[str, Any]]]  # by evaluation set
RUNS = {"runs": [{"weights": str, "main": float, **dict.fromkeys(GridPoint._fields, float)}], "sums": dict}
FEWEST_STEPS = 200  # of training on a part of the labels
KEPT_BASELINES = 8  # newest baselines of a task and seed


class Grid:
    """Finished runs of one task, seed and kind of initial weights, with the files of the best run.

    ``runs.json`` lists the runs, with checksums of the list and of the best run's files; ``run-<N>/``, N the best run's
    index in the list, has its predictions and, if requested, its model. A run is listed with its point, initial
    weights, last training loss, scores on the first evaluation set, and ``main``, the score that decides. A damaged
    folder is removed with a warning.
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self.folder, self.weights = folder, weights
        self.runs: list[dict[str, Any]] = []
        if not (folder / "runs.json").exists():
            return
        with suppress(PipelineError):
            found = read_json(folder / "runs.json", RUNS)
            self.runs = found["runs"]
            if self.runs and found["sums"] == self._checksums():
                return
        log.warning("%s is not as it was written; its runs are trained again", folder)
        self.runs = []
        shutil.rmtree(folder)

    def has(self, point: GridPoint) -> bool:
        """Return whether the run of a point has finished."""
        return any(_point(run) == point for run in self.runs)

    def best(self) -> dict[str, Any]:
        """Return the run with the highest main score; of equal ones the first."""
        return max(self.runs, key=lambda run: run["main"])

    @property
    def best_folder(self) -> Path:
        """Folder of the best run's ``predictions`` and ``model``."""
        return self.folder / f"run-{self.runs.index(self.best())}"

    def keep(
        self,
        point: GridPoint,
        loss: float,
        scores: Mapping[str, float],
        main: str,
        predictions: Predictions,
        save_model: Callable[[Path], None] | None,
        epoch: int,
    ) -> None:
        """Record a finished run, and keep its predictions and model if it is the best so far.

        Args:
            loss: mean training loss of the kept epoch.
            main: the metric of ``scores`` that decides.
            save_model: saves the model to an empty folder; None to keep no model.
            epoch: whose weights the run keeps, from 1.
        """
        CHECKS.before_saving()
        run = {
            "weights": self.weights,
            **point._asdict(),
            "kept_epoch": epoch,
            "train_loss": loss,
            "dev": dict(scores),
            "main": scores[main],
        }
        before = self.best_folder if self.runs else None
        self.runs.append(run)
        if self.best() is run:
            with atomic_directory(self.best_folder) as folder:
                write_predictions(folder / "predictions", predictions)
                if save_model:
                    (folder / "model").mkdir()
                    save_model(folder / "model")
        # If the process is killed before this, the run is repeated with the same result.
        write_json(self.folder / "runs.json", {"runs": self.runs, "sums": self._checksums()})
        if before is not None and before != self.best_folder:
            shutil.rmtree(before)

    def _checksums(self) -> dict[str, int | str]:
        files = sorted(path for path in self.best_folder.rglob("*") if path.is_file())
        sums = {str(path.relative_to(self.folder)): checksum(path) for path in files}
        runs = json.dumps(self.runs, sort_keys=True).encode()
        return {"runs": hashlib.sha256(runs).hexdigest()[:12], **sums}

    def finish(self) -> None:
        """Remove the folder once the stage's outputs are complete."""
        shutil.rmtree(self.folder, ignore_errors=True)


class BaselineGrid(Grid):
    """Runs from random weights, which are kept for the next encoder of this form: they do not depend on pretraining.

    A study that changes only its pretraining, as with ``dvc exp run -S mask_prob=0.2``, thus reuses its baselines.
    """

    def finish(self) -> None:
        """Mark this grid as the newest and remove the oldest ones of its task and seed."""
        os.utime(self.folder)
        oldest_first = sorted(self.folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in oldest_first[:-KEPT_BASELINES]:
            shutil.rmtree(old, ignore_errors=True)


def _point(run: Mapping[str, Any]) -> GridPoint:
    return GridPoint(*(run[name] for name in GridPoint._fields))


def write_predictions(folder: Path, predictions: Predictions) -> None:
    """Write one file of JSON lines per evaluation set."""
    folder.mkdir(exist_ok=True)
    for eval_set, lines in predictions.items():
        write_lines(folder / f"{eval_set}.jsonl", lines)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
