"""A task's hyperparameter grid. Finished runs are saved, so that a killed stage resumes after the last one."""

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
    """Yield every grid point, varying the learning rate fastest."""
    for epochs in hyperparameters.epochs:
        for batch in hyperparameters.batch_sizes:
            for rate in hyperparameters.learning_rates:
                yield GridPoint(rate, epochs, batch)


# Evaluation set -> predictions.
Predictions = Mapping[str, Sequence[Mapping[str, Any]]]
RUNS = {"runs": [{"weights": str, "main": float, **dict.fromkeys(GridPoint._fields, float)}], "sums": dict}
# Number of baseline grids that are kept for each task and seed. The newest are kept.
MAX_BASELINES = 8


class Grid:
    """Finished runs of one task, seed and kind of initial weights, with the files of the best run.

    The folder has ``runs.json``, with the list of runs, a checksum of the list, and checksums of the best run's files.
    It also has ``run-<N>/``, where N is the index of the best run in the list, with the run's predictions and, if
    requested, its model. A folder with wrong checksums is removed with a warning. If the folder belongs to another user
    who gave no access, a new folder beside it is used instead.
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self.folder = accessible_folder(folder)
        if self.folder != folder:
            log.info("no permission to use %s; %s is used instead", folder, self.folder)
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
        # Returns the run with the highest score. If several runs have this score, it is the first of them.
        return max(self.runs, key=lambda run: run["main"])

    @property
    def best_folder(self) -> Path:
        # Folder with `predictions` and, if a model was saved, `model`.
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
            loss: mean training loss in the selected epoch.
            scores: metric -> score on the first evaluation set.
            main: name of the metric in ``scores`` that decides which run is best.
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
        # If the process is killed before `runs.json` is written, the run is repeated, with the same result.
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
    """Runs from random weights, which are kept and reused for all encoders with the same config.

    They do not depend on pretraining. So an experiment that changes only pretraining, such as
    ``dvc exp run -S mask_prob=0.2``, does not train its baselines again.
    """

    def finish(self) -> None:
        # Mark this grid as the newest, and remove the oldest grids of the same task and seed.
        # Marking fails if the folder belongs to another user, which does no harm.
        with suppress(PermissionError):
            os.utime(self.folder)
        oldest_first = sorted(self.folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in oldest_first[:-MAX_BASELINES]:
            shutil.rmtree(old, ignore_errors=True)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
