"""What the first process writes while training goes on: validation figures, curves, checkpoints, kept models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import LOGS
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.params.pretrain import PretrainParams
from pipeline_src.pretraining.tracking import Tracker
from pipeline_src.pretraining.validation import ValidationSet
from pipeline_src.training.checkpoint import Checkpoints
from pipeline_src.training.compute_tracker import CostMeter
from pipeline_src.training.loop import Loop

TRACKED = LOGS / "dvclive"
IN_CURVE = ("mlm_loss", "mlm_accuracy", "nsp_accuracy")  # of the validation figures


class Recorder:
    """Looks after a loop between its steps; makes and closes nothing but files.

    Args:
        loop: what trains.
        bert, optimiser: what is saved.
        params: when to measure, which steps' models to keep.
        validation: what to measure on.
        checkpoints: where to save.
        meter: time spent here does not count as training.
        save_model: fills an empty folder with the model, given the validation figures, empty where none were measured.
    """

    def __init__(
        self,
        loop: Loop[Any],
        bert: BertForPretraining,
        optimiser: Optimizer,
        params: PretrainParams,
        validation: ValidationSet,
        checkpoints: Checkpoints,
        meter: CostMeter,
        save_model: Callable[[Path, dict[str, float]], None],
    ) -> None:
        self.loop, self.bert, self.optimiser, self.params = loop, bert, optimiser, params
        self.validation, self.checkpoints, self.meter, self.save_model = validation, checkpoints, meter, save_model
        self.tracker = Tracker(TRACKED / checkpoints.phase.name, loop.step)

    def after(self, step: int, stopping: bool) -> None:
        """Write what is due after ``step``; a checkpoint in any case when training stops here."""
        measures = measured_after(step, self.params) and step < self.loop.last
        row_ended = bool(self.loop.rows) and self.loop.rows[-1]["step"] == step
        saves = measures or stopping or step == self.loop.last or self.checkpoints.due()
        if not (row_ended or saves or step in self.params.keep_steps):
            return
        with self.meter.aside():
            figures = self.validation.measure(self.bert) if measures else {}
            self.loop.notes += self.validation.masks.ask(self.bert, step) if measures else []
            if row_ended:
                row = self.loop.rows[-1]
                row.update({f"validation_{name}": figures[name] for name in IN_CURVE if name in figures})
                self.tracker.row(step, {**row, **self.loop.pace})
            if step in self.params.keep_steps:
                with atomic_directory(self.checkpoints.kept_model(step)) as folder:
                    self.save_model(folder, figures)
            if saves:
                reached, cost = self.loop.reached(), self.meter.state()
                self.checkpoints.save(self.bert, self.optimiser, reached, cost, figures.get("mlm_loss"))


def measured_after(step: int, params: PretrainParams) -> bool:
    """Whether validation text is measured after a step that is not a phase's last."""
    return params.evaluate_every is not None and step % params.evaluate_every == 0
