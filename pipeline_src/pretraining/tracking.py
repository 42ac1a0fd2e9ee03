"""Send the curve, while training runs, to the trackers that machine.yaml names.

``dvclive`` (3.49) is not used for its own layout. A run that continues from a checkpoint must drop the rows that a
killed run wrote after that checkpoint, but ``Live(resume=True)`` appends them again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline_src.common.files import atomic_file, read_json, write_json
from pipeline_src.common.paths import LOGS
from pipeline_src.common.progress import log

PROJECT = "bert-pipeline"
DEFAULTS = {  # variables that the libraries read: stores on this machine; a server that is gone does not hold up steps
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_EXPERIMENT_NAME": PROJECT,
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_TRACKING_URI": f"sqlite:///{LOGS}/mlflow.db",
    "WANDB_DIR": str(LOGS),
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_FINISH_TIMEOUT": "60",
    "WANDB_INIT_TIMEOUT": "30",
    "WANDB_MODE": "offline",
    "WANDB_PROJECT": PROJECT,
}
REWRITTEN = ("dvclive", "tensorboard")  # a resumed run replaces rows that were written after its checkpoint


@dataclass(frozen=True)
class Run:
    """A training to track.

    Attributes:
        identity: of parameters, data and code; a resumed training has the same.
        params: nested parameters.
        first_step: number of steps taken so far.
    """

    phase: str
    identity: str
    params: dict[str, Any]
    first_step: int

    @property
    def name(self) -> str:
        return f"{self.phase}-{self.identity}"


class Backend(Protocol):
    """A tracker's record of one run, as wandb and Trackio return it; if the run exists, it is continued."""

    def log(self, values: dict[str, float], step: int) -> None: ...  # noqa: D102

    def finish(self) -> None: ...  # noqa: D102


class Tracker:
    """Sends rows to several trackers; one of another library that fails is left out, with a warning."""

    def __init__(self, names: Iterable[str], run: Run) -> None:
        self._file = LOGS / "tracking" / f"{run.name}.json"  # tracker -> last step sent to it
        self._sent: dict[str, int] = {}
        self._backends: dict[str, Backend] = {}
        with self._left_out_on_failure(str(self._file)):
            if self._file.exists():
                self._sent = read_json(self._file, {str: int})
        LOGS.mkdir(exist_ok=True)
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        for name in names:
            with self._left_out_on_failure(name):
                self._backends[name] = BACKENDS[name](run)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        values = {name: value for name, value in values.items() if name != "step"}
        for name, backend in [*self._backends.items()]:
            if name in REWRITTEN or step > self._sent.get(name, -1):
                with self._left_out_on_failure(name):
                    backend.log(values, step)
                    self._sent[name] = step
        if self._backends.keys() - REWRITTEN:
            with self._left_out_on_failure(str(self._file)):
                write_json(self._file, self._sent)

    def finish(self) -> None:
        for name, backend in [*self._backends.items()]:
            with self._left_out_on_failure(name):
                backend.finish()

    @contextmanager
    def _left_out_on_failure(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if name == "dvclive":
                raise
            self._backends.pop(name, None)
            log.warning("training goes on without %s: %s: %s", name, type(error).__name__, error)


class DVCLiveFiles:
    """Writes (step, value) rows to ``plots/metrics/<name>.tsv``, which ``dvc plots show -x step`` draws."""

    def __init__(self, run: Run) -> None:
        self._metrics = LOGS / "dvclive" / run.phase / "plots" / "metrics"
        self._metrics.mkdir(parents=True, exist_ok=True)
        for path in self._metrics.glob("*.tsv"):
            _drop_rows_after(path, run.first_step)

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            with open(self._metrics / f"{name}.tsv", "a", encoding="utf-8", newline="\n") as file:
                if not file.tell():
                    file.write(f"step\t{name}\n")
                file.write(f"{step}\t{float(value)!r}\n")

    def finish(self) -> None:
        pass


def _drop_rows_after(path: Path, step: int) -> None:
    """Keep the complete rows of ``path`` up to ``step``; delete the file if it has no such row."""
    header, *rows = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    rows = [row for row in rows if (match := re.fullmatch(r"(\d+)\t[^\t]*", row)) and int(match[1]) <= step]
    if not rows:
        path.unlink()
        return
    with atomic_file(path) as file:
        file.write("\n".join([header, *rows, ""]))


class TensorBoard:
    """Writes TensorBoard's files, which hide earlier rows of the steps that are taken again."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(LOGS / "tensorboard" / run.phase), purge_step=run.first_step + 1)
        self._writer.add_text("params", str(run.params), run.first_step)

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()


def open_wandb(run: Run) -> Backend:
    """Open a run of Weights & Biases, offline unless WANDB_MODE says otherwise."""
    import wandb

    resume = "allow" if os.environ["WANDB_MODE"] == "online" else None  # offline, it cannot know of earlier runs
    return wandb.init(id=run.name, name=run.name, config=run.params, resume=resume)


class MLflow:
    """MLflow, in a SQLite file unless MLFLOW_TRACKING_URI names a server."""

    def __init__(self, run: Run) -> None:
        import mlflow
        import pandas as pd

        self._mlflow = mlflow
        runs = mlflow.search_runs(
            experiment_names=[os.environ["MLFLOW_EXPERIMENT_NAME"]],
            filter_string=f"run_name = '{run.name}'",
            output_format="list",
        )
        if runs:
            mlflow.start_run(run_id=runs[0].info.run_id)
        else:
            mlflow.start_run(run_name=run.name)
            mlflow.log_params(pd.json_normalize(run.params).to_dict("records")[0])

    def log(self, values: dict[str, float], step: int) -> None:
        self._mlflow.log_metrics(values, step=step)

    def finish(self) -> None:
        self._mlflow.end_run()


def open_trackio(run: Run) -> Backend:
    """Open a run of Trackio, on this machine unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says otherwise."""
    import trackio

    return trackio.init(PROJECT, run.name, config=run.params, resume="allow")


BACKENDS: dict[str, Callable[[Run], Backend]] = {
    "dvclive": DVCLiveFiles,
    "tensorboard": TensorBoard,
    "wandb": open_wandb,
    "mlflow": MLflow,
    "trackio": open_trackio,
}
