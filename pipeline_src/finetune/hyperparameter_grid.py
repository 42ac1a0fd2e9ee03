"""A task's grid of hyperparameters; finished runs are saved, so that a killed stage resumes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import accessible_folder, atomic_directory, checksum, read_json, write_json
from pipeline_src.base.progress import log
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.study.finetune import TaskHyperparameters


class GridPoint(NamedTuple):
    learning_rate: float
    epochs: int
    batch: int


def grid_points(hyperparameters: TaskHyperparameters) -> Iterator[GridPoint]:
    """Yield every point, varying the learning rate fastest. If scores are equal, the earlier point wins."""
    for epochs in hyperparameters.epochs:
        for batch in hyperparameters.batch_sizes:
            for rate in hyperparameters.learning_rates:
                yield GridPoint(rate, epochs, batch)


# By evaluation set.
Predictions = Mapping[str, Sequence[Mapping[str, Any]]]
RUNS = {"runs": [{"weights": str, "main": float, **dict.fromkeys(GridPoint._fields, float)}], "sums": dict}
# The newest grids of a task and seed that are kept.
MAX_BASELINES = 8


class Grid:
    """Finished runs of one task, seed and kind of initial weights, with the files of the best run.

    ``runs.json`` lists the runs, with checksums of the list and of the best run's files. ``run-<N>/`` has predictions
    of the best run, number N in the list, and its model if requested. A damaged folder is removed with a warning. Where
    another user's folder is closed to this one, the grid has a folder of its own beside it.
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self.folder = accessible_folder(folder)
        if self.folder != folder:
            log.info("%s is closed to this user; %s is used instead", folder, self.folder)
        self.weights = weights
        self.runs: list[dict[str, Any]] = []
        file = self.folder / "runs.json"
        if not file.exists():
            return
        with suppress(PipelineError):
            content = read_json(file, RUNS)
            self.runs = content["runs"]
            if self.runs and content["sums"] == self._checksums():
                return
        log.warning("%s failed its checksums; its runs are trained again", self.folder)
        self.runs = []
        shutil.rmtree(self.folder)

    def has(self, point: GridPoint) -> bool:
        return any(point._asdict().items() <= run.items() for run in self.runs)

    def best(self) -> dict[str, Any]:
        # If several runs have the highest score, the first.
        return max(self.runs, key=lambda run: run["main"])

    @property
    def best_folder(self) -> Path:
        # It has `predictions` and `model`.
        return self.folder / f"run-{self.runs.index(self.best())}"

    def add(
        self,
        point: GridPoint,
        loss: float,
        scores: Mapping[str, float],
        main: str,
        predictions: Predictions,
        save_model: Callable[[Path], None] | None,
        epoch: int,
    ) -> None:
        """Record a finished run, and save its predictions and model if it is the best so far.

        Args:
            loss: mean training loss in the epoch ``epoch``.
            main: name of the metric in ``scores`` that decides.
            save_model: function that saves the model to an empty folder; None if the model is not needed.
            epoch: the selected epoch, counted from 1.
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
                (folder / "predictions").mkdir()
                for eval_set, lines in predictions.items():
                    write_lines(folder / f"predictions/{eval_set}.jsonl", lines)
                if save_model:
                    (folder / "model").mkdir()
                    save_model(folder / "model")
        # If the process is killed before the next line, the run is repeated with the same result.
        write_json(self.folder / "runs.json", {"runs": self.runs, "sums": self._checksums()})
        if before is not None and before != self.best_folder:
            shutil.rmtree(before)

    def _checksums(self) -> dict[str, int | str]:
        files = sorted(path for path in self.best_folder.rglob("*") if path.is_file())
        sums = {str(path.relative_to(self.folder)): checksum(path) for path in files}
        runs = json.dumps(self.runs, sort_keys=True).encode()
        return {"runs": hashlib.sha256(runs).hexdigest()[:12], **sums}

    def finish(self) -> None:
        CHECKS.remove_when_recorded(self.folder)


class BaselineGrid(Grid):
    """Runs from random weights. They do not depend on pretraining, and are kept for other encoders of the same config.

    So a study that changes only its pretraining, as with ``dvc exp run -S mask_prob=0.2``, reuses its baselines.
    """

    def finish(self) -> None:
        # This grid becomes the newest, and the oldest grids of the same task and seed are removed.
        # The folder may be another user's, who gave no permission to write there.
        with suppress(PermissionError):
            os.utime(self.folder)
        oldest_first = sorted(self.folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in oldest_first[:-MAX_BASELINES]:
            shutil.rmtree(old, ignore_errors=True)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
