"""The validation loss by source of text: of a mixture, or gain and forgetting of what went on from another model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_src.common.names import as_text
from pipeline_src.report.traced import JsonRef, TracedValue, computed

ENOUGH = 0.9  # of the whole fall: what comes after is hardly worth its steps


@dataclass(frozen=True)
class SourceLoss:
    """The validation loss of one source over a phase.

    Attributes:
        name: the source.
        steps, losses: where it was measured, the first before any step.
        change: last loss minus first.
        enough: first step with :data:`ENOUGH` of the fall.
    """

    name: str
    steps: list[JsonRef]
    losses: list[JsonRef]
    change: TracedValue
    enough: JsonRef

    @property
    def falls(self) -> bool:
        return bool(self.change.value < 0)


def going_on(phase: JsonRef, key: str = "going_on") -> list[SourceLoss]:
    """Return the losses by source of ``results/pretrain/<phase>.json``; empty if they were not measured twice.

    Args:
        phase: content of the file.
        key: ``by_source`` for those of a study that starts from random weights.
    """
    if key not in phase:
        return []
    return [_source(name, rows) for name, rows in phase[key].items() if len(rows) > 1]


def _source(name: str, rows: JsonRef) -> SourceLoss:
    losses, steps = ([row[key] for row in rows] for key in ("mlm_loss", "step"))
    first, last = losses[0].value, losses[-1].value
    place = next(at for at, loss in enumerate(losses) if (first - loss.value) >= ENOUGH * (first - last))
    return SourceLoss(name, steps, losses, computed("difference", losses[-1], losses[0]), steps[place])


def going_on_lines(pretrain: Mapping[str, Any]) -> list[str]:
    """Return a line for each phase that measured its loss by source; ``pretrain`` as in :class:`Results`."""
    lines = []
    for phase, result in pretrain.items():
        sources = going_on(JsonRef(result, ""))
        said = [
            f"{as_text(one.name)} {one.losses[0].value:.3f} -> {one.losses[-1].value:.3f} ({one.change.value:+.3f}"
            + (f", nine tenths by step {one.enough.value:,}" if one.falls else ": forgotten")
            + ")"
            for one in sources
        ]
        if said:
            lines.append(f"Going on from another model, {phase}: MLM loss on {'; '.join(said)}")
        of_sources = going_on(JsonRef(result, ""), "by_source")
        losses = [f"{as_text(one.name)} {one.losses[-1].value:.3f}" for one in of_sources]
        if losses:
            lines.append(f"By source, {phase}: MLM loss on {'; '.join(losses)}")
    return lines
