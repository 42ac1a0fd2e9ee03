"""What is done between the steps of a phase: measure, write curves, save checkpoints, keep models.

All processes measure, each its share, and gather what is spread over them; the main one writes.
"""

from __future__ import annotations

from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import LOGS
from pipeline_src.pretraining.prepare import Training
from pipeline_src.pretraining.save import gather_models, save_models
from pipeline_src.pretraining.tracking import Tracker

TRACKED = LOGS / "dvclive"


class Monitor:
    """Looks after a training between its steps; changes nothing of it but its curve and notes."""

    def __init__(self, training: Training) -> None:
        self.training = training
        is_main = training.distributed.is_main
        self.tracker = Tracker(TRACKED / training.phase.name, training.loop.step) if is_main else None

    def after(self, step: int, stopping: bool) -> None:
        """Write what is due after ``step``; a checkpoint in any case when training stops here."""
        phase, loop = self.training.phase, self.training.loop
        measures = phase.measured_after(step) and step < phase.last
        row_ended = bool(loop.rows) and loop.rows[-1]["step"] == step
        saves = measures or stopping or step == phase.last or loop.saving
        keeps = step in phase.pretrain.keep_steps
        if not (row_ended or saves or keeps):
            return
        with self.training.compute.aside():
            figures = self._measure(step) if measures else {}
            if row_ended:
                self._write_row(step, figures)
            if keeps:
                self._keep_model(step, figures)
            if saves:
                self._save_checkpoint(figures)

    def _measure(self, step: int) -> dict[str, float]:
        objective, validation = self.training.objective, self.training.validation
        figures = validation.measure(objective)
        self.training.loop.notes += validation.probes.ask(objective, step, self.training.distributed)
        return figures

    def _write_row(self, step: int, figures: dict[str, float]) -> None:
        if self.tracker is None:
            return
        loop, columns = self.training.loop, self.training.objective.validation_columns
        row = loop.rows[-1]
        row.update({f"validation_{name}": figures[name] for name in columns if name in figures})
        self.tracker.row(step, {**row, **loop.pace})

    def _keep_model(self, step: int, figures: dict[str, float]) -> None:
        weights = gather_models(self.training)
        if self.training.distributed.is_main:
            with atomic_directory(self.training.checkpoints.kept_model(step)) as folder:
                save_models(folder, self.training, weights, figures)
        self.training.distributed.wait_for_all()

    def _save_checkpoint(self, figures: dict[str, float]) -> None:
        training = self.training
        loss = figures.get(training.objective.validation_columns[0])
        state, compute = training.loop.state(), training.compute.state()
        training.checkpoints.save(training.objective.stored(), training.optimiser, state, compute, loss)
