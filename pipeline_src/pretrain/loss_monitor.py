"""Tell whether a training's loss is normal, by comparison with recorded runs (``docs/lab/normal-loss.md``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline_src.base.progress import log
from pipeline_src.pretrain.phases import Phase
from pipeline_src.training.trainer import Callback, Trainer

# The column `gap` says by how many nats the loss at [MASK] is below that of a unigram model.
REFERENCE_RUNS = Path(__file__).with_name("reference_runs.tsv")
# Recorded runs that agree in these settings are preferred.
RECIPE = ["architecture", "optimizer", "position_init"]
# A recorded run is comparable if its settings differ by at most these factors.
MAX_RATIOS = {"num_hidden_layers": 3.0, "hidden_size": 1.7, "vocab_size": 3.0, "mask_prob": 2.5}
# A gap this many nats outside the range of comparable runs is still normal. Seeds change it by 0.1, texts by more.
BAND = 0.3
# Smallest gap in nats -> what the model has learned.
STAGES = {
    0.5: "beyond the plateau of counting words",
    0.1: "leaving the plateau of counting words",
    -0.3: "on the plateau of counting words",
    -math.inf: "it does not know yet how frequent words are",
}


class LossMonitor(Callback):
    # Result of the last comparison. None if the objective has no loss at [MASK], and on all but the main process.
    status: dict[str, str | None] | None = None

    def __init__(self, phase: Phase, settings: Mapping[str, Any]) -> None:
        super().__init__([phase.pretrain.eval_steps], before=phase.last)
        self._phase = phase
        self._settings = settings

    def after_step(self, trainer: Trainer[Any]) -> None:
        gap = trainer.metrics.get("gap", math.nan)
        if not math.isfinite(gap) or not trainer.distributed.is_main:
            return
        tokens = self._phase.tokens(trainer.state.step)
        # The recorded runs start from random weights, so a run that continues a pretrained model is not compared.
        continued = self._phase.pretrain.continued
        runs = pd.read_csv(REFERENCE_RUNS, sep="\t")
        self.status = check_loss(gap, tokens, self._settings, runs, continued)
        log.info("is this normal? %s", self.status["sentence"])


def check_loss(
    gap: float, tokens: float, settings: Mapping[str, Any], runs: pd.DataFrame, continued: bool = False
) -> dict[str, str | None]:
    stage = next(text for smallest, text in STAGES.items() if gap >= smallest)
    side = "below" if gap >= 0 else "above"
    sentence = f"{abs(gap):.2f} nats {side} the unigram baseline after {tokens / 1e6:.2f} M tokens: {stage}, "
    expected = [] if continued else expected_gaps(settings, tokens, runs)
    if not expected:
        reason = "it went on from another model" if continued else "no comparable training was measured"
        return {"status": None, "sentence": sentence + reason}
    low = min(expected)
    high = max(expected)
    status = "normal"
    distance = f"within {BAND} nats of"
    if not low - BAND <= gap <= high + BAND:
        status = "behind" if gap < low else "ahead"
        distance = f"more than {BAND} nats from"
    sentence += f"{status}, {distance} comparable trainings ({low:.2f} to {high:.2f})"
    return {"status": status, "sentence": sentence}


def expected_gaps(settings: Mapping[str, Any], tokens: float, runs: pd.DataFrame) -> list[float]:
    # Leave out recorded runs that are known to have failed.
    comparable = runs["fault"].isna()
    comparable &= runs["objective"] == settings["objective"]
    for name, limit in MAX_RATIOS.items():
        comparable &= (runs[name] / settings[name]).between(1 / limit, limit)
    same_recipe: list[float] = []
    others: list[float] = []
    for _, run in runs[comparable].sort_values("tokens_m").groupby("curve"):
        measured = 1e6 * run["tokens_m"].to_numpy()
        first = measured[0]
        last = measured[-1]
        # Up to 1.5 times the length of a recorded run, its last gap is used. A longer run would have a larger gap, so
        # this never calls a normal training "behind".
        if tokens < 0.9 * first or tokens > 1.5 * last:
            continue
        gap = np.interp(math.log(tokens), np.log(measured), run["gap"])
        recipe = run.iloc[0]
        if all(recipe[name] == settings[name] for name in RECIPE):
            same_recipe.append(float(gap))
        else:
            others.append(float(gap))
    return same_recipe or others
