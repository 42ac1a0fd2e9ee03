"""Send the training curve to the trackers that machine.yaml names, while training runs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.base.files import atomic_file
from pipeline_src.base.paths import LOGS
from pipeline_src.base.progress import log

# Defaults of wandb's environment variables: it writes to this machine only, and does not delay training.
DEFAULTS = {
    "WANDB_DIR": str(LOGS),
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_FINISH_TIMEOUT": "60",
    "WANDB_INIT_TIMEOUT": "30",
    "WANDB_MODE": "offline",
    "WANDB_PROJECT": "bert-pipeline",
}


class Run(NamedTuple):
    phase: str
    # Hash of settings, data and code. It does not change when training resumes.
    identity: str
    params: dict[str, Any]
    # Number of steps taken before this run started or resumed.
    first_step: int

    @property
    def name(self) -> str:
        return f"{self.phase}-{self.identity}"


class Tracker:
    def __init__(self, names: Iterable[str], run: Run) -> None:
        self._backends: dict[str, Any] = {}
        LOGS.mkdir(exist_ok=True)
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        for name in names:
            with self._left_out_on_failure(name):
                self._backends[name] = BACKENDS[name](run)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        metrics = {name: value for name, value in values.items() if name != "step"}
        for name, backend in list(self._backends.items()):
            with self._left_out_on_failure(name):
                backend.log(metrics, step)

    def finish(self) -> None:
        for name, backend in list(self._backends.items()):
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
            log.warning("training continues without %s: %s: %s", name, type(error).__name__, error)


class DVCLiveFiles:
    """Write (step, value) rows to ``plots/metrics/<name>.tsv``, in dvclive's layout.

    ``dvc plots show -x step`` plots these files.
    """

    # dvclive itself (3.49) would write rows twice. A run that resumes from a checkpoint must drop the rows that the
    # killed run wrote after this checkpoint, but `Live(resume=True)` keeps them.

    def __init__(self, run: Run) -> None:
        folder = LOGS / "dvclive" / run.phase
        self._metrics = folder / "plots" / "metrics"
        # DVC plots one folder for each phase, so rows of another training are removed.
        owner = folder / "identity"
        if not owner.exists() or owner.read_text(encoding="utf-8") != run.identity:
            shutil.rmtree(self._metrics, ignore_errors=True)
        self._metrics.mkdir(parents=True, exist_ok=True)
        with atomic_file(owner) as file:
            file.write(run.identity)
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
    text = path.read_text(encoding="utf-8", errors="replace")
    # After the last newline there is nothing, or a truncated row, which is dropped.
    header, *rows = text.split("\n")[:-1] or [""]
    matches = [re.fullmatch(r"(\d+)\t[^\t]*", row) for row in rows]
    earlier = [match[0] for match in matches if match and int(match[1]) <= step]
    if not earlier:
        path.unlink()
        return
    with atomic_file(path) as file:
        file.write("\n".join([header, *earlier, ""]))


class TensorBoard:
    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # purge_step hides the rows of steps that are repeated after a restart.
        self._writer = SummaryWriter(str(LOGS / "tensorboard" / run.name), purge_step=run.first_step + 1)
        self._writer.add_text("params", str(run.params), run.first_step)

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()


def open_wandb(run: Run) -> Any:
    import wandb

    # Offline, wandb cannot resume an earlier run. Online, it ignores steps that it already has.
    resume = "allow" if os.environ["WANDB_MODE"] == "online" else None
    return wandb.init(id=run.name, name=run.name, config=run.params, resume=resume)


# Each of these opens or resumes the record of a run, and returns an object with `log(values, step)` and `finish()`.
BACKENDS: dict[str, Callable[[Run], Any]] = {
    "dvclive": DVCLiveFiles,
    "tensorboard": TensorBoard,
    "wandb": open_wandb,
}
