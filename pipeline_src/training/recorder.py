"""What the first process of a training writes while it goes on: held-out figures, curves, checkpoints, kept models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from pipeline_src.files import atomic_directory
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.params.pretrain import PretrainParams
from pipeline_src.training.checkpoint import Checkpoints
from pipeline_src.training.heldout import HeldOut
from pipeline_src.training.loop import Loop
from pipeline_src.training.meter import CostMeter
from pipeline_src.training.tracking import Tracker

TRACKED = Path("logs/dvclive")
IN_CURVE = ("mlm_loss", "mlm_accuracy", "nsp_accuracy")  # of the held-out figures


class Recorder:
    """Looks after a loop between its steps; makes and closes nothing but files.

    Args:
        loop: what trains.
        bert, optimiser: what is saved.
        params: when to measure, which steps' models to keep.
        heldout: what to measure on.
        checkpoints: where to save.
        meter: time spent here does not count as training.
        save_model: fills an empty folder with the model, given the held-out figures, empty where none were measured.
    """

    def __init__(
        self,
        loop: Loop[Any],
        bert: BertForPretraining,
        optimiser: Optimizer,
        params: PretrainParams,
        heldout: HeldOut,
        checkpoints: Checkpoints,
        meter: CostMeter,
        save_model: Callable[[Path, dict[str, float]], None],
    ) -> None:
        self.loop, self.bert, self.optimiser, self.params = loop, bert, optimiser, params
        self.heldout, self.checkpoints, self.meter, self.save_model = heldout, checkpoints, meter, save_model
        self.tracker = Tracker(TRACKED / checkpoints.phase.name, loop.step)

    def after(self, step: int, stopping: bool) -> None:
        """Write what is due after ``step``; a checkpoint in any case when training stops here."""
        measures = measured_after(step, self.params) and step < self.loop.last
        row_ended = bool(self.loop.rows) and self.loop.rows[-1]["step"] == step
        saves = measures or stopping or step == self.loop.last or self.checkpoints.due()
        if not (row_ended or saves or step in self.params.keep_steps):
            return
        with self.meter.aside():
            figures = self.heldout.measure(self.bert) if measures else {}
            self.loop.notes += self.heldout.masks.ask(self.bert, step) if measures else []
            if row_ended:
                row = self.loop.rows[-1]
                row.update({f"heldout_{name}": figures[name] for name in IN_CURVE if name in figures})
                self.tracker.row(step, {**row, **self.loop.pace})
            if step in self.params.keep_steps:
                with atomic_directory(self.checkpoints.kept_model(step)) as folder:
                    self.save_model(folder, figures)
            if saves:
                reached, cost = self.loop.reached(), self.meter.state()
                self.checkpoints.save(self.bert, self.optimiser, reached, cost, figures.get("mlm_loss"))


def measured_after(step: int, params: PretrainParams) -> bool:
    """Whether held-out text is measured after a step that is not a phase's last."""
    return params.evaluate_every is not None and step % params.evaluate_every == 0
